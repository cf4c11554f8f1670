"""Laws of the rows of a factor that are not independent normal ones with one precision."""
