"""The progress of a run: a bar on a terminal and in a notebook, and lines everywhere else."""

import contextlib
import logging
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path

import pytest

import lazybo

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


def on_terminal(columns: int, *command: str) -> str:
    """What a command prints on standard error, which is a terminal of this width."""
    shown, side = pty.openpty()
    termios.tcsetwinsize(side, (30, columns))
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=side) as process:
        os.close(side)
        parts = []
        with contextlib.suppress(OSError):  # the other side is closed: it has ended
            while part := os.read(shown, 65536):
                parts.append(part)
    os.close(shown)
    assert process.returncode == 0, parts
    return b"".join(parts).decode()


LINES = [f"lazybo: {done} of 20 trials, best " for done in range(2, 21, 2)]
TWENTY = """
import lazybo
lazybo.optimize(lambda x: x**2, {"x": (-1.0, 1.0)}, n_trials=20, seed=0)
"""


def beginnings(text: str) -> list[str]:
    """Our lines up to the best value; Optuna has one for a new study."""
    return [line.partition("best ")[0] + "best " for line in text.splitlines() if line.startswith("lazybo: ")]


def test_a_log_and_a_shell_in_a_pipe_show_a_line_now_and_then() -> None:
    for program in (TWENTY, SHELL.format("") + TWENTY):
        said, errors = output(program)
        assert said == ""
        assert beginnings(errors) == LINES
    assert beginnings(output(TWENTY.replace("seed=0", "progress=False"))[1]) == []


def test_a_terminal_shows_a_bar_if_it_has_a_width_and_lines_if_not() -> None:
    wide = on_terminal(100, sys.executable, "-c", TWENTY)
    assert "20/20" in wide
    assert "20 of 20 trials" not in wide
    narrow = on_terminal(0, sys.executable, "-c", TWENTY)
    assert "20/20" not in narrow
    assert beginnings(narrow) == LINES


def test_the_command_shows_a_line_for_each_trial_on_a_terminal_without_width(tmp_path: Path) -> None:
    (tmp_path / "bowl.py").write_text("def f(x):\n    return x * x\n")
    command = "import os, sys; os.chdir(sys.argv.pop(1)); from lazybo.cli.app import main; main()"
    arguments = ["tune", "--trials", "3", "--seed", "0", "--float", "x=-5:5", "bowl:f"]
    shown = on_terminal(0, sys.executable, "-c", command, str(tmp_path), *arguments)
    assert [line.split("  ")[0] for line in shown.splitlines()] == ["trial 0", "trial 1", "trial 2"]


def test_lines_are_log_records_if_logging_is_set_up(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "lazybo")
    lazybo.optimize(lambda x: x, {"x": (0.0, 1.0)}, n_trials=20, seed=0)
    assert beginnings("\n".join(f"lazybo: {text}" for text in caplog.messages)) == LINES
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_ten_equal_results_get_a_hint(caplog: pytest.LogCaptureFixture) -> None:
    for objective, hints in ((lambda x: 0.5, 1), (lambda x: float(x > 0.99) / 2, 0)):
        caplog.clear()
        study = lazybo.optimize(objective, {"x": (0.0, 1.0)}, n_trials=12, initial=[{"x": 1.0}], seed=0)
        found = [text for text in caplog.messages if "is this the right metric" in text]
        assert found == ["the first 10 results are all 0.5: is this the right metric?"] * hints
        assert len(study.trials) == 12
