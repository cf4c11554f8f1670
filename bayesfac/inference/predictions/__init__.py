"""Predictions of a fit: distributions of cells, chances of levels, whole tables, log scores cell by cell."""
