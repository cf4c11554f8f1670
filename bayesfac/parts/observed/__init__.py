"""Laws of the observations given their scores: parts/protocols.py says what each of them has."""
