"""Files as a version of lazybo writes them, and what is read from them: for tests/test_compatibility.py.

``python -m tests.compatibility tests/data/VERSION`` writes the files of the version that is about to be released. They
are never written again: later versions must read them, say the same of them, and continue them.
"""

import json
import math
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import optuna
import pandas
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from typer.testing import CliRunner

import lazybo
from tests.cli.command import app

DATABASE, JOURNAL, TABLE, EXPECTED = "studies.db", "journal.log", "table.csv", "expected.json"
OPTIMIZER, LOCAL, CHECKPOINTS = "optimizer.json", "local.json", "checkpoints"
HAND = ("--float", "temperature=180:250:5", "--int", "minutes=20:60", "--choice", "flour=rye,wheat", "--maximize")
STEPS, TRIALS, KEPT = 9, 12, 3
# After which step each training has continued.
CONTINUED: list[int] = []

PARAMETERS = {
    "optimiser": ["sgd", "adam"],
    "lr": (1e-4, 1.0, "log"),
    "momentum": (0.0, 0.99),
    "layers": (1, 6),
}


def is_small(params: Mapping[str, Any]) -> bool:
    """The known constraint of the optimiser's file."""
    return bool(params["lr"] * params["layers"] <= 3.0)


def loss(params: Mapping[str, Any]) -> float:
    momentum = 0.3 if params["optimiser"] == "adam" else 2.0 * (params["momentum"] - 0.8) ** 2
    return float((math.log10(params["lr"]) + 2.0) ** 2 + momentum + 0.05 * (params["layers"] - 3) ** 2)


def curve(params: Mapping[str, Any], step: int) -> float:
    """The loss after a step of a training."""
    return loss(params) + 2.0 * math.exp(-0.3 * step)


def train(params: dict[str, Any], checkpoint: Path) -> Iterator[float]:
    """A training that can be continued."""
    state = checkpoint / "steps"
    done = int(state.read_text()) if state.exists() else 0
    CONTINUED.append(done)
    for step in range(done + 1, STEPS + 1):
        state.write_text(str(step))
        yield curve(params, step)


def measure(params: dict[str, Any]) -> dict[str, float]:
    if params["lr"] > 0.3:
        raise ArithmeticError("the training diverged")
    return {"loss": loss(params), "speed": math.log10(params["lr"]), "memory": params["layers"] * 100.0}


def noisy(params: dict[str, Any], trial: Any) -> dict[str, float]:
    return {"value": loss(params) + 0.2 * math.sin(7.0 * trial.number), "price": 1.0 + params["layers"]}


def suggested(trial: optuna.Trial) -> float:
    """An objective for Optuna, with a pruner."""
    params: dict[str, Any] = {"optimiser": trial.suggest_categorical("optimiser", ["sgd", "adam"])}
    params["lr"] = trial.suggest_float("lr", 1e-4, 1.0, log=True)
    if params["optimiser"] == "sgd":
        params["momentum"] = trial.suggest_float("momentum", 0.0, 0.99)
    params["layers"] = trial.suggest_int("layers", 1, 6)
    for step in range(1, STEPS + 1):
        trial.report(curve(params, step), step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return curve(params, STEPS)


def earlier_results() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for i in range(8):
        params = {"optimiser": ["sgd", "adam"][i % 2], "lr": 10.0 ** (-4 + i / 2), "layers": 1 + i % 6}
        rows.append(params | ({"momentum": 0.1 * i} if i % 2 == 0 else {}))
    return [{**row, "value": 3.0 * loss(row) + 1.0} for row in rows]


# ------------------------------------------------------------------------------------------------------ writing


def space(feasible: Any = None) -> lazybo.Space:
    return lazybo.Space(PARAMETERS, conditions={"momentum": lazybo.Condition("optimiser", ("sgd",))}, feasible=feasible)


def new_optimizer(feasible: Any = None, **options: Any) -> lazybo.Optimizer:
    return lazybo.Optimizer(space(feasible), **options)


def write_optimizer(path: Path) -> None:
    """An optimiser with everything that its file can hold."""
    optimizer = new_optimizer(feasible=is_small, seed=3, cost="price", earlier=[earlier_results()], n_startup=4)
    for number in range(14):
        suggestion = optimizer.ask()
        params = suggestion.params
        limits = {"memory": params["layers"] - 4.5}
        if number == 5:
            optimizer.tell(suggestion, None)
        elif number == 7:
            optimizer.forecast(suggestion, loss(params) + 0.1, 0.05)
        elif number == 9:
            optimizer.forecast(suggestion, loss(params) + 0.2, 0.05, stopped=True, constraints=limits, cost=2.0)
        else:
            optimizer.tell(suggestion, loss(params), constraints=limits, cost=params["layers"], variance=1e-3)
    optimizer.planner.budget_left = 0.4
    optimizer.ask(2)
    optimizer.observe({"optimiser": "adam", "lr": 2.0, "layers": 1}, 5.0, constraints={"memory": -3.5}, outside=True)
    optimizer.save(path)


def write_local(path: Path) -> None:
    """An optimiser whose local models have taken over."""
    optimizer = new_optimizer(seed=4, local_after=10, direction="maximize")
    for _ in range(24):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, -loss(suggestion.params))
    optimizer.ask()
    optimizer.save(path)


def run_training(path: Path, n_trials: int, **ends: Any) -> optuna.Study:
    """A run with paused trainings. It is stopped at a target when it is written."""
    return lazybo.optimize(
        train,
        space(),
        n_trials=n_trials,
        sampler=lazybo.LazySampler(lag=3),
        seed=5,
        storage=path,
        study_name="training",
        limits=lazybo.Limits(**ends),
        initial=[{"lr": 0.5, "layers": 6}],
        max_steps=STEPS,
        checkpoints=path.with_name(CHECKPOINTS),
        progress=False,
    )


def keep_paused(database: Path) -> None:
    """Keep the checkpoints of the first paused trainings; the others begin again."""
    trials = optuna.load_study(study_name="training", storage=f"sqlite:///{database}").trials
    for trial in trials:
        if trial.state.is_finished() or trial.number > KEPT:
            shutil.rmtree(database.with_name(CHECKPOINTS) / f"{trial.number:06}", ignore_errors=True)


def run_objectives(path: Path, n_trials: int) -> optuna.Study:
    """A run with two objectives, a constraint, and failures."""
    return lazybo.optimize(
        measure,
        space(),
        n_trials=n_trials,
        direction={"loss": "minimize", "speed": "maximize"},
        constraints={"memory": 450.0},
        seed=6,
        storage=path,
        study_name="objectives",
        progress=False,
    )


def run_repeated(path: Path, n_trials: int) -> optuna.Study:
    """A noisy objective with a cost, earlier results, and a final check."""
    return lazybo.optimize(
        noisy,
        space(),
        n_trials=n_trials,
        sampler=lazybo.LazySampler(cost="price", earlier=[earlier_results()], n_startup_trials=3),
        seed=10,
        storage=path,
        study_name="repeated",
        limits=lazybo.Limits(confirm=3),
        progress=False,
    )


def run_sampler(path: Path, n_trials: int) -> optuna.Study:
    """A study of Optuna with LazySampler, in a journal."""
    sampler = lazybo.LazySampler(seed=7, warn_independent_sampling=False)
    storage = JournalStorage(JournalFileBackend(str(path)))
    pruner = lazybo.LazyPruner(max_step=STEPS)
    study = optuna.create_study(
        storage=storage, study_name="sampler", sampler=sampler, pruner=pruner, load_if_exists=True
    )
    study.optimize(suggested, n_trials=n_trials)
    return study


def taste(params: Mapping[str, Any]) -> float:
    return float(-((params["temperature"] - 220) ** 2) / 1e3 - (params["minutes"] - 40) ** 2 / 1e2)


def write_by_hand(path: Path) -> None:
    """Experiments that people make: told, corrected, repeated, failed, skipped, and one that waits."""
    asked = ("ask", str(path), "bread", "--json")
    for number in range(9):
        flags = (*HAND, "--seed", "8", "--constraint", "crust<=5") if number == 0 else ()
        (found,) = json.loads(command(*asked, *flags))
        told = ("tell", str(path), "bread", str(number))
        if number == 2:
            command(*told, "--failed")
        elif number == 4:
            command(*told, "--skip")
        elif number < 8:
            command(
                *told, repr(taste(found["params"])), f"crust={found['params']['minutes'] / 10}", "--variance", "0.01"
            )
    command("tell", str(path), "bread", "1", "-7.5", "crust=3", "--correct")


def write(folder: Path) -> None:
    """Write all files, and what they say."""
    folder.mkdir(parents=True, exist_ok=True)
    write_optimizer(folder / OPTIMIZER)
    write_local(folder / LOCAL)
    database = folder / DATABASE
    run_training(database, 30, target_value=0.2)
    keep_paused(database)
    run_objectives(database, TRIALS)
    run_repeated(database, TRIALS)
    write_by_hand(database)
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("VACUUM")
    run_sampler(folder / JOURNAL, 14)
    (folder / TABLE).write_text(command("export", str(database), "training"))
    (folder / EXPECTED).write_text(json.dumps({name: said(folder, name) for name in READERS}, indent=1) + "\n")


# ------------------------------------------------------------------------------------------------------ reading


def command(*arguments: str) -> str:
    """What the command prints."""
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def said(folder: Path, name: str) -> dict[str, Any]:
    """What is read from a folder of files under one of the names in READERS, as plain data. A copy is continued."""
    with TemporaryDirectory() as copy, chdir(copy):
        shutil.copytree(folder, copy, dirs_exist_ok=True)
        found = json.loads(json.dumps(READERS[name]()))
        assert isinstance(found, dict)
        return found


def of_optimizer(path: str, **given: Any) -> dict[str, Any]:
    optimizer = lazybo.Optimizer.load(path, **given)
    best, recommended = optimizer.best, optimizer.recommend()
    found = {
        "best": [best.number, best.value, best.params],
        "recommended": [recommended.number, recommended.params, recommended.value, recommended.low, recommended.high],
        "pending": [[each.number, each.params] for each in optimizer.pending],
        "predicted": optimizer.predict(best.params).value,
        "records": len(optimizer.records()),
    }
    following = optimizer.ask()
    optimizer.tell(following, loss(following.params))
    optimizer.ask()
    return {**found, "next": following.params}


def of_study(study: optuna.Study, known: int) -> dict[str, Any]:
    """A study that was continued: its new trials, and those that went on."""
    trials = study.get_trials(deepcopy=False)
    return {
        "states": [trial.state.name for trial in trials],
        "next": trials[known].params,
        "continued": len(trials) - known,
    }


def of_training() -> dict[str, Any]:
    """The paused trainings stay paused; one of them is then resumed by hand, from its checkpoint."""
    path, before = Path(DATABASE).absolute(), shown("training")
    known = sum(before["show"]["trials"].values())
    found = of_study(run_training(path, known + 3), known)
    study = optuna.load_study(study_name="training", storage=f"sqlite:///{path}")
    lazybo.resume(study, KEPT)
    CONTINUED.clear()
    resumed = run_training(path, known + 3).trials[KEPT]
    ended = [resumed.state.name, resumed.value, len(resumed.intermediate_values), CONTINUED[:1]]
    return {**before, **found, "resumed": ended}


def shown(study: str, database: str = DATABASE) -> dict[str, Any]:
    """What `lazybo show` and `lazybo best` say."""
    return {name: json.loads(command(name, database, study, "--json")) for name in ("show", "best")}


def of_objectives() -> dict[str, Any]:
    before = shown("objectives")
    return {**before, **of_study(run_objectives(Path(DATABASE).absolute(), TRIALS + 2), TRIALS)}


def of_repeated() -> dict[str, Any]:
    before = shown("repeated")
    return {**before, **of_study(run_repeated(Path(DATABASE).absolute(), TRIALS + 2), TRIALS)}


def of_bread() -> dict[str, Any]:
    before = shown("bread")
    pending = json.loads(command("ask", DATABASE, "bread", "--pending", "--json"))
    for each in pending:
        command("tell", DATABASE, "bread", str(each["number"]), repr(taste(each["params"])), "crust=2")
    (asked,) = json.loads(command("ask", DATABASE, "bread", "--json"))
    return {**before, "pending": pending, "next": asked["params"]}


def of_journal() -> dict[str, Any]:
    storage = JournalStorage(JournalFileBackend(JOURNAL))
    study = optuna.load_study(study_name="sampler", storage=storage)
    recommended, known = lazybo.recommend(study), len(study.trials)
    resumed = run_sampler(Path(JOURNAL), 2)
    return {"recommended": [recommended.number, recommended.value], **of_study(resumed, known)}


def of_table() -> dict[str, Any]:
    """The columns of the table, and what a run suggests that starts from it."""
    table = pandas.read_csv(TABLE)
    study = lazybo.optimize(loss, space(), n_trials=1, seed=9, warm_start=table, progress=False)
    exported = command("export", DATABASE, "training").splitlines()
    return {"columns": list(table), "rows": len(table), "next": study.trials[0].params, "exported": exported[:3]}


READERS: dict[str, Callable[[], dict[str, Any]]] = {
    "optimizer": lambda: of_optimizer(OPTIMIZER, feasible=is_small),
    "local models": lambda: of_optimizer(LOCAL),
    "training": of_training,
    "objectives": of_objectives,
    "repeated": of_repeated,
    "by hand": of_bread,
    "sampler": of_journal,
    "table": of_table,
}


def main() -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    write(Path(sys.argv[1]).resolve())


if __name__ == "__main__":
    main()
