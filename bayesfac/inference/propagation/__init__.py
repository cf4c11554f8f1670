"""Posterior propagation: blocks of the ratings in stages, with posteriors of earlier ones as priors."""
