"""The pictures of README and docs/benchmarks.md, drawn by ``python -m benchmarks.report --write``."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator

from benchmarks import report
from benchmarks.records import OURS, Suite, load
from benchmarks.runner import CHECKPOINTS, FLOOR, read

# Name on the picture, colour, marker.
STYLES = {
    "lazybo": ("lazybo", "#2166ac", "o"),
    "optuna-gp": ("Optuna GPSampler", "#b2182b", "s"),
    "optuna-tpe": ("Optuna TPE", "#888888", "^"),
    "optuna-cmaes": ("Optuna CMA-ES", "#bbbbbb", "v"),
    "ax": ("Ax", "#fdb863", "d"),
    "botorch": ("BoTorch", "#e08214", "D"),
    "catcma": ("CatCMA with margin", "#8c510a", "h"),
    "hebo": ("HEBO", "#542788", "P"),
    "nevergrad": ("nevergrad", "#01665e", "*"),
    "smac": ("SMAC3", "#1b7837", "X"),
    "synetune": ("Syne Tune", "#7fbc41", "p"),
    "vizier": ("Vizier", "#3288bd", "8"),
    "skopt": ("scikit-optimize", "#80cdc1", "<"),
    "bayesopt": ("bayesian-optimization", "#c51b7d", ">"),
    "random": ("random", "#000000", "."),
}


def draw_all(results: Path, folder: Path) -> list[Path]:
    """Draw all pictures whose numbers are recorded."""
    pictures: dict[str, tuple[str, Callable[[Path], Figure]]] = {
        "time-per-step": ("overhead", time_per_step),
        "regret": ("open", lambda path: regret(report.both(path.parent))),
        "clock": ("open", lambda path: clock(load(path))),
        "dimension": ("dimension", lambda path: dimension(load(path))),
    }
    drawn = []
    for name, (file, draw) in pictures.items():
        path = results / f"{file}.csv"
        if path.exists():
            drawn.append(folder / f"{name}.svg")
            # No date and no random names, so that the file is the same every time; text stays text.
            with rc_context({"svg.hashsalt": "lazybo", "svg.fonttype": "none"}):
                draw(path).savefig(drawn[-1], metadata={"Date": None})
    return drawn


def time_per_step(path: Path, parameters: int = 5) -> Figure:
    figure = Figure(figsize=(7.2, 3.9), layout="constrained")
    axes = figure.subplots()
    rows = [row for row in read(path) if int(row["parameters"]) == parameters]
    for name in STYLES:
        points = [(int(row["n"]), float(row["mean_ms"])) for row in rows if row["optimizer"] == name]
        if points:
            _line(axes, name, points)
    _logarithmic(axes)
    axes.set_xlabel("observations")
    axes.set_ylabel("one step: suggest and learn")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"))
    _finish(figure, axes, "Time per step, Levy's function in 5-D, one thread")
    return figure


def regret(suites: Mapping[str, Suite]) -> Figure:
    """Mean regret by evaluations of the optimisers with the most runs, one panel for each suite."""
    groups = [(title, suite, *suite.groups()[0]) for title, suite in suites.items() if suite.groups()]
    figure = Figure(figsize=(7.2, 3.9), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(groups)))
    for axes, (title, suite, names, runs) in zip(panels, groups, strict=True):
        for name in names:
            found = {n: suite.regrets(name, n, runs) for n in CHECKPOINTS}
            _line(axes, name, [(n, suite.mean(runs, values)) for n, values in found.items() if values is not None])
        _logarithmic(axes)
        axes.set_xlabel("evaluations")
        axes.set_xticks([n for n in (5, 10, 25, 50, 100, 200) if suite.shared([OURS], n)])
        axes.set_title(f"{title}, {len(runs)} runs", fontsize=11)
    panels[0].set_ylabel("mean regret")
    _finish(figure, panels[-1])
    return figure


def clock(suite: Suite) -> Figure:
    """Mean regret by the time that has passed, one panel for each cost of an evaluation.

    A line ends when the first of its runs ends.
    """
    names, runs = report.timed(suite)
    costs = (0.0, *report.COSTS)
    figure = Figure(figsize=(9.6, 3.4), layout="constrained")
    panels = figure.subplots(1, len(costs), sharey=True)
    for axes, cost in zip(panels, costs, strict=True):
        times = np.geomspace(0.02, 400.0, 80) if cost == 0 else cost * np.geomspace(5.0, 250.0, 60)
        for name in names:
            courses = [suite.courses[name][run] for run in runs]
            end = min(course.end(cost) for course in courses)
            points = [(t, np.mean([course.at(t, cost) for course in courses])) for t in times if t <= end]
            _line(axes, name, points, marked=False)
        _logarithmic(axes)
        axes.set_xlabel("seconds")
        axes.set_title(f"an evaluation: {cost:g} s", fontsize=10)
    panels[0].set_ylabel("mean regret")
    _finish(figure, panels[-1])
    return figure


def dimension(suite: Suite, n: int = 100) -> Figure:
    """Mean regret after n evaluations by the number of parameters, one panel for each function."""
    families = list(dict.fromkeys(suite.families.values()))
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(families)))
    for axes, family in zip(panels, families, strict=True):
        for name, own in suite.courses.items():
            found: dict[int, list[float]] = {}
            for (problem, _), course in own.items():
                if suite.families[problem] == family and n in course.regret:
                    found.setdefault(int(problem.split("-")[1][:-1]), []).append(course.regret[n])
            if found:
                points = sorted((dim, max(float(np.mean(values)), FLOOR)) for dim, values in found.items())
                _line(axes, name, points)
        _logarithmic(axes)
        axes.set_xlabel("parameters")
        axes.set_xticks([2, 5, 10, 20, 50])
        axes.set_title(family.capitalize(), fontsize=11)
    panels[0].set_ylabel(f"mean regret after {n}")
    _finish(figure, panels[-1])
    return figure


def _line(axes: Axes, name: str, points: Sequence[tuple[float, Any]], *, marked: bool = True) -> None:
    label, colour, marker = STYLES[name]
    width, above = (2.4, 3) if name == OURS else (1.4, 2)
    x, y = zip(*points, strict=True)
    axes.plot(
        x, y, marker=marker if marked else "", markersize=4, color=colour, linewidth=width, label=label, zorder=above
    )


def _logarithmic(axes: Axes) -> None:
    """Both scales, labelled with plain numbers."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.minorticks_off()
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 300 * low else (1.0,)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _finish(figure: Figure, last: Axes, title: str | None = None) -> None:
    """Common style: no frames, a grid, and one legend beside the panels."""
    for axes in figure.axes:
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    lines = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    labels = [label for label, _, _ in STYLES.values() if label in lines]
    handles = [lines[label] for label in labels]
    figure.legend(handles, labels, frameon=False, loc="outside right center", fontsize=9)
    if title:
        last.set_title(title, fontsize=11)
