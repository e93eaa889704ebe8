"""Summaries of studies: first as plain data, which JSON prints unchanged, then as tables for people."""

import os
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from optuna.storages import BaseStorage
from optuna.study import Study, load_study
from optuna.trial import FrozenTrial, TrialState

from lazybo.cli import console
from lazybo.core.codec import Advised
from lazybo.core.text import shortened
from lazybo.programs import placeholders
from lazybo.report import curves, records
from lazybo.report.failures import failures
from lazybo.report.recommendation import Advice, advise, contenders_of
from lazybo.run.limits import describe_stop
from lazybo.search.predictions import Contender, Predictor
from lazybo.study import feasible, ledger
from lazybo.study.attributes import COMMAND_KEY, OBJECTIVE_KEY, REPEAT_KEY, STOPPED_KEY
from lazybo.study.model import StudyModel
from lazybo.study.paused import is_paused

STATES = {
    TrialState.COMPLETE: "complete",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
    TrialState.WAITING: "waiting",
}
PAUSED = "paused"
_COLOURS = {
    "complete": "green",
    "pruned": "yellow",
    "failed": "red",
    "running": "cyan",
    "waiting": "dim",
    PAUSED: "magenta",
}
# How many reasons of failures are shown, the most frequent first.
FAILURES_SHOWN = 5
REASON_LENGTH = 300
# `show` has the expected gain of so many more evaluations, and names so many contenders.
HORIZONS = (10, 50, 100)
CONTENDERS_SHOWN = 5
EARLIER_SHOWN = 5


def state_of(trial: FrozenTrial) -> str:
    """The state of a trial in one word."""
    return PAUSED if is_paused(trial) else STATES[trial.state]


def overview(study: Study) -> dict[str, Any]:
    """A study in one line. The best value is None if there are several objectives; ``front`` counts the best trials."""
    trials = ledger.read(study)
    states = Counter(state_of(trial) for trial in trials)
    best = best_of(study)
    moments = [moment for t in trials for moment in (t.datetime_start, t.datetime_complete) if moment is not None]
    directions = [each.name.lower() for each in study.directions]
    return {
        "study": study.study_name,
        "direction": ", ".join(directions),
        "directions": directions,
        "objectives": feasible.names_of(study),
        "trials": {state: states.get(state, 0) for state in (*STATES.values(), PAUSED)},
        "constraints": feasible.constraints_of(trials),
        "feasible": len(feasible.feasible_trials(trials)),
        "best": None if best is None else best.value,
        "front": len(feasible.front_of(study, trials)),
        "last_activity": max(moments).isoformat(timespec="seconds") if moments else None,
    }


def details(study: Study) -> dict[str, Any]:
    """Everything that `lazybo show` prints about one study."""
    trials = ledger.read(study)
    attributes = study._storage.get_study_system_attrs(study._study_id)
    model = _model(study)
    predictor = model.optimizer.model.predictor() if model else None
    return {
        **overview(study),
        "best": best_record(study),
        "front": front_records(study),
        "recommended": recommended_record(advice_of(study, predictor)),
        "contenders": [_contender(each) for each in contenders_of(trials, model.optimizer)] if model else [],
        "repeats": sum(REPEAT_KEY in trial.system_attrs for trial in trials),
        "expected_gain": _gains(model) if model and model.optimizer.planner.n_feasible else {},
        "earlier": [asdict(each) for each in model.optimizer.model.related()] if model else [],
        "importances": records.importances(study, predictor) if predictor else {},
        "epochs": _epochs(trials),
        "failures": _failures(trials),
        "running": [
            {"number": t.number, "since": _text(t.datetime_start), "params": t.params}
            for t in trials
            if t.state == TrialState.RUNNING
        ],
        "stopped": attributes.get(STOPPED_KEY),
        "command": study.user_attrs.get(COMMAND_KEY),
        "objective": study.user_attrs.get(OBJECTIVE_KEY),
    }


def best_of(study: Study) -> FrozenTrial | None:
    """The best completed trial that is feasible; None if there are several objectives."""
    return feasible.best_trial(study, ledger.read(study)) if len(study.directions) == 1 else None


def has_result(study: Study) -> bool:
    """Whether any trial has completed and is feasible."""
    return bool(feasible.feasible_trials(ledger.read(study)))


def best_record(study: Study) -> dict[str, Any] | None:
    """The best trial with its metrics and, for a program, its command line."""
    best = best_of(study)
    return None if best is None else trial_record(study, best)


def front_records(study: Study) -> list[dict[str, Any]]:
    """The trials that no other dominates, sorted by the first objective; empty if there is one objective."""
    if len(study.directions) == 1:
        return []
    trials = sorted(feasible.front_of(study, ledger.read(study)), key=lambda trial: trial.values)
    return [trial_record(study, trial) for trial in trials]


def trial_record(study: Study, trial: FrozenTrial) -> dict[str, Any]:
    """A trial with its metrics and, for a program, its command line."""
    measured = feasible.measured_constraints(trial)
    several = len(study.directions) > 1
    return {
        "study": study.study_name,
        "number": trial.number,
        **(
            {"values": dict(zip(feasible.names_of(study), trial.values, strict=True))}
            if several
            else {"value": trial.value}
        ),
        **({"constraints": measured, "feasible": not feasible.violates(measured)} if measured else {}),
        "params": trial.params,
        "metrics": {name: metric for name, metric in trial.user_attrs.items() if name != "output"},
        "output": trial.user_attrs.get("output"),
        "command": command_of(study, trial),
    }


def advice_of(study: Study, predictor: Predictor | None = None) -> Advice | None:
    """The recommended trial beside the best one; None if there is no model, for example of a value that is infinite."""
    try:
        return advise(study, predictor)
    except ValueError:
        return None


def recommended_record(advice: Advice | None) -> dict[str, Any] | None:
    """The recommended trial, what the model expects of it, and why it is not the best one."""
    if advice is None:
        return None
    found = advice.recommendation
    return {
        "number": found.number,
        "params": found.params,
        "value": found.value,
        "low": found.low,
        "high": found.high,
        "measured": found.measured,
        "evaluations": found.evaluations,
        "reason": advice.reason,
    }


def recommended_trial(study: Study, advice: Advice) -> dict[str, Any]:
    """The record of the recommended trial itself."""
    number = advice.recommendation.number
    return trial_record(study, next(trial for trial in ledger.read(study) if trial.number == number))


def _model(study: Study) -> StudyModel | None:
    """The model of a study, if there can be one. A warning says if what is kept with the study is damaged."""
    try:
        return records.model_for(study)
    except Advised as error:
        console.say(f"lazybo: there is no model: {error}")
    except ValueError:
        pass
    return None


def _contender(found: Contender) -> dict[str, Any]:
    """A configuration that may be the best one, and its chance."""
    names = ("number", "chance", "params", "value", "low", "high", "measured", "evaluations")
    return {name: getattr(found, name) for name in names}


def _gains(model: StudyModel) -> dict[str, float]:
    """The expected gain of so many more evaluations, by their number (as text, since JSON has no other keys)."""
    return dict(zip(map(str, HORIZONS), model.optimizer.model.gain_parts(HORIZONS).expected(), strict=True))


def command_of(study: Study, trial: FrozenTrial) -> list[str] | None:
    """The command that a trial ran."""
    command = study.user_attrs.get(COMMAND_KEY)
    if command is None:
        return None
    values = {**trial.params, "trial": trial.number, "folder": trial.user_attrs.get("output", "")}
    values[placeholders.CHECKPOINT] = trial.user_attrs.get("checkpoint", "")
    return placeholders.fill(command, values)


def overviews(storage: BaseStorage) -> list[dict[str, Any]]:
    """All studies of a storage, by name."""
    studies = [load_study(study_name=found.study_name, storage=storage) for found in storage.get_all_studies()]
    return sorted((overview(study) for study in studies), key=lambda record: record["study"])


def print_result(study: Study, output: Path | None, *, interrupted: bool) -> None:
    """Print the result of a run."""
    record, best = overview(study), best_record(study)
    if best is not None:
        print_best(best)
        print_advice(study, advice_of(study))
    elif record["front"]:
        print_front(record, front_records(study))
    else:
        console.line(nothing_best(record) if record["trials"]["complete"] else "no trial has completed", style="yellow")
    counts = _counts(record)
    console.line(counts + (f"; output in {os.path.relpath(output)}" if output and output.exists() else ""))
    if interrupted:
        console.line("interrupted; run the same command again to resume", style="yellow")
    elif not record["trials"]["complete"] and record["trials"]["failed"]:
        console.line("fix the program and run the same command again: failures before the first value do not count")


def print_overview(records: Sequence[dict[str, Any]]) -> None:
    """Print studies as a table."""
    if not records:
        console.line("there is no study in this storage yet", style="yellow")
        return
    rows = []
    for record in records:
        counts = [(str(count), _COLOURS[state] if count else "dim") for state, count in record["trials"].items()]
        best = "" if record["best"] is None else console.short(record["best"])
        if len(record["directions"]) > 1 and record["front"]:
            best = f"front of {record['front']}"
        when = (record["last_activity"] or "").replace("T", " ")
        rows.append([(record["study"], "bold"), record["direction"], *counts, best, when])
    headings = ["study", "direction", *records[0]["trials"], "best", "last activity"]
    console.table(headings, rows, left=("study", "direction"))


def print_details(record: dict[str, Any]) -> None:
    """Print one study."""
    _print_progress(record)
    if record["front"]:
        console.line()
        print_front(record, record["front"])
    elif not record["best"] and record["trials"]["complete"]:
        console.line(nothing_best(record), style="yellow")
    if record["best"]:
        console.line()
        print_best(record["best"], record["importances"])
        if record["recommended"] and record["recommended"]["reason"]:
            _print_recommended(record["recommended"])
        _print_outlook(record)
    if record["earlier"]:
        console.line(_earlier_line(record["earlier"]), soft_wrap=True)
    for title, rows in (("failures", record["failures"]), ("running", record["running"])):
        if rows:
            console.line()
            console.line(title, style="bold")
        for row in rows:
            console.line("  " + (_failure_line(row) if title == "failures" else _running_line(row)))


def _print_progress(record: dict[str, Any]) -> None:
    """Print how many trials there are, when the last one ended and why, and how many epochs were saved."""
    console.line((record["study"], "bold"), f"  {record['direction']}  {_counts(record)}")
    if record["last_activity"]:
        console.line(f"last activity {record['last_activity'].replace('T', ' ')}", style="dim")
    if record["stopped"]:
        console.line(f"the last run ended early: {describe_stop(record['stopped'])}", style="yellow")
    if record["epochs"] and record["epochs"]["stopped"]:
        console.line(_epochs_line(record["epochs"]))


def _print_outlook(record: dict[str, Any]) -> None:
    """Print which trials may be the best one if that is open, and what more trials may gain."""
    first = [(f"trial {each['number']}", f"{each['chance']:.0%}") for each in record["contenders"][:CONTENDERS_SHOWN]]
    if len(first) > 1:
        more = len(record["contenders"]) - len(first)
        text = ", ".join(f"{trial} {chance}" for trial, chance in first) + (f" and {more} more" if more else "")
        console.line(f"chance that no other is clearly better: {text}", soft_wrap=True)
    if record["repeats"]:
        console.line(f"{record['repeats']} trials are repeats of the final check")
    if record["expected_gain"]:
        counts = ", ".join(record["expected_gain"])
        gains = ", ".join(f"{gain:.2g}" for gain in record["expected_gain"].values())
        console.line(f"expected gain of the next {counts} trials: {gains}", style="dim")


def print_best(best: dict[str, Any], importances: dict[str, float] | None = None) -> None:
    """Print the best trial, with the importance of each parameter where it is known."""
    console.line(("best ", "bold"), (console.short(best["value"]), "bold green"), f" (trial {best['number']})")
    _print_configuration(best, importances)


def nothing_best(record: dict[str, Any]) -> str:
    """Why a study has no best trial."""
    of = f"no trial of the study {record['study']!r}"
    if not record["trials"]["complete"]:
        return f"{of} has completed yet"
    return f"{of} is feasible yet: none satisfies {', '.join(record['constraints'])}"


def print_front(record: dict[str, Any], front: Sequence[dict[str, Any]]) -> None:
    """Print the trials that no other dominates, as a table."""
    names = [f"{name} ({each})" for name, each in zip(record["objectives"], record["directions"], strict=True)]
    params = list(dict.fromkeys(name for trial in front for name in trial["params"]))
    console.line(("front ", "bold"), f"{len(front)} trials that no other is better than in all objectives")
    rows: list[list[console.Cell]] = [
        [
            f"  {trial['number']}",
            *((console.short(value), "bold green") for value in trial["values"].values()),
            *(console.short(trial["params"][name]) if name in trial["params"] else "" for name in params),
        ]
        for trial in front
    ]
    console.table(["  trial", *names, *params], rows, left=())


def print_advice(study: Study, advice: Advice | None) -> None:
    """Print the recommended trial after the best one, if it has another configuration."""
    if advice is not None and advice.differs:
        print_recommended(study, advice)


def print_recommended(study: Study, advice: Advice) -> None:
    """Print the recommended trial with all its parameters."""
    record = recommended_record(advice)
    assert record is not None, "there is advice"
    _print_recommended(record)
    _print_configuration(recommended_trial(study, advice))


def _print_recommended(record: dict[str, Any]) -> None:
    """Print what the model expects of the recommended trial, and why it is not the best one."""
    value, low, high, measured = (console.short(record[name]) for name in ("value", "low", "high", "measured"))
    several = record["evaluations"] > 1
    measured = f"measured {measured}" + (f", the mean of {record['evaluations']}" if several else "")
    console.line(
        ("recommended ", "bold"),
        (f"trial {record['number']}", "bold green"),
        f": expected {value} (95 %: {low} to {high}), {measured}",
    )
    if record["reason"]:
        console.line(f"  {record['reason']}", style="yellow", soft_wrap=True)


def _print_configuration(best: dict[str, Any], importances: dict[str, float] | None = None) -> None:
    names = [*(name for name in importances or {} if name in best["params"])]
    rows: list[list[console.Cell]] = []
    for name in [*names, *(name for name in best["params"] if name not in names)]:
        row: list[console.Cell] = [f"  {name}", (console.short(best["params"][name]), "green")]
        rows.append([*row, *([f"{importances[name]:.0%}" if name in importances else ""] if importances else [])])
    headings = ["  parameter", "value", "importance"] if importances else ["", ""]
    console.table(headings, rows, left=("  parameter", "value", ""))
    for name, violation in best.get("constraints", {}).items():
        console.line(
            f"  {name}: {'satisfied' if violation <= 0 else 'violated'} ({console.short(violation)})", style="dim"
        )
    for name, metric in best["metrics"].items():
        console.line(f"  {name} = {console.short(metric)}", style="dim")
    if best["command"]:
        console.line(f"  {shlex.join(best['command'])}", soft_wrap=True)


def _counts(record: dict[str, Any]) -> str:
    counts = [f"{count} {state}" for state, count in record["trials"].items() if count]
    if record["constraints"] and record["trials"]["complete"]:
        counts[0] += f" ({record['feasible']} feasible; only these count)"
    return ", ".join(counts) or "no trials"


def _epochs(trials: Sequence[FrozenTrial]) -> dict[str, Any] | None:
    """How many epochs were trained, of how many without stops; None if no trial has reported values."""
    found = curves.epochs(trials)
    return None if found is None else asdict(found)


def _epochs_line(epochs: dict[str, Any]) -> str:
    trained, in_full = epochs["trained"], epochs["in_full"]
    saved = f"{1 - trained / in_full:.0%} saved"
    stopped = f"{epochs['stopped']} of {epochs['trainings']} trainings were stopped"
    return f"{trained} of {in_full} epochs trained ({saved}): {stopped}"


def _earlier_line(relations: Sequence[dict[str, Any]]) -> str:
    """Which earlier studies this one is like, and how probably."""
    first = ", ".join(f"{each['name']!r} {each['share']:.0%}" for each in relations[:EARLIER_SHOWN])
    more = f" and {len(relations) - EARLIER_SHOWN} more" if len(relations) > EARLIER_SHOWN else ""
    none = max(0.0, 1.0 - sum(each["share"] for each in relations))
    return f"like the earlier studies {first}{more}; like none of them {none:.0%}"


def _failures(trials: Sequence[FrozenTrial]) -> list[dict[str, Any]]:
    """The most frequent reasons of failures: their counts, and the last trial of each."""
    return [
        {"reason": found.reason, "count": len(found.numbers), "last": found.numbers[-1], "output": found.output}
        for found in failures(trials)[:FAILURES_SHOWN]
    ]


def _failure_line(row: dict[str, Any]) -> str:
    where = f", {row['output']}" if row["output"] else ""
    return (
        f"{row['count']} × {shortened(console.clean(row['reason']), REASON_LENGTH)} (last: trial {row['last']}{where})"
    )


def _running_line(row: dict[str, Any]) -> str:
    params = " ".join(f"{name}={console.short(value)}" for name, value in row["params"].items())
    return f"trial {row['number']} since {row['since']}  {params}"


def _text(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat(sep=" ", timespec="seconds")
