"""Numbers of every method at fixed points, kept in a file while samplers and solvers move to parts.

    python -m tests.tools.frozen write [METHOD ...]     # keep today's numbers in tests/tools/frozen.npz
    python -m tests.tools.frozen compare [METHOD ...]   # the largest difference of each kind, by method

The points are kept too, so that new code is asked the same questions. Of a table two weighted sums are kept.
tests/test_frozen.py compares the numbers of the methods that are made of parts.
"""

import sys
import zipfile
from io import BytesIO
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from bayesfac.core.data.cells import Query
from bayesfac.core.method import REGISTRY, flattened, from_sites, laws_of, log_joint, sites
from bayesfac.testing.tools import points
from tests.tools.features import with_features

FILE = Path(__file__).with_name("frozen.npz")
FEATURES = ("pmf", "bpmf", "ordinal_mf", "gibbs_mmmf", "fm", "ordinal_fm")
POINTS, SWEEPS = 3, 3


def cases():
    """{name: method with its example}; the methods that read features appear twice."""
    import bayesfac.models  # noqa: F401

    return dict(sorted(REGISTRY.items())) | {
        f"{n} with features": with_features(n) for n in FEATURES
    }


def sums(value):
    """Two weighted sums of a table; equal numbers have equal sums."""
    x = np.ravel(np.asarray(value, float))
    turn = np.arange(1, len(x) + 1)
    return np.array([x @ np.cos(turn), x @ np.cos(1.7 * turn + 1)])


def all_of(params):
    return {site: np.asarray(value) for site, value in flattened(params._asdict()).items()}


def kept_points(method, kept):
    """The points in the numbers of a case."""
    found = []
    for i in range(POINTS):
        start = f"points/{i}/"
        own = {
            k.removeprefix(start): jnp.asarray(v) for k, v in kept.items() if k.startswith(start)
        }
        found.append(from_sites(method, own))
    return found


def numbers(method, kept=None):
    """{kind: numbers} of a method; the points come from `kept`, or are made."""
    key = jax.random.key(3)
    data, hyper = method.example(key)
    every = kept_points(method, kept) if kept else points(method, key, data, hyper, POINTS)
    found = {f"points/{i}/{site}": x for i, p in enumerate(every) for site, x in all_of(p).items()}
    p, other = every[0], every[1]

    def told(kind, value):
        for path, leaf in jax.tree_util.tree_leaves_with_path(value):
            found[kind + jax.tree_util.keystr(path)] = sums(leaf)

    values = [float(jax.jit(lambda p: method.objective(p, data, hyper))(p)) for p in every]
    found["objective"] = np.diff(values)  # up to a constant
    found["log joint"] = np.array([float(log_joint(method, p, data, hyper)) for p in every])
    told("gradient", sites(jax.jit(jax.grad(lambda p: method.objective(p, data, hyper)))(p)))
    sampler(method, p, other, data, hyper, told)
    if method.solver.update:
        told("update", sites(jax.jit(lambda p: method.solver.update(p, data, hyper))(p)))
    if law := method.variational:
        q = jax.jit(lambda p: law.begin(p, data, hyper))(p)
        sweep = jax.jit(lambda q: law.update(q, data, hyper))
        for _ in range(SWEEPS):
            q = sweep(q)
        told("elbo", law.elbo(q, data, hyper) + values[0])
        told("beliefs", {site: own.sample(key) for site, own in law.laws(q).items()})
    if method.data.__name__ in ("Ratings", "Counts", "Tensor"):
        predictions(method, p, data, hyper, told)
    return found


def sampler(method, p, other, data, hyper, told):
    """Conditionals: a draw, and the density of another point; moves."""
    key, more = jax.random.key(3), ()
    if method.gibbs.augment:
        more = (method.gibbs.augment(p, data, hyper).sample(key),)
        told("auxiliary", more)
    for site, law in laws_of(method, p).items():
        own = law(p, data, hyper, *more)
        told(f"conditional {site}", own.sample(key))
        told(f"density {site}", jnp.sum(own.log_prob(sites(other)[site])))
    for name, move in method.gibbs.moves.items():
        told(f"move {name}", sites(jax.jit(lambda key, p, m=move: m(key, p, data, hyper))(key, p)))


def predictions(method, p, data, hyper, told):
    """Known and new rows and columns."""
    M = len(data.shape)
    code = np.array([[0] * M, [1] * M, [-1] + [1] * (M - 1), [1] * (M - 1) + [-1], [-1] * M])
    query = Query(code[:, 0], code[:, 1] if M == 2 else code[:, 1:])
    made = method.derive(p, data, hyper) if method.derive else {}
    said = method.predict(p._replace(**made) if made else p, query, hyper)
    told("prediction", [said.mean, said.variance])


def stored():
    """{case: {kind: numbers}} of the file."""
    found = {}
    with np.load(FILE) as table:
        for name in table.files:
            case, kind = name.split("|", 1)
            found.setdefault(case, {})[kind] = table[name]
    return found


def write(table):
    """Write the file with dates of zero, so that equal numbers make an equal file."""
    with zipfile.ZipFile(FILE, "w", zipfile.ZIP_DEFLATED) as file:
        for case in sorted(table):
            for kind, value in sorted(table[case].items()):
                buffer = BytesIO()
                np.save(buffer, value)
                file.writestr(zipfile.ZipInfo(f"{case}|{kind}.npy"), buffer.getvalue())


def gaps(now, before):
    """{kind: the largest difference, relative to 1 + the size of the numbers}; what is not in both is inf."""
    found = {}
    for kind in {*now, *before}:
        if kind not in now or kind not in before:
            found[kind] = np.inf
            continue
        a, b = now[kind], before[kind]
        away = np.abs(a - b).max(initial=0) / (1 + np.abs(b).max(initial=0))
        found[kind] = float(away) if np.isfinite(a).all() or not np.isfinite(b).all() else np.inf
    return found


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    what, *names = sys.argv[1:]
    chosen = {name: m for name, m in cases().items() if not names or name.split()[0] in names}
    table = stored() if FILE.exists() else {}
    for name, method in chosen.items():
        before = None if what == "write" else table[name]
        now = numbers(method, before)
        if what == "write":
            table[name] = now
            write(table)
            print(name, len(now), flush=True)
        else:
            found = gaps(now, before)
            worst = sorted(set(found) & set(now) & set(before), key=lambda kind: -found[kind])[:4]
            told = [f"{kind} {found[kind]:.1e}" for kind in worst]
            one = sorted({kind.split("[")[0] for kind in set(now) ^ set(before)})
            print(name, *told, f"in one of both: {one}", sep="\n   ", flush=True)
