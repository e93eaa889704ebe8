"""The progress line of a run: on a terminal (tests/cli/test_command.py), in a notebook, and nowhere else."""

import subprocess
import sys

import pytest

from lazybo.run.loop import in_notebook

RUN = """
from optuna.distributions import FloatDistribution
import lazybo
study = lazybo.optimize(lambda params: params["x"] ** 2, {"x": FloatDistribution(-1, 1)}, n_trials=3)
"""
# A stand-in for IPython: a shell, which has a kernel in a notebook.
SHELL = """
import sys, types
shell = types.SimpleNamespace({})
sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
"""


def output(program: str) -> tuple[str, str]:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, timeout=120)
    return done.stdout.decode(), done.stderr.decode()


def test_a_notebook_shows_a_line_that_is_written_over() -> None:
    said, errors = output(SHELL.format("kernel=object()") + RUN)
    *states, end = said.split("\r")
    assert "3/3" in end
    assert "best" in end
    assert end.endswith("\n")
    assert states[0] == ""
    assert "%|" not in errors


def test_a_log_and_a_shell_in_a_pipe_show_none() -> None:
    for program in (RUN, SHELL.format("") + RUN):
        said, errors = output(program)
        assert said == ""
        assert "%|" not in errors
    assert not in_notebook()


@pytest.mark.extra
def test_a_real_kernel_shows_it() -> None:
    import nbclient
    import nbformat

    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(RUN)])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
    said = "".join(part.get("text", "") for part in notebook.cells[0].outputs if part.get("name") == "stdout")
    assert "3/3" in said
