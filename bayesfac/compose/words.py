"""What a composed factorization is, in words and mathematics."""

from typing import Any

from bayesfac.core.method import Method

ROWS = ("u_i", "user"), ("v_j", "item")
OF_MODES = "U", "mu", "Lambda"  # sites that each mode of a tensor has


def header(recipe: Any, method: Method) -> str:
    """The title, J, the generative model, the sites and the engines."""
    lines = [*(of_matrix if recipe.columns else of_tensor)(recipe, method.name)]
    lines += ["", "    site          axes", "    ----------    ----"]
    key = "user or item" if recipe.columns else "mode"
    for site, axes in method.axes.dims.items():
        each = f"{site}.MODE" if site in OF_MODES and not recipe.columns else site
        lines.append(f"    {each:<12}  {' x '.join(axes).replace('{key}', key) or 'scalar'}")
    lines += ["", f"Engines: {', '.join(method.engines)}."]
    missing = [f"{engine}: {why}" for engine, why in lacking(method).items()]
    return "\n".join([*lines, *missing])


def of_matrix(recipe: Any, name: str) -> list[str]:
    """The title, J and the model of a matrix."""
    law, sides = recipe.observed, (recipe.rows, recipe.columns)
    kinds = [type(part).__name__ for part in (*sides, law)]
    score = "u_i.v_j" + (" + b_i + c_j" if recipe.biases else "")
    lines = [
        "{}: rows {}, columns {}, observed {}".format(name, *kinds),
        "",
        f"    J = -sum_ij log p(y_ij | x_ij) - log density of all priors,   x_ij = {score}",
        "",
        f"    y_ij ~ {law.said}",
    ]
    for prior, (row, axis) in zip(sides, ROWS, strict=True):
        linked = recipe.features and axis not in recipe.unlinked
        centre = f", shifted by the features of the {axis}" if linked else ""
        lines.append(f"    {row}  ~ {prior.model}{centre}")
    lines += of_couplings(recipe)
    if recipe.biases:
        lines += ["    b_i, c_j ~ N(0, 1 / tau_bias),  tau_bias ~ Gamma(bias_shape, bias_rate)"]
    return lines


def of_tensor(recipe: Any, name: str) -> list[str]:
    """The title, J and the model of a tensor; a cell c has the labels i, j, ..., t."""
    rows, law = recipe.rows, recipe.observed
    return [
        f"{name}: rows of all modes {type(rows).__name__}, observed {type(law).__name__}",
        "",
        "    J = -sum_c log p(y_c | x_c) - log density of all priors,   x_c = sum_k u_ik v_jk ... w_tk",
        "",
        f"    y_c  ~ {law.said}",
        f"    u_i  ~ {rows.model}",
        f"    v_j, ..., w_t likewise{rows.shared}",
        *of_couplings(recipe),
    ]


def of_couplings(recipe: Any) -> list[str]:
    """How rows depend on one another."""
    found = []
    for axis, along in recipe.along:
        whose = {"": "all modes", "user": "users", "item": "items"}.get(axis, axis)
        found.append(f"    rows of {whose} depend on one another, less mu and in units of P^-1:")
        found.append(f"        {along.model}")
    return found


def lacking(method: Method) -> dict[str, str]:
    """{engine: why it cannot run}."""
    found = {}
    if "FixedPoint" not in method.engines:
        found["FixedPoint"] = "thresholds have no mode in closed form; LBFGS is the solver"
    if "VB" not in method.engines:
        known = "that of levels knows no biases; with biases=False there is one"
        if any(f.positive for f in method.parts.structure.main):
            known = "its rows are normal; those of at least 0 are not"
        found["VB"] = method.notes.traits.get("coupled", known)
    return found
