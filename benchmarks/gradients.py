"""What gradients cost: one of PMF's objective, a step of SVI, and effective draws of NUTS, beside others.

gradient   value and gradient of PMF's J under jit on `--cells` random cells: the loops in Numba, as they run
           by default, and in XLA's own form
step       a step of SVI for PMF, on MovieLens-100K and on the random cells: `bf.SVI`, and NumPyro's SVI of a
           model that gathers the rows of each cell; both with a normal guide and Adam. The difference of a
           long and a short run, so that compilation is left out
NUTS       effective draws a second of the mean of probe cells (the median cell; rank-normalised bulk ESS):
           `bf.NUTS`, NumPyro's NUTS of the plain model, and nutpie's of the same density in PyMC. Each
           library has made the same run before with another seed, so that nothing compiles. The time
           includes the warm-up

The density is the same for all: y ~ N(m + u.v, noise^2) with normal factors of fixed scales.
"""

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from common import (
    arguments,
    hold_cores,
    in_process,
    installed,
    report,
    shared_arrays,
    surroundings,
    table,
)

Numbers = dict[str, Any]
SCALES = {"noise": 0.9, "scale_user": 0.6, "scale_item": 0.6}
PROBES = 40


def ratings(data: Numbers) -> Any:
    import bayesfac as bf

    return bf.Ratings(data["user"], data["item"], data["value"])


def settings(task: Numbers) -> Numbers:
    return {"n_components": task["components"], "biases": False, **SCALES}


def run_gradient(task: Numbers, data: Numbers) -> Numbers:
    import jax

    from bayesfac.core.kernels import sparse
    from bayesfac.core.method import settle
    from bayesfac.models.ratings.pmf import METHOD as method

    train = ratings(data)
    hyper = settle(method, train, settings(task))
    p = method.init(jax.random.key(0), train, hyper)
    with sparse.use(task["form"]):
        both = jax.jit(jax.value_and_grad(lambda p, data: method.objective(p, data, hyper)))
        jax.block_until_ready(both(p, train))
        seconds = []
        for _ in range(task["times"]):
            begun = time.perf_counter()
            jax.block_until_ready(both(p, train))
            seconds.append(time.perf_counter() - begun)
    return {"seconds": float(np.median(seconds))}


def plain_model(user: Any, item: Any, value: Any, shape: Any, components: int) -> None:
    """PMF as a first attempt in NumPyro would write it."""
    import numpyro
    import numpyro.distributions as dist

    U = numpyro.sample("U", dist.Normal(0, SCALES["scale_user"]).expand((shape[0], components)))
    V = numpyro.sample("V", dist.Normal(0, SCALES["scale_item"]).expand((shape[1], components)))
    mean = (U[user] * V[item]).sum(-1)
    numpyro.sample("rating", dist.Normal(mean, SCALES["noise"]), obs=value)


def plain(task: Numbers, data: Numbers) -> tuple[Any, ...]:
    value = (data["value"] - data["value"].mean()).astype(np.float32)
    shape = int(data["user"].max()) + 1, int(data["item"].max()) + 1
    return data["user"], data["item"], value, shape, task["components"]


def run_step(task: Numbers, data: Numbers) -> Numbers:
    import bayesfac as bf

    train, n = ratings(data), task["steps"]
    if task["library"] == "bayesfac":

        def run(steps: int) -> None:
            engine = bf.SVI(steps=steps, learning_rate=0.01, draws=1, patience=False, check=False)
            bf.fit("pmf", train, engine, progress=False, **settings(task))
    else:
        import jax
        import numpyro
        from numpyro.infer import SVI, Trace_ELBO
        from numpyro.infer.autoguide import AutoNormal

        known = plain(task, data)
        model = lambda: plain_model(*known)  # noqa: E731
        svi = SVI(model, AutoNormal(model), numpyro.optim.Adam(0.01), Trace_ELBO())

        state = svi.init(jax.random.key(0))
        block = jax.jit(
            lambda state: jax.lax.fori_loop(0, 100, lambda _, s: svi.update(s)[0], state)
        )

        def run(steps: int) -> None:
            last = state
            for _ in range(steps // 100):
                last = block(last)
            jax.block_until_ready(last)

    def seconds(steps: int) -> float:
        begun = time.perf_counter()
        run(steps)
        return time.perf_counter() - begun

    seconds(n)
    return {"seconds": (seconds(5 * n) - seconds(n)) / (4 * n)}


def run_nuts(task: Numbers, data: Numbers) -> Numbers:
    sample = {"bayesfac": ours, "NumPyro": numpyros, "nutpie": nutpies}[task["library"]](task, data)
    sample(task["warmup"], task["draws"], 1)
    begun = time.perf_counter()
    U, V = sample(task["warmup"], task["draws"], 2)
    seconds = time.perf_counter() - begun
    at = np.random.default_rng(0).permutation(len(data["user"]))[:PROBES]
    means = (U[:, :, data["user"][at]] * V[:, :, data["item"][at]]).sum(-1)
    return {"seconds": seconds, "means": np.round(means, 5).tolist()}


def ours(task: Numbers, data: Numbers) -> Callable[[int, int, int], tuple[np.ndarray, np.ndarray]]:
    import bayesfac as bf

    train = ratings(data)

    def sample(warmup: int, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        engine = bf.NUTS(warmup=warmup, draws=draws, chains=2)
        fit = bf.fit("pmf", train, engine, seed=seed, progress=False, **settings(task))
        users, items = (np.argsort(fit.data.coords[axis]) for axis in ("user", "item"))
        return np.asarray(fit.draws["U"])[:, :, users], np.asarray(fit.draws["V"])[:, :, items]

    return sample


def numpyros(
    task: Numbers, data: Numbers
) -> Callable[[int, int, int], tuple[np.ndarray, np.ndarray]]:
    import jax
    from numpyro.infer import MCMC, NUTS

    known = plain(task, data)

    def sample(warmup: int, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        told = {"num_warmup": warmup, "num_samples": draws, "num_chains": 2}
        mcmc = MCMC(NUTS(plain_model), **told, chain_method="vectorized", progress_bar=False)
        mcmc.run(jax.random.key(seed), *known)
        found = mcmc.get_samples(group_by_chain=True)
        return np.asarray(found["U"]), np.asarray(found["V"])

    return sample


def nutpies(
    task: Numbers, data: Numbers
) -> Callable[[int, int, int], tuple[np.ndarray, np.ndarray]]:
    import nutpie
    import pymc as pm

    user, item, value, shape, K = plain(task, data)
    with pm.Model() as model:
        U = pm.Normal("U", 0, SCALES["scale_user"], shape=(shape[0], K))
        V = pm.Normal("V", 0, SCALES["scale_item"], shape=(shape[1], K))
        pm.Normal("rating", (U[user] * V[item]).sum(-1), SCALES["noise"], observed=value)
    compiled = nutpie.compile_pymc_model(model)

    def sample(warmup: int, draws: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        told = {"tune": warmup, "draws": draws, "chains": 2, "seed": seed, "progress_bar": False}
        found = nutpie.sample(compiled, cores=task["threads"], **told).posterior
        return found["U"].to_numpy(), found["V"].to_numpy()

    return sample


RUN = {"gradient": run_gradient, "step": run_step, "nuts": run_nuts}


def work(task: Numbers, threads: int) -> None:
    """One library in this process; JSON out."""
    hold_cores(threads)
    with np.load(task["data"]) as file:
        data = dict(file)
    print(json.dumps(RUN[task["kind"]](task | {"threads": threads}, data)))


def random_cells(count: int) -> Numbers:
    rng = np.random.default_rng(0)
    n, m = max(100, count // 160), max(100, count // 250)
    code = rng.choice(n * m, count, replace=False)
    value = rng.integers(1, 6, count).astype(float)
    return {"user": code // m, "item": code % m, "value": value}


def small_tables(quick: bool) -> dict[str, Numbers]:
    """Made-up ratings of 60 users and 40 items; the 200 films of MovieLens-100K with the most ratings."""
    import bayesfac as bf

    made, _ = bf.datasets.make_gaussian(60, 40, rank=3, density=0.3, seed=0)
    found = {"60 x 40": made}
    if not quick:
        films = bf.datasets.load("movielens-100k")
        often = np.argsort(-np.bincount(films.item))[:200]
        found["943 x 200 of MovieLens"] = films.take(np.isin(films.item, often))
    return {name: coded(one) for name, one in found.items()}


def coded(data: Any) -> Numbers:
    user, item = (np.unique(x, return_inverse=True)[1] for x in (data.user, data.item))
    return {"user": user, "item": item, "value": np.asarray(data.value, float)}


def gradients(args: Any) -> dict[str, Numbers]:
    with shared_arrays(**random_cells(args.cells)) as data:
        task = {"kind": "gradient", "data": data, "components": 32, "times": 11}
        found = {form: one(args, task | {"form": form})["seconds"] for form in ("numba", "jax")}
    what = f"value and gradient, {args.cells} cells, K = 32: ms"
    return {what: {"figures": {form: 1e3 * seconds for form, seconds in found.items()}}}


def steps(args: Any) -> dict[str, Numbers]:
    import bayesfac as bf

    films = random_cells(5_000) if args.quick else coded(bf.datasets.load("movielens-100k"))
    found = {}
    for arrays, K in [(films, 10), (random_cells(args.cells), 32)]:
        with shared_arrays(**arrays) as data:
            task = {"kind": "step", "data": data, "components": K}
            task["steps"] = 100 if args.quick or K > 10 else 500
            seconds = {
                name: one(args, task | {"library": name})["seconds"]
                for name in ("bayesfac", "NumPyro")
            }
        what = f"a step of SVI, {len(arrays['user'])} cells, K = {K}: ms"
        found[what] = {"figures": {name: 1e3 * each for name, each in seconds.items()}}
    return found


def samplers(args: Any) -> dict[str, Numbers]:
    from bayesfac.report.arviz_versions import ess

    found, libraries = {}, ["bayesfac", "NumPyro", *(["nutpie"] if installed("nutpie") else [])]
    for name, arrays in small_tables(args.quick).items():
        with shared_arrays(**arrays) as data:
            task = {"kind": "nuts", "data": data, "components": 3}
            task |= {"warmup": args.draws, "draws": args.draws}
            runs = {library: one(args, task | {"library": library}) for library in libraries}
        means = {library: np.asarray(run["means"]) for library, run in runs.items()}
        draws = {library: float(np.median(ess(each))) for library, each in means.items()}
        centre = means["bayesfac"].mean((0, 1))
        found[f"NUTS, {name}: effective draws a second"] = {
            "figures": {
                library: draws[library] / runs[library]["seconds"] for library in libraries
            },
            "seconds": {library: run["seconds"] for library, run in runs.items()},
            "effective draws": draws,
            "largest difference of a mean": {
                library: float(np.abs(each.mean((0, 1)) - centre).max())
                for library, each in means.items()
            },
        }
    return found


def one(args: Any, task: Numbers) -> Numbers:
    return in_process(__file__, task, args.threads)


PARTS = {"gradient": gradients, "step": steps, "nuts": samplers}


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument("--cells", type=int, default=1_000_000, metavar="N")
    parser.add_argument("--parts", nargs="+", default=list(RUN), choices=list(RUN))
    parser.add_argument("--draws", type=int, default=500, metavar="N", help="of NUTS; and warm-up")
    args = parser.parse_args()
    if args.worker:
        return work(json.loads(args.worker), args.threads)
    if args.quick:
        args.cells, args.draws = 5_000, 20
    where, found = surroundings("numpyro", "pymc", "nutpie"), {}
    for part in args.parts:
        found |= PARTS[part](args)
    lines = [
        {"what": what, "by": name, "figure": f"{one:.3g}", "ratio": f"{one / ours:.2f}"}
        for what, figures in found.items()
        for ours in [next(iter(figures["figures"].values()))]
        for name, one in figures["figures"].items()
    ]
    report("gradients", args, {"where": where, "results": found}, table(lines))


if __name__ == "__main__":
    main()
