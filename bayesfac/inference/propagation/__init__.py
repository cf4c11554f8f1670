"""Posterior propagation: blocks of the ratings one after another, each with the posterior of earlier ones as prior."""
