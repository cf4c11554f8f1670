"""Loops over sparse data: the choice of a version, the Numba loops, and sparse tables times two factors."""
