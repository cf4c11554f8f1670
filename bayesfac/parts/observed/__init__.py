"""Laws of the observations given their scores: normal.py says what each of them has."""
