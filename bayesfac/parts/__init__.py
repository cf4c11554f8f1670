"""The parts of which factorizations are made: docs/parts.md says what each of them must have."""
