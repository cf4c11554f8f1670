"""A second fit of the same data runs programs that the first one compiled."""

import jax
import pytest

import bayesfac as bf
from bayesfac.core.method import REGISTRY

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
