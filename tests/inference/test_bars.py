"""Progress bars: one line in a notebook, which is empty at the end; nothing in a log file. And their pace."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from bayesfac.inference.checkpoint import Checkpoint
from bayesfac.inference.driver import Run
from bayesfac.inference.result import bar

IPython = pytest.importorskip("IPython")


def test_a_notebook_keeps_one_empty_line(monkeypatch):
    shown, states = [], []

    class Place:
        def update(self, data, raw):
            states.append(data["text/plain"])

    def display(data, **how):
        shown.append(how)
        return Place()

    monkeypatch.setitem(sys.modules, "ipykernel", IPython)
    monkeypatch.setattr("IPython.display.display", display)
    with bar(True, 3, "gibbs") as line:
        line.mininterval = 0
        for _ in range(3):
            line.update(1)
    assert shown == [{"raw": True, "display_id": True}]
    assert any("gibbs" in state for state in states) and states[-1] == ""


NOTEBOOK = """
import sys, types, warnings, IPython
IPython.get_ipython = lambda: types.SimpleNamespace(config={"IPKernelApp": {}})
sys.modules |= {"ipykernel": IPython, "ipykernel.zmqshell": IPython, "ipywidgets": None}
warnings.simplefilter("always")
"""


def test_a_notebook_without_widgets_has_no_warning_of_tqdm():
    def run(*first):
        code = "\n".join([NOTEBOOK, *first, "import tqdm.auto"])  # as NumPyro does
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        return done.stderr

    assert "IProgress not found" in run()
    assert run("import bayesfac.core") == ""


def test_calls_take_about_half_a_second():
    """One step at first, then at most twice as many as before."""
    taken = iter([0.1, 0.1, 0.4, 2.5, 30.0])
    place = SimpleNamespace(agreed=lambda seconds: next(taken))
    job = SimpleNamespace(progress=False, method=SimpleNamespace(name="any"))
    run = Run(job, 0, 9, Checkpoint(None, ""), dict, place)
    assert [run.pace() for _ in range(6)] == [1, 2, 4, 5, 1, 1]


def test_a_log_file_has_no_bar(monkeypatch, capsys):
    monkeypatch.delitem(sys.modules, "ipykernel", raising=False)
    with bar(True, 3, "gibbs") as line:
        line.update(3)
    assert capsys.readouterr().err == ""
