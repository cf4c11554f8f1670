"""Distributions that NumPyro does not have, and losses."""
