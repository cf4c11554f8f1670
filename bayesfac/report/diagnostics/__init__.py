"""Diagnostics of fits: convergence, alignment, leave-one-out scores, sensitivity, held-out scores."""
