"""The command without processes: plans, bad input, and what is said of a study."""

import csv
import functools
import io
import json
import os
import re
import shlex
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
import sqlalchemy
import typer
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from typer.testing import CliRunner, Result

from lazybo import Condition, Limits, optimize, recommend
from lazybo.cli.app import app
from lazybo.cli.parameters import space_of, tables_of
from lazybo.cli.plan import make_plan
from lazybo.cli.settings import DEFAULT_STORAGE, KEYS, settings_of
from lazybo.gp import Process
from lazybo.programs import Program
from lazybo.study import Store

ROOT = Path(__file__).parents[2]
REFERENCE = (ROOT / "docs" / "command.md").read_text()
TOML = """
command = "train --lr {lr} --opt {opt} --momentum {momentum}"
direction = "maximize"
trials = 30
parallel = 4
storage = "lenet.db"
initial = [{lr = 0.01, opt = "adam"}]
max_failures = 3
pruner = "none"
[parameters]
lr = {type = "float", low = 1e-4, high = 0.1, log = true}
opt = {type = "choice", choices = ["sgd", "adam"]}
momentum = {type = "float", low = 0, high = 0.99, if = {opt = ["sgd"]}}
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    program = tmp_path / "train"
    program.write_text('#!/bin/sh\nfor last; do :; done\necho "$last"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("COLUMNS", "200")
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def refused(*arguments: str) -> str:
    """The one line with which a call is refused; nothing is left in the folder."""
    before = sorted(Path().rglob("*"))
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert sorted(Path().rglob("*")) == before, "nothing was changed"
    (line,) = result.stderr.splitlines()
    return line.removeprefix("lazybo: ")


# ------------------------------------------------------------------------ plans


def test_flags_and_a_file_make_the_same_plan() -> None:
    Path("lenet.toml").write_text(TOML)
    from_file = make_plan(settings_of(["lenet.toml"], {}))
    assert from_file.run.space.distributions == {
        "lr": FloatDistribution(1e-4, 0.1, log=True),
        "opt": CategoricalDistribution(["sgd", "adam"]),
        "momentum": FloatDistribution(0, 0.99),
    }
    assert from_file.run.space.conditions == {"momentum": Condition("opt", ("sgd",))}
    assert from_file.program is not None
    assert from_file.program.command == ("train", "--lr", "{lr}", "--opt", "{opt}", "--momentum", "{momentum}")
    assert (from_file.run.goals.directions, from_file.storage, from_file.study) == (("maximize",), "lenet.db", "lenet")
    assert (from_file.run.limits, from_file.run.n_trials) == (Limits(max_failures=3), 30)
    assert from_file.run.executor == "threads"
    assert from_file.program.folder == Path("lenet-lenet-output").absolute()
    assert isinstance(from_file.run.pruner, optuna.pruners.NopPruner)


def test_initial_configurations_may_be_parts() -> None:
    Path("lenet.toml").write_text(TOML.replace('{lr = 0.01, opt = "adam"}', "{momentum = 0.5}, {lr = 0.02}"))
    assert make_plan(settings_of(["lenet.toml"], {})).run.initial == [{"momentum": 0.5, "opt": "sgd"}, {"lr": 0.02}]


def test_flags_override_the_file_and_choices_are_text() -> None:
    Path("lenet.toml").write_text(TOML)
    flags: dict[str, Any] = {"trials": 5, "study": "other", "parameters": {"lr": {"type": "int", "low": 1, "high": 3}}}
    plan = make_plan(settings_of(["lenet.toml", "train", "{lr}", "{opt}", "{momentum}"], flags | {"initial": []}))
    assert plan.run.space.distributions["lr"] == IntDistribution(1, 3)
    assert plan.settings["trials"] == 5
    assert plan.program is not None
    assert plan.program.command == ("train", "{lr}", "{opt}", "{momentum}")
    assert plan.settings["parallel"] == 4


def test_a_parameter_may_be_named_in_every_way_of_a_flag() -> None:
    floats, ints = ["a=0:1", "b=1e-3:1:log", "c=0:1:0.25"], ["d=1:9:2", "e=1:100:log"]
    assert space_of(tables_of(float=floats, int=ints, choice=['f=x,"y,z", $(q)'])).distributions == {
        "a": FloatDistribution(0, 1),
        "b": FloatDistribution(1e-3, 1, log=True),
        "c": FloatDistribution(0, 1, step=0.25),
        "d": IntDistribution(1, 9, step=2),
        "e": IntDistribution(1, 100, log=True),
        "f": CategoricalDistribution(["x", "y,z", " $(q)"]),
    }


# -------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("tune", "there are no parameters"),
        ("tune --trials 3 --float x=0:1", "there is nothing to tune"),
        (
            "tune --float x=0:1 -- train {x}",
            "nothing would end this run: give trials, timeout, target, patience or min_gain",
        ),
        ("tune --trials 3 --float x=0:1 -- train {y}", "the placeholder {y} has no parameter"),
        ("tune --trials 3 --float x=0:1 -- train", "the parameter 'x' has no placeholder"),
        ("tune --trials 3 --float x=1:0 -- train {x}", "(low=1.0, high=0.0)"),
        ("tune --trials 3 --float x=0:1:log -- train {x}", "low=0.0, high=1.0"),
        ("tune --trials 3 --float x=0:nan -- train {x}", "high must be a finite number"),
        ("tune --trials 3 --float x=0 -- train {x}", "write NAME=LOW:HIGH"),
        ("tune --trials 3 --int x=0:1.5 -- train {x}", "of whole numbers"),
        ("tune --trials 3 --int x=0:9:0 -- train {x}", "parameter 'x': "),
        ("tune --trials 3 --float x -- train {x}", "write --float NAME=LOW:HIGH"),
        ("tune --trials 3 --float x=0:1 --int x=0:1 -- train {x}", "was given twice"),
        ("tune --trials 3 --choice x=a,a -- train {x}", "'a' is given twice"),
        (
            "tune --trials 0 --float x=0:1 -- train {x}",
            "trials must be a whole number from 1 to 92",
        ),
        ("tune --trials 3 --trial-timeout 0 --float x=0:1 -- train {x}", "positive number of seconds"),
        ("tune --trials 3 --float x=0:1 -- trian {x}", "'trian' was not found in PATH"),
        ("tune --trials 3 --confirm 3 --float x=0:1 -- train {x}", "confirm is a part of trials"),
        ("tune --trials 3 --confirm -1 --float x=0:1 -- train {x}", "confirm must be"),
        ("tune --timeout 3 --confirm 1 --float x=0:1 -- train {x}", "when the search ends"),
        ("tune --min-gain 0 --float x=0:1 -- train {x}", "min_gain must be"),
        ("tune --trials 3 --float x=0:1 -- ./trian {x}", "'./trian' is not an executable file"),
        ("tune --trials 3 --float x=0:1 --executor thread -- train {x}", "did you mean 'threads'?"),
        ("tune --trials 3 --float x=0:1 --pruner medain -- train {x}", "did you mean 'median'?"),
        ("tune --trials 3 --float x=0:1 --parallel 2 --value-file v -- train {x}", "v.{trial}"),
        ("tune --trials 3 --float trial=0:1 -- train {trial}", "rename it"),
        ("tune --trials 3 --float x=0:1 nomodule:f", "'nomodule' cannot be imported"),
        ("tune --trials 3 --float x=0:1 json:nothing", "there is no 'nothing' in 'json'"),
        ("tune --trials 3 --float x=0:1 json:__doc__", "is not a function"),
        ("tune --trials 3 --float x=0:1 json:__doc__.nothing", "there is no 'nothing' in 'str'"),
        ("tune --trials 3 --float x=0:1 --output /dev/null -- train {x}", "output '/dev/null' is not a folder"),
        ("tune --trials 3 --float x=0:1 --storage no/where.db -- train {x}", "does not exist"),
        ("tune --trials 3 --float x=0:1 --value-regex 'acc=(' -- train {x}", "is not a regular expression: missing )"),
        ("tune --trials 3 --float x=0:1 --value-regex acc -- train {x}", "must have one group around the number"),
        ("tune --trials 3 --float x=0:1 --value-regex '(a)(b)' -- train {x}", "must have one group around the number"),
        ("tune --trials 3 --float x=0:1 --value-key '' -- train {x}", "value_key must be a key"),
        ("tune --trials 3 --float x=0:1 --value-key a --value-regex '(b)' -- train {x}", "give one of them"),
        ("tune --trials 3 --float x=0:1 --value-key a math:sqrt", "a Python function returns its value"),
        ("tune --trials 3 --float x=0:1 --value-file . -- train {x}", "value_file '.' is a folder"),
        ("tune --trials 3 --float x=0:1 --value-file /dev/null -- train {x}", "value_file '/dev/null' is a device"),
        ("tune --timeout 1e10 --float x=0:1 -- train {x}", "timeout must be at most 1e+09 seconds, not 10000000000"),
        ("tune --trials 3 --timeout inf --float x=0:1 -- train {x}", "timeout must be at most 1e+09 seconds, not inf"),
        ("tune --trials 3 --trial-timeout 1e10 --float x=0:1 -- train {x}", "trial_timeout must be at most"),
        ("tune --target nan --float x=0:1 -- train {x}", "target must be a finite number, not nan"),
        (
            f"tune --trials {10**400} --float x=0:1 -- train {{x}}",
            "trials must be a whole number from 1 to 9223372036854775807, not 1000",
        ),
        (
            f"tune --trials 3 --parallel {10**400} --float x=0:1 -- train {{x}}",
            "parallel must be a whole number from",
        ),
        (f"tune --trials 3 --seed {10**400} --float x=0:1 -- train {{x}}", "seed must be a whole number from 0 to"),
        (
            f"tune --trials 3 --int x=0:{10**400} -- train {{x}}",
            "high must be a whole number within ±9223372036854775807",
        ),
        ("tune --trials 3 --int x=0:inf -- train {x}", "of whole numbers"),
        ("tune --trials 3 --float x=0:1e999 -- train {x}", "high must be a finite number, not inf"),
        ("tune --trials 3 --float x=0:1 --storage postgre://u@h/d -- train {x}", "did you mean 'postgresql'?"),
        ("show sqlite3:///x.db", "begins with 'sqlite3' (did you mean 'sqlite'?); give a file such as study.db"),
        ("show sqlite://x.db", "needs a third slash: give 'sqlite:///x.db', or 'x.db' alone"),
        ("show redis://h", "databases: sqlite, postgresql"),
        ("show postgresql+psycopg9://u@h/d", "SQLAlchemy does not know the driver in"),
        ("show postgresql+psycopg2://u@127.0.0.1:1/d", "write postgresql+psycopg://... and pip install"),
        ("tune nothing.toml", "nothing.toml cannot be read"),
        ("show nothing.db", "there is no storage 'nothing.db'"),
        ("show train", "is not an SQLite database"),
        ("best nothing.db", "there is no storage"),
        ("export nothing.db", "there is no storage"),
        ("plot history nothing.db", "there is no storage"),
    ],
)
def test_bad_input_is_one_line(arguments: str, message: str) -> None:
    assert message in refused(*shlex.split(arguments))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("trials = 30", "trails = 30", "unknown key 'trails' (did you mean 'trials'?)"),
        ("log = true", "logg = true", "parameter 'lr': unknown key 'logg' (did you mean 'log'?)"),
        ("trials = 30", 'trials = "30"', "trials must be a whole number, not '30'"),
        ("trials = 30", "trials = true", "trials must be a whole number, not True"),
        ("low = 1e-4", "low = 1", "(low=1.0, high=0.1)"),
        ('type = "choice"', 'type = "chioce"', "the type must be one of"),
        ('choices = ["sgd", "adam"]', "choices = []", "choices must be a list"),
        ('if = {opt = ["sgd"]}', 'if = {opt = ["sdg"]}', "has opt='sdg', but opt must be one of ['sgd'"),
        ('if = {opt = ["sgd"]}', 'if = {otp = ["sgd"]}', "there is no parameter 'otp'"),
        ('if = {opt = ["sgd"]}', "if = 3", '"if" must name one parameter'),
        ("lr = 0.01", "lr = 1.0", "initial configuration 0: lr must be a number from"),
        ('"maximize"', '"maximise"', "did you mean 'maximize'?"),
        ("--lr {lr}", "--lr {lr} '", "cannot be split: No closing quotation"),
        ('command = "train', 'objective = "a:b"\ncommand = "train', "a command and a Python objective"),
        ("[parameters]", "[parameters", "is not TOML"),
        ("trials = 30", f"trials = {'[' * 10_000}", "is not TOML"),
        ("trials = 30", "trials = 30\nvalue_key = 3", "value_key must be a string, not 3"),
        ("trials = 30", "trials = 30\nvalue_regex = 'x'", "value_regex 'x' must have one group"),
        ("trials = 30", "trials = 30\ntarget = inf", "target must be a finite number, not inf"),
        ("trials = 30", f"trials = 30\ntarget = {10**400}", "target must be a finite number"),
        ("high = 0.1", f"high = {10**400}", "parameter 'lr': high must be a finite number, not 1000"),
    ],
)
def test_a_mistake_in_the_file_is_one_line(old: str, new: str, message: str) -> None:
    assert old in TOML
    Path("lenet.toml").write_text(TOML.replace(old, new))
    assert message in refused("tune", "lenet.toml")


def test_a_missing_extra_is_one_line_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    made()
    for package, arguments in (
        ("matplotlib", ["plot", "history"]),
        ("pyarrow", ["export", "--format", "parquet"]),
        ("optuna-dashboard", ["dashboard"]),
    ):
        monkeypatch.setitem(sys.modules, package.replace("-", "_"), None)
        assert refused(*arguments) == f"this needs {package}, which is not installed: pip install {package}"


def test_a_run_that_cannot_begin_leaves_no_study(monkeypatch: pytest.MonkeyPatch) -> None:
    made()
    monkeypatch.setitem(sys.modules, "distributed", None)
    there = optuna.get_all_study_names(f"sqlite:///{DEFAULT_STORAGE}")
    on_a_cluster = ["--trials", "3", "--executor", "dask://127.0.0.1:1", "--float", "x=0:1", "--", "train", "{x}"]
    assert "pip install distributed" in refused("tune", "--study", "other", *on_a_cluster)
    assert optuna.get_all_study_names(f"sqlite:///{DEFAULT_STORAGE}") == there


# ------------------------------------------------------------------------- tune


def tune(*more: str) -> Result:
    return call("tune", "--trials", "6", "--seed", "0", "--float", "x=-1:2", *more)


def test_a_program_is_tuned_and_the_same_command_resumes() -> None:
    result = tune("--json", "--", "train", "{x}")
    assert result.exit_code == 0, result.output
    record = json.loads(result.stdout)
    assert record["trials"]["complete"] == 6
    assert record["best"]["value"] == record["best"]["params"]["x"]
    lines = [line for line in result.stderr.splitlines() if line.startswith("trial ")]
    assert len(lines) == 6
    assert lines[-1].endswith(f"best {record['best']['value']:.6g} (trial {record['best']['number']})")
    again = tune("--", "train", "{x}")
    assert again.exit_code == 0
    assert "6 complete" in again.stdout
    assert not again.stderr
    more = call("tune", "--trials", "8", "--float", "x=-1:2", "--", "train", "{x}")
    assert "8 complete" in more.stdout
    assert len(list(Path("lazybo-lazybo-output").iterdir())) == 8


def test_after_a_run_other_programs_of_this_process_may_start(tmp_path: Path) -> None:
    assert call("tune", "--trials", "1", "--float", "x=0:1", "--", "train", "{x}").exit_code == 0
    other = Program(("echo", "{x}"), tmp_path / "other", tmp_path, "other")
    study = optimize(other, {"x": (0.0, 1.0)}, n_trials=2, progress=False)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 2


def test_failures_go_on_until_there_are_too_many_in_a_row() -> None:
    result = tune("--max-failures", "3", "--", "sh", "-c", "exit 5", "{x}")
    assert result.exit_code == 1
    line = result.stderr.splitlines()[-1]
    assert line.startswith("lazybo: the run failed: 3 evaluations in a row failed")
    assert "exit status 5" in line
    shown = call("show")
    assert "3 × it ended with exit status 5" in shown.stdout


ACCURACY = r"Accuracy: (\S+)"


def test_a_first_trial_without_a_value_ends_the_run_and_says_what_would_help() -> None:
    Path("train.sh").write_text('echo "Epoch 1"\necho "Accuracy: $1"\n')
    program = ["--", "sh", "train.sh", "{x}"]
    result = tune(*program)
    assert result.exit_code == 1
    assert "  | Epoch 1\n  | Accuracy: " in result.stderr
    assert all(flag in result.stderr for flag in ("--value-regex", "--value-key", "--value-file"))
    assert "1 failed" in result.stdout
    assert "run the same command again" in result.stdout
    assert json.loads(call("show", "--json").stdout)["stopped"] == "no_first_value"
    for more in (["--value-regex", ACCURACY], []):  # with the flag, and with the flag in the file
        Path("tune.toml").write_text(f"value_regex = '{ACCURACY}'\n")
        words = ["tune.toml", "--study", "lazybo"] if not more else []
        result = call("tune", *words, "--trials", "6", "--float", "x=-1:2", *more, *program)
        assert result.exit_code == 0, result.output
        assert "6 complete, 1 failed" in result.stdout
    changed = ["--study", "lazybo", "--trials", "9", "--float", "x=-1:2"]
    line = refused("tune", *changed, "--value-regex", r"Epoch (\d)", *program)
    assert rf"reads its values by value_regex '{ACCURACY}', not by value_regex 'Epoch (\d)'" in line
    assert "not by default" in refused("tune", *changed, *program)
    assert "not by value_file 'v'" in refused("tune", *changed, "--value-file", "v", *program)
    forced = call("tune", "--force", "--study", "lazybo", "--trials", "7", "--float", "x=-1:2", "--value-regex",
                  r"uracy: (\S+)", *program)  # fmt: skip
    assert forced.exit_code == 0, forced.output


@pytest.mark.parametrize(
    ("words", "hinted"),
    [
        ("--float lr=0:1 sh train.sh --lr {lr}", True),
        ("--float lr=0:1 sh train.sh -x {lr}", True),
        ("--float lr=0:1 sh train.sh --steps {lr}", True),
        ("--flaot lr=0:1 -- sh train.sh {lr}", False),
        ("--flaot lr=0:1 module:function", False),
    ],
)
def test_dashes_that_are_missing_before_a_program_are_named(words: str, hinted: bool) -> None:
    command = [sys.executable, "-m", "lazybo", "tune", "--trials", "3", *words.split()]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert ("; put -- before the program: -- sh ... (see lazybo --help)" in line) == hinted, line


def test_a_flag_takes_the_place_of_the_files_other_way_to_read() -> None:
    Path("lenet.toml").write_text(TOML.replace("trials = 30", "trials = 30\nvalue_key = 'a'"))
    for flags, way in (({}, ("a", None)), ({"value_regex": "(b)"}, (None, "(b)"))):
        program = make_plan(settings_of(["lenet.toml"], flags)).program
        assert program is not None
        assert (program.reading.key, program.reading.regex) == way


def test_a_fifo_as_value_file_is_refused() -> None:
    os.mkfifo("pipe")
    line = refused(*shlex.split("tune --trials 3 --float x=0:1 --value-file pipe -- train {x}"))
    assert "value_file 'pipe' is a FIFO; give the path of a file" in line


def test_another_space_is_refused_in_the_words_of_the_command() -> None:
    assert tune("--", "train", "{x}").exit_code == 0
    for more in ("--float x=-1:3", "--float x=-1:2 --maximize"):
        line = refused(*shlex.split(f"tune --trials 9 {more} -- train {{x}}"))
        assert "give another --study" in line
        assert "study_name" not in line
        assert "warm_start" not in line


# ----------------------------------------------------------------------- safety

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202eevil\r\nlazybo: all is well\u2028"


def evil_study() -> None:
    space = {f"x{EVIL}": FloatDistribution(0, 1), "opt": CategoricalDistribution([EVIL])}

    def objective(params: dict[str, Any]) -> dict[str, Any]:
        if params[f"x{EVIL}"] > 0.5:
            raise ValueError(EVIL)
        return {"value": 1.0, f"metric{EVIL}": EVIL}

    initial = [{f"x{EVIL}": x, "opt": EVIL} for x in (0.1, 0.9)]
    for name in (f"a{EVIL}", f"b{EVIL}"):
        study = optimize(objective, space, n_trials=2, storage="evil.db", study_name=name, initial=initial)
        study.set_user_attr("lazybo:command", ["train", EVIL, "{opt}", "postgresql://me:secret@host/db"])


def test_nothing_from_a_study_is_obeyed_by_a_terminal() -> None:
    evil_study()
    names = [f"a{EVIL}", f"b{EVIL}"]
    calls = [["show", "evil.db"], ["best", "evil.db"], ["best", "evil.db", f"c{EVIL}"]]
    calls += [["show", "evil.db", name, *more] for name in names for more in ([], ["--json"])]
    calls += [["best", "evil.db", names[0]], ["export", "evil.db", names[0], "--format", "json"]]
    calls += [["plot", "history", "evil.db", names[0]], ["report", "evil.db", names[0]]]
    calls += [["ask", "evil.db", names[0]]]
    for arguments in calls:
        result = call(*arguments)
        said = result.stdout + result.stderr
        assert "evil" in said
        assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2028]", said), repr(said)
        assert not re.search("^lazybo: all is well", said, re.M)
        assert ("secret" in said) <= ("--json" in arguments)
    record = json.loads(call("show", "evil.db", names[0], "--json").stdout)
    assert record["study"] == names[0], "programs get what is there"
    assert record["best"]["metrics"] == {f"metric{EVIL}": EVIL}
    line = call("best", "evil.db", names[0], "--command").stdout_bytes.decode()
    assert shlex.split(line) == ["train", EVIL, EVIL, "postgresql://me:secret@host/db"]


@pytest.mark.parametrize(
    "url",
    [
        "postgre://me:s3cr3t@host/db",
        "postgresql://me:s3cr3t@127.0.0.1:1/db",
        "postgresql+psycopg://me:s3cr3t@127.0.0.1:1/db",
        "postgresql://me:a@s3cr3t@127.0.0.1:1/db",
        "postgresql://me:a/s3cr3t@127.0.0.1:1/db",
        "postgresql://me:a%40s3cr3t@127.0.0.1:1/db",
        "postgresql://127.0.0.1:1/db?user=me&password=s3cr3t",
        "mysql+nothing://me:s3cr3t@host/db",
        "redis://:s3cr3t@host",
        "sqlite://me:s3cr3t@x.db",
    ],
)
def test_no_password_is_printed(url: str) -> None:
    for arguments in (
        ["show", url],
        ["tune", "--trials", "3", "--float", "x=0:1", "--storage", url, "--", "train", "{x}"],
    ):
        line = refused(*arguments)
        assert "s3cr3t" not in line
        assert "storage" in line or "driver" in line


def test_a_python_objective_is_tuned() -> None:
    Path("objectives.py").write_text("def bowl(params):\n    return {'value': params['x'] ** 2, 'loss': 1}\n")
    result = tune("--json", "objectives:bowl")
    assert result.exit_code == 0, result.output
    best = json.loads(result.stdout)["best"]
    assert best["value"] == best["params"]["x"] ** 2
    assert best["metrics"] == {"loss": 1}
    assert best["command"] is None
    assert "was not made by lazybo tune with a command" in refused("best", "--command")


def test_an_objective_that_returns_nothing_fails_the_run() -> None:
    Path("wrong.py").write_text("def f(params):\n    pass\n")
    result = tune("wrong:f")
    assert result.exit_code == 1
    assert "must return a number" in result.stderr.splitlines()[-1]


# ------------------------------------------------------------------------- look


def made(name: str = "lazybo", path: str = DEFAULT_STORAGE) -> optuna.Study:
    """A study of eight trials, one of which failed."""
    if not Path(path).exists():
        Path(path).write_bytes(_database(name))
        return optuna.load_study(study_name=name, storage=Store.open(path))
    return _run(name, path)


@functools.cache
def _database(name: str) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        _run(name, f"{folder}/study.db")
        return Path(f"{folder}/study.db").read_bytes()


def _run(name: str, path: str) -> optuna.Study:
    space = {"x": FloatDistribution(-1, 2), "opt": CategoricalDistribution(["a b", "$(c)"])}

    def objective(params: dict[str, Any]) -> dict[str, Any]:
        if params["x"] == 1.75:
            raise ValueError("too large")
        return {"value": params["x"] ** 2, "loss": 0.5}

    initial = [{"x": 1.75, "opt": "a b"}, {"x": 0.25, "opt": "$(c)"}]
    study = optimize(objective, space, n_trials=8, seed=0, storage=path, study_name=name, initial=initial)
    study.set_user_attr("lazybo:command", ["train", "{opt}", "--x={x}"])
    return study


def test_show_says_that_a_storage_is_empty() -> None:
    optuna.storages.RDBStorage("sqlite:///empty.db")
    result = call("show", "empty.db")
    assert result.exit_code == 0
    assert result.stdout == "there is no study in this storage yet\n"
    assert json.loads(call("show", "empty.db", "--json").stdout) == []


def test_show_lists_studies_and_details_one() -> None:
    study = made()
    one = json.loads(call("show", "--json").stdout)
    assert one["study"] == "lazybo"
    assert one["trials"]["complete"] == 7
    assert one["best"]["number"] == study.best_trial.number
    assert sum(one["importances"].values()) == pytest.approx(1.0)
    assert one["failures"] == [{"reason": "ValueError: too large", "count": 1, "last": 0, "output": None}]
    text = call("show").stdout
    assert "1 × ValueError: too large (last: trial 0)" in text
    assert f"{study.best_params['x']:.6g}" in text
    made("second")
    table = call("show").stdout.splitlines()
    assert table[0].split()[:2] == ["study", "direction"]
    assert [line.split()[0] for line in table[1:]] == ["lazybo", "second"]
    assert {record["study"] for record in json.loads(call("show", "--json").stdout)} == {"lazybo", "second"}
    assert "there are 2 studies in lazybo.db; give the name of one: lazybo, second" in refused("best")
    assert "did you mean 'second'?" in refused("show", "lazybo.db", "secnod")


def test_best_is_text_json_or_a_command_line() -> None:
    study = made()
    best = study.best_trial
    assert json.loads(call("best", "--json").stdout)["params"] == best.params
    assert f"(trial {best.number})" in call("best").stdout
    line = call("best", "--command").stdout
    assert shlex.split(line) == ["train", best.params["opt"], f"--x={best.params['x']}"]


def test_a_report_is_one_file_with_the_name_that_was_asked_for() -> None:
    study = made("second/one")
    assert call("report").stdout == "second_one-report.html\n"
    text = Path("second_one-report.html").read_text(encoding="utf-8")
    assert "<h1>second/one</h1>" in text
    assert f"measured in trial {study.best_trial.number}" in text
    assert "ValueError: too large" in text
    result = call("report", "lazybo.db", "second/one", "-o", "other.html")
    assert result.stdout == "other.html\n"
    assert Path("other.html").read_text(encoding="utf-8") == text
    assert "must end with .html" in refused("report", "-o", "report.pdf")
    assert "there is no study 'third'" in refused("report", "lazybo.db", "third", "-o", "third.html")
    assert not Path("third.html").exists()


def noisy(path: str = DEFAULT_STORAGE) -> optuna.Study:
    """A study with known noise, whose last trial is the best by luck."""
    study = optuna.create_study(study_name="noisy", storage=Store.open(path))
    study.set_user_attr("lazybo:command", ["train", "--x={x}"])
    for i in range(22):
        x, value = (i / 4 - 2.5, (i / 4 - 2.5) ** 2) if i < 21 else (2.0, -3.0)
        attributes = {"lazybo:variance": 0.5 if i < 21 else 4.0}
        space = {"x": FloatDistribution(-3, 3)}
        study.add_trial(
            optuna.trial.create_trial(value=value, params={"x": x}, distributions=space, system_attrs=attributes)
        )
    return study


def test_the_recommended_trial_is_printed_alone_with_its_flag() -> None:
    found = recommend(noisy())
    assert call("best", "--command").stdout == "train --x=2.0\n"
    assert call("best", "--recommended", "--command").stdout == f"train --x={found.params['x']}\n"
    record = json.loads(call("best", "--recommended", "--json").stdout)
    assert (record["number"], record["params"]) == (found.number, found.params)
    assert record["recommended"]["value"] == found.value
    text = call("best", "--recommended").stdout
    assert text.startswith(f"recommended trial {found.number}: expected")
    assert f"train --x={found.params['x']}" in text
    assert "--x=2.0" not in text


def test_a_file_may_say_that_a_program_is_deterministic() -> None:
    Path("lenet.toml").write_text(f"deterministic = true\n{TOML}")
    assert settings_of(["lenet.toml"], {})["deterministic"]
    assert not settings_of(["lenet.toml"], {"deterministic": False})["deterministic"]


def test_a_final_check_is_shown_logged_and_exported() -> None:
    Path("noisy.py").write_text(
        "import numpy as np\n"
        "def f(params, trial):\n"
        "    luck = np.random.default_rng(trial.number).standard_normal()\n"
        "    return params['x'] ** 2 + 6.0 * luck\n"
    )
    settings = ["tune", "--trials", "16", "--confirm", "5", "--seed", "0", "--float", "x=-5:5", "noisy:f"]
    result = call(*settings)
    assert result.exit_code == 0, result.output
    assert "repeat of trial " in result.stderr
    rows = list(csv.DictReader(io.StringIO(call("export").stdout)))
    repeats = [row for row in rows if row["repeat_of"]]
    assert 1 <= len(repeats) <= 5
    assert all(row["params_x"] == rows[int(row["repeat_of"])]["params_x"] for row in repeats)
    record = json.loads(call("show", "--json").stdout)
    assert record["repeats"] == len(repeats)
    assert list(record["expected_gain"]) == ["10", "50", "100"]
    assert all(gain >= 0 for gain in record["expected_gain"].values())
    chances = [each["chance"] for each in record["contenders"]]
    assert chances == sorted(chances, reverse=True)
    assert len(chances) > 1
    text = call("show").stdout
    assert f"probability of being the best (ties count for both): trial {record['contenders'][0]['number']} " in text
    assert f"{len(repeats)} repeats in the final check" in text
    assert "expected gain of the next 10, 50, 100 trials: " in text


def test_best_without_a_value_is_a_failure() -> None:
    optuna.create_study(study_name="empty", storage=Store.open(DEFAULT_STORAGE))
    result = call("best")
    assert result.exit_code == 1
    assert "no trial of the study 'empty' has completed yet" in result.stderr
    assert call("show").exit_code == 0


def test_an_export_has_all_trials_and_starts_another_study() -> None:
    study = made()
    rows = list(csv.DictReader(io.StringIO(call("export").stdout)))
    assert [float(row["value"]) if row["value"] else None for row in rows] == [trial.value for trial in study.trials]
    assert rows[0]["state"] == "FAIL"
    assert rows[0]["reason"] == "ValueError: too large"
    assert rows[1]["user_attrs_loss"] == "0.5"
    assert call("export", "-o", "trials.csv").exit_code == 0
    space = study.trials[1].distributions
    again = optimize(lambda params: params["x"], space, n_trials=1, warm_start="trials.csv")
    assert len(again.trials) == 1
    assert [row["number"] for row in json.loads(call("export", "--format", "json").stdout)] == list(range(8))


def test_parquet_holds_the_same_table() -> None:
    import pyarrow.parquet

    study = made()
    assert call("export", "-o", "trials.parquet").exit_code == 0
    table = pyarrow.parquet.read_table("trials.parquet")
    assert table["value"].to_pylist() == [trial.value for trial in study.trials]
    assert table["params_opt"].to_pylist() == [trial.params["opt"] for trial in study.trials]
    assert "the format must be one of" in refused("export", "-o", "trials.xlsx")


def test_a_toml_file_stands_for_its_study() -> None:
    made("lenet", "lenet.db")
    Path("lenet.toml").write_text(TOML)
    assert json.loads(call("best", "lenet.toml", "--json").stdout)["study"] == "lenet"


# ------------------------------------------------------------------------- help


@pytest.mark.parametrize("command", ["tune", "show", "best", "export", "plot", "report", "dashboard"])
def test_every_command_explains_itself_with_examples(command: str) -> None:
    result = call(command, "--help")
    assert result.exit_code == 0
    assert "Examples" in result.stdout
    assert f"lazybo {command}" in result.stdout


def commands_of(group: Any, *words: str) -> Iterator[tuple[str, ...]]:
    """The words of all commands."""
    yield words
    for name, command in getattr(group, "commands", {}).items():
        yield from commands_of(command, *words, name)


@pytest.mark.parametrize("words", list(commands_of(typer.main.get_command(app))), ids=" ".join)
def test_no_help_shows_a_python_type(words: tuple[str, ...]) -> None:
    result = call(*words, "--help")
    assert result.exit_code == 0
    assert not re.search(r"<(bool|int|float|str|path|file|directory|list|tuple)\b", result.stdout), result.stdout
    assert "[[" not in result.stdout
    for line in result.stdout.splitlines():
        assert not re.fullmatch(r"│ +--\S+( +[A-Z]+)?( +\[[^]]*\])* +│", line), f"{line} has no help"


@pytest.mark.parametrize("words", ["", "best", "export", "report -o r.html", "plot history -o h.png", "resume --all"])
def test_storage_and_study_may_be_given_as_for_tune(words: str) -> None:
    made("first", "k.db")
    made("second", "k.db")
    command, *rest = words.split() or ["show"]
    kind = [rest.pop(0)] if command == "plot" else []
    expected = call(command, *kind, "k.db", "second", *rest)
    assert "no such option" not in expected.output.lower()
    result = call(command, *kind, "second", "--storage=k.db", *rest)
    assert (result.exit_code, result.output) == (expected.exit_code, expected.output)
    message = refused(command, *kind, "k.db", "second", "--study", "first", *rest)
    assert message.startswith("'second' is one too many: the storage is 'k.db' and the study 'first'; give each once")


def test_the_reference_names_every_setting() -> None:
    missing = [key for key in KEYS if f"`{key}`" not in REFERENCE]
    assert not missing


def test_show_says_why_the_last_run_ended() -> None:
    options = ["--trials", "9", "--target", "5", "--float", "x=0:1"]
    assert call("tune", *options, "--", "train", "{x}").exit_code == 0
    assert json.loads(call("show", "--json").stdout)["stopped"] == "target_reached"
    assert call("tune", "--trials", "2", "--float", "x=0:1", "--", "train", "{x}").exit_code == 0
    assert json.loads(call("show", "--json").stdout)["stopped"] is None


# ------------------------------------------------------------------------- size


def many_trials(path: str, count: int) -> None:
    """A study with ``count`` completed trials, written at once."""
    study = optuna.create_study(study_name="many", storage=Store.open(path))
    space = {"x": FloatDistribution(-1, 1), "y": FloatDistribution(-1, 1)}
    points = np.random.default_rng(0).uniform(-1, 1, (count, 2)).tolist()
    study.add_trial(optuna.trial.create_trial(value=9.0, params={"x": 1.0, "y": 1.0}, distributions=space))
    with sqlite3.connect(path) as connection:
        ids = range(2, count + 2)
        connection.executemany("INSERT INTO trials VALUES (?, ?, 1, 'COMPLETE', NULL, NULL)", [(i, i - 1) for i in ids])
        values = [(i, x * x + y * y) for i, (x, y) in zip(ids, points, strict=True)]
        connection.executemany("INSERT INTO trial_values VALUES (NULL, ?, 0, ?, 'FINITE')", values)
        params = [(i, *pair) for i, xy in zip(ids, points, strict=True) for pair in zip("xy", xy, strict=True)]
        connection.executemany(
            "INSERT INTO trial_params SELECT NULL, ?, ?, ?, distribution_json FROM trial_params LIMIT 1", params
        )


@pytest.fixture
def statements() -> Iterator[list[str]]:
    """The statements that any database was sent."""
    sent: list[str] = []

    def note(*call: Any) -> None:
        sent.append(call[2])

    sqlalchemy.event.listen(sqlalchemy.Engine, "before_cursor_execute", note)
    yield sent
    sqlalchemy.event.remove(sqlalchemy.Engine, "before_cursor_execute", note)


def test_what_show_reads_and_compares_does_not_grow_with_the_trials(
    statements: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    predicted: list[int] = []
    posterior_mean = Process.mean

    def counted(process: Process, x: Any) -> Any:
        predicted.append(len(x))
        return posterior_mean(process, x)

    monkeypatch.setattr(Process, "mean", counted)
    work = []
    for count in (600, 1400):
        many_trials(f"{count}.db", count)
        statements.clear()
        predicted.clear()
        result = call("show", f"{count}.db")
        assert result.exit_code == 0, result.output
        assert f"{count + 1} complete" in result.stdout
        work.append((len(statements), sum(predicted)))
    (few, of_few), (many, of_many) = work
    assert many == few
    # Of all configurations at most 1,000 are compared, by recommend and contenders, and good ranges are searched.
    assert of_many <= of_few + 2 * 400 + 200
