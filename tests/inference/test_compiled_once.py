"""A second fit of the same data runs programs that the first one compiled."""

import jax
import numpy as np
import pytest

import bayesfac as bf
from bayesfac.core.method import REGISTRY
from bayesfac.inference.result import _program

ESTIMATED = ("bpmf", "ordinal_mf", "gibbs_mmmf", "ard_mf", "gplvm", "cp", "cmf", "fm", "ordinal_fm")


@pytest.mark.filterwarnings("ignore::bayesfac.ConvergenceWarning")
@pytest.mark.parametrize("name", ESTIMATED)
def test_a_start_by_empirical_bayes_is_compiled_once(programs, name):
    data, hyper = REGISTRY[name].example(jax.random.key(0))
    settings = {**hyper._asdict(), "scales": "estimated", "progress": False}
    bf.fit(name, data, **settings)
    assert programs, "the listener hears of programs"
    programs.clear()
    bf.fit(name, data, **settings)
    # of ordinal methods a look at a descent of another length
    assert len(programs) <= name.startswith("ordinal")


@pytest.mark.filterwarnings("ignore::bayesfac.ConvergenceWarning")
@pytest.mark.parametrize("name", ["grople", "heres", "lsa_mml", "mlc_hmf"])
def test_scaled_data_run_the_programs_of_the_first_fit(programs, name):
    def fit():
        data, _ = bf.datasets.make_tasks(40, 1, labelled=1.0, seed=0)
        return bf.fit(name, data.concatenated(), bf.FixedPoint(30), progress=False)

    first = fit()
    programs.clear()
    again = fit()
    assert again.trace[-1] == first.trace[-1]
    assert not programs


def test_other_data_of_the_same_sizes_run_the_programs_of_the_first_fit(programs):
    """Also with other values of the settings that are `numbers`, and the results are those of a first fit."""

    def tensor(seed):
        rng = np.random.default_rng(seed)
        values = rng.normal(seed, 1 + seed, (13, 4, 12, 8))
        values.ravel()[rng.permutation(values.size)[:500]] = np.nan
        return bf.Tensor(values)

    bf.fit("cp", tensor(0), n_components=2, progress=False)
    programs.clear()
    again = bf.fit("cp", tensor(1), n_components=2, beta0=0.3, progress=False)
    assert not programs
    jax.clear_caches()
    _program.cache_clear()
    alone = bf.fit("cp", tensor(1), n_components=2, beta0=0.3, progress=False)
    np.testing.assert_array_equal(again.params.U["mode_1"], alone.params.U["mode_1"])
