"""Draw docs/images/losses.png: the binary losses, and both ordinal constructions from the smooth hinge.

python docs/tools/losses.py
"""

from pathlib import Path

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from bayesfac.core.kernels.losses import BINARY, ordinal

TARGET = Path(__file__).parents[1] / "images" / "losses.png"
LOOK = {  # colours and line styles, so that the lines differ in black and white too
    "zero_one": ("0.3", "-"),
    "hinge": ("C0", "--"),
    "smooth_hinge": ("C1", "-"),
    "modified_square": ("C2", "-."),
    "logistic": ("C4", ":"),
}
THETA = jnp.array([-1.5, -0.5, 0.5, 1.5])  # five levels, thresholds one apart
LEVEL = 3  # of 1..5


def draw_binary(axes: plt.Axes) -> None:
    """Every binary loss of the margin."""
    z = np.linspace(-2, 2.5, 901)
    for name, (colour, line) in LOOK.items():
        value = np.array(BINARY[name].value(jnp.asarray(z)))
        if name == "zero_one":
            value[np.argmax(z >= 0)] = np.nan  # a jump, not a slope
        axes.plot(z, value, line, color=colour, lw=1.8, label=name.replace("_", " "))
    axes.set(xlabel="margin  z = y x", ylabel="loss  h(z)", xlim=(-2, 2.5), ylim=(-0.1, 4))
    axes.set_title("Binary losses", loc="left")
    axes.legend(frameon=False)


def draw_ordinal(axes: plt.Axes) -> None:
    """The ordinal loss of one level by x, for both constructions from the smooth hinge."""
    x = jnp.linspace(-4, 4, 801)
    theta = jnp.broadcast_to(THETA, (len(x), len(THETA)))
    code = jnp.full(len(x), LEVEL - 1)
    for immediate, name, look in ((False, "all thresholds", "C1-"), (True, "immediate", "C0--")):
        value = ordinal(x, theta, code, "smooth_hinge", immediate)
        axes.plot(x, value, look, lw=1.8, label=name)
    for number, at in enumerate(np.asarray(THETA), 1):
        axes.axvline(at, color="0.7", lw=0.8, zorder=0)
        axes.text(at + 0.06, -0.6, rf"$\theta_{number}$", color="0.3")
    axes.axvspan(THETA[LEVEL - 2], THETA[LEVEL - 1], color="0.92", zorder=0)
    axes.set(xlabel="prediction  x = u·v", ylabel=f"loss of level {LEVEL}", ylim=(-0.8, 7))
    axes.set_title(f"Ordinal losses of level {LEVEL} of 5", loc="left")
    axes.legend(frameon=False, loc="upper center")


def main() -> None:
    """Write the picture."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4), layout="constrained")
    draw_binary(left)
    draw_ordinal(right)
    figure.savefig(TARGET, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
