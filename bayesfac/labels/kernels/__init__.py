"""Loops that only methods of labels need."""
