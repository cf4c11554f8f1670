"""Ratings divided among devices, of one process or of several."""
