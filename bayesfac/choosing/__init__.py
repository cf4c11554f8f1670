"""Settings that the user left open are chosen from the training data, by cells or rows that are held out.

A method names candidates in `Method.choices`. `choose` holds out a tenth of the training data, fits some
of the candidates to the rest by few steps, and takes the candidate that predicts the held-out part best. Of
data with labels, a third of the labelled rows is held out.
"""

from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import jax

from bayesfac.choosing.by_cells import Search, climb
from bayesfac.choosing.settings import Chosen
from bayesfac.core.errors import BayesfacError
from bayesfac.core.method import Method, settle
from bayesfac.split import holdout

SHARE = 0.1  # of the training data, held out
LEAST = 500  # ratings or counts; a tenth of fewer chooses by chance


def choose(method: Method, data: Any, hyper: Mapping[str, Any], seed: int) -> Chosen:
    """Choose what the user left open; a method without candidates costs nothing.

    `hyper` has the settings that the user gave. The seed decides which cells are held out.
    """
    found = Chosen({name: value for name, value in hyper.items() if value is not None})
    return choose_for(data, method, found, seed)


@singledispatch
def choose_for(data: Any, method: Method, found: Chosen, seed: int) -> Chosen:
    """`choose` for one kind of data: by held-out cells, unless the container has another way."""
    if method.choose.candidates is None:
        return found
    settle(method, data, found.hyper)  # wrong settings are refused before anything is fitted
    if data.two_way and data.amount < LEAST:
        return found
    given, parts, programs = method.Hyper(**found.hyper), None, dict[Any, Any]()
    while candidates := method.choose.candidates(data, given, found.values):
        if not data.present:
            names = ", ".join(sorted({name for one in candidates for name in one}))
            raise BayesfacError(
                f"Expected values for {names}: ratings that were read in shares leave none to choose them "
                "by. fit.hyper of a fit to fewer of the ratings has values"
            )
        parts = parts or holdout(data, SHARE, seed=seed)
        also = varied(method, data, given, found.values)
        key = jax.random.key(seed)
        search = Search(method, *parts, found.hyper, candidates, key, also, programs)
        best = climb(len(candidates), search.score, search.same, search.beyond)
        found.add(search.refined(best), search.told(best))
    return found


def varied(method: Method, data: Any, given: Any, chosen: Mapping[str, Any]) -> set[str]:
    """The settings that were chosen, and those that this list of candidates and all later ones vary."""
    values = dict(chosen)
    while candidates := method.choose.candidates and method.choose.candidates(data, given, values):
        values |= candidates[0]
    return set(values)


def reduced(method: Method, given: Mapping[str, Any], settled: Any) -> list[str]:
    """A sentence for every default number, as of components, that `settle` reduced to what the data allow."""
    numbers = {k: v for k, v in method.Hyper._field_defaults.items() if type(v) is int}
    return [
        f"chosen: {name}={getattr(settled, name)}, the largest value that the data allow"
        for name, default in numbers.items()
        if name not in given and getattr(settled, name) < default
    ]
