"""Probability laws and losses that NumPyro lacks."""
