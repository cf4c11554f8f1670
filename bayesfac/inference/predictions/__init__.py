"""Predictions of a fit: distributions of cells, probabilities of levels, whole tables, log scores."""
