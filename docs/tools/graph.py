"""The graphical model of a method as an SVG picture, drawn from its NumPyro model.

Its colours are CSS variables of the page, so the picture is dark in the dark theme.
"""

from collections import defaultdict
from html import escape
from typing import Any, NamedTuple

import jax
import numpy as np
from numpyro import handlers
from numpyro.infer.inspect import get_model_relations
from scipy.optimize import nnls

from bayesfac.core.method import Method

HALF, PAD, GAP, ROW = 25, 16, 22, 78  # half a node's height; around plates; beside; between rows
LABEL, LETTER = 22, 6  # the height of a plate's name, and the width of its letters


class Node(NamedTuple):
    name: str
    law: str
    kind: str  # "latent", "observed" or "factor"
    parents: tuple[str, ...]

    @property
    def half(self) -> float:
        """Half the width of the box, which fits the text."""
        return max(HALF + 5, 4.6 * len(self.name) + 13, 3.1 * len(self.law) + 13)


class Picture(NamedTuple):
    nodes: dict[str, Node]
    plates: dict[
        str, frozenset[str]
    ]  # plate -> names of its nodes; two plates are nested or disjoint
    sites: tuple[str, ...]  # names of the latent sites before views were merged


def look(method: Method) -> Picture:
    """Sites, their laws, parents and plates, from the model with the data of the method's example."""
    data, hyper = method.example(jax.random.key(0))
    data = method.ready(data, hyper)
    found = get_model_relations(method.model, (data, hyper))
    trace = handlers.trace(handlers.seed(method.model, 0)).get_trace(data, hyper)
    nodes = {}
    for site, parents in found["sample_sample"].items():
        law = law_of(trace[site]["fn"])
        kind = "factor" if law == "Unit" else "observed" if site in found["observed"] else "latent"
        nodes[site] = Node(site, "factor" if kind == "factor" else law, kind, tuple(parents))
    plates = {name: frozenset(inside) for name, inside in found["plate_sample"].items() if inside}
    sampled = tuple(name for name, node in nodes.items() if node.kind == "latent")
    return folded(Picture(nodes, plates, sampled))


def law_of(law: Any) -> str:
    """The name of a distribution, without wrappers that only expand, reshape or transform it."""
    while type(law).__name__ in {"ExpandedDistribution", "Independent", "TransformedDistribution"}:
        law = law.base_dist
    return type(law).__name__


def folded(picture: Picture) -> Picture:
    """Merge keys (usually views) with the same structure into one plate: B.left, B.right -> B."""
    keys: dict[str, list[str]] = defaultdict(list)
    for name in picture.nodes:
        if "." in name:
            keys[name.split(".")[1]].append(name)
    alike: dict[Any, list[str]] = defaultdict(list)
    for key, names in keys.items():
        shape = [
            (drop(n, key), tuple(drop(p, key) for p in picture.nodes[n].parents)) for n in names
        ]
        alike[tuple(sorted(shape))].append(key)
    nodes, plates = dict(picture.nodes), dict(picture.plates)
    for group in (g for g in alike.values() if len(g) > 1):
        new = {n: drop(n, k) for k in group for n in keys[k]}
        nodes = {
            new.get(n, n): node._replace(
                name=new.get(n, n),
                parents=tuple(dict.fromkeys(new.get(p, p) for p in node.parents)),
            )
            for n, node in nodes.items()
        }
        renamed = {n: [drop(n, k) for k in group if drop(n, k) != n] for n in plates}
        plates = {
            (renamed[n] or [n])[0]: frozenset(new.get(m, m) for m in inside)
            for n, inside in plates.items()
        }
        plates[", ".join(group)] = frozenset(new.values())
    return Picture(nodes, plates, picture.sites)


def drop(name: str, key: str) -> str:
    """Remove the key from a name: `C.left` without `left` is `C`."""
    return ".".join(part for i, part in enumerate(name.split(".")) if not (i and part == key))


# ---------------------------------------------------------------------- places


def rows(nodes: dict[str, Node]) -> dict[str, int]:
    """The row of every node: below its parents, and directly above its highest child."""
    depth: dict[str, int] = {}
    for name, node in nodes.items():  # models name parents before children
        depth[name] = 1 + max((depth[p] for p in node.parents), default=-1)
    for name in reversed(nodes):
        below = [depth[n] for n, node in nodes.items() if name in node.parents]
        depth[name] = min(below) - 1 if below else depth[name]
    return depth


class Scene(NamedTuple):
    """The nodes and plates to place, each with the innermost plate around it."""

    picture: Picture
    depth: dict[str, int]
    inside: dict[str, str]  # node or plate -> the plate around it, "" outside
    span: dict[str, tuple[int, int]]  # its rows


def stage(picture: Picture) -> Scene:
    """Find the innermost plate around every node and plate."""
    depth = rows(picture.nodes)
    wide = sorted(picture.plates, key=lambda plate: -len(picture.plates[plate]))
    inside = {
        name: next((p for p in reversed(wide) if name in picture.plates[p]), "")
        for name in picture.nodes
    }
    for at, plate in enumerate(wide):
        outer = [p for p in wide[:at] if picture.plates[plate] <= picture.plates[p]]
        inside[plate] = outer[-1] if outer else ""
    levels = {name: [depth[name]] for name in picture.nodes}
    levels |= {plate: [depth[n] for n in members] for plate, members in picture.plates.items()}
    return Scene(picture, depth, inside, {n: (min(v), max(v)) for n, v in levels.items()})


def neighbours(scene: Scene, order: list[str]) -> list[tuple[str, str]]:
    """Pairs within one plate that share a row, from left to right."""
    return [
        (a, b)
        for at, a in enumerate(order)
        for b in order[at + 1 :]
        if scene.inside[a] == scene.inside[b]
        and scene.span[a][0] <= scene.span[b][1]
        and scene.span[b][0] <= scene.span[a][1]
    ]


def spread(scene: Scene, order: list[str]) -> tuple[float, dict[str, tuple[float, float]]]:
    """The cost of the arrows, and the left and right ends that minimise this cost without overlaps."""
    at = {
        name: 2 * i for i, name in enumerate(order)
    }  # index of the left end; the right end has the next index
    n, nodes = 2 * len(order), scene.picture.nodes
    pull, rules = np.eye(n) * 1e-4, []

    def keep(low: int, high: int, distance: float) -> None:
        row = np.zeros(n)
        row[high], row[low] = 1, -1
        rules.append((row, distance))

    for name, node in nodes.items():
        keep(at[name], at[name] + 1, 2 * node.half)
        width = np.zeros(n)
        width[at[name]], width[at[name] + 1] = -1, 1
        pull += 50 * np.outer(width, width)
        for parent in node.parents:
            arrow = np.zeros(n)
            arrow[at[name] : at[name] + 2] = 0.5
            arrow[at[parent] : at[parent] + 2] -= 0.5
            pull += np.outer(arrow, arrow)
    for plate in scene.picture.plates:
        keep(at[plate], at[plate] + 1, LETTER * len(plate) + 2 * PAD)  # its name
        width = np.zeros(n)
        width[at[plate]], width[at[plate] + 1] = -1, 1
        pull += np.outer(width, width)
    for name, plate in scene.inside.items():
        if plate:
            keep(at[plate], at[name], PAD)
            keep(at[name] + 1, at[plate] + 1, PAD)
    for a, b in neighbours(scene, order):
        keep(at[a] + 1, at[b], GAP)
    x = nearest(pull, np.array([row for row, _ in rules]), np.array([gap for _, gap in rules]))
    return x @ pull @ x, {name: (x[i], x[i + 1]) for name, i in at.items()}


def nearest(pull: np.ndarray, A: np.ndarray, b: np.ndarray) -> np.ndarray:
    """The x of least x' pull x with A x >= b: Lawson & Hanson's least distance programming."""
    root = np.linalg.cholesky(pull).T
    G, unit = np.linalg.solve(root.T, A.T), np.abs(b).max()
    E = np.vstack([G, b / unit])
    aim = np.append(np.zeros(len(G)), 1.0)
    rest = E @ nnls(E, aim)[0] - aim
    return np.linalg.solve(root, -rest[:-1] / rest[-1]) * unit


def arranged(picture: Picture) -> tuple[Scene, dict[str, tuple[float, float]]]:
    """Place nodes and plates: swap siblings as long as a swap shortens the arrows."""
    scene = stage(picture)
    said = list(picture.nodes)  # in the model's order; a plate has the place of its first node
    order = [*picture.nodes, *picture.plates]
    order.sort(key=lambda name: min(map(said.index, picture.plates.get(name, [name]))))
    best, places = spread(scene, order)
    better = True
    while better:
        better = False
        for a, b in neighbours(scene, order):
            other = [{a: b, b: a}.get(name, name) for name in order]
            cost, found = spread(scene, other)
            if cost < best * (1 - 1e-3):  # without a real gain, keep the model's order
                best, places, order, better = cost, found, other, True
                break
    return scene, places


# ---------------------------------------------------------------------- drawing


def svg(name: str, picture: Picture) -> str:
    """The picture as SVG, with a description for screen readers."""
    scene, ends = arranged(picture)
    nodes, plates = picture.nodes, picture.plates
    step = ROW + 2 * HALF + LABEL * max([deep(scene, p, 1) - 1 for p in plates], default=0)
    middle = {n: np.array([sum(ends[n]) / 2, scene.depth[n] * step]) for n in nodes}
    boxes = {
        plate: np.array(
            [
                [
                    ends[plate][0],
                    scene.span[plate][0] * step - HALF - 0.8 * PAD * deep(scene, plate, 0),
                ],
                [
                    ends[plate][1],
                    scene.span[plate][1] * step + HALF + LABEL * deep(scene, plate, 1),
                ],
            ]
        )
        for plate in plates
    }
    bows = [arrow(nodes, middle, p, n) for n in nodes for p in nodes[n].parents]
    around = [*boxes.values(), *bows]
    around += [middle[n] + np.array([[-v.half, -HALF], [v.half, HALF]]) for n, v in nodes.items()]
    low, high = np.concatenate(around).min(0) - 4, np.concatenate(around).max(0) + 4
    width, height = high - low
    title = escape(f"Graphical model of {name}: {told(picture)}", quote=True)
    return (
        f'<svg class="graph" viewBox="{low[0]:.0f} {low[1]:.0f} {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" style="min-width:{0.75 * width:.0f}px" role="img" aria-label="{title}" xmlns="http://www.w3.org/2000/svg">'
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        'markerHeight="7" orient="auto"><path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>'
        + "".join(plate_box(plate, box) for plate, box in boxes.items())
        + "".join(map(drawn, bows))
        + "".join(node_box(nodes[n], *middle[n]) for n in nodes)
        + "".join(plate_name(plate, box, bows) for plate, box in boxes.items())
        + "</svg>"
    )


def deep(scene: Scene, plate: str, end: int) -> int:
    """How many nested plates, this one included, share its first (end 0) or last (end 1) row."""
    inner = [p for p, outer in scene.inside.items() if outer == plate and p in scene.picture.plates]
    same = [p for p in inner if scene.span[p][end] == scene.span[plate][end]]
    return 1 + max([deep(scene, p, end) for p in same], default=0)


def told(picture: Picture) -> str:
    """The picture in words."""
    words = [
        f"{name} ({node.kind if node.kind == 'factor' else f'{node.kind}, {node.law}'}"
        + (f", given {', '.join(node.parents)})" if node.parents else ")")
        for name, node in picture.nodes.items()
    ]
    return "; ".join(words)


def plate_box(plate: str, box: np.ndarray) -> str:
    (x, y), (width, height) = box[0], box[1] - box[0]
    return (
        f'<rect class="plate" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
        f'height="{height:.1f}" rx="14"/>'
    )


def plate_name(plate: str, box: np.ndarray, bows: list[np.ndarray]) -> str:
    """The name at the lower edge of a plate, on the side that fewer arrows cross."""
    wide, path = LETTER * len(plate) + 6, np.concatenate([curve(bow) for bow in bows])
    side = {"end": box[1][0] - 10 - wide, "start": box[0][0] + 10}
    crossed = {
        anchor: np.sum(
            (path[:, 0] > x) & (path[:, 0] < x + wide) & (np.abs(path[:, 1] - box[1][1] + 11) < 9)
        )
        for anchor, x in side.items()
    }
    anchor = min(crossed, key=crossed.__getitem__)
    x = box[1][0] - 10 if anchor == "end" else box[0][0] + 10
    return (
        f'<text class="name" x="{x:.1f}" y="{box[1][1] - 7:.1f}" '
        f'text-anchor="{anchor}">{escape(plate)}</text>'
    )


def node_box(node: Node, x: float, y: float) -> str:
    round_ = 5 if node.kind == "factor" else HALF
    return (
        f'<rect class="{node.kind}" x="{x - node.half:.1f}" y="{y - HALF:.1f}" '
        f'width="{2 * node.half:.1f}" height="{2 * HALF}" rx="{round_}"/>'
        f'<text class="site" x="{x:.1f}" y="{y - 1:.1f}">{escape(node.name)}</text>'
        f'<text class="law" x="{x:.1f}" y="{y + 14:.1f}">{escape(node.law)}</text>'
    )


def curve(bow: np.ndarray) -> np.ndarray:
    """Points of the parabola from the first point to the third, bent towards the second."""
    t = np.linspace(0, 1, 41)[:, None]
    return (1 - t) ** 2 * bow[0] + 2 * t * (1 - t) * bow[1] + t**2 * bow[2]


def arrow(
    nodes: dict[str, Node], middle: dict[str, np.ndarray], parent: str, child: str
) -> np.ndarray:
    """The arrow from parent to child, bent if a straight arrow would pass behind another node."""
    start, end = middle[parent], middle[child]
    across = np.array([start[1] - end[1], end[0] - start[0]]) / np.hypot(*(end - start))
    others = [(middle[n], nodes[n].half) for n in nodes if n not in {parent, child}]
    for bend in (0, *(sign * size for size in range(40, 400, 20) for sign in (1, -1))):
        bow = np.array([start, (start + end) / 2 + bend * across, end])
        away = [np.abs(curve(bow) - at) > (half + 6, HALF + 6) for at, half in others]
        if all(np.all(np.any(one, axis=1)) for one in away):
            break
    bow[0] = edge(start, bow[1], nodes[parent], 1)
    bow[2] = edge(end, bow[1], nodes[child], 4)
    return bow


def drawn(bow: np.ndarray) -> str:
    (a, b), (c, d), (e, f) = bow.round(1)
    return f'<path class="arrow" marker-end="url(#tip)" d="M{a} {b}Q{c} {d} {e} {f}"/>'


def edge(of: np.ndarray, towards: np.ndarray, node: Node, margin: float) -> np.ndarray:
    """The point where an arrow crosses the outline of the node, which is nearly a pill."""
    way = towards - of
    flat = np.array([node.half, HALF])
    four = np.sum(np.abs(way / flat) ** 4) ** 0.25  # between an ellipse and a rectangle
    return of + way * min(1, 1 / four) + margin * way / np.hypot(*way)
