"""The command with several objectives and constraints, on real programs."""

import json
import shlex
import sys
from pathlib import Path

import optuna
import pytest
from typer.testing import CliRunner, Result

from lazybo.cli.app import app
from lazybo.cli.console import with_names
from lazybo.cli.plan import make_plan, parse_constraints
from lazybo.cli.settings import from_flags, settings_of

PROGRAM = """
import json, sys
x, y = float(sys.argv[1]), float(sys.argv[2])
print(json.dumps({"step": 1, "accuracy": 0.1}))
accuracy = 1 - (x - 0.3) ** 2 - (y - 0.6) ** 2
print(json.dumps({"accuracy": accuracy, "latency": 1 + x + y * y, "memory": 3000 + 2000 * x}))
"""
RUN = f"-- {shlex.quote(sys.executable)} train.py {{x}} {{y}}"
SPACE = "--float x=0:1 --float y=0:1 --seed 1 -q"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text(PROGRAM)
    monkeypatch.setenv("COLUMNS", "200")
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def call(line: str) -> Result:
    result = CliRunner().invoke(app, shlex.split(line))
    assert result.exit_code == 0, result.output
    return result


def refused(line: str) -> str:
    before = sorted(Path().rglob("*"))
    result = CliRunner().invoke(app, shlex.split(line))
    assert result.exit_code == 2, result.output
    assert sorted(Path().rglob("*")) == before, "nothing was changed"
    (said,) = result.stderr.splitlines()
    return said


def test_two_objectives_and_a_constraint() -> None:
    goals = "--maximize accuracy --minimize latency --constraint 'memory<=4000'"
    said = call(f"tune --trials 9 {SPACE} {goals} {RUN}").stdout
    assert "accuracy (maximize)" in said
    assert "feasible; only these count" in said
    # The order of the flags does not matter when the study is resumed.
    other = "--minimize latency --constraint 'memory<=4000' --maximize accuracy"
    call(f"tune --trials 11 {SPACE} {other} {RUN}")
    front = json.loads(call("best --json").stdout)
    assert front
    assert all(set(trial["values"]) == {"accuracy", "latency"} for trial in front)
    assert all(trial["feasible"] and trial["metrics"]["memory"] <= 4000 for trial in front)
    assert len(call("best").stdout.splitlines()) == len(front) + 2
    shown = json.loads(call("show --json").stdout)
    assert shown["directions"] == ["maximize", "minimize"]
    assert shown["objectives"] == ["accuracy", "latency"]
    assert shown["trials"]["complete"] == 11
    assert shown["constraints"] == ["memory<=4000"]
    assert len(shown["front"]) == len(front)
    call("show")
    rows = json.loads(call("export --format json").stdout)
    assert all((row["constraints_memory<=4000"] <= 0) == row["feasible"] for row in rows)
    assert {"values_accuracy", "values_latency"} <= set(rows[0])
    assert "has several objectives" in refused("best --command")
    assert "other constraints" in refused(f"tune --trials 12 {SPACE} {other.replace('4000', '4500')} {RUN}")
    assert "reads its values by objectives 'accuracy and latency'" in refused(
        f"tune --trials 12 {SPACE} --maximize accuracy {RUN}"
    )


def test_pictures_of_a_study_with_two_objectives() -> None:
    call(f"tune --trials 7 {SPACE} --maximize accuracy --minimize latency {RUN}")
    for line in ("plot front -o front.svg", "plot all -o all.html", "plot time -o time.png"):
        call(line)
    assert "accuracy (maximize)" in Path("front.svg").read_text()
    assert "draw its front" in refused("plot history")


def test_one_objective_with_a_name_is_the_value_under_that_key() -> None:
    said = call(f"tune --trials 7 {SPACE} --maximize accuracy --constraint 'latency<=1.5' {RUN}").stdout
    assert "latency<=1.5: satisfied" in said
    best = json.loads(call("best --json").stdout)
    assert best["feasible"]
    study = optuna.load_study(study_name="lazybo", storage="sqlite:///lazybo.db")
    assert best["value"] == study.best_value
    assert study.trials[0].intermediate_values == {1: 0.1}
    for line in ("plot history -o a.png", "plot all -o all.html"):
        call(line)
    assert "has one objective" in refused("plot front")


def test_nothing_feasible_says_so() -> None:
    result = CliRunner().invoke(
        app, shlex.split(f"tune --trials 6 {SPACE} --maximize accuracy --constraint memory<=1 {RUN}")
    )
    assert result.exit_code == 1
    assert "is feasible yet: none satisfies memory<=1" in result.stdout
    assert "(0 feasible; only these count)" in result.stdout
    result = CliRunner().invoke(app, ["best"])
    assert result.exit_code == 1
    assert "no trial of the study 'lazybo' is feasible yet" in result.stderr
    assert "no trial of the study 'lazybo' is feasible yet" in call("show").stdout


def test_a_python_function_with_objectives_by_name() -> None:
    Path("mine.py").write_text("def f(x):\n    return {'a': x, 'b': (x - 1) ** 2, 'c': x}\n")
    call("tune --trials 6 --float x=0:1 -q --minimize a --minimize b --constraint c>=0.2 mine:f")
    assert all(trial["values"]["a"] >= 0.2 for trial in json.loads(call("best --json").stdout))


def test_a_file_may_have_directions_and_constraints() -> None:
    Path("run.toml").write_text(
        'command = ["python", "train.py", "{x}"]\ntrials = 5\n'
        'directions = {latency = "minimize", accuracy = "maximize"}\nconstraints = ["memory<=4000", "memory>=10"]\n'
        '[parameters]\nx = {type = "float", low = 0, high = 1}\n'
    )
    plan = make_plan(settings_of(["run.toml"], {}))
    assert dict(zip(plan.run.goals.names or (), plan.run.goals.directions, strict=True)) == {
        "accuracy": "maximize",
        "latency": "minimize",
    }
    assert [bound.name for bound in plan.run.goals.bounds] == ["memory>=10", "memory<=4000"]
    replaced = make_plan(settings_of(["run.toml"], {"direction": "maximize"}))
    assert replaced.run.goals.directions == ("maximize",)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("--maximize --trials 3", "--maximize= --trials 3"),
        ("--maximize accuracy --minimize a.b", "--maximize=accuracy --minimize=a.b"),
        ("--maximize lenet.toml", "--maximize= lenet.toml"),
        ("--maximize mine:f", "--maximize= mine:f"),
        ("--maximize ./train.sh {x}", "--maximize= ./train.sh {x}"),
        ("--maximize sh -c {x}", "--maximize= sh -c {x}"),
        ("--maximize sh -- sh -c --minimize {x}", "--maximize=sh -- sh -c --minimize {x}"),
        ("--minimize", "--minimize="),
    ],
)
def test_a_direction_may_have_the_name_of_an_objective(line: str, expected: str) -> None:
    assert with_names(line.split()) == expected.split()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--maximize a --minimize a", "exclude each other"),
        ("--maximize a --maximize a", "a is given twice"),
        ("--maximize --minimize", "name the objectives"),
        ("--maximize a --minimize", "needs the name"),
        ("--constraint memory=4", "METRIC<=NUMBER"),
        ("--constraint 'memory<=lots'", "METRIC<=NUMBER"),
        ("--constraint 'memory<=nan'", "METRIC<=NUMBER"),
        ("--constraint 'm<=1' --constraint 'm<=2'", "two constraints"),
        ("--constraint 'm<=1' --constraint 'm>=2'", "2 is more than 1"),
        ("--maximize a --minimize b --target 0", "target is for one objective"),
        ("--maximize a --minimize b --min-gain 0.1", "min_gain is for one objective"),
        ("--maximize a --minimize b --confirm 1", "confirm is for one objective"),
        ("--maximize a --minimize b --value-key c", "value_key and value_regex read one value"),
    ],
)
def test_wrong_goals_are_one_line(line: str, message: str) -> None:
    assert message in refused(f"tune --trials 3 {SPACE} {line} {RUN}")


def test_constraints_are_ranges() -> None:
    assert parse_constraints(["a.b <= 1e3", "c>=-2"]) == {"a.b": (None, 1000.0), "c": (-2.0, None)}
    assert from_flags({"maximize": [], "minimize": None}) == {"parameters": {}}


# ------------------------------------------------------------------------- cost


def test_seconds_or_a_metric_may_be_the_cost() -> None:
    for cost in ("seconds", "latency"):
        call(f"tune --trials 6 {SPACE} --maximize accuracy --cost {cost} --study {cost} {RUN}")
    Path("tune.toml").write_text(
        'objective = "m:f"\ntrials = 5\ncost = "latency"\n[parameters]\nx = {type = "float", low = 0.0, high = 1.0}\n'
    )
    assert settings_of(["tune.toml"], {})["cost"] == "latency"
    assert settings_of(["tune.toml"], {"cost": "seconds"})["cost"] == "seconds"


def test_a_metric_that_the_program_does_not_print_ends_the_run() -> None:
    said = CliRunner().invoke(app, shlex.split(f"tune --trials 7 {SPACE} --maximize accuracy --cost dollars {RUN}"))
    assert said.exit_code == 1
    assert "the metric 'dollars' is the cost" in said.stderr
    assert "cost must be" in refused(f"tune --trials 7 {SPACE} --maximize accuracy --cost '' {RUN}")
