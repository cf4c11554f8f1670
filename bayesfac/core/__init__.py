"""The vocabulary that every layer shares; imports nothing else of bayesfac."""
