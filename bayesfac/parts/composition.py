"""A method made of parts: factors, a structure of scores, a law of the observations.

    J = observed.energy(x) + energy of the factors,   x = scores of the structure

A method's file states J and the NumPyro model by hand, as its paper does. `composed` makes the rest of the
record from the parts: conditionals, solver, moves, variational law, predictions, symmetries, axes. It keeps
the parts too, so that the contract can compare their J and their model with those of the file.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

from bayesfac.core.laws.distributions import PositiveRows
from bayesfac.core.laws.normal_wishart import to_modes
from bayesfac.core.math import normals
from bayesfac.core.method import (
    Axes,
    Method,
    Permutation,
    Rotation,
    Sampler,
    Solver,
    Variational,
    flattened,
)
from bayesfac.parts import factor_beliefs, factors, scales, turns
from bayesfac.parts.factors import Factor
from bayesfac.parts.precisions import Gammas, Wishart
from bayesfac.parts.protocols import Believed, Bounded, Observed, Structure
from bayesfac.parts.sites import field, get, put

SHARE = 0.5  # the standard deviation of the first products, in units of what scores explain


@dataclass(frozen=True, eq=False)
class Composition:
    """The parts of a method, and the module that it is written in.

    `order` has the fields in the order of a sweep; if it is empty, links come first, and then the factors one
    by one. A composition that no file states has a `recipe` (`bayesfac/compose/`), and makes its `header`.
    """

    Params: Any
    structure: Structure
    observed: Any  # Observed, perhaps with what is optional there
    home: str
    order: tuple[str, ...] = ()
    recipe: Mapping[str, Any] | None = None
    header: Callable[[Method], str] | None = None

    def at(self, h: Any) -> Any:
        """The structure with these settings."""
        return self.structure.at(h)

    @property
    def limited(self) -> bool:
        """Whether components may vanish, so that their number is an upper limit: one precision for each
        component is common to the rows of both axes, and values have a noise to compare components with."""
        first, *rest = (f.precision for f in self.structure.main)
        common = "." not in first.site  # the entry of a mapping belongs to one axis
        switched = isinstance(first, Gammas) and common and all(one == first for one in rest)
        return switched and self.structure.rotates and hasattr(self.observed, "precision")

    def params(self, values: dict[str, Any]) -> Any:
        """Params with these values of sites, and no others."""
        return put(self.Params(*[None] * len(self.Params._fields)), values)

    # -- the joint ------------------------------------------------------------------------------------
    def objective(self, p: Any, data: Any, h: Any) -> jax.Array:
        """Minus the log joint, up to a constant."""
        s = self.at(h)
        fit = self.observed.energy(p, s.scores(p, data), data, h)
        return fit + factors.energy(s.every, p, data, h)

    def model(self, data: Any, h: Any) -> None:
        """The NumPyro model."""
        s = self.at(h)
        rows = factors.sample(s.every, data, s.lengths(data), h)
        p = self.params(rows)
        self.observed.sampled(p, s.scores(p, data), data, h)

    def beside(self, data: Any, h: Any) -> dict[str, Any]:
        """{axis: whether other rows inform each of its rows, so that it is known without cells}."""
        s = self.at(h)
        own, n = [f for f in s.every if f.along], s.lengths(data)
        return {f.axis: f.along.beside(data, f.axis, n[f.axis]) for f in own}

    def predict(self, p: Any, query: Any, h: Any) -> Any:
        """The law of the queried cells."""
        return self.observed.predict(p, query, h, self.at(h))

    # -- conditionals, the solver and moves ---------------------------------------------------------------
    def conditional(self, site: str, p: Any, data: Any, h: Any, *auxiliary: Any) -> Any:
        """The law of a site given all others, and given the auxiliary variables of the observations."""
        s, (name, *key) = self.at(h), site.split(".", 1)
        for given, own in self.observed.conditionals.items():
            if field(given) == name:
                return own(p, s.scores(p, data), data, h, *auxiliary, *key)
        for f in s.every:
            if site == f.rows:
                return self.rows(f, p, data, h, *self.observed.target(p, data, h, *auxiliary))
        return factors.conditional(site, s.every, p, data, h)

    def rows(self, f: Factor, p: Any, data: Any, h: Any, *target: Any) -> Any:
        """The law of a factor's rows where cells observe the scores as targets with precisions."""
        law = partial(self.at(h).rows, p, data, f, h, *target)
        if f.mixture:
            return factors.rows_of_mixture(f, p, h, law)
        return PositiveRows(law(), get(p, f.rows)) if f.positive else law()

    def conditionals(self) -> dict[str, Any]:
        """{field: f(params, data, hyper, *auxiliary[, key])} in the order of a sweep."""
        every = self.structure.every
        links = [f"{name}.{f.axis}" for f in every if f.link for name in (f.link, f.ridge)]
        links.sort(key=lambda site: field(site) in {f.ridge for f in every})
        own = [
            site
            for f in every
            for site in (
                f.precision.site if alone(every, f) else "",
                share(f),
                f.mean,
                f.level,
                f.rows,
            )
        ]
        shared = [f.precision.site for f in every if not alone(every, f)]
        sites = [*links, *own, *shared, *self.observed.conditionals]
        keyed = {field(site) for site in sites if "." in site}  # mappings

        def law(name: str) -> Any:
            if name not in keyed:
                return partial(self.conditional, name)
            return lambda p, data, h, *m: self.conditional(f"{name}.{m[-1]}", p, data, h, *m[:-1])

        usual = tuple(dict.fromkeys(field(site) for site in sites if site))
        if self.order and {*self.order} != {*usual}:
            raise ValueError(f"Expected the fields {usual} in some order, got {self.order}")
        return {name: law(name) for name in self.order or usual}

    def held(self, h: Any) -> tuple[str, ...]:
        """The fields of what stands above the rows, and the law's own, if empirical Bayes set them."""
        if getattr(h, "scales", "joint") == "joint":
            return ()
        every = self.at(h).every
        above = [(f.mean, f.level, f.precision.site, share(f), f.link, f.ridge) for f in every]
        fields = dict.fromkeys(field(site) for sites in above for site in sites if site)
        return *fields, *self.observed.held(h)

    def augment(self, p: Any, data: Any, h: Any) -> Any:
        """The law of the auxiliary variables of the observations."""
        return self.observed.augment(p, self.at(h).scores(p, data), data, h)

    def update(self, p: Any, data: Any, h: Any, *auxiliary: Any) -> Any:
        """Every block at the mode of its conditional, given auxiliary variables of the law at which J has an
        upper bound that touches it. Then, if the structure is `balanced`, the scales of its factors against
        one another at which J is lowest; then sites of the law that have no conditional."""
        s, held, law = self.at(h), self.held(h), self.observed
        if not auxiliary and hasattr(law, "touching"):
            auxiliary = (law.touching(p, s.scores(p, data), data, h),)
        p = to_modes(p, self.conditionals(), held, data, h, *auxiliary)
        if held:
            return p
        learned = any(f.precision.site for f in s.main)
        for groups in s.opposed(data) if s.balanced and learned else ():
            p = scales.lowest(s.every, groups, p, data, h)
        return law.lowered(p, s.scores(p, data), data, h) if hasattr(law, "lowered") else p

    def rescale(self, key: jax.Array, p: Any, data: Any, h: Any) -> Any:
        """Draw the scale of factors against one another, which the cells do not determine."""
        s = self.at(h)
        for number, groups in enumerate(opposed := s.opposed(data)):
            own = key if len(opposed) == 1 else jax.random.fold_in(key, number)
            p = scales.rescaled(own, s.every, groups, p, data, h)
        return p

    def swell(self, key: jax.Array, p: Any, data: Any, h: Any) -> Any:
        """Metropolis steps of the scale of scores, and of thresholds that grow with them."""
        return self.at(h).swollen(key, p, data, h, self.observed.grown)

    def moves(self) -> dict[str, Any]:
        """The moves of the law, and those of scales that are learned."""

        def given(move: Any, key: jax.Array, p: Any, data: Any, h: Any) -> Any:
            return move(key, p, self.at(h).scores(p, data), data, h)

        own = getattr(self.observed, "moves", {})
        found: dict[str, Any] = {name: partial(given, move) for name, move in own.items()}
        found |= {"swell": self.swell} if hasattr(self.observed, "grown") else {}
        s = self.structure
        if s.rotates and turns.possible(s.every, s.main):
            found["turn"] = lambda key, p, data, h: turns.turned(key, self.at(h).main, p, h)
        learned = any(f.precision.site for f in s.every)
        return found | ({"rescale": self.rescale} if learned else {})

    def init(self, key: jax.Array, data: Any, h: Any) -> Any:
        """Rows whose products have half the standard deviation of what scores explain, and precisions to
        match; rows of a given precision are drawn from their prior."""
        s, unit = self.at(h), self.observed.unit(data, h)
        K, lengths, found = h.n_components, s.lengths(data), self.observed.first(data, h)
        usual = ((SHARE * unit) ** 2 / K) ** (0.5 / s.degree)
        for f, own in zip(s.every, jax.random.split(key, len(s.every)), strict=True):
            sd = usual if f.precision.site else getattr(h, f.precision.sd)
            n, width = lengths[f.axis], f.width(h)
            found[f.rows] = sd * normals(own, (n,) if f.bias else (n, K))
            if f.positive:
                found[f.rows] = jnp.abs(found[f.rows])
            if f.precision.site:
                found[f.precision.site] = f.precision.value(jnp.eye(width) / usual**2)
            if f.mean:
                found[f.mean] = jnp.zeros(width)
            found |= {share(f): jnp.full(width, 0.5)} if share(f) else {}
            found |= {f.level: jnp.zeros(())} if f.level else {}
            for group in [x for x in data.x if x.endswith(f.axis)] if f.link else []:
                found[f"{f.link}.{group}"] = jnp.zeros((data.x[group].width, width))
                # as if features explain half the variance of the rows
                found[f"{f.ridge}.{group}"] = jnp.asarray(float(data.x[group].width))
        return self.params(found)

    # -- the variational law ------------------------------------------------------------------------------
    def variational(self) -> Variational | None:
        """The record of VB: that of the law, or every row normal with its own covariance and all other sites
        independent. None: the parts have none, as for levels of factors, or coupled rows."""
        if any(f.along for f in self.structure.every):
            return None
        if hasattr(self.observed, "variational"):
            return self.observed.variational(self.structure)
        known = not any(f.level or f.positive for f in self.structure.every)
        bounded = isinstance(self.structure, Believed) and isinstance(self.observed, Bounded)
        if not (known and bounded):
            return None

        def begin(p: Any, data: Any, h: Any) -> Any:
            found = factor_beliefs.begin(self.at(h).every, p, data, h)
            return update(put(p, found | self.observed.begin(p, data, h)), data, h)

        def update(q: Any, data: Any, h: Any) -> Any:
            s = self.at(h)
            q, target, weight = self.observed.updated(q, *s.moments(q, data.cells), data, h)
            q = s.updated(q, data, h, target, weight)
            return factor_beliefs.update(s.every, q, data, h)

        def expected(q: Any, data: Any, h: Any) -> jax.Array:
            s = self.at(h)
            fit = self.observed.bound(q, *s.moments(q, data.cells), data, h)
            return fit - factor_beliefs.energy(s.every, q, data, h)

        def laws(q: Any) -> dict[str, Any]:
            fields = {name: x for name, x in q._asdict().items() if x}
            s = self.structure.seen([*fields, *flattened(fields)])
            return factor_beliefs.laws(s.every, q) | self.observed.laws(q)

        def widened(key: jax.Array, q: Any, data: Any, h: Any) -> tuple[Any, jax.Array]:
            bound = lambda x, variance: self.observed.bound(q, x, variance, data, h)  # noqa: E731
            return self.at(h).widened(key, q, data, bound, lambda q: expected(q, data, h))

        mixed = any(f.mixture for f in self.structure.every)
        below = mixed or getattr(self.observed, "below", False)
        return Variational(begin, update, expected, laws, widened, below=below)

    # -- symmetries and axes --------------------------------------------------------------------------------
    def gauge(self, names: Any) -> tuple[Rotation | Permutation, ...]:
        """Factors rotate together if the structure does and their precisions turn with them or are round.
        Components may be reordered in any structure, and may change their signs unless rows are at least 0:
        all factors of one that rotates, and of another two factors at a time."""
        s = self.structure.seen(names)
        axes = {site: k for f in s.main for site, k in ((f.rows, 1), (f.mean, 0)) if site}
        links = {f.link for f in s.main if f.link}
        axes |= {name: 1 for name in names if field(name) in links}
        forms = tuple(f.precision.site for f in s.main if isinstance(f.precision, Wishart))
        diagonal = {f.precision.site: 0 for f in s.main if isinstance(f.precision, Gammas)}
        diagonal |= {share(f): 0 for f in s.main if share(f)}
        if any(f.positive for f in s.main):
            return (Permutation(axes | diagonal, forms=forms),)
        if s.rotates and not diagonal:
            floating = {*map(field, names)} & {*getattr(self.observed, "floating", ())}
            pair = s.main[0].rows, s.main[1].rows
            return (Rotation(pair, axes, forms, floating=bool(floating)),)
        if s.rotates:
            return (Permutation(axes | diagonal, forms=forms, signed=(*axes, *forms)),)
        own = [(f.rows, f.mean, f.precision.site, share(f)) for f in s.main]
        modes = tuple(tuple(s for s in sites if s in axes or s in forms) for sites in own)
        return (Permutation(axes | diagonal, forms=forms, modes=modes),)

    def dims(self) -> dict[str, tuple[str, ...]]:
        """{field: names of its axes}."""
        found: dict[str, tuple[str, ...]] = dict(self.observed.sites)
        for f in self.structure.every:
            found[field(f.rows)] = (f.axis,) if f.bias else (f.axis, "component")
            if f.mean:
                found[field(f.mean)] = ("component",)
            if f.level:
                found[f.level] = ()
            if share(f):
                found[field(share(f))] = ("component",)
            if f.precision.site:
                found[field(f.precision.site)] = f.precision.dims
            if f.link:
                found[f.link] = ("{key}_feature", "bias" if f.bias else "component")
                found[f.ridge] = ()
        return found


def share(f: Factor) -> str:
    """The site of the share of a mixture; "" without."""
    return f.mixture.site if f.mixture else ""


def alone(every: Any, f: Factor) -> bool:
    """Whether no other factor shares the precision."""
    return len(factors.sharing(every, f.precision)) == 1


def composed(
    name: str,
    *,
    home: str,
    Params: Any,
    Hyper: Any,
    structure: Structure,
    observed: Observed,
    moves: dict[str, Any] | None = None,
    order: tuple[str, ...] = (),
    together: tuple[str, ...] = (),
    solver: dict[str, Any] | None = None,
    gibbs: dict[str, Any] | None = None,
    axes: dict[str, Any] | None = None,
    **own: Any,
) -> Method:
    """The record of a method; `own` are its own fields, which replace those made of the parts, and `solver`,
    `gibbs` and `axes` entries of these groups. `moves` of the method come before those of the parts. Gibbs
    draws the fields `together` in a move of the method, and not by their conditionals."""
    if "moves" in (gibbs or {}):
        raise ValueError(f"Expected moves= of {name} beside those of its parts, got gibbs['moves']")
    c = Composition(Params, structure, observed, home, order)
    laws = {f: law for f, law in c.conditionals().items() if f not in together}
    augment = c.augment if hasattr(observed, "augment") else None
    made: dict[str, Any] = {
        "init": c.init,
        "objective": c.objective,
        "model": c.model,
        "predict": c.predict,
        "solver": Solver(c.update, held=c.held)._replace(**(solver or {})),
        "gibbs": Sampler(laws, augment, (moves or {}) | c.moves())._replace(**(gibbs or {})),
        "variational": c.variational(),
        "axes": Axes(c.dims(), c.gauge)._replace(**(axes or {})),
    }
    return Method(**(made | {"name": name, "parts": c, "Params": Params, "Hyper": Hyper} | own))
