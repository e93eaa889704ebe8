"""What a study says (`report.facts`): as plain data, which --json prints unchanged, and as text for people."""

import os
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from optuna.study import Study

from lazybo.cli import console
from lazybo.cli.plan import COMMAND_KEY, OBJECTIVE_KEY
from lazybo.core import texts
from lazybo.programs import command_line
from lazybo.report import Advice, Facts
from lazybo.run import Limits
from lazybo.study import TrialView

COLOURS = {
    "complete": "green",
    "pruned": "yellow",
    "failed": "red",
    "running": "cyan",
    "waiting": "dim",
    "paused": "magenta",
}
REASON_LENGTH = 300
MOST_SHOWN = 5

Record = dict[str, Any]


# -------------------------------------------------------------------------------- plain data


def overview(facts: Facts) -> Record:
    """A study in one line. The best value is None if there are several objectives; ``front`` counts the best trials."""
    best = None if facts.several or not facts.view.front else facts.view.front[0].value
    return {
        "study": facts.name,
        "direction": ", ".join(facts.view.directions),
        "directions": list(facts.view.directions),
        "objectives": facts.view.objectives,
        "trials": facts.counts,
        "constraints": facts.view.constraints,
        "feasible": len(facts.view.feasible),
        "best": best,
        "front": len(facts.view.front),
        "last_activity": facts.span[1].isoformat(timespec="seconds") if facts.span else None,
    }


def result(facts: Facts) -> Record:
    """The result of a run: its counts, the best trial or the front, and the recommended trial."""
    return {**overview(facts), **best_and_front(facts), "recommended": recommended_record(facts.advice)}


def best_and_front(facts: Facts) -> Record:
    """The best trial, or the trials on the front if there are several objectives, sorted by the first of them."""
    records = [trial_record(facts, trial) for trial in (facts.front if facts.several else facts.view.front[:1])]
    return {"best": None if facts.several or not records else records[0], "front": records if facts.several else []}


def details(facts: Facts) -> Record:
    """Everything that `lazybo show` prints about one study. The model is used if there is one objective."""
    study = facts.view.study
    return {
        **overview(facts),
        **best_and_front(facts),
        **_model_record(facts),
        "repeats": sum(trial.repeat_of is not None for trial in facts.view.trials),
        "epochs": facts.epochs and asdict(facts.epochs),
        "failures": [
            {"reason": found.reason, "count": len(found.numbers), "last": found.numbers[-1], "output": found.output}
            for found in facts.failures[:MOST_SHOWN]
        ],
        "running": [
            {
                "number": t.number,
                "since": (since := t.frozen.datetime_start) and since.isoformat(sep=" ", timespec="seconds"),
                "params": t.params,
                **({"device": device} if (device := t.own.get("device")) else {}),
            }
            for t in facts.view.trials
            if t.state == "running"
        ],
        "devices": dict(Counter(str(device) for t in facts.view.trials if (device := t.own.get("device")))),
        "stopped": Limits.reason_of(facts.view.study),
        "command": study.user_attrs.get(COMMAND_KEY),
        "objective": study.user_attrs.get(OBJECTIVE_KEY),
    }


def _model_record(facts: Facts) -> Record:
    """What the model says, empty if there is none. A message says if what is kept with the study is damaged."""
    model = None if facts.several else facts.model
    if model is None:
        if not facts.several and facts.unreadable is not None:
            console.say(f"lazybo: there is no model: {facts.unreadable}")
        empty: Record = {"recommended": None, "contenders": [], "expected_gain": {}, "earlier": []}
        return {**empty, "importances": {}, "ranges": None}
    names = ("number", "chance", "params", "value", "low", "high", "measured", "evaluations")
    return {
        "recommended": recommended_record(model.advice),
        "contenders": [{name: getattr(each, name) for name in names} for each in model.contenders],
        "expected_gain": {str(count): gain for count, gain in model.gains.items()},
        "earlier": [asdict(each) for each in model.related],
        "importances": model.importances[0],
        "ranges": model.good_ranges and asdict(model.good_ranges),
    }


def trial_record(facts: Facts, trial: TrialView) -> Record:
    """A trial with its metrics and, for a program, its command line."""
    measured = trial.constraints
    values = dict(zip(facts.view.objectives, trial.values, strict=True))
    return {
        "study": facts.name,
        "number": trial.number,
        **({"values": values} if facts.several else {"value": trial.value}),
        **({"constraints": measured, "feasible": not trial.is_infeasible} if measured else {}),
        "params": trial.params,
        **({"structures": structures} if (structures := _structures_of(facts, trial)) else {}),
        "metrics": trial.metrics,
        **({"device": device} if (device := trial.own.get("device")) else {}),
        "output": trial.own.get("output"),
        "command": _command_of(facts.view.study, trial),
    }


def _structures_of(facts: Facts, trial: TrialView) -> dict[str, str]:
    """The values of parameters with structure, which a trial has as several ordinary parameters, as text."""
    stored = {name: (kind, kind.stored(name)) for name, kind in facts.view.kinds.items()}
    whole = {
        name: (kind, names) for name, (kind, names) in stored.items() if all(each in trial.params for each in names)
    }
    return {name: kind.text(kind.read([trial.params[each] for each in names])) for name, (kind, names) in whole.items()}


def _command_of(study: Study, trial: TrialView) -> list[str] | None:
    command = study.user_attrs.get(COMMAND_KEY)
    return None if command is None else command_line(command, trial.frozen)


def recommended_record(advice: Advice | None) -> Record | None:
    """The recommended trial, what the model expects of it, and why it is not the best one."""
    return None if advice is None else {**asdict(advice.recommendation), "reason": advice.reason}


# --------------------------------------------------------------------------------- for people


def print_result(facts: Facts, output: Path | None, *, interrupted: bool) -> None:
    """Print the result of a run."""
    best, counts = best_and_front(facts)["best"], facts.counts
    if best is not None:
        print_best(best)
        print_advice(facts)
    elif facts.view.front:
        print_front(facts)
    else:
        console.line(facts.nothing_best if counts["complete"] else "no trial has completed", style="yellow")
    where = f"; output in {os.path.relpath(output)}" if output and output.exists() else ""
    console.line(facts.counts_shown + where)
    if interrupted:
        console.line("interrupted; run the same command again to resume", style="yellow")
    elif not counts["complete"] and counts["failed"]:
        console.line("fix the program and run the same command again: failures before the first value do not count")


def print_replay(replayed: Sequence[Any], *, as_json: bool) -> None:
    """Print how many suggestions are the same when they are made again, which differ, and what is missing for others.

    People get the first few of each kind, programs all of them.
    """
    differ = [each for each in replayed if each.differs]
    missing = [each for each in replayed if each.missing]
    if as_json:
        console.print_json(
            {
                "same": len(replayed) - len(differ) - len(missing),
                "differ": [{"number": each.number, "params": each.params, "again": each.again} for each in differ],
                "missing": [{"number": each.number, "reason": each.missing} for each in missing],
            }
        )
        return
    same = len(replayed) - len(differ) - len(missing)
    console.line((f"{same} of {len(replayed)} suggestions are the same", "bold green" if replayed else "dim"))
    for each in differ[:MOST_SHOWN]:
        console.line(f"trial {each.number} has {each.params}, and now {each.again} is suggested", style="red")
    if differ:
        hint = "other kinds of processors and other versions of NumPy and SciPy compute other last digits"
        console.line(f"{len(differ)} suggestions differ ({hint})", style="red", soft_wrap=True)
    for reason, count in Counter(each.missing for each in missing).most_common(MOST_SHOWN):
        console.line(f"{count} cannot be made again: {reason}", style="yellow", soft_wrap=True)


def print_overview(found: Sequence[Record]) -> None:
    """Print studies as a table."""
    if not found:
        console.line("there is no study in this storage yet", style="yellow")
        return
    rows = []
    for record in found:
        counts = [(str(count), COLOURS[state] if count else "dim") for state, count in record["trials"].items()]
        best = "" if record["best"] is None else console.short(record["best"])
        if len(record["directions"]) > 1 and record["front"]:
            best = f"front of {record['front']}"
        when = (record["last_activity"] or "").replace("T", " ")
        rows.append([(record["study"], "bold"), record["direction"], *counts, best, when])
    headings = ["study", "direction", *found[0]["trials"], "best", "last activity"]
    console.table(headings, rows, left=("study", "direction"))


def print_details(record: Record, facts: Facts) -> None:
    """Print one study."""
    _print_progress(record, facts)
    for found in facts.equal_values:
        console.line(found.text, style="yellow")
    if record["front"]:
        console.line()
        print_front(facts)
    elif not record["best"] and facts.counts["complete"]:
        console.line(facts.nothing_best, style="yellow")
    if record["best"]:
        console.line()
        print_best(record["best"], record["importances"])
        _print_model(facts)
    if record["earlier"] and facts.model is not None:
        none = max(0.0, 1.0 - sum(each["share"] for each in record["earlier"]))
        shares = f"like the earlier studies {facts.model.related_shown}; like none of them {texts.percent(none)}"
        console.line(shares, soft_wrap=True)
    _print_list("failures", map(_failure_line, record["failures"]))
    _print_list("running", map(_running_line, record["running"]))


def _print_progress(record: Record, facts: Facts) -> None:
    """Print how many trials there are, when and why the last run ended, and how many epochs were saved."""
    console.line((facts.name, "bold"), f"  {record['direction']}  {facts.counts_shown}")
    if record["last_activity"]:
        console.line(f"last activity {record['last_activity'].replace('T', ' ')}", style="dim")
    if record["stopped"]:
        console.line(f"the last run ended early: {Limits.described(record['stopped'])}", style="yellow")
    if record["devices"]:
        shares = [f"{device}: {count}" for device, count in sorted(record["devices"].items())]
        more = f" and {len(shares) - MOST_SHOWN} more" if len(shares) > MOST_SHOWN else ""
        console.line(f"trials by device: {', '.join(shares[:MOST_SHOWN])}{more}", style="dim")
    if facts.epochs is not None and facts.epochs.stopped:
        console.line(str(facts.epochs))
    if record["repeats"]:
        console.line(f"{texts.counted(record['repeats'], 'repeat')} in the final check")


def _print_model(facts: Facts) -> None:
    """Print what the model recommends, which trials may be the best, what more trials gain, and good ranges."""
    model = facts.model
    if model is None:
        return
    if model.advice is not None and model.advice.differs:
        _print_expected(model.advice)
    if shares := model.chances_shown(facts.view.front[0]):
        console.line(f"probability of being the best (ties count for both): {shares}", soft_wrap=True)
    if model.gains:
        counts, gains = ", ".join(map(str, model.gains)), ", ".join(f"{gain:.2g}" for gain in model.gains.values())
        console.line(f"expected gain of the next {counts} trials: {gains}", style="dim")
    if found := model.good_ranges:
        console.line()
        console.line(("good ranges ", "bold"), f"within {console.short(found.distance)} of the best")
        rows: list[list[console.Cell]] = [
            [f"  {name}", (good, "green"), chance, (free, "green"), other]
            for name, _, good, chance, free, other in found.rows()
        ]
        console.table(["  parameter", "others at their best", "", "others free", ""], rows, left=("  parameter",))


def _print_list(title: str, lines: Iterable[str]) -> None:
    for i, line in enumerate(lines):
        if i == 0:
            console.line()
            console.line(title, style="bold")
        console.line("  " + line)


def _failure_line(row: Record) -> str:
    where = f", {row['output']}" if row["output"] else ""
    reason = texts.shortened(console.clean(row["reason"]), REASON_LENGTH)
    return f"{row['count']} × {reason} (last: trial {row['last']}{where})"


def _running_line(row: Record) -> str:
    params = " ".join(f"{name}={console.short(value)}" for name, value in row["params"].items())
    device = f"on device {row['device']}  " if "device" in row else ""
    return f"trial {row['number']} since {row['since']}  {device}{params}"


def print_best(best: Record, importances: Mapping[str, float] | None = None) -> None:
    """Print the best trial, with the importance of each parameter where it is known."""
    console.line(("best ", "bold"), (console.short(best["value"]), "bold green"), f" (trial {best['number']})")
    _print_configuration(best, importances)


def print_front(facts: Facts) -> None:
    """Print the trials that no other dominates, as a table."""
    front = best_and_front(facts)["front"]
    names = [f"{name} ({each})" for name, each in zip(facts.view.objectives, facts.view.directions, strict=True)]
    params = list(dict.fromkeys(name for trial in front for name in trial["params"]))
    console.line(("front ", "bold"), f"{texts.counted(len(front), 'trial')} that no other dominates")
    rows: list[list[console.Cell]] = [
        [
            f"  {trial['number']}",
            *((console.short(value), "bold green") for value in trial["values"].values()),
            *(console.short(trial["params"][name]) if name in trial["params"] else "" for name in params),
        ]
        for trial in front
    ]
    console.table(["  trial", *names, *params], rows, left=())


def print_advice(facts: Facts) -> None:
    """Print the recommended trial after the best one, if it has another configuration."""
    if facts.advice is not None and facts.advice.differs:
        print_recommended(facts)


def print_recommended(facts: Facts) -> None:
    """Print the recommended trial with all its parameters."""
    assert facts.advice is not None, "the caller has checked"
    _print_expected(facts.advice)
    _print_configuration(trial_record(facts, facts.advice.trial))


def _print_expected(advice: Advice) -> None:
    """Print what the model expects of the recommended trial, and why it is not the best one."""
    found = advice.recommendation
    value, low, high, measured = map(console.short, (found.value, found.low, found.high, found.measured))
    mean = f", the mean of {found.evaluations}" if found.evaluations > 1 else ""
    console.line(
        ("recommended ", "bold"),
        (f"trial {found.number}", "bold green"),
        f": expected {value} (95 %: {low} to {high}), measured {measured}{mean}",
    )
    if advice.reason:
        console.line(f"  {advice.reason}", style="yellow", soft_wrap=True)


def _print_params(stored: Mapping[str, Any], structures: Mapping[str, str], shares: Mapping[str, float]) -> None:
    """Print parameters as a table, those whose importance is known first; one with structure has a single line."""
    params = {name: value for name, value in stored.items() if name.partition("[")[0] not in structures}
    params |= structures
    rows: list[list[console.Cell]] = []
    for name in dict.fromkeys([*(name for name in shares if name in params), *params]):
        share = [texts.percent(shares[name]) if name in shares else ""] if shares else []
        rows.append([f"  {name}", (console.short(params[name]), "green"), *share])
    headings = ["  parameter", "value", "importance"] if shares else ["", ""]
    console.table(headings, rows, left=("  parameter", "value", ""))


def _print_configuration(best: Record, importances: Mapping[str, float] | None = None) -> None:
    _print_params(best["params"], best.get("structures", {}), importances or {})
    for name, violation in best.get("constraints", {}).items():
        held = "satisfied" if violation <= 0 else "violated"
        console.line(f"  {name}: {held} ({console.short(violation)})", style="dim")
    for name, metric in best["metrics"].items():
        console.line(f"  {name} = {console.short(metric)}", style="dim")
    if best["command"]:
        console.line(f"  {shlex.join(best['command'])}", soft_wrap=True)
