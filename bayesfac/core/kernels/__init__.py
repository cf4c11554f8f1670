"""The sparse loops: dispatch, the Numba loops, and sparse tables against two factors."""
