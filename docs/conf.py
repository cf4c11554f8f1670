"""Sphinx settings; `make docs` builds the site from the pages that `generate.py` writes."""

import importlib
import inspect
import re
import sys

import bayesfac

# users write bf.comparators and bf.multilabel; the files are in the wing of labels
for name in ("comparators", "comparators.clusterings", "multilabel"):
    sys.modules[f"bayesfac.{name}"] = importlib.import_module(f"bayesfac.labels.{name}")

project = "bayesfac"
author = copyright = "The bayesfac authors"
version = release = bayesfac.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
root_doc = "index"
exclude_patterns = ["files"]
default_role = "literal"  # as docstrings use `names`
smartquotes = False

myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "none"
autodoc_class_signature = "mixed"
napoleon_use_rtype = False
napoleon_use_ivar = True

# A broken link within the site is an error. Looking up names of other libraries would need a network.
nitpicky = True
nitpick_ignore_regex = [("py:.*", r"(?!bayesfac\.).*")]

html_theme = "furo"
html_title = "bayesfac"
html_static_path = ["style.css"]
html_css_files = ["style.css"]
html_show_sourcelink = False
html_copy_source = False
pygments_dark_style = "github-dark"


def plain(app, what, name, obj, options, lines):  # noqa: ANN001, ANN201
    """Keep docstrings as text: escape `|x|`, a substitution in RST, and show properties without a type."""
    if what == "property":
        lines[:] = inspect.cleandoc(obj.__doc__ or "").splitlines()
    example = False
    for at, line in enumerate(lines):
        example = line.lstrip().startswith(">>>") or (example and bool(line.strip()))
        if not example:
            pieces = re.split("(`[^`]*`)", line)
            lines[at] = "".join(p if i % 2 else p.replace("|", r"\|") for i, p in enumerate(pieces))


def setup(app):  # noqa: ANN001, ANN201
    app.connect("autodoc-process-docstring", plain, priority=600)  # after napoleon
