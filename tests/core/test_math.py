"""Random numbers of starts are those of JAX, by programs that serve many sizes; log Gamma."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import gammaln

from bayesfac.core import math


@pytest.mark.parametrize("shape", [(), (1,), (17,), (33, 3), (2, 5, 7)])
def test_numbers_outside_of_programs_are_those_of_jax(shape):
    key = jax.random.key(3)
    for ours, jaxs in ((math.normals, jax.random.normal), (math.uniforms, jax.random.uniform)):
        found, known = ours(key, shape), jaxs(key, shape)
        assert isinstance(found, jax.Array) and found.dtype == known.dtype
        np.testing.assert_array_equal(found, known)
        np.testing.assert_array_equal(jax.jit(ours, static_argnums=1)(key, shape), known)
        constant = jax.jit(lambda x, ours=ours: x + ours(key, shape))
        np.testing.assert_array_equal(constant(0.0), known)


@pytest.mark.parametrize("shape", [(1,), (17,), (9, 4)])
def test_dirichlet_rows_outside_of_programs_are_those_of_jax(shape):
    """Equal up to rounding: the program for more rows may add a row's numbers in another order."""
    key, concentration = jax.random.key(4), jnp.array([0.5, 2.0, 7.0])
    known = jax.random.dirichlet(key, concentration, shape)
    np.testing.assert_allclose(math.dirichlets(key, concentration, shape), known, rtol=1e-14)
    constant = jax.jit(lambda x: x + math.dirichlets(key, concentration, shape))
    np.testing.assert_allclose(constant(0.0), known, rtol=1e-14)


def test_tables_of_like_size_share_a_program(programs):
    def draw(n):
        math.normals(jax.random.key(0), (n, 10))
        math.dirichlets(jax.random.key(0), jnp.ones(3), (n,))

    draw(101)
    programs.clear()
    draw(102)
    assert not programs
    math.normals(jax.random.key(0), (201, 10))
    assert programs


def test_large_tables_are_not_padded(monkeypatch):
    monkeypatch.setattr(math, "LARGE", 100)
    monkeypatch.setattr(math, "_padded", lambda size: pytest.fail("padded"))
    math.normals(jax.random.key(0), (101,))


def test_log_gamma_by_stirlings_series():
    x = np.concatenate([np.logspace(-6, 8, 2000), np.linspace(0.1, 20, 2000)])
    error = np.abs(math.stirling(jnp.asarray(x)) - gammaln(x)) / np.maximum(1, np.abs(gammaln(x)))
    assert error.max() < 2e-13
