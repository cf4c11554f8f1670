"""Samplers that are known to be wrong, each in one thing; Geweke's test and calibration must see them."""

import jax
import jax.numpy as jnp

from bayesfac.core.laws.distributions import GaussianRows
from bayesfac.core.method import REGISTRY
from bayesfac.labels.models.tasks._row_groups import SharedRows
from bayesfac.models.ratings._shared.normal_wishart import SIDES
from bayesfac.parts.observed.thresholds import rising
from bayesfac.parts.scales import turned
from tests.tools.records import changed

# settings that differ from those of the example: weak losses and light tails
WEAKER = {
    "pmf": {"offset": 0.3},
    "bpmf": {"offset": 0.3, "alpha_shape": 3.0, "alpha_rate": 3.0},
    "ard_mf": {"tau_shape": 3.0, "offset": 0.3, "alpha_shape": 3.0, "alpha_rate": 3.0},
    "gibbs_mmmf": {"cost": 0.1},
    "ltm": {"penalty": 0.1},
    "concat_ltm": {"divergence": "squared", "penalty": 0.5},
    "mggm": {"penalty": 0.3},
    "cmf": {"alpha_shape": 3.0, "alpha_rate": 3.0},
    "fm": {"alpha_shape": 3.0, "alpha_rate": 3.0},
}
# {method: changed settings} of every method that Gibbs can run
HYPER = {name: WEAKER.get(name, {}) for name, m in sorted(REGISTRY.items()) if m.gibbs.conditionals}


def planted():  # noqa: C901  # a list of bugs, not a branch
    """Make the samplers that are known to be wrong; a test must find each."""
    pmf, bpmf = REGISTRY["pmf"], REGISTRY["bpmf"]

    def with_block(method, site, wrong):
        return changed(method, conditionals={**method.gibbs.conditionals, site: wrong})

    def rows(method, site, **change):
        def wrong(p, data, hyper):
            right = method.gibbs.conditionals[site](p, data, hyper)
            fields = {n: getattr(right, n) for n in GaussianRows.pytree_data_fields}
            return GaussianRows(**{**fields, **{n: f(fields[n]) for n, f in change.items()}})

        return with_block(method, site, wrong)

    def alpha(p, data, hyper):
        right = bpmf.gibbs.conditionals["alpha"](p, data, hyper)
        return type(right)(right.concentration + len(data.y) / 2, right.rate)

    heres = REGISTRY["heres"]

    def halved(p, data, hyper, w, block):
        right = heres.gibbs.conditionals["B"](p, data, hyper, w, block)
        return SharedRows(right.shift / 2, right.precision / 2, right.spans)

    def unlabelled(p, data, hyper, w):
        return heres.gibbs.conditionals["F"](p, data, hyper._replace(weight=0.1), w)

    margin, ordinal = REGISTRY["gibbs_mmmf"], REGISTRY["ordinal_mf"]

    def no_prior(p, data, hyper, g):
        return margin.gibbs.conditionals["theta"](p, data, hyper._replace(scale_theta=20.0), g)

    def no_level(key, p, data, hyper):
        return margin.gibbs.moves["shift"](key, p, data, hyper._replace(scale_theta=20.0))

    def always(key, p, data, hyper):
        return p._replace(
            theta=rising(rising.inv(p.theta) + 0.3 * jax.random.normal(key, p.theta.shape))
        )

    def scaled(key, p, data, hyper):
        t, eye = 0.3 * jax.random.normal(key, (p.U.shape[1],)), jnp.eye(p.U.shape[1])
        return turned(SIDES, (SIDES[:1], SIDES[1:]), p, hyper, t, eye)  # ignores the prior

    cp = REGISTRY["cp"]

    def twice(p, data, hyper):
        right = cp.gibbs.conditionals["alpha"](p, data, hyper)
        return type(right)(right.concentration + len(data) / 2, right.rate)

    def two_modes(p, data, hyper, mode):
        last = data.modes[-1]
        ones = p.U | ({} if mode == last else {last: jnp.ones_like(p.U[last])})
        return cp.gibbs.conditionals["U"](p._replace(U=ones), data, hyper, mode)

    cmf = REGISTRY["cmf"]

    def twice_words(p, data, hyper, z, name):
        right = cmf.gibbs.conditionals["alpha"](p, data, hyper, z, name)
        return type(right)(right.concentration + len(data.observed(name)) / 2, right.rate)

    def without_tags(p, data, hyper, z, kind):
        right = cmf.gibbs.conditionals["U"](p, data, hyper, z, kind)
        fields = {n: getattr(right, n) for n in GaussianRows.pytree_data_fields}
        weight = right.weight.at[data.spans["tags"]].set(0)
        return GaussianRows(**{**fields, "weight": weight})

    def swollen_tags(key, p, data, hyper):
        return cmf.gibbs.moves["swell"](key, p, data, hyper._replace(rate=9.0))

    hpf, wrmf, ard = REGISTRY["hpf"], REGISTRY["wrmf"], REGISTRY["ard_mf"]

    def one_side(p, data, hyper):
        right = ard.gibbs.conditionals["tau"](p, data, hyper)
        return type(right)(right.concentration - len(p.V) / 2, right.rate)

    def free(key, p, data, hyper):
        return ard.gibbs.moves["swell"](key, p, data, hyper._replace(tau_rate=1e-6))

    fm, ordinal_fm = REGISTRY["fm"], REGISTRY["ordinal_fm"]

    def half_noise(p, data, hyper):
        right = fm.gibbs.conditionals["alpha"](p, data, hyper)
        return type(right)(right.concentration + len(data) / 2, right.rate)

    def shifted(key, p, data, hyper):
        return fm.gibbs.moves["shift"](key, p, data, hyper._replace(beta0=20.0))

    def grown(key, p, data, hyper):
        return ordinal_fm.gibbs.moves["swell"](key, p, data, hyper._replace(tau_rate=9.0))

    def halved_rate(p, data, hyper, z):
        right = hpf.gibbs.conditionals["log_theta"](p, data, hyper, z)
        return type(right)(right.shape_, right.rate / 2)

    plsa, mvplsa, ltm, mggm = (REGISTRY[name] for name in ("plsa", "mvplsa", "ltm", "mggm"))

    def prior_twice(p, data, hyper, parts):
        return plsa.gibbs.conditionals["A"](p, data, hyper._replace(a=2 * hyper.a - 1), parts)

    def sharper(p, data, hyper, parts, view):
        return mvplsa.gibbs.conditionals["B"](
            p, data, hyper._replace(b=2 * hyper.b - 1), parts, view
        )

    def alone(p, data, hyper, parts):
        return ltm.gibbs.conditionals["A"](p, data, hyper._replace(penalty=0.0), parts)

    def flat_weights(p, data, hyper, parts):
        return mggm.gibbs.conditionals["alpha"](p, data, hyper._replace(penalty=0.0), parts)

    return {
        "plsa: the prior counted twice": (plsa, with_block(plsa, "A", prior_twice)),
        "mvplsa: the prior counted twice": (mvplsa, with_block(mvplsa, "B", sharper)),
        "ltm: rows without neighbours": (ltm, with_block(ltm, "A", alone)),
        "mggm: weights without the penalty": (mggm, with_block(mggm, "alpha", flat_weights)),
        "fm: ratings counted twice in alpha": (fm, with_block(fm, "alpha", half_noise)),
        "fm: a shift that ignores the prior of means": (
            fm,
            changed(fm, moves={**fm.gibbs.moves, "shift": shifted}),
        ),
        "ordinal_fm: scores that swell with another prior": (
            ordinal_fm,
            changed(ordinal_fm, moves={**ordinal_fm.gibbs.moves, "swell": grown}),
        ),
        "hpf: half the rate of theta": (hpf, with_block(hpf, "log_theta", halved_rate)),
        "cmf: cells counted twice in alpha": (cmf, with_block(cmf, "alpha", twice_words)),
        "cmf: rows do not see the tags": (cmf, with_block(cmf, "U", without_tags)),
        "cmf: tags that swell with another prior": (
            cmf,
            changed(cmf, moves={**cmf.gibbs.moves, "swell": swollen_tags}),
        ),
        "cp: cells counted twice in alpha": (cp, with_block(cp, "alpha", twice)),
        "cp: rows do not see the last mode": (cp, with_block(cp, "U", two_modes)),
        "wrmf: confidences forgotten": (wrmf, rows(wrmf, "U", weight=jnp.ones_like)),
        "gibbs_mmmf: thresholds without their prior": (
            margin,
            with_block(margin, "theta", no_prior),
        ),
        "gibbs_mmmf: levels without their prior": (
            margin,
            changed(margin, moves={"shift": no_level}),
        ),
        "ordinal_mf: every step of the thresholds accepted": (
            ordinal,
            changed(ordinal, moves={"thresholds": always}),
        ),
        "heres: half a precision": (heres, with_block(heres, "B", halved)),
        "heres: rows that hardly see their labels": (heres, with_block(heres, "F", unlabelled)),
        "ard_mf: tau from the rows of one side": (ard, with_block(ard, "tau", one_side)),
        "ard_mf: scales that move without their prior": (
            ard,
            changed(ard, moves={**ard.gibbs.moves, "swell": free}),
        ),
        "pmf: noise forgotten": (pmf, rows(pmf, "U", weight=lambda w: jnp.ones_like(w))),
        "pmf: prior dropped": (pmf, rows(pmf, "V", precision=lambda L: 0.05 * L)),
        "bpmf: mean of the prior forgotten": (bpmf, rows(bpmf, "U", shift=jnp.zeros_like)),
        "bpmf: ratings counted twice in alpha": (bpmf, with_block(bpmf, "alpha", alpha)),
        "bpmf: a scale move that ignores the prior": (
            bpmf,
            changed(bpmf, moves={"s": scaled}),
        ),
    }
