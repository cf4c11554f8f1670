r"""Multi-label classification by hierarchical embedding (MLC-HMF): a tree of margin classifiers that vote.

Kumar, Pujari, Padmanabhan, Sahu & Kagita, "Multi-label classification using hierarchical embedding", Expert
Systems with Applications 2018; as in Kumar's thesis, Hyderabad 2018, eq. 5.19-5.24, Algorithm 5.

    J = sum_nodes [ sum_{i in node} sum_l h(y_il x_i U v_l) + penalty/2 (|U|^2 + |V|^2) ],   y = -1 or 1
    h(z) = 0 above 1, (1 - z)^2 / 2 between 0 and 1, 1/2 - z below

    paper       here             shape
    U           U[depth]         nodes x features x K
    V'          V[depth]         nodes x labels x K
    lambda      penalty
    T, h        threshold, depth
    X^i         data.nodes[depth]: the items of its nodes

The method predicts many labels from features, with a tree of classifiers. The tree is built once, in `ready`.
Labelled rows are split into two clusters (k-means), and a node is fitted to each cluster. Rows that the node
classifies with a Hamming loss of at most `threshold` stay in it. The other rows of the node are split into
two clusters again, until a cluster has fewer than `minimum` rows or the tree has `depth` levels. (Algorithm 5
requires a loss below T; with T = 0, a value of the thesis's grid, no row would ever stay.) To predict a row,
the method finds the nodes that kept its nearest training rows, and takes the mean of their probabilities of
each label. With `vote="hard"`, as in the thesis, the nodes vote with sign(x U V'), and the majority decides.
Rows that no node kept are not used as neighbours. Rows to be predicted are rows of the data without labels.

Given the tree, J separates into one problem for each node. All nodes of one depth are computed in one batch:
the features of a row are put into the block of columns of its node, so that one sparse product serves all
nodes. A parabola of curvature 1 is an upper bound of h. Hence V <- V - (G'A + penalty V)(A'A + penalty I)^-1,
with A = X U and G the gradient in the scores. U is found in the same way, column by column in the
eigenvectors of V'V, by conjugate gradients. The indices of (5.21) and (5.22) are misprints.

The NumPyro model has normal U and V in every node, and the factor exp(-h). The posterior is *generalised*,
and is conditional on the tree. The density does not change when U and V of a node are rotated together.

Length: more than 300 lines with the private files, which build the tree and batch its nodes.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpyro
import numpyro.distributions as dist

from bayesfac.core import checks
from bayesfac.core.data.cells import Grid, Query
from bayesfac.core.math import entries
from bayesfac.core.method import COLLAPSED, Axes, Choose, Method, Notes, Rotation, Solver, register
from bayesfac.core.precision import doubled
from bayesfac.labels import laws as labels
from bayesfac.labels.data.scaling import scaled
from bayesfac.labels.data.tasks import LABELS, Tasks
from bayesfac.labels.models.labels import _embedding as embedding
from bayesfac.labels.models.labels import _mlc_hmf_nodes as nodes
from bayesfac.labels.models.labels._mlc_hmf_tree import Tree, grow


class Params(NamedTuple):
    U: dict[str, jax.Array]
    V: dict[str, jax.Array]
    share: jax.Array | None = None  # derived: the share of the votes, for every row and label


VOTES = ("hard", "soft")
PENALTIES = (10.0, 3.0, 30.0)  # candidates; the first if too few rows can be held out


class Hyper(NamedTuple):
    n_components: int | None = None  # K; None: half of the labels that some row has
    penalty: float | None = None  # None: by rows held out
    threshold: float = 0.04
    depth: int = 5
    minimum: int = 5
    neighbours: int = 5
    vote: str = "soft"  # "hard": sign(x U V'), as in the thesis; "soft": its probability
    tree_seed: int = 0
    scaled: bool = True  # divide features by their spread, centre dense ones, add a constant
    cut: float | None = None  # predict labels with a larger share of votes; None: by rows held out
    binary: bool = True  # labels are 0 and 1


def prepare(data: Tasks, hyper: Hyper) -> Hyper:
    embedding.check(data, binary=True)
    labels.checked_cut(hyper.cut)
    penalty = PENALTIES[0] if hyper.penalty is None else hyper.penalty
    K = -(-labels.count(data) // 2) if hyper.n_components is None else hyper.n_components
    checks.whole("n_components", K, 100_000, "columns of an embedding")
    checks.whole("depth", hyper.depth, 20, "levels of the tree")
    checks.whole("minimum", hyper.minimum, data.n_rows, "the number of rows")
    checks.whole("neighbours", hyper.neighbours, data.n_rows, "the number of rows")
    checks.whole("tree_seed + 1", hyper.tree_seed + 1, 2**32, "a seed")
    hyper = hyper._replace(n_components=K, penalty=penalty)
    checks.positive(hyper, "penalty", *(["threshold"] if hyper.threshold != 0 else []))
    checks.one_of(hyper, "vote", VOTES)
    return hyper


def choices(data: Tasks, hyper: Hyper, chosen: Any) -> list[dict[str, float]]:
    return [] if hyper.penalty is not None or chosen else [{"penalty": one} for one in PENALTIES]


def ready(data: Tasks, hyper: Hyper) -> Tree:
    return grow(scaled(data, 1.0) if hyper.scaled else data, hyper)


def init(key: jax.Array, data: Tree, hyper: Hyper) -> Params:
    """The U and V from the construction of the tree."""
    U, V = ({depth: pair[side] for depth, pair in data.start.items()} for side in (0, 1))
    return Params(U, V)


def objective(p: Params, data: Tree, hyper: Hyper) -> jax.Array:
    loss = nodes.Margins(p.U, p.V, data).loss(data.y[LABELS])
    return loss + hyper.penalty / 2 * embedding.squared(p.U, p.V)


@doubled
def update(p: Params, data: Tree, hyper: Hyper) -> Params:
    """A step of V and then of U, for all nodes of a depth at once."""
    U, V = dict(p.U), dict(p.V)
    Y = embedding.answers_of(data, data.y[LABELS])[0] * 2 - 1
    for depth, level in data.nodes.items():
        V[depth] = nodes.step_V(level, level.codes(U[depth]), V[depth], Y, hyper.penalty)
        U[depth] = nodes.step_U(level, U[depth], V[depth], Y, hyper.penalty)
    return Params(U, V)


def model(data: Tree, hyper: Hyper) -> None:
    U: dict[str, jax.Array] = {}
    V: dict[str, jax.Array] = {}
    for depth, pair in data.start.items():
        for factors, name, like in ((U, "U", pair[0]), (V, "V", pair[1])):
            law = dist.Normal(0, hyper.penalty**-0.5).expand(like.shape).to_event(3)
            factors[depth] = numpyro.sample(f"{name}.{depth}", law)
    numpyro.sample(f"view.{LABELS}", nodes.Margins(U, V, data), obs=data.y.get(LABELS))


def derive(p: Params, data: Tree, hyper: Hyper) -> dict[str, Any]:
    """The share of the votes. A label that no row has gets none, because the penalty keeps its margins small
    and the common cut could be below its probability."""
    total, asked = jnp.zeros((data.n_rows, len(data.labels))), jnp.zeros((data.n_rows, 1))
    for depth, level in data.votes.items():
        A = level.codes(p.U[depth])
        votes, number = nodes.votes(level, A, p.V[depth], data.n_rows, hyper.vote == "soft")
        total, asked = total + votes, asked + number
    some = jnp.any(embedding.answers_of(data, data.y[LABELS])[0] > 0, 0)
    return {"share": jnp.where(some, total / asked, 0)}


def predict(p: Params, query: Query | Grid, hyper: Hyper) -> dist.Distribution:
    return labels.of_labels(entries(p.share, query), query, hyper, 0.25)


def remarks(p: Params, data: Tree, hyper: Hyper) -> list[str]:
    """Notes on labels that no row has, and on nodes without factors, whose votes would be rounding errors."""
    levels = data.nodes.items()
    scores = [level.scores(level.codes(p.U[depth]), p.V[depth]) for depth, level in levels]
    lost = sum(int(jnp.sum(jnp.max(jnp.abs(z), (1, 2)) < nodes.FAINT)) for z in scores)
    told, total = labels.remarks(p, data, hyper), sum(map(len, scores))
    if lost:
        told.append(
            f"{COLLAPSED if lost == total else ''}{lost} of {total} nodes have no factors, and their votes "
            "mean nothing: a smaller penalty, or scaled=True, may help"
        )
    return told


def gauge(names: tuple[str, ...]) -> tuple[Rotation, ...]:
    depths = [name.removeprefix("U.") for name in names if name.startswith("U.")]
    pairs = ((f"U.{k}", f"V.{k}") for k in depths)
    return tuple(Rotation(pair, dict.fromkeys(pair, 2), each=True) for pair in pairs)


def example(key: jax.Array) -> tuple[Tree, Hyper]:
    data = labels.one_view(key)
    hyper = prepare(data, Hyper(2, 0.4, threshold=0.1, depth=2, minimum=2, neighbours=3))
    return grow(data, hyper), hyper


TRAITS = labels.LABELS_ALONE | {
    "starts_solved": "a node is fitted to its minimum when the tree grows"
}

# fmt: off
METHOD = register(Method(
    name="mlc_hmf", cite="kumar2018mlchmf", data=Tasks, Params=Params, Hyper=Hyper, init=init,
    objective=objective, model=model, predict=predict, example=example, derive=derive,
    prepare=prepare, ready=ready,
    solver=Solver(update=update), choose=Choose(candidates=choices),
    axes=Axes(
        dims={"U": ("node.{key}", "input", "component"),
            "V": ("node.{key}", "feature.labels", "component"), "share": ("row", "feature.labels")},
        gauge=gauge,
    ),
    notes=Notes(remarks=remarks, traits=TRAITS),
))
# fmt: on
