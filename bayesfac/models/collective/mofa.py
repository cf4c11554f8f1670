r"""Multi-omics factor analysis: several tables of measurements of the same rows, with sparse loadings.

Argelaguet, Velten, Arnol et al., "Multi-Omics Factor Analysis", Molecular Systems Biology 2018, and
Argelaguet, Arnol, Bredikhin et al., "MOFA+", Genome Biology 2020, with the relevance of each factor in each
view of Klami, Virtanen, Leppaaho & Kaski, "Group Factor Analysis", IEEE TNNLS 2015. A cell of row i and
feature j of view m has the score

    x_ij = u_i . v_j + c_j

    normal views     z_ij = (y_ij - o_m) / s_m ~ N(x_ij, 1 / alpha_j)
    views of 0 and 1 P(y_ij = 1) = 1 / (1 + exp(-o_m - x_ij))
    views of counts  y_ij ~ NB with E y_ij = exp(o_m + x_ij), Var y_ij = E y_ij + (E y_ij)^2 / r_m

    J = - sum_ij log p(y_ij | x_ij) + 1/2 sum_i |u_i|^2
      + sum over views m of
        - sum_jk log [ pi_mk N(v_jk; 0, 1 / tau_mk) + (1 - pi_mk) N(v_jk; 0, spike^2 / tau_mk) ]
        - sum_k [ (a - 1) log tau_mk - b tau_mk ] - sum_k [ (d - 1) log pi_mk + (e - 1) log(1 - pi_mk) ]
        + sum_j [ t_m / 2 c_j^2 - 1/2 log t_m ] - (f - 1) log t_m + g t_m
        + of normal views  sum_j [ l (n_m alpha_j - log n_m) - (l - 1) log alpha_j ] + n_m
        + of counts        q r_m - (p - 1) log r_m

    paper             here            shape
    Z                 U               rows x K, the factors
    W^m               V.VIEW          features of the view x K, the loadings
    alpha_k^m         tau.VIEW        K, the relevance of a factor in a view
    theta_k^m         share.VIEW      K, the share of loadings that are not nearly zero
    -                 c.VIEW          features, the intercepts; their precision t_m is tau_bias.VIEW
    tau_d^m           alpha.VIEW      features, the precision of the noise; v.VIEW is n_m, its usual variance
    -                 r.VIEW          scalar, the dispersion of counts

Differences from the papers: the spike has a small variance instead of none, so that the density of the
loadings exists, and with it a point and NUTS (George & McCulloch, JASA 1993). Intercepts are parameters,
where MOFA subtracts means. The values of a normal view are divided by one standard deviation, so that the
units of a view do not change its weight. Counts have a negative binomial law instead of a Poisson law, by
Polya-Gamma variables (Polson, Scott & Windle, JASA 2013). So have values of 0 and 1, and both laws are exact
in all engines but VB, which has the bound of Jaakkola & Jordan (Statistics and Computing 2000) as MOFA has.

A point sets tau, pi, alpha, v, r and t once, by empirical Bayes and varimax (`parts/shared_rows.py`), and its
sweeps then minimise J over rows, loadings and intercepts. Gibbs draws the scale of the factors against that
of the loadings exactly, and turns pairs of components (`parts/turns.py`).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax.scipy.special import gammaln

from bayesfac.core import checks
from bayesfac.core.data.linked.measured import Measurements
from bayesfac.core.laws.counts import NegativeBinomial
from bayesfac.core.math import inner
from bayesfac.core.method import Notes, register
from bayesfac.core.programs import compiled_for
from bayesfac.parts.composition import composed
from bayesfac.parts.factors import Factor
from bayesfac.parts.observed.mixed import Mixed
from bayesfac.parts.observed.per_view import PerView, View, usual_law, views_of
from bayesfac.parts.precisions import Gammas, Given
from bayesfac.parts.rows.mixtures import SpikeAndSlab
from bayesfac.parts.rows.mixtures import rows as sparse_rows
from bayesfac.parts.shared_rows import FEATURE, SharedRows, point

LAW = PerView()
CODE = {"normal": 0, "bernoulli": 1, "counts": 2}


class Params(NamedTuple):
    U: jax.Array
    V: dict[str, jax.Array]
    c: dict[str, jax.Array]
    tau: dict[str, jax.Array]
    share: dict[str, jax.Array]
    tau_bias: dict[str, jax.Array]
    alpha: dict[str, jax.Array] | None = None
    v: dict[str, jax.Array] | None = None
    r: dict[str, jax.Array] | None = None


class Hyper(NamedTuple):
    n_components: int = 10
    binary: tuple[str, ...] | None = None  # views of 0 and 1; None: those that have no other values
    counts: tuple[str, ...] | None = None  # views of counts; None: whole numbers from 0 to above 10
    tau_shape: float = 1.0
    tau_rate: float | None = None  # None: 1 / (4 K), by the rule of `ard_mf`
    spike: float = 0.05  # the standard deviation of the spike, in units of the slab's
    share_a: float = 2.0
    share_b: float = 2.0
    bias_shape: float = 1.0
    bias_rate: float = 0.1
    alike: float = 2.0  # the precisions of the noise vary by 1 / sqrt(alike) of their mean
    r_shape: float = 1.0
    r_rate: float = 0.1
    scales: str = (
        "estimated"  # how a point fit sets all but rows, loadings and intercepts; or "joint"
    )
    views: tuple[View, ...] | None = None  # None: those of the data

    @property
    def unit(self) -> float:
        """The standard deviation of the rows."""
        return 1.0


def of_view(view: str) -> Factor:
    """The loadings of a view."""
    precision = Gammas(f"tau.{view}")
    return Factor(f"{FEATURE}{view}", f"V.{view}", precision, mixture=SpikeAndSlab(f"share.{view}"))


def intercepts(view: str) -> Factor:
    """The intercepts of a view."""
    own = Gammas(f"tau_bias.{view}", "bias_shape", "bias_rate", dims=())
    return Factor(f"{FEATURE}{view}", f"c.{view}", own, bias=True)


def prepare(data: Measurements, hyper: Hyper) -> Hyper:
    checks.count(hyper, "n_components", min(data.shape), "the smaller of rows and features")
    checks.positive(hyper, "tau_shape", "spike", "share_a", "share_b", "bias_shape", "bias_rate")
    checks.positive(hyper, "r_shape", "r_rate")
    checks.one_of(hyper, "scales", ("estimated", "joint"))
    if hyper.spike >= 1:
        raise ValueError(f"Expected spike below 1, the scale of the slab, got {hyper.spike!r}")
    if hyper.alike <= 1:
        raise ValueError(f"Expected alike above 1, so that values of new features have a variance, got "
                         f"{hyper.alike!r}")  # fmt: skip
    rate = 0.25 / hyper.n_components ** (1 / hyper.tau_shape)
    hyper = checks.filled(hyper, tau_rate=rate)
    checks.positive(hyper, "tau_rate")
    laws = {name: usual_law(data.view(name).value) for name in data.views}
    for setting, law in (("binary", "bernoulli"), ("counts", "counts")):
        if (given := getattr(hyper, setting)) is not None:
            if unknown := [name for name in given if name not in laws]:
                raise ValueError(
                    f"Expected as {setting} some of the views {list(laws)}, got {unknown[0]!r}"
                )
            laws |= {name: "normal" for name, own in laws.items() if own == law}
            laws |= dict.fromkeys(given, law)
    views = views_of(data, laws, hyper)
    if hyper.views is not None:  # offsets and scales may come from other data
        known = tuple(View(*view) for view in hyper.views)
        if [v[:4] for v in known] != [v[:4] for v in views]:
            raise ValueError(f"Expected the views of the data, {views}, got {known}")
        views = known
    names = {law: tuple(v.name for v in views if v.law == law) for law in ("bernoulli", "counts")}
    return hyper._replace(views=views, binary=names["bernoulli"], counts=names["counts"])


class AtCells(NamedTuple):
    """What of rows, features and views belongs to each cell."""

    x: jax.Array  # score
    law: jax.Array  # 0 normal, 1 of 0 and 1, 2 of counts
    offset: jax.Array
    scale: jax.Array
    alpha: jax.Array  # 1 where the view has none, and so r
    r: jax.Array


def at_cells(p: Params, cells: Any, h: Hyper) -> AtCells:
    views, col = h.views or (), cells.col
    sizes = [v.features for v in views]

    def each(numbers: Any) -> jax.Array:
        own = [jnp.broadcast_to(jnp.asarray(x), (n,)) for x, n in zip(numbers, sizes, strict=True)]
        return jnp.concatenate(own)[col]

    V, c = (jnp.concatenate([of[v.name] for v in views]) for of in (p.V, p.c))
    fixed = zip(*((CODE[v.law], v.offset, v.scale) for v in views), strict=True)
    law, offset, scale = map(each, fixed)
    alpha, r = (each((of or {}).get(v.name, 1.0) for v in views) for of in (p.alpha, p.r))
    return AtCells(inner(p.U, V, cells) + c[col], law, offset, scale, alpha, r)


def objective(p: Params, data: Measurements, h: Hyper) -> jax.Array:
    x, law, offset, scale, alpha, r = at_cells(p, data.cells, h)
    score, y, laws = offset + x, jnp.where(law == 2, data.y, 1.0), {v.law for v in h.views or ()}
    each = 0.5 * alpha * ((data.y - offset) / scale - x) ** 2 - 0.5 * jnp.log(alpha)
    if "bernoulli" in laws:
        each = jnp.where(law == 1, jax.nn.softplus(score) - data.y * score, each)
    if "counts" in laws:
        ways = gammaln(y + r) - gammaln(r) - gammaln(y + 1)
        own = (y + r) * jnp.logaddexp(jnp.log(r), score) - r * jnp.log(r) - y * score
        each = jnp.where(law == 2, own - ways, each)
    J = jnp.sum(each) + 0.5 * jnp.sum(p.U**2)
    for m in p.V:
        tau, pi, V = p.tau[m], p.share[m], p.V[m]
        slab = jnp.log(pi) - 0.5 * tau * V**2
        spike = jnp.log1p(-pi) - jnp.log(h.spike) - 0.5 * tau * V**2 / h.spike**2
        J -= jnp.sum(jnp.logaddexp(slab, spike) + 0.5 * jnp.log(tau))
        J += jnp.sum(h.tau_rate * tau - (h.tau_shape - 1) * jnp.log(tau))
        J -= jnp.sum((h.share_a - 1) * jnp.log(pi) + (h.share_b - 1) * jnp.log1p(-pi))
        t, c = p.tau_bias[m], p.c[m]
        J += 0.5 * t * jnp.sum(c**2) - 0.5 * len(c) * jnp.log(t)
        J += h.bias_rate * t - (h.bias_shape - 1) * jnp.log(t)
    for m, of_view in (p.alpha or {}).items():
        n = (p.v or {})[m]
        own = h.alike * (n * of_view - jnp.log(n)) - (h.alike - 1) * jnp.log(of_view)
        J += jnp.sum(own) + n
    for own in (p.r or {}).values():
        J += h.r_rate * own - (h.r_shape - 1) * jnp.log(own)
    return J


def model(data: Measurements, h: Hyper) -> None:
    K = h.n_components
    found: dict[str, Any] = {field: {} for field in Params._fields}
    with numpyro.plate("user", data.shape[0]):
        found["U"] = numpyro.sample("U", dist.Normal(0, jnp.ones(K)).to_event(1))
    for v in h.views or ():
        m = v.name
        shape, rate = jnp.full(K, h.tau_shape), h.tau_rate
        tau = numpyro.sample(f"tau.{m}", dist.Gamma(shape, rate).to_event(1))
        beta = dist.Beta(h.share_a, h.share_b).expand([K]).to_event(1)
        pi = numpyro.sample(f"share.{m}", beta)
        t = numpyro.sample(f"tau_bias.{m}", dist.Gamma(h.bias_shape, h.bias_rate))
        found["tau"][m], found["share"][m], found["tau_bias"][m] = tau, pi, t
        log = jnp.stack([jnp.log1p(-pi), jnp.log(pi)], -1)
        with numpyro.plate(f"{FEATURE}{m}", v.features):
            law = sparse_rows(log, jnp.array([h.spike, 1.0]), tau)
            found["V"][m] = numpyro.sample(f"V.{m}", law)
            found["c"][m] = numpyro.sample(f"c.{m}", dist.Normal(0, t**-0.5))
        if v.law == "counts":
            found["r"][m] = numpyro.sample(f"r.{m}", dist.Gamma(h.r_shape, h.r_rate))
        if v.law == "normal":
            n = numpyro.sample(f"v.{m}", dist.Gamma(1.0, 1.0))
            with numpyro.plate(f"{FEATURE}{m}", v.features):
                own = dist.Gamma(h.alike, h.alike * n)
                found["alpha"][m] = numpyro.sample(f"alpha.{m}", own)
    x, law, offset, scale, alpha, r = at_cells(Params(**found), data.cells, h)
    score = jnp.where(law == 0, 0.0, offset + x)
    laws = (
        dist.Normal(offset + scale * x, scale * alpha**-0.5),
        dist.BernoulliLogits(score),
        NegativeBinomial(r, score - jnp.log(r)),
    )
    with numpyro.plate("cell", len(data.cells)):
        mixed = Mixed(law, laws, [0.0] * 3, [1.0] * 3, [0.0] * 3)
        numpyro.sample("rating", mixed, obs=data.y)


@compiled_for(2, once=True)
def start(key: jax.Array, data: Measurements, h: Hyper) -> Params:
    return point(METHOD.parts, key, METHOD.init(key, data, h), data, h)


def example(key: jax.Array) -> tuple[Measurements, Hyper]:
    a, b, c, away = jax.random.split(key, 4)
    views = {
        "real": np.asarray(jax.random.normal(a, (7, 4))),
        "marks": np.asarray(jax.random.bernoulli(b, 0.5, (7, 3)), float),
        "numbers": np.floor(2 * np.exp(np.asarray(jax.random.normal(c, (7, 3))))),
    }
    gone = np.asarray(jax.random.bernoulli(away, 0.2, (7, 4))) & (np.arange(7) > 0)[:, None]
    views["real"] = np.where(gone, np.nan, views["real"])
    h = Hyper(2, tau_shape=2.0, tau_rate=1.2, spike=0.3, share_a=2.0, share_b=3.0,
              bias_shape=2.0, r_shape=2.0, r_rate=0.7, counts=("numbers",), scales="joint")  # fmt: skip
    data = Measurements(views)
    return data, prepare(data, h)


METHOD = register(
    composed(
        "mofa", cite="argelaguet2018multi", home=__name__,
        data=Measurements, Params=Params, Hyper=Hyper,
        structure=SharedRows(Factor("user", "U", Given("unit")), of_view, intercepts),
        observed=LAW, objective=objective, model=model, example=example, prepare=prepare,
        solver=dict(start=start),
        notes=Notes(traits={"no_minibatch": "every view has cells of its own"}),
    )
)  # fmt: skip
