"""What was chosen, in words and numbers, and the compiled programs that candidates need."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax

from bayesfac.core.method import Method, settle


@dataclass
class Chosen:
    """The settings, those that were chosen, and a sentence for each list of candidates."""

    hyper: dict[str, Any]
    values: dict[str, Any] = field(default_factory=dict)
    how: list[str] = field(default_factory=list)

    def add(self, values: Mapping[str, Any], why: str) -> None:
        """Keep chosen values, and the sentence that names them."""
        self.hyper |= values
        self.values |= values
        self.how.append(f"chosen: {named(values)}, {why}")


class Settings:
    """Candidates, and the compiled programs that they need.

    If candidates differ only in numbers above 0, one program serves all and takes the numbers as arguments.
    Otherwise each candidate has a program of its own. `aside` names settings that no program depends on.
    `also` names settings that other candidates of the same fit differ in: if they are numbers above 0, the
    programs take them as arguments too, and so serve those candidates as well. With `like`, the settings of
    other data of the same shapes, the programs are those of `like`.
    """

    # what programs are compiled for, where candidates differ
    usual: dict[str, Any]
    open: list[str]  # of these, what programs take as arguments
    numbers: bool  # whether all of these are numbers above 0

    def __init__(
        self, method: Method, data: Any, hyper: Mapping[str, Any], candidates: Sequence[Mapping[str, Any]],
        aside: tuple[str, ...] = (), like: "Settings | None" = None, also: Collection[str] = (),
    ) -> None:  # fmt: skip
        self.settle = lambda one: settle(method, data, {**hyper, **one})
        self.settled = dict(enumerate(map(self.settle, candidates)))
        if like is not None:
            self.usual, self.open, self.numbers = like.usual, like.open, like.numbers
            return
        fields = dict(
            zip(method.Hyper._fields, zip(*self.settled.values(), strict=True), strict=True)
        )
        differ = [name for name, values in fields.items() if len(set(values)) > 1]
        self.open = [name for name in differ if name not in aside]
        self.numbers = all(_is_number(value) for name in self.open for value in fields[name])
        more = {name for name in also if _is_number(fields[name][0])} if self.numbers else set()
        self.open = [name for name in fields if name in {*self.open, *more}]
        self.usual = {name: fields[name][0] for name in differ}
        if self.numbers:  # an argument of a program may have any value when it is compiled
            self.usual |= {name: jax.tree.map(lambda _: 1.0, fields[name][0]) for name in self.open}

    def program(self, number: int) -> tuple[Any, dict[str, Any]]:
        """The settings that a program is compiled for, and the numbers of a candidate to put in them."""
        own = self.settled[number]
        if not self.numbers:
            return own, {}
        return own._replace(**self.usual), {name: getattr(own, name) for name in self.open}


def _is_number(value: Any) -> bool:
    """Whether this is a number above 0, or several."""
    found = jax.tree.leaves(value)
    return bool(found) and all(isinstance(x, float) and x > 0 for x in found)


def at_end(candidates: Sequence[Mapping[str, Any]], best: int) -> str:
    """The end of a sentence if the best of several candidates is the smallest or the largest number.

    >>> [at_end([{"a": 3.0}, {"a": 1.0}, {"a": 2.0}], best) for best in (0, 2)]
    [', the largest of 3 candidates (1 to 3)', '']
    """
    numbers: list[Any] = [next(iter(one.values()), None) for one in candidates]
    if len(numbers) < 2 or not all(isinstance(number, float) for number in numbers):
        return ""
    least, *_, most = sorted(numbers)
    if numbers[best] not in (least, most):
        return ""
    place = "largest" if numbers[best] == most else "smallest"
    return f", the {place} of {len(numbers)} candidates ({shown(least)} to {shown(most)})"


def named(values: Mapping[str, Any]) -> str:
    """Settings in few digits, with their names."""
    return ", ".join(f"{name}={shown(value)}" for name, value in values.items())


def shown(value: Any) -> str:
    """A setting in few digits; of many numbers the first three."""
    if isinstance(value, tuple):
        rest = f", ... ({len(value)} in all)" * (len(value) > 3)
        return f"({', '.join(map(shown, value[:3]))}{rest})"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
