"""Stand-ins for fits of topics."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from bayesfac.core.data.cards import describe
from bayesfac.core.data.views import Views
from bayesfac.core.method import from_sites
from tests.report.fakes import TOPIC, FakeFit, FixedPoint, Gibbs


@cache
def views_set() -> Views:
    rng = np.random.default_rng(2)
    return Views({"pix": rng.poisson(1.0, (24, 12)), "fou": rng.poisson(1.0, (24, 9))})


def _topic_sites() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(9)
    sites = {"A": rng.dirichlet(np.ones(3) * 0.3, 24)}
    for view, size in (("fou", 9), ("pix", 12)):
        sites[f"B.{view}"] = rng.dirichlet(np.ones(4), 3)
        sites[f"C.{view}"] = rng.dirichlet(np.ones(size) * 0.2, 4)
    return sites


def point_views(**changes: Any) -> FakeFit:
    return replace(
        FakeFit(
            TOPIC, FixedPoint(), describe(views_set()), params=from_sites(TOPIC, _topic_sites())
        ),
        **changes,
    )


def sampled_views(chains: int = 2, draws: int = 60, **changes: Any) -> FakeFit:
    rng = np.random.default_rng(4)
    out = {name: np.tile(site, (chains, draws, 1, 1)) for name, site in _topic_sites().items()}
    for site in out.values():
        site += 0.002 * rng.random(site.shape)
        site /= site.sum(-1, keepdims=True)
    for at in np.ndindex(chains, draws):
        cluster = rng.permutation(3)
        out["A"][at] = out["A"][at][:, cluster]
        for view in ("fou", "pix"):
            topic = rng.permutation(4)
            out[f"B.{view}"][at] = out[f"B.{view}"][at][cluster][:, topic]
            out[f"C.{view}"][at] = out[f"C.{view}"][at][topic]
    stats = {"lp": -900 + rng.normal(size=(chains, draws))}
    engine = Gibbs(draws=draws, chains=chains)
    fit = FakeFit(TOPIC, engine, describe(views_set()), out, stats=stats, converged=None)
    return replace(fit, trace=-stats["lp"].ravel(), **changes)
