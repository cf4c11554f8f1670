"""What a composed factorization is, in words and mathematics."""

from typing import Any

from bayesfac.core.method import Method

ROWS = ("u_i", "user"), ("v_j", "item")


def header(recipe: Any, method: Method) -> str:
    """The title, J, the generative model, the sites and the engines."""
    law, sides = recipe.observed, (recipe.rows, recipe.columns)
    kinds = [type(part).__name__ for part in (*sides, law)]
    score = "u_i.v_j" + (" + b_i + c_j" if recipe.biases else "")
    lines = [
        "{}: rows {}, columns {}, observed {}".format(method.name, *kinds),
        "",
        f"    J = -sum_ij log p(y_ij | x_ij) - log density of all priors,   x_ij = {score}",
        "",
        f"    y_ij ~ {law.model}",
    ]
    for prior, (row, axis) in zip(sides, ROWS, strict=True):
        centre = f", shifted by the features of the {axis}" if recipe.features else ""
        lines.append(f"    {row}  ~ {prior.model}{centre}")
    if recipe.biases:
        lines += ["    b_i, c_j ~ N(0, 1 / tau_bias),  tau_bias ~ Gamma(bias_shape, bias_rate)"]
    lines += ["", "    site          axes", "    ----------    ----"]
    for site, axes in method.axes.dims.items():
        lines.append(
            f"    {site:<12}  {' x '.join(axes).replace('{key}', 'user or item') or 'scalar'}"
        )
    lines += ["", f"Engines: {', '.join(method.engines)}."]
    missing = [f"{engine}: {why}" for engine, why in lacking(method).items()]
    return "\n".join([*lines, *missing])


def lacking(method: Method) -> dict[str, str]:
    """{engine: why it cannot run}."""
    found = {}
    if "FixedPoint" not in method.engines:
        found["FixedPoint"] = "thresholds have no mode in closed form; LBFGS is the solver"
    if "VB" not in method.engines:
        found["VB"] = "that of levels knows no biases; with biases=False there is one"
    return found
