"""Formulas of headers as MathML: nothing is lost, scripts and fractions are where they belong."""

import re
import sys
import textwrap
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from bayesfac.core.method import REGISTRY

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "docs" / "tools"))
import formulas
import method_pages

PLAIN = 2  # blocks that are set as they are in the header: prose on settings, and on other files
BLOCKS = [
    textwrap.dedent(block)
    for name in sorted(REGISTRY)
    for block in method_pages.paragraphs(REGISTRY[name].header)
    if block.startswith("    ") and not re.match(r" +paper +here +shape", block)
]
SET = [block for block in BLOCKS if formulas.equations(block)]
ASCII = {glyph: name for name, glyph in formulas.GREEK.items()}
ASCII |= {glyph: sign for sign, glyph in formulas.SIGNS.items()}
ASCII |= {"∑": "sum", "′": "'", "⟨": "<", "⟩": ">"}
MEANS_NOTHING = re.compile(
    r"[\s()_^{}/`]"
)  # spaces, and what becomes a place: scripts and fractions


def parsed(block):
    return ET.fromstring(formulas.equations(block))


def shape(text):
    """The MathML of a formula of one line, without what is around it."""
    (cell,) = parsed(text).iter("mtd")
    inner = "".join(ET.tostring(child, encoding="unicode") for child in cell)
    return re.sub(r' (displaystyle|stretchy|form)="\w+"', "", inner)


def test_nearly_all_formulas_are_set():
    assert len(BLOCKS) - len(SET) == PLAIN


@pytest.mark.parametrize("block", SET)
def test_every_letter_word_and_sign_stays_in_its_order(block):
    drawn = "".join(parsed(block).itertext())
    assert drawn.count("∑") == len(re.findall(r"\bsum(?!med| o[vf])", block))
    back = "".join(ASCII.get(letter, letter) for letter in drawn)
    assert MEANS_NOTHING.sub("", back) == MEANS_NOTHING.sub("", block).replace("...", "..")
    assert parsed(block).find("math").get("alttext") == block


@pytest.mark.parametrize("block", SET)
def test_what_is_drawn_is_mathml_that_browsers_know(block):
    known = {
        "div",
        "math",
        "mtable",
        "mtr",
        "mtd",
        "mrow",
        "mi",
        "mn",
        "mo",
        "mtext",
        "mspace",
        "mfrac",
    }
    known |= {"msub", "msup", "msubsup", "munder", "mover", "munderover"}
    children = {
        "mfrac": 2,
        "msub": 2,
        "msup": 2,
        "munder": 2,
        "mover": 2,
        "msubsup": 3,
        "munderover": 3,
    }
    for element in parsed(block).iter():
        assert element.tag in known
        assert len(element) == children.get(element.tag, len(element))
    assert len(list(parsed(block).iter("mtr"))) == len(block.splitlines())


@pytest.mark.parametrize(
    ("text", "drawn"),
    [
        ("u_i.v_j", "<msub><mi>u</mi><mrow><mi>i</mi></mrow></msub><mo>⋅</mo>"
                    "<msub><mi>v</mi><mrow><mi>j</mi></mrow></msub>"),
        ("1/2 x", "<mfrac><mn>1</mn><mn>2</mn></mfrac><mi>x</mi>"),
        ("1 / x", "<mn>1</mn><mo>/</mo><mi>x</mi>"),
        ("(a + b)/2", "<mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mn>2</mn></mfrac>"),
        ("nu0", "<msub><mi>ν</mi><mn>0</mn></msub>"),
        ("mu'", "<msup><mi>μ</mi><mrow><mo>′</mo></mrow></msup>"),
        ("x_i^2", "<msubsup><mi>x</mi><mrow><mi>i</mi></mrow><mrow><mn>2</mn></mrow></msubsup>"),
        ("sum_k", "<munder><mo>∑</mo><mrow><mi>k</mi></mrow></munder>"),
        ("K^-1", "<msup><mi>K</mi><mrow><mo>−</mo><mn>1</mn></mrow></msup>"),
        ("y = rate x, the rows of them", None),
    ],
)  # fmt: skip
def test_places(text, drawn):
    if drawn is None:
        assert formulas.equations(text) is None
    else:
        assert shape(text) == drawn


def test_pages_have_the_conditionals_of_parts_and_of_methods_as_equations():
    found = {name: method_pages.conditionals(method) for name, method in REGISTRY.items()}
    made = [name for name, method in REGISTRY.items() if method.parts and found[name]]
    assert {"pmf", "bpmf", "ard_mf", "ordinal_mf", "wrmf", "fm", "cp", "cmf"} <= set(made)
    for name in made:
        assert "u_i | rest ~ N(m_i, S_i)" in ET.fromstring(found[name][-1]).find("math").get(
            "alttext"
        )
    assert "P | rest ~ Wishart(N + K + 1, S^-1)" in found["bpmf"][-1]
    assert "P | rest" not in found["pmf"][-1] and "alpha | rest" in found["ard_mf"][-1]
    (one, other) = (ET.fromstring(text).find("math").get("alttext") for text in found["hpf"][1:])
    assert (
        one == "theta_uk | z: Gamma(a + z_{u.k}, xi_u + sum_i beta_ik)" and "xi_u | theta" in other
    )
    assert "A_i" in found["urp"][1].replace("\\", "") and not found["leml"]


def test_words_beside_words_are_prose_and_products_are_none():
    assert formulas.tokens("+ the Normal-Wishart energy")[2] == (
        "text",
        "the Normal-Wishart energy",
    )
    assert ("text", "labelled rows") in formulas.tokens("|W|^2 (labelled rows)")
    assert not [one for one in formulas.tokens("weight tr Lambda") if one[0] == "text"]


@pytest.mark.parametrize(
    "block", ["x_r the levels, with mean 0 and sd 1", "x # y", "x'' y_1_2", "_i x"]
)
def test_prose_and_unknown_signs_are_not_set(block):
    assert formulas.equations(block) is None
