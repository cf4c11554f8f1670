"""Laws of several views of the same rows, each of which has values of its own kind (`parts/shared_rows.py`).

    "normal"      z = (y - offset) / scale ~ N(x, 1 / alpha_j), a noise for every feature (`noises.py`)
    "bernoulli"   P(y = 1) = F(offset + x), F logistic (`bernoulli.py`)
    "counts"      E y = exp(offset + x), negative binomial (`negative_binomial.py`)

Each law takes the cells, the scores and the sites of its view, alpha.VIEW as alpha, and settings that follow
from the values (`View`). Numbers of cells are in the order of all cells.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.distributions import constraints
from numpyro.handlers import block
from numpyro.primitives import CondIndepStackFrame, Messenger

from bayesfac.core.data.cells import Known
from bayesfac.core.data.linked.measured import Measurements
from bayesfac.core.laws.empirical_bayes import Evidence, Seen
from bayesfac.parts.observed.bernoulli import Bernoulli
from bayesfac.parts.observed.mixed import Mixed
from bayesfac.parts.observed.negative_binomial import NegativeBinomial
from bayesfac.parts.observed.noises import Noises
from bayesfac.parts.shared_rows import FEATURE
from bayesfac.parts.sites import get, put

LAWS: dict[str, Any] = {
    "normal": Noises("item"),
    "bernoulli": Bernoulli("logit"),
    "counts": NegativeBinomial(),
}
# a value that each law can have
USUAL = {"normal": 0.0, "bernoulli": 0.0, "counts": 0.0}


class Settings:
    """The settings of the law of one view; all others are those of the method."""

    def __init__(self, of: Any, **own: Any) -> None:
        self.of, self.own = of, own

    def __getattr__(self, name: str) -> Any:
        return self.own[name] if name in self.own else getattr(self.of, name)

    def _replace(self, **new: Any) -> "Settings":
        return Settings(self.of, **(self.own | new))


class View(NamedTuple):
    """A view, the law of its values, and what this law and its predictions need to know."""

    name: str
    law: str
    first: int  # the number of its first feature among those of all views
    features: int
    offset: float  # of the scores; of a normal view of the values
    scale: float  # 1 of all but normal views

    @property
    def part(self) -> Any:
        return LAWS[self.law]

    def settings(self, h: Any) -> Settings:
        """What the law takes as its settings."""
        offset = 0.0 if self.law == "normal" else self.offset
        return Settings(h, offset=offset, alpha_rate=1.0, r=None)

    @property
    def units(self) -> tuple[float, float]:
        """Offset and scale of the values."""
        return (self.offset, self.scale) if self.law == "normal" else (0.0, 1.0)

    def noise(self, draws: Mapping[str, np.ndarray]) -> Any:
        """The mean variance of the values about their scores, in units of the scores, for each draw; of
        counts that of their logarithms (Nakagawa, Johnson & Schielzeth, J. R. Soc. Interface 2017)."""
        if self.law == "normal":
            return (1 / draws[f"alpha.{self.name}"]).mean(1)
        if self.law == "bernoulli":
            return np.pi**2 / 3
        return np.log1p(np.exp(-self.offset) + 1 / draws[f"r.{self.name}"])

    def of(self, p: Any) -> Any:
        """Parameters or beliefs with the sites of this law alone."""
        return p._replace(**{site: get(p, f"{site}.{self.name}") for site in FIELDS})

    def values(self, data: Measurements) -> Any:
        """The cells of the view, with values in its units."""
        own = data.view(self.name)
        if self.law != "normal":
            return own
        y = None if own.y is None else (own.y - self.offset) / self.scale
        return own.replaced(y=y)

    def asked(self, query: Any) -> Any:
        """The query by the features of this view; what is of another view gets some feature."""
        return query._replace(
            col=jnp.clip(jnp.asarray(query.col) - self.first, 0, self.features - 1)
        )

    def holds(self, query: Any) -> jax.Array:
        """Which columns of the query are features of this view."""
        col = jnp.asarray(query.col)
        return (self.first <= col) & (col < self.first + self.features)


FIELDS = ("alpha", "v", "r")  # of Params, which laws have


class Cellwise(dist.Distribution):
    """Auxiliary variables of all cells: `laws` are those of the views that have some, others have 0."""

    arg_constraints: dict[str, Any] = {}
    support = constraints.real
    pytree_data_fields = ("laws", "data")

    def __init__(self, laws: Mapping[str, Any], data: Any, size: int) -> None:
        self.laws, self.data = dict(laws), data
        super().__init__((size,), ())

    def _each(self, of: Callable[[Any, str], jax.Array]) -> jax.Array:
        inside = self.data.inside.items()
        found = {n: of(self.laws[n], n) if n in self.laws else jnp.zeros(len(c)) for n, c in inside}
        return self.data.together(found)

    def sample(self, key: jax.Array, sample_shape: tuple[int, ...] = ()) -> jax.Array:
        keys = dict(zip(self.laws, jax.random.split(key, len(self.laws) or 1), strict=False))
        return self._each(lambda law, name: law.sample(keys[name]))

    def log_prob(self, value: jax.Array) -> jax.Array:
        return self._each(lambda law, name: law.log_prob(self.data.of_view(name, value)))


class Renamed(Messenger):
    """Sites and plates NAME of one view are called NAME.VIEW."""

    def __init__(self, view: str) -> None:
        self.view = view
        super().__init__(None)

    def process_message(self, msg: dict[str, Any]) -> None:
        if msg.get("name"):
            msg["name"] = f"{msg['name']}.{self.view}"
        stack = msg.get("cond_indep_stack") or []
        msg["cond_indep_stack"] = [
            CondIndepStackFrame(f"{f.name}.{self.view}", f.dim, f.size) for f in stack
        ]


class Scores(NamedTuple):
    """A structure whose scores are known."""

    x: jax.Array
    biases: tuple[Any, ...] = ()

    def predicted(self, p: Any, query: Any, h: Any) -> tuple[jax.Array, jax.Array]:
        return self.x, jnp.zeros_like(self.x)

    def drawn(self, p: Any, query: Any, h: Any) -> tuple[jax.Array, Any]:
        return self.x, lambda point: self.x


class PerView(NamedTuple):
    """The laws of the views in `h.views`."""

    below: bool = True  # of the variational bound, as those of bernoulli and counts are

    @property
    def sites(self) -> dict[str, tuple[str, ...]]:
        return {"alpha": (f"{FEATURE}{{key}}",), "v": (), "r": ()}

    @property
    def conditionals(self) -> dict[str, Any]:
        return {f"{name}.{{key}}": _given(name) for name in ("alpha", "v")}

    def held(self, h: Any) -> tuple[str, ...]:
        return FIELDS

    def unit(self, data: Measurements, h: Any) -> float:
        return 1.0

    def first(self, data: Measurements, h: Any) -> dict[str, jax.Array]:
        found: dict[str, jax.Array] = {}
        for view, part, own, of in self.each(data, h):
            if view.law == "normal":
                found |= {f"alpha.{view.name}": jnp.ones(view.features)}
                found |= {f"v.{view.name}": jnp.ones(())}
            else:
                found |= {f"{site}.{view.name}": x for site, x in part.first(own, of).items()}
        return found

    # -- views ------------------------------------------------------------------------------------------
    def each(self, data: Measurements, h: Any) -> list[tuple[View, Any, Any, Any]]:
        """(view, law, its cells, its settings) of all views."""
        return [(view, view.part, view.values(data), view.settings(h)) for view in h.views]

    def at(self, of: str, p: Any, x: jax.Array, data: Measurements, h: Any, *more: Any) -> dict:
        """{view: what the function `of` of its law returns}, where all have it; `more` are numbers of all
        cells."""
        found = {}
        for view, part, own, given in self.each(data, h):
            mine = [data.of_view(view.name, a) for a in (x, *more)]
            found[view.name] = getattr(part, of)(view.of(p), *mine, own, given)
        return found

    def energy(self, p: Any, x: jax.Array, data: Measurements, h: Any) -> jax.Array:
        return sum(self.at("energy", p, x, data, h).values())

    def augment(self, p: Any, x: jax.Array, data: Measurements, h: Any) -> Cellwise:
        own = {
            view.name: part.augment(view.of(p), data.of_view(view.name, x), own, given)
            for view, part, own, given in self.each(data, h)
            if hasattr(part, "augment")
        }
        return Cellwise(own, data, len(data.cells))

    def touching(self, p: Any, x: jax.Array, data: Measurements, h: Any) -> jax.Array:
        found = {
            view.name: part.touching(view.of(p), data.of_view(view.name, x), own, given)
            if hasattr(part, "touching")
            else jnp.zeros(len(own.cells))
            for view, part, own, given in self.each(data, h)
        }
        return data.together(found)

    def target(
        self, p: Any, data: Measurements, h: Any, given: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        target, weight = {}, {}
        for view, part, own, of in self.each(data, h):
            has = hasattr(part, "augment")
            auxiliary = [data.of_view(view.name, given)] if has else []
            t, w = part.target(view.of(p), own, of, *auxiliary)
            target[view.name], weight[view.name] = t, jnp.broadcast_to(w, t.shape)
        return data.together(target), data.together(weight)

    def lowered(self, p: Any, x: jax.Array, data: Measurements, h: Any) -> Any:
        for view, part, own, given in self.each(data, h):
            if hasattr(part, "lowered"):
                new = part.lowered(view.of(p), data.of_view(view.name, x), own, given)
                p = _back(p, view, new)
        return p

    @property
    def moves(self) -> dict[str, Any]:
        return {"dispersion": self.walked}

    def walked(self, key: jax.Array, p: Any, x: jax.Array, data: Measurements, h: Any) -> Any:
        """The moves of the laws of all views."""
        for number, (view, part, own, given) in enumerate(self.each(data, h)):
            for place, move in enumerate(getattr(part, "moves", {}).values()):
                walk = jax.random.fold_in(jax.random.fold_in(key, number), place)
                new = move(walk, view.of(p), data.of_view(view.name, x), own, given)
                p = _back(p, view, new)
        return p

    # -- the model, predictions and the start of a point ---------------------------------------------------
    def sampled(self, p: Any, x: jax.Array, data: Measurements, h: Any) -> None:
        hidden = data.replaced(y=jnp.zeros(len(data.cells))) if data.y is None else data
        with numpyro.handlers.trace() as found:
            for view, part, own, given in self.each(hidden, h):
                with Renamed(view.name), block(hide=["rating", "cell"]):
                    part.sampled(view.of(p), hidden.of_view(view.name, x), own, given)
        p = put(
            p, {name: site["value"] for name, site in found.items() if site["type"] == "sample"}
        )
        with numpyro.plate("cell", len(x)):
            numpyro.sample("rating", self.likelihood(p, x, data.cells, h), obs=data.y)

    def likelihood(self, p: Any, x: jax.Array, cells: Any, h: Any) -> Mixed:
        """The law of every cell with a known score."""
        return self.law(p, Known(cells.row, cells.col), h, lambda view: Scores(x))

    def law(self, p: Any, query: Any, h: Any, structure: Callable[[View], Any]) -> Mixed:
        """The law of every cell; `structure(view)` has the scores."""
        laws = [
            v.part.predict(v.of(p), v.asked(query), v.settings(h), structure(v)) for v in h.views
        ]
        kind = sum(k * v.holds(query).astype(jnp.int32) for k, v in enumerate(h.views))
        kind = jnp.broadcast_to(kind, laws[0].batch_shape)
        offset, scale = zip(*(v.units for v in h.views), strict=True)
        return Mixed(kind, laws, offset, scale, [USUAL[v.law] for v in h.views])

    def predict(self, p: Any, query: Any, h: Any, s: Any) -> Mixed:
        return self.law(p, query, h, lambda view: s.alone(view.name))

    def evidence(self, p: Any, data: Measurements, h: Any) -> Evidence:
        """That of all views together."""
        each = {v.name: part.evidence(v.of(p), own, of) for v, part, own, of in self.each(data, h)}

        def whole(seen: dict[str, Seen]) -> Seen:
            known = {name: s.own for name, s in seen.items()}
            parts = ({n: getattr(s, field) for n, s in seen.items()} for field in Seen._fields[1:])
            return Seen(known, *map(data.together, parts))

        def observe(known: dict, x: jax.Array, variance: jax.Array) -> Seen:
            cells = {n: (data.of_view(n, x), data.of_view(n, variance)) for n in each}
            return whole({n: e.observe(known[n], *cells[n]) for n, e in each.items()})

        def end(known: dict) -> tuple[dict[str, Any], Any]:
            found: dict[str, Any] = {}
            for name, e in each.items():
                found |= {f"{site}.{name}": x for site, x in e.end(known[name])[0].items()}
            return found, 1.0

        y = data.together({n: e.y for n, e in each.items()})
        return Evidence(y, jnp.std(y), {n: e.own for n, e in each.items()}, observe, end=end)

    # -- variational laws -----------------------------------------------------------------------------
    def begin(self, p: Any, data: Measurements, h: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for view, part, own, given in self.each(data, h):
            new = part.begin(view.of(p), own, given)
            found |= {f"{site}.{view.name}": belief for site, belief in new.items()}
        return found

    def updated(
        self, q: Any, x: jax.Array, variance: jax.Array, data: Measurements, h: Any
    ) -> tuple[Any, jax.Array, jax.Array]:
        target, weight = {}, {}
        for view, part, own, given in self.each(data, h):
            mine = (data.of_view(view.name, a) for a in (x, variance))
            new, t, w = part.updated(view.of(q), *mine, own, given)
            q, target[view.name] = _back(q, view, new), t
            weight[view.name] = jnp.broadcast_to(w, t.shape)
        return q, data.together(target), data.together(weight)

    def bound(
        self, q: Any, x: jax.Array, variance: jax.Array, data: Measurements, h: Any
    ) -> jax.Array:
        return sum(self.at("bound", q, x, data, h, variance).values())

    def laws(self, q: Any) -> dict[str, dist.Distribution]:
        found: dict[str, dist.Distribution] = {}
        for law, field in (("normal", "alpha"), ("counts", "r")):
            for name in getattr(q, field) or {}:
                own = LAWS[law].laws(View(name, law, 0, 0, 0.0, 1.0).of(q))
                found |= {f"{site}.{name}": x for site, x in own.items()}
        return found


def _given(name: str) -> Callable[..., dist.Distribution]:
    """The conditional of a site of the views that have it."""

    def conditional(p: Any, x: jax.Array, data: Measurements, h: Any, *more: Any) -> Any:
        key = more[-1]
        view, part, own, given = next(
            found for found in PerView().each(data, h) if found[0].name == key
        )
        return part.conditionals[name](view.of(p), data.of_view(key, x), own, given)

    return conditional


def _back(p: Any, view: View, new: Any) -> Any:
    """Params with the sites of a view as its law has changed them."""
    changed = {f"{site}.{view.name}": getattr(new, site) for site in FIELDS}
    return put(p, {site: x for site, x in changed.items() if x is not None})


def views_of(data: Measurements, laws: Mapping[str, str], h: Any) -> tuple[View, ...]:
    """The views of the data with these laws; values that a law cannot have are refused."""
    found, first = [], 0
    for name, index in data.views.items():
        own, law = data.view(name), laws[name]
        offset, scale = own.mean, own.spread
        if law != "normal":
            offset, scale = LAWS[law].prepare(own, Settings(h, offset=None, r=None)).offset, 1.0
        found.append(View(name, law, first, len(index), float(offset), float(scale)))
        first += len(index)
    return tuple(found)


def usual_law(value: np.ndarray) -> str:
    """The law of values that nobody has named: of 0 and 1, of whole numbers from 0 to more than `LEVELS`, or
    of others."""
    if np.isin(value, (0, 1)).all() and np.ptp(value) > 0:
        return "bernoulli"
    counts = (value >= 0).all() and (value % 1 == 0).all() and value.min() == 0
    return "counts" if counts and value.max() > LEVELS else "normal"


LEVELS = 10  # answers and stars have no higher number
