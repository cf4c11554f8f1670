"""Code that several methods for ratings share: margins, links to features, priors of factors, and bounds."""
