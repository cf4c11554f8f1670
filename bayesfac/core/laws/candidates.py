"""Candidates of settings that something else than the loss of held-out cells compares."""

from typing import Any


class Laws(list[dict[str, Any]]):
    """Candidates that change probabilities but hardly any predicted level: the log score decides."""


class Ranks(list[dict[str, Any]]):
    """Candidates for implicit feedback: the ranks of held-out pairs among the items of a user decide."""
