"""ARFF files as Mulan and MEKA publish them; what cannot be read is said, with its line and attribute."""

import doctest
import gzip
import re
import tracemalloc

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bayesfac.datasets import read_arff
from bayesfac.labels import arff
from bayesfac.labels.data.tasks import Tasks

NAN = np.nan
HEAD = """@relation 'toy: -C -2'
@attribute size numeric
@attribute key {p, q, r}
@attribute old {YES, NO}
@attribute y {0,1}
@attribute z {1,0}
@data
"""  # the first row is line 8


def written(folder, text, name="toy.arff"):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def xml(*names, inside=""):
    labels = "".join(f'<label name="{name}"></label>' for name in names)
    return f'<labels xmlns="http://mulan.sourceforge.net/labels">{labels}{inside}</labels>'


def holds(data, names, x, y):
    """These features and labels, the rows in the order of the file."""
    assert list(data.features["features"]) == names
    for block, expected in (("features", x), ("labels", y)):
        np.testing.assert_array_equal(data[block].toarray()[np.argsort(data.rows)], expected)


def refused(said, *arguments, error=ValueError, **more):
    """The error says this; " ... " stands for anything."""
    with pytest.raises(error, match=".* ".join(map(re.escape, said.split(" ... ")))):
        read_arff(*arguments, **more)


# -- the shapes that are published ----------------------------------------------------------------
def test_numbers_and_labels_at_the_end_with_an_xml(tmp_path):
    """Mulan's emotions."""
    text = """@relation musicout

@attribute Mean_Mem40_Centroid numeric
@attribute BH_LowPeakBPM numeric
@attribute Amazed-Suprised {0,1}
@attribute Happy-pleased {0,1}
@attribute quiet-still {0,1}

@data
0.034741,68,0,1,1
-73.30,0,1,0,0
"""
    written(tmp_path, xml("quiet-still", "Amazed-Suprised", "Happy-pleased"), "emotions.xml")
    written(tmp_path, xml("other"), "other.xml")
    data = read_arff(written(tmp_path, text, "emotions-train.arff"))
    names = ["Mean_Mem40_Centroid", "BH_LowPeakBPM"]
    holds(data, names, [[0.034741, 68], [-73.3, 0]], [[0, 1, 1], [1, 0, 0]])
    # in the file's order, not in that of the XML
    assert list(data.labels) == ["Amazed-Suprised", "Happy-pleased", "quiet-still"]
    assert data.names == ("features",)
    assert data.tasks.tolist() == ["all"]
    assert data.rows.tolist() == [0, 1]
    assert data.binary


def test_labels_counted_in_the_relation_and_missing_in_some_rows(tmp_path):
    """MEKA's Music: labels first, and a row of question marks is one to predict."""
    head = "% 'Music' dataset; it isn't whole\n@relation 'Music: -C 2'\n@attribute amazed {0,1}\n"
    head += "@attribute happy {0,1}\n@attribute flux numeric\n@data\n\n"
    data = read_arff(written(tmp_path, head + "?,?,0.5\n0,1,0.25\n"))
    holds(data, ["flux"], [[0.5], [0.25]], [[0, 0], [0, 1]])
    assert list(data.labels) == ["amazed", "happy"]
    assert data.rows.tolist() == [1, 0]  # those with labels first
    assert data.labelled.tolist() == [True, False]
    unknown = read_arff(written(tmp_path, head + "?,?,0.5\n{0 ?, 1 ?}\n"))
    assert list(unknown.labels) == ["amazed", "happy"]
    assert unknown.labelled.tolist() == [False, False]


def test_an_identifier_is_left_out_where_the_user_says_so(tmp_path):
    """Mulan's genbase: an identifier, then YES and NO."""
    text = """@relation protein
@attribute protein {O00060,O00139}
@attribute comment string
@attribute PS00010 {YES,NO}
@attribute PS00011 {NO,YES}
@attribute PDOC00154 {0,1}
@data
O00139,'a, b',NO,YES,1
O00060,?,YES,NO,0
"""
    path = written(tmp_path, text)
    names, x, y = ["PS00010", "PS00011"], np.array([[0, 1], [1, 0]]), [[1], [0]]
    holds(read_arff(path, -1, drop=("protein", "comment")), names, x, y)
    names = ["protein=O00060", "protein=O00139", *names]
    holds(read_arff(path, -1, drop="comment"), names, np.hstack([x, x]), y)
    refused("attribute 'comment' (or it in `drop`) in line 3 of toy.arff, got 'string'", path, -1)
    refused("attributes of toy.arff in `drop`, got 'protien'", path, -1, drop=["protien"])


def test_a_sparse_row_leaves_out_zeros_and_first_levels(tmp_path):
    """As Weka has it: also YES where that is listed first, and the label that lists 1 first."""
    dense = HEAD + "0,p,YES,0,1\n2.5,r,NO,1,0\n0,q,YES,1,1\n"
    sparse = HEAD + "{}\n{0 2.5, 1 r, 2 NO, 3 1, 4 0}\n{4 1,3 1, 1 q}\n"
    mixed = HEAD + "{ }\n2.5,r,NO,1,0\n{ 4 1 ,3  1,1\tq }\n"
    names = ["size", "key=p", "key=q", "key=r", "old"]
    x, y = [[0, 1, 0, 0, 1], [2.5, 0, 0, 1, 0], [0, 0, 1, 0, 1]], [[0, 1], [1, 0], [1, 1]]
    for text in (dense, sparse, mixed):
        holds(read_arff(written(tmp_path, text)), names, x, y)


# -- the format -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "text",
    [
        "@RELATION toy\n@Attribute a REAL\n@ATTRIBUTE y {0,1}\n@Data\n1.5,1\n-2e3,0\n",
        "\ufeff@relation toy\r\n@attribute a Integer\r\n@attribute y{0, 1}\r\n@data\r\n1.5 , 1\r\n-2e3,0",
        "% it's\n\n@relation toy % don't\n  @attribute a numeric %{x}\n@attribute y\t{'0',\"1\"}\n"
        "@data % 'now\n% 9,1\n\n1.5,'1' % 3\n{0 -2000}\n",
        "@relation\ttoy\n@attribute 'a' numeric\n@attribute \"y\" { 0 1 }\n@data\n1.5\t1\n-2e3 0\n",
        "@attribute a numeric\n@attribute y numeric\n@data\n1.5,1.0\n{\t0\t-2000 ,1 0}\n",
    ],
    ids=["case", "windows", "comments", "blanks", "numeric label"],
)
def test_ways_to_write_the_same(tmp_path, text):
    data = read_arff(written(tmp_path, text), ["y"])
    holds(data, ["a"], [[1.5], [-2000]], [[1], [0]])
    assert list(data.labels) == ["y"]


def test_quoted_names_and_levels(tmp_path):
    text = r"""@relation 'a relation: it\'s'
@attribute 'it\'s, a {name} 50%' numeric
@attribute "say \"no\"" {'New York', "a,b", '{c}', 'tab\there'}
@attribute 'very sad' {0,1}
@data
1,'a,b',0
{1 '{c}'}
{0 3, 1 'tab\there', 2 '1'}
"""
    levels = ("New York", "a,b", "{c}", "tab\there")
    names = ["it's, a {name} 50%", *(f'say "no"={level}' for level in levels)]
    x = [[1, 0, 1, 0, 0], [0, 0, 0, 1, 0], [3, 0, 0, 0, 1]]
    data = read_arff(written(tmp_path, text), ["very sad"])
    holds(data, names, x, [[0], [0], [1]])
    assert list(data.labels) == ["very sad"]


@pytest.mark.parametrize("pair", ["0,1", "1,0", "NO,YES", "yes,no", "f,t", "True,False", "Y,N"])
def test_no_and_yes_are_one_column(tmp_path, pair):
    no, yes = sorted(pair.split(","))
    kinds = (f"a {{{pair}}}", f"b {{x,{no},{yes}}}", f"y {{{pair}}}")
    head = "".join(f"@attribute {kind}\n" for kind in kinds)
    data = read_arff(written(tmp_path, f"{head}@data\n{yes},{no},{no}\n{no},x,{yes}\n"), -1)
    holds(data, ["a", "b=x", f"b={no}", f"b={yes}"], [[1, 0, 1, 0], [0, 1, 0, 0]], [[0], [1]])


def test_other_pairs_and_single_levels_get_a_column_each(tmp_path):
    head = "@attribute sex {F,M}\n@attribute one {x}\n@attribute y {0,1}\n@data\n"
    data = read_arff(written(tmp_path, head + "M,x,0\n{2 1}\n"), -1)
    holds(data, ["sex=F", "sex=M", "one=x"], [[0, 1, 1], [1, 0, 1]], [[0], [1]])


def test_packed_files_and_encodings(tmp_path):
    text = "@relation 'x: -C 1'\n@attribute é {0,1}\n@attribute a numeric\n@data\n1,2\n"
    packed = written(tmp_path, gzip.compress(text.encode()), "x-test.arff.gz")
    assert list(read_arff(packed).labels) == ["é"]
    latin = written(tmp_path, text.encode("latin-1"))
    assert list(read_arff(latin, encoding="latin-1").labels) == ["é"]
    refused("utf-8 text (or another `encoding`) in line 2 of toy.arff, got 'byte 0xe9'", latin)
    refused("unknown encoding: klingon", latin, encoding="klingon", error=LookupError)
    wide = written(tmp_path, text.encode("utf-16"), "wide.arff")
    refused("utf-16 text ... in line 1 of wide.arff", wide, encoding="utf-16")
    for junk in (text.encode(), gzip.compress(text.encode())[:-12]):
        refused("Expected a gzip archive in x.arff.gz: ", written(tmp_path, junk, "x.arff.gz"))


# -- which attributes are labels ------------------------------------------------------------------
def test_ways_to_name_the_labels(tmp_path):
    path = written(tmp_path, HEAD + "1,p,NO,1,1\n2,q,YES,0,0\n")
    whole = read_arff(path)
    assert list(whole.labels) == ["y", "z"]
    deep = "<?xml version='1.0'?>\n<labels>\n<label name='y'><label name='z'/></label>\n</labels>"
    beside = written(tmp_path, deep, "labels.txt")
    for labels in (-2, np.int64(-2), ["z", "y"], np.array(["y", "z"]), beside, str(beside)):
        assert read_arff(path, labels).fingerprint() == whole.fingerprint()
    one = read_arff(path, ["z"], drop=["old", "key"])
    holds(one, ["size", "y"], [[1, 1], [2, 0]], [[1], [0]])
    assert list(read_arff(path, drop=["y"]).labels) == ["z"]  # n counts dropped ones


def test_where_labels_are_looked_for(tmp_path):
    path = written(tmp_path, HEAD + "1,p,NO,1,1\n", "toy-train-sparse.arff")
    assert list(read_arff(path).labels) == ["y", "z"]  # the relation's
    written(tmp_path, xml("old"), "any.xml")
    assert list(read_arff(path).labels) == ["old"]  # the only XML
    written(tmp_path, xml("y"), "toy.xml")
    assert list(read_arff(path).labels) == ["y"]  # that of the same name
    written(tmp_path, xml("z"), "toy-train-sparse.xml")
    assert list(read_arff(path).labels) == ["z"]
    lost = written(tmp_path, HEAD.replace("toy: -C -2", "toy-C 2"), "lost-test.arff")
    refused("looked for lost-test.xml and lost.xml, ... (there are 3) ... 'toy-C 2'", lost)


ENTITY = '<?xml version="1.0"?>\n<!DOCTYPE labels [<!ENTITY a "y">]>\n<labels><label name="&a;"/></labels>'
BAD_LABELS = [
    (0, "from 1 to 4 labels of toy.arff, or as many with a minus, got 0"),
    (5, "from 1 to 4 labels ... got 5"),
    (["y", "w"], "attributes of toy.arff once in `labels`, got 'w'"),
    (["y", "y"], "attributes of toy.arff once in `labels`, got 'y'"),
    ([], "at least one label in toy.arff, got none"),
    (["size", "key", "old", "y", "z"], "at least one feature in toy.arff, got none"),
    (["key"], "two levels as {0,1} of label 'key' in line 3 of toy.arff, got '{p,q,r}'"),
    (["size"], "0 or 1 for label 'size' in line 8 of toy.arff, got 2.5"),
    (xml("y", "w"), "attributes of toy.arff once in l.xml, got 'w'"),
    (xml("y", "y"), "attributes of toy.arff once in l.xml, got 'y'"),
    (xml(), "at least one label in toy.arff, got none"),
    (xml("y", inside="\n<label/>"), "<label name=\"...\"> in line 2 of l.xml, got '<label>'"),
    ("<project>\n</project>", "<labels> or ... in line 1 of l.xml, got '<project>'"),
    (ENTITY, "in line 2 of l.xml, got '<!DOCTYPE>'"),
    ("", "Expected XML in l.xml: "),
    ("<labels><label name='y'/>", "Expected XML in l.xml: "),
    ("<labels><label name='&a;'/></labels>", "Expected XML in l.xml: undefined entity"),
]


@pytest.mark.parametrize(("labels", "said"), BAD_LABELS)
def test_labels_that_cannot_be_meant(tmp_path, labels, said):
    path = written(tmp_path, HEAD + "2.5,p,NO,1,1\n")
    if isinstance(labels, str):
        labels = written(tmp_path, labels, "l.xml")
    refused(said, path, labels)


def test_labels_and_files_of_another_kind(tmp_path):
    path = written(tmp_path, HEAD)
    for labels in (True, 2.5):
        said = f"labels as a path, a number or a list of names, got {labels}"
        refused(said, path, labels, error=TypeError)
    refused("none.xml", path, tmp_path / "none.xml", error=FileNotFoundError)
    refused("none.arff, which does not exist", tmp_path / "none.arff", error=FileNotFoundError)


# -- what cannot be read --------------------------------------------------------------------------
BAD_HEADS = [
    ("", "Expected @data in toy.arff, got none"),
    (HEAD.replace("@data\n", ""), "Expected @data in toy.arff, got none"),
    (HEAD, "at least one row after @data in toy.arff, got none"),
    (HEAD + "% nothing\n\n", "at least one row after @data in toy.arff, got none"),
    ("@relation x\n@data\n1\n", "an @attribute before @data in line 2 of toy.arff"),
    ("size,y\n1,0\n", "@relation, @attribute or @data in line 1 of toy.arff, got 'size,y'"),
    ("@attribute a strings\n", "as type of attribute 'a' in line 1 of toy.arff, got 'strings'"),
    ("@attribute a numeric\n@data 1\n", "in line 2 of toy.arff, got '@data 1'"),
    ("@attribute\n", "a name after @attribute in line 1"),
    ("@attribute a\n", "as type of attribute 'a' in line 1 of toy.arff, got ''"),
    ("@attribute a real [0,1]\n", "as type of attribute 'a' in line 1 of toy.arff, got 'real [0,1]'"),
    ("@attribute a {0,1\n", "as type of attribute 'a' in line 1 of toy.arff, got '{0,1'"),
    ("@attribute a {}\n", "distinct levels, ... for attribute 'a' in line 1 of toy.arff, got '{}'"),
    ("@attribute a {x,y,x}\n", "distinct levels, ... for attribute 'a' in line 1"),
    ("@attribute a {x,?}\n", "distinct levels, ... for attribute 'a' in line 1"),
    ("@attribute 'a numeric\n", "quotes in pairs in line 1 of toy.arff, got \"@attribute 'a"),
    ("@attribute a'b' numeric\n", "as type of attribute 'a' in line 1 of toy.arff, got \"'...' numeric\""),
    ("@attribute a {x,y'z'}\n", "quotes around whole values in line 1 of toy.arff, got \"y'...'\""),
    ("@attribute a real\n@attribute 'a' real\n", "a new name after @attribute in line 2 of toy.arff"),
    ("@attribute a real\n\n@attribute b date 'y-M'\n@attribute y {0,1}\n@data\n1,2,3\n",
     "attribute 'b' (or it in `drop`) in line 3 of toy.arff, got 'date'"),
    ("@attribute a {b}\n@attribute 'a=b' real\n@attribute y {0,1}\n@data\nb,1,0\n",
     "distinct features in toy.arff, got 'a=b' twice"),
    (b"PK\x03\x04\x14\x00\x00\x00", "text in line 1 of toy.arff, got 'byte 0x00'"),
    (b"@relation x\n\x89PNG\xff", "utf-8 text ... in line 2 of toy.arff, got 'byte 0x89'"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), BAD_HEADS)
def test_headers_that_cannot_be_read(tmp_path, text, said):
    refused(said, written(tmp_path, text), -1)


BAD_ROWS = [
    # dense
    ("abc,p,NO,1,1", "a number for attribute 'size' in line 8 of toy.arff, got 'abc'"),
    (",p,NO,1,1", "a number for attribute 'size' in line 8 of toy.arff, got ''"),
    ("1 2,p,NO,1,1", "a number for attribute 'size' in line 8 of toy.arff, got '1 2'"),
    ("nan,p,NO,1,1", "a number for attribute 'size' ... got 'nan'"),
    ("-inf,p,NO,1,1", "a number for attribute 'size' ... got '-inf'"),
    ("1e999,p,NO,1,1", "a number for attribute 'size' ... got '1e999'"),
    ("1_0,p,NO,1,1", "a number for attribute 'size' ... got '1_0'"),
    ("1,P,NO,1,1", "one of p, q, r for attribute 'key' in line 8 of toy.arff, got 'P'"),
    ("1,p,NO,2,1", "one of 0, 1 for attribute 'y' in line 8 of toy.arff, got '2'"),
    ("1,p,NO,1", "5 values in line 8 of toy.arff, got 4"),
    ("1,p,NO,1,1,", "5 values in line 8 of toy.arff, got 6"),
    ("?,p,NO,1,1", "a finite value for feature 'size' in line 8 of toy.arff, got '?'"),
    ("1,?,NO,1,1", "a finite value for feature 'key' in line 8 of toy.arff, got '?'"),
    ("1,p,NO,1,1,{5}", "nothing after the values ... in line 8 of toy.arff, got '{5}'"),
    ("1,'p,NO,1,1", "quotes in pairs in line 8 of toy.arff, got \"1,'p,NO,1,1\""),
    ("1,'p'x,NO,1,1", "quotes around whole values in line 8 of toy.arff, got \"'...'x\""),
    ("@data", "5 values in line 8 of toy.arff, got 1"),
    ("\n1,q,NO,1,1\n% more\n1,q,?,1,1\n?,q,NO,1,1", "a finite value for feature 'old' in line 11"),
    # sparse
    ("{1 x}", "one of p, q, r for attribute 'key' in line 8 of toy.arff, got 'x'"),
    ("{0 ?}", "a finite value for feature 'size' in line 8 of toy.arff, got '?'"),
    ("{5 1}", "an index from 0 to 4 and a value in line 8 of toy.arff, got '5 1'"),
    ("{-1 1}", "an index from 0 to 4 ... got '-1 1'"),
    ("{%s 1}" % ("9" * 5000), "an index from 0 to 4 ... in line 8 of toy.arff, got '999"),
    ("{0 1,}", "an index from 0 to 4 and a value in line 8 of toy.arff, got ''"),
    ("{3}", "an index from 0 to 4 and a value in line 8 of toy.arff, got '3'"),
    ("{'0' 1}", "an index from 0 to 4 ... in line 8 of toy.arff, got \"'...' 1\""),
    ("{0 1, 3 1, 0 2}", "one value for attribute 'size' in line 8 of toy.arff, got '0 1, 3 1, 0 2'"),
    ("{0 1, 3 1", "a closing brace in line 8 of toy.arff, got '{0 1, 3 1'"),
    ("{0 1}, {5}", "nothing after the values ... in line 8 of toy.arff, got ', {5}'"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "said"), BAD_ROWS)
def test_rows_that_cannot_be_read(tmp_path, row, said):
    refused(f"Expected {said}", written(tmp_path, f"{HEAD}{row}\n1,p,NO,1,1\n"))


def test_numbers_beyond_the_working_precision(tmp_path):
    path = written(tmp_path, HEAD + "1,p,NO,1,1\n1e300,p,NO,1,1\n")
    assert read_arff(path)["features"].max() == 1e300
    with jax.enable_x64(False):
        refused("a finite value for feature 'size' in line 9 of toy.arff, got 1e+300", path)


def test_labels_missing_in_part_are_for_tasks_to_judge(tmp_path):
    path = written(tmp_path, HEAD + "1,p,NO,?,1\n2,p,NO,1,0\n{0 3, 3 ?}\n")
    labels = np.array([[NAN, 1], [1, 0], [NAN, 1]])
    try:
        expected = Tasks({"features": [[1.0], [2], [3]]}, labels)
    except ValueError as no:
        refused(str(no), path, drop=["key", "old"])
    else:
        data = read_arff(path, drop=["key", "old"])
        np.testing.assert_array_equal(data["labels"].toarray(), expected["labels"].toarray())


# -- there and back -------------------------------------------------------------------------------
def as_arff(x, y, sparse):
    """A file as MEKA has it, labels first."""
    lines = [f"@relation 'made: -C {y.shape[1]}'"]
    lines += [f"@attribute l{j} {{0,1}}" for j in range(y.shape[1])]
    lines += [f"@attribute 'f {j}' numeric" for j in range(x.shape[1])] + ["@data"]
    for labels, values in zip(y.tolist(), x.tolist(), strict=True):
        row = [*labels, *values]
        if sparse:
            lines.append(f"{{{', '.join(f'{j} {v!r}' for j, v in enumerate(row) if v)}}}")
        else:
            lines.append(",".join(map(repr, row)))
    return "\n".join(lines)


SHAPES = st.sampled_from([(1, 1), (1, 5), (6, 1), (7, 4)])
CELLS = st.just(0.0) | st.floats(-1e100, 1e100)


@settings(derandomize=True, deadline=None, max_examples=40)
@given(st.data(), SHAPES, st.booleans())
def test_what_is_written_is_read(tmp_path_factory, data, shape, sparse):
    x = data.draw(hnp.arrays(np.float64, shape, elements=CELLS))
    y = data.draw(hnp.arrays(np.int8, (shape[0], 2), elements=st.integers(0, 1)))
    path = written(tmp_path_factory.getbasetemp(), as_arff(x, y, sparse))
    holds(read_arff(path, 2), [f"f {j}" for j in range(shape[1])], x, y)


def test_a_sparse_file_is_never_dense(tmp_path):
    """4000 rows of 4000 features and 4000 labels would be 256 MB."""
    n = 4000
    kinds = ["{0,1}"] * n + ["numeric"] * n
    head = [f"@attribute a{j} {kind}" for j, kind in enumerate(kinds)]
    rows = [f"{{{i} 1,{n + i} {i + 1}}}" for i in range(n)]
    path = written(tmp_path, "\n".join(["@relation 'wide: -C 4000'", *head, "@data", *rows]))
    tracemalloc.start()
    data = read_arff(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 40e6
    np.testing.assert_array_equal(data["features"].diagonal(), np.arange(1, n + 1))
    np.testing.assert_array_equal(data["labels"].diagonal(), np.ones(n))
    assert data["features"].nnz == data["labels"].nnz == n


def test_the_example_runs():
    found = doctest.testmod(arff)
    assert found.attempted and not found.failed
