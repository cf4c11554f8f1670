"""What several methods of ratings share: margins, links to features, priors of factors, and bounds."""
