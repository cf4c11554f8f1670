"""Distributions that NumPyro lacks, and losses."""
