"""Posterior propagation: fit blocks of ratings in stages; posteriors of early blocks are later priors."""
