"""Options are read from signatures: what a file says is what the imported function has."""

import inspect
import io
from dataclasses import fields

import pandas as pd
import pytest

import bayesfac as bf
from bayesfac import datasets, split
from bayesfac.cli import commands, options, signatures
from bayesfac.fits.recommending import recommend
from bayesfac.inference import ENGINES
from tests.cli.test_cli import run, saved  # noqa: F401  # a fixture

FUNCTIONS = [
    (commands.FIT, bf.fit),
    (commands.AUTO, bf.auto),
    (commands.COMPARE, bf.compare),
    (commands.BEST, recommend),
    (commands.SBC, bf.sbc),
    (commands.SPLIT, split.holdout),
    (commands.READ, datasets.read),
    (commands.LARGE, datasets.read_large),
]


@pytest.mark.parametrize(("place", "function"), FUNCTIONS, ids=[place for place, _ in FUNCTIONS])
def test_a_file_says_what_the_function_has(place, function):
    known = inspect.signature(function).parameters.values()
    usual = {one.name: one.default for one in known if one.default is not one.empty}
    read = signatures.parameters(place)
    assert list(read) == list(usual)
    named = {name: one.default for name, one in read.items() if name != "memory"}
    assert named == {name: usual[name] for name in named}
    said = [one.kind for name, one in read.items() if name != "progress"]
    assert all(said) or place == commands.LARGE


def test_every_engine_has_its_settings():
    assert {place.partition(":")[2] for place in signatures.ENGINES.values()} == set(ENGINES)
    for place in signatures.ENGINES.values():
        kind = ENGINES[place.partition(":")[2]]
        assert list(signatures.parameters(place)) == [field.name for field in fields(kind)]
    assert signatures.settings()["steps"][1] == ["map", "svi"]
    args = options.build_parser().parse_args("fit pmf r --engine Gibbs --thin 3 -q".split())
    assert signatures.engine(args, "FixedPoint") == bf.Gibbs(thin=3)


def test_the_shell_simulates_ratings_of_a_point_fit(capsys, saved):  # noqa: F811
    top = ["recommend", saved / "point", "--users", "u1", "--n", "3", "-q"]
    plain, drawn = (
        pd.read_csv(io.StringIO(run(capsys, *top, *more)[1])) for more in ([], ["--simulate"])
    )
    direct = bf.load(saved / "point").recommend(["u1"], 3, simulate=True)
    assert plain["in_top"].isna().all()
    assert drawn["in_top"].tolist() == pytest.approx(direct["in_top"].tolist())
