"""The paper's tables with its numbers and ours side by side, as Markdown."""

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from benchmarks.paper import architectures, levy, workers
from benchmarks.paper.common import LABELS, Row, improvements, quartiles, read_rows

# Smaller improvements of an accuracy are not shown.
ACCURACY_STEP = 0.005

# What the paper prints: single runs each, as (iteration, value) where the best value improved.
Steps = tuple[tuple[int, float], ...]

# Table 1, by seed points and method.
PAPER_LEVY: dict[int, dict[str, Steps]] = {
    1: {
        "naive": ((82, -5.23), (126, -4.5), (386, -4.3), (479, -4.1)),
        "lazy": ((103, -1.3), (139, -0.77), (156, -0.33), (297, -0.18), (318, -0.14), (611, -0.01)),
    },
    100: {
        "naive": ((168, -0.52), (169, -0.41), (170, -0.30), (232, -0.04)),
        "lazy": ((648, -0.95), (673, -0.61), (731, -0.23), (838, -0.19), (972, -0.18), (975, -0.09)),
        "lag3": ((192, -0.21),),
    },
}
# Table 2.
PAPER_LENET: dict[str, Steps] = {
    "naive": (
        *((13, 0.25), (15, 0.67), (24, 0.83), (26, 0.88)),
        *((63, 0.90), (198, 0.93), (239, 0.96), (732, 0.97)),
    ),
    "lazy": ((1, 0.11), (4, 0.12), (11, 0.96), (168, 0.97)),
}
# Tables 3 and 4, by method and workers.
PAPER_RESNET: dict[tuple[str, int], Steps] = {
    ("naive", 1): ((16, 0.74), (26, 0.75), (43, 0.77), (50, 0.78), (176, 0.79)),
    ("lazy", 1): ((24, 0.77), (53, 0.78), (62, 0.79), (117, 0.80), (237, 0.81)),
    ("lazy", 20): ((1, 0.11), (16, 0.51), (21, 0.77), (35, 0.79), (61, 0.80)),
}
# The factorisations of all iterations together, naive over lazy (section 4.1).
PAPER_FACTORISATION_RATIO = 162


# A folder of numbers may have this folder inside: the same experiments at the paper's full size.
FULL = "full"


def recorded(folder: Path) -> dict[str, str]:
    """The tables of all recorded numbers in a folder, by experiment; ``full/lenet`` is one at full size."""
    lenet = {(method, 1): steps for method, steps in PAPER_LENET.items()}
    makers: dict[str, Callable[[Path], str]] = {
        "levy": levy_tables,
        "factorisation": factorisation_table,
        "lag": lag_table,
        "lenet": lambda path: network_table(path, lenet),
        "resnet": lambda path: network_table(path, PAPER_RESNET),
        "workers": workers_table,
        "architectures": architectures_table,
    }
    paths = {name: folder / f"{name}.csv" for name in makers}
    found = {name: make(paths[name]) for name, make in makers.items() if paths[name].exists()}
    if (folder / FULL).is_dir():
        found |= {f"{FULL}/{name}": table for name, table in recorded(folder / FULL).items()}
    return found


def insert(text: str, found: Mapping[str, str]) -> str:
    """Insert the tables into a document between its marks, ``<!-- levy -->`` and ``<!-- /levy -->``."""
    for name, table in found.items():
        pattern = re.compile(rf"(<!-- {name} -->\n).*?(<!-- /{name} -->)", re.S)
        text = pattern.sub(lambda match, table=table: f"{match[1]}\n{table}\n\n{match[2]}", text)  # type: ignore[misc]
    return text


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(row) + " |" for row in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]])


def spread(values: Sequence[float], digits: str = ".3g") -> str:
    """The median and quartiles as text."""
    return _quartiles(quartiles(values), digits)


def _quartiles(values: tuple[float, float, float], digits: str) -> str:
    low, middle, high = (f"{value:{digits}}" if math.isfinite(value) else "∞" for value in values)
    return f"{middle} ({low} … {high})"


def count(values: Sequence[float]) -> str:
    """The median of iterations, and how many runs reached the target."""
    middle = quartiles(values)[1]
    got = sum(math.isfinite(value) for value in values)
    return f"{middle:.0f} ({got}/{len(values)})" if math.isfinite(middle) else f"∞ ({got}/{len(values)})"


# --------------------------------------------------------------------------- Levy


def levy_tables(path: Path) -> str:
    """A summary of each setting, then the rows of the paper's table."""
    runs: dict[tuple[int, str], list[levy.History]] = defaultdict(list)
    for run, history in levy.recorded(path).items():
        runs[run.seed_points, run.method].append(history)
    parts = []
    for points in sorted({points for points, _ in runs}):
        own = {method: runs[points, method] for method in LABELS if (points, method) in runs}
        parts.append(f"### {points} seed point{'s' if points > 1 else ''}\n\n{_levy_summary(own)}")
        if points in PAPER_LEVY:
            parts.append(f"The rows of the paper's table:\n\n{_levy_rows(PAPER_LEVY[points], own)}")
    return "\n\n".join(parts)


def _levy_summary(runs: dict[str, list[levy.History]]) -> str:
    head = ["method", "runs", "best: median (quartiles)", *(f"to {target:g}" for target in levy.TARGETS), "ms a step"]
    rows = []
    for method, histories in runs.items():
        ends = spread([float(history.best[-1]) for history in histories])
        reached = [count(levy.reached(histories, target)) for target in levy.TARGETS]
        step = quartiles([1e3 * float(history.seconds[-1]) / len(history.seconds) for history in histories])[1]
        rows.append([LABELS[method], str(len(histories)), ends, *reached, f"{step:.1f}"])
    return markdown(head, rows)


def _levy_rows(paper: dict[str, Steps], runs: dict[str, list[levy.History]]) -> str:
    head = [
        "method",
        "iteration",
        "paper",
        "the same settings here",
        "our default",
        "to the paper's value: here",
        "our default",
    ]
    rows = []
    for method, steps in paper.items():
        same, ours = runs.get(method, []), runs.get("ours", [])
        for iteration, value in steps:
            cells = [_at(histories, iteration) for histories in (same, ours)]
            counts = [count(levy.reached(histories, value)) if histories else "" for histories in (same, ours)]
            rows.append([LABELS[method], str(iteration), f"{value:g}", *cells, *counts])
    return markdown(head, rows)


def _at(histories: Sequence[levy.History], iteration: int) -> str:
    values = [float(history.best[iteration - 1]) for history in histories if len(history.best) >= iteration]
    return spread(values) if values else ""


def factorisation_table(path: Path) -> str:
    """Seconds of all factorisations of a run, and their ratio to the extended factor."""
    rows = [{name: float(row[name]) for name in levy.FACTOR_FIELDS} for row in read_rows(path)]
    names = {
        "extended_seconds": "extended (algorithm 3)",
        "lapack_seconds": "LAPACK from scratch at every step",
        "algorithm2_seconds": f"algorithm 2 in Python (beyond {levy.LOOP_SIZES[-1]} by operation count)",
    }
    lengths = sorted({min(100, len(rows)), len(rows)})
    head, cells = ["factorisation"], [[label] for label in names.values()]
    for length in lengths:
        totals = levy.total_seconds(rows[:length])
        head += [f"{length} steps: seconds", "ratio"]
        for cell, key in zip(cells, names, strict=True):
            cell += [f"{totals[key]:.3g}", f"{totals[key] / totals['extended_seconds']:.3g}"]
    ratio = ["", "", str(PAPER_FACTORISATION_RATIO)]
    return markdown([*head, "paper's ratio (100 steps)"], [[*row, r] for row, r in zip(cells, ratio, strict=True)])


# ---------------------------------------------------------------------------- lag


def lag_table(path: Path) -> str:
    """Iterations and time to the fixed accuracy for each lag."""
    rows = []
    for kernel in ("paper", "ours"):
        for row in levy.lag_summary(path, kernel):
            iterations, seconds, step = (
                tuple("∞" if math.isinf(value) else f"{value:.3g}" for value in row[name])  # type: ignore[attr-defined]
                for name in ("iterations", "seconds", "seconds_a_step")
            )
            label = "the paper's settings" if kernel == "paper" else "our kernel"
            reached = f"{row['reached']}/{row['runs']}"
            texts = [f"{middle} ({low} … {high})" for low, middle, high in (iterations, seconds)]
            rows.append([label, str(row["lag"]), reached, *texts, f"{1e3 * float(step[1]):.3g}"])
    return markdown(["settings", "lag", "got there", "iterations", "seconds", "ms a step"], rows)


# ----------------------------------------------------------------------- networks


def network_table(path: Path, paper: dict[tuple[str, int], Steps]) -> str:
    """The improvements of each study next to the paper's, with the times of the optimiser and the trainings."""
    studies: dict[tuple[str, int, int], list[Row]] = defaultdict(list)
    for row in read_rows(path):
        studies[row["method"], int(row["workers"]), int(row["seed"])].append(row)
    rows = [
        [LABELS[method], str(parallel), "paper", f"{steps[-1][0]}+", f"{steps[-1][1]:g}", _steps(steps), "", "", ""]
        for (method, parallel), steps in paper.items()
    ]
    for (method, parallel, _), own in studies.items():
        values = [float(row["accuracy"]) for row in own]
        found = improvements(values, ACCURACY_STEP)
        training, overhead = (_middle(own, name) for name in ("train_seconds", "overhead_seconds"))
        minutes = max((float(row["ended_seconds"]) for row in own if row["ended_seconds"]), default=math.nan) / 60
        numbers = [f"{training:.1f}", f"{1e3 * overhead:.0f}" if math.isfinite(overhead) else "", f"{minutes:.1f}"]
        head = [LABELS[method], str(parallel), "here", str(len(own)), f"{max(values):.3f}"]
        rows.append([*head, _steps(found), *numbers])
    head = ["method", "workers", "where", "evaluations", "best", "accuracy (iteration)"]
    return markdown([*head, "s a training", "ms overhead", "minutes"], rows)


def _middle(rows: list[Row], name: str) -> float:
    """The median of a column that may have gaps; NaN if it is empty."""
    return quartiles([float(row[name]) for row in rows if row[name]] or [math.nan])[1]


def _steps(steps: Iterable[tuple[int, float]]) -> str:
    return ", ".join(f"{value:.3g} ({iteration})" for iteration, value in steps)


# ------------------------------------------------------------------------ workers


def workers_table(path: Path) -> str:
    """Virtual hours to an accuracy on NAS-Bench-201, and the speed-up over one worker."""
    found = workers.summary(path)
    alone = {row["target"]: row for row in found if row["workers"] == 1}
    rows = []
    for row in found:
        one, hours, evaluations = alone.get(row["target"]), row["hours"], row["evaluations"]
        ratio = f"{one['hours'][1] / hours[1]:.1f}×" if one and math.isfinite(one["hours"][1]) else ""
        texts = [" … ".join(f"{value:.3g}" for value in (low, high)) for low, _, high in (hours, evaluations)]
        cells = [f"{middle:.3g} ({text})" for (_, middle, _), text in zip((hours, evaluations), texts, strict=True)]
        how = "" if row["workers"] == 1 else row["method"]
        rows.append([f"{row['target']:g} %", str(row["workers"]), how, *cells, ratio, str(row["runs"])])
    return markdown(["accuracy", "workers", "how", "hours", "evaluations", "sooner than one", "seeds"], rows)


# ------------------------------------------------------------------ architectures


def architectures_table(path: Path) -> str:
    """Evaluations and virtual hours to the best network, then the time and memory of suggestions."""
    found = architectures.summary(path)
    alone = {(row["data"], row["method"]): row["hours"][1] for row in found if row["workers"] == 1}
    rows = []
    for row in found:
        hours, one = row["hours"], alone.get((row["data"], row["method"]), math.inf)
        ratio = f"{one / hours[1]:.1f}×" if math.isfinite(one) and math.isfinite(hours[1]) else ""
        head = [row["data"], row["method"], str(row["workers"]), f"{row['found']}/{row['runs']}"]
        rows.append([*head, _quartiles(row["evaluations"], ".0f"), _quartiles(hours, ".3g"), ratio])
    parts = [markdown(["data", "space", "workers", "found", "evaluations", "hours", "sooner than one"], rows)]
    costs = [
        [row["data"], row["method"], row["workers"], row["evaluations"], f"{float(row['ms']):.1f}", row["megabytes"]]
        for row in architectures.costs(path)
    ]
    if costs:
        parts.append(markdown(["data", "space", "workers", "evaluations", "ms a suggestion", "MB in all"], costs))
    return "\n\n".join(parts)
