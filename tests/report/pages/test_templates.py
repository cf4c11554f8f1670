"""Templates raise an error for a missing name."""

import pytest

from bayesfac.report.pages.templates import render


def test_a_template_never_guesses() -> None:
    from jinja2 import UndefinedError

    with pytest.raises(UndefinedError):
        render("report.html.j2", title="half a page")
