"""Fit candidates, score them on held-out data, and take the best."""
