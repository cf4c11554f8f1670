"""What `ltm` and `concat_ltm` share: the topics of one view whose rows are neighbours in one graph."""

from collections.abc import Callable
from typing import Any

import numpyro.distributions as dist

from bayesfac.core.data.views import Views
from bayesfac.models.topics import _graph_smoothing as smooth
from bayesfac.models.topics import _splitting as splitting
from bayesfac.models.topics import _starts as starts
from bayesfac.models.topics import _words as topics
from bayesfac.models.topics._words import Params


def settled(
    data: Views, hyper: Any, ready: Callable[..., Views], objective: Callable[..., Any]
) -> Any:
    starts.check_one_graph(data, hyper)
    if hyper.penalty is None:
        data = ready(data, hyper)
        hyper = hyper._replace(penalty=starts.trust(data, hyper))
        hyper = starts.apart(data, hyper, starts.start_one_view, update, objective)
    return hyper


def update(p: Params, data: Views, hyper: Any) -> Params:
    """EM for C, and a smoothed step for A, from the same posterior P(z|d, w)."""
    V, C = topics.em(p, data, hyper)
    return Params(smooth.smooth_rows(p.A, V, data.graphs, hyper), C)


def conditional_A(p: Params, data: Views, hyper: Any, parts: Any) -> dist.Distribution:
    """A | C, z, u: rows that know their neighbours (see models.topics._smooth_draws)."""
    words = splitting.conditional_A(p, data, hyper, parts)
    return smooth.rows(p.A, words, data.graphs, hyper)
