"""Variational engines: SVI with its guides, its degenerate case MAP, and coordinate ascent."""
