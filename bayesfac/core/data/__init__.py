"""The data containers, their checks, and the coordinates of observed cells."""
