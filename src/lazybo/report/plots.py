"""Pictures of the records of `report.records` and `report.predictions`. The only module that needs matplotlib."""

import io
import math
import re
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution

from lazybo.core import texts
from lazybo.report.predictions import Coordinates, Slice
from lazybo.report.records import Front, History, LearningCurve, LearningCurves, Times
from lazybo.search import Recommendation

try:
    from matplotlib.axes import Axes
    from matplotlib.collections import LineCollection
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter, MaxNLocator, NullFormatter
except ImportError as error:
    raise ImportError(f"pictures need matplotlib ({error}): pip install matplotlib") from error

BLUE, ORANGE, AMBER, GREY, RED, GREEN = "#2166ac", "#d6604d", "#e08214", "#888888", "#b2182b", "#1b7837"
# How the curves of trials are drawn, by their state: colour, opacity, width of the line.
CURVE_STYLES = {
    "complete": (GREY, 0.45, 0.8),
    "failed": (RED, 0.35, 0.8),
    "pruned": (AMBER, 0.55, 0.9),
    "waiting": (ORANGE, 0.9, 1.4),
    "paused": (ORANGE, 0.7, 1.0),
    "running": (ORANGE, 1.0, 1.8),
}
# Slices side by side, and the longest label that does not run into its neighbour.
COLUMNS = 3
LABEL_LENGTH = 16
# Of more choices than this, only some are labelled.
LABELS = 12
# Of more parameters than this, only the most important ones have a bar.
BARS = 40
LOG_TICKS = 5
# Larger whole numbers are written as powers of ten.
LARGEST_PLAIN = 1e5
PNG_DPI = 150
# The distance of two intervals of forecasts, as a share of the steps.
INTERVAL_GAP = 0.012
# matplotlib computes with multiples of what it draws. Values beyond this are drawn there.
LARGEST_DRAWN = 1e300


def draw_history(record: History, title: str, recommended: Recommendation | None = None) -> Figure:
    """Values of all trials, the best so far as a line, and what the model expects of the recommended trial."""
    figure, axes = _figure(title, "trial", "value")
    axes.scatter(record.numbers, drawable(record.values), s=14, color=GREY, alpha=0.6, linewidths=0, label="trial")
    axes.step(record.numbers, drawable(record.best), where="post", color=BLUE, linewidth=2, label="best so far")
    limits = _limits([*record.values, *([recommended.value] if recommended else [])])
    axes.set_ylim(limits)
    if recommended is not None and recommended.number is not None:
        label = f"recommended (trial {recommended.number}), 95 % interval"
        interval = (recommended.value, recommended.low, recommended.high)
        _interval(axes, recommended.number, interval, fmt="D", color=RED, ms=5, capsize=3, zorder=3, label=label)
    wrong = [(n, v) for n, v in zip(record.numbers, record.values, strict=True) if n in set(record.infeasible)]
    if wrong:
        x, y = zip(*wrong, strict=True)
        axes.scatter(x, drawable(y), s=18, marker="x", color=AMBER, linewidths=1, label="infeasible")
    at_bottom = axes.get_xaxis_transform()
    for numbers, mark, colour, name in ((record.pruned, "|", AMBER, "pruned"), (record.failed, "x", RED, "failed")):
        if numbers:
            axes.plot(numbers, [0.02] * len(numbers), mark, color=colour, ms=7, label=name, transform=at_bottom)
    _note_beyond(axes, limits, [[value] for value in record.values], "value", "")
    axes.xaxis.set_major_locator(_whole_numbers())
    _legend(axes)
    return figure


def draw_times(record: Times, title: str) -> Figure:
    """Seconds of each evaluation and of the wait before it, logarithmic."""
    figure, axes = _figure(title, "trial", "seconds")
    for numbers, seconds, colour, name in (
        (record.numbers, record.evaluation, BLUE, "evaluation"),
        (record.waited_numbers, record.waits, ORANGE, "between evaluations: optimiser and storage"),
    ):
        # With a clock of microseconds a wait may be 0, which has no logarithm.
        shown = np.maximum(seconds, 1e-6)
        axes.scatter(numbers, shown, s=14, color=colour, alpha=0.7, linewidths=0, label=name)
    axes.set_yscale("log")
    # Whole decades, so that there are always two labels with units, and none between them without.
    low, high = axes.get_ylim()
    axes.set_ylim(10 ** np.floor(np.log10(low)), 10 ** np.ceil(np.log10(high)))
    axes.yaxis.set_major_formatter(EngFormatter(unit="s"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_ylabel("")
    axes.xaxis.set_major_locator(_whole_numbers())
    _legend(axes)
    return figure


def draw_curves(record: LearningCurves, title: str) -> Figure:
    """All learning curves, the best one highlighted, with forecasts and 95 % intervals of unfinished ones."""
    figure, axes = _figure(title, "step", f"{_cut(record.objective, 40)} ({record.direction})")
    for state in CURVE_STYLES:
        _draw_trainings(axes, state, [curve for curve in record.curves if curve.state == state])
    for curve in record.curves:
        if curve.number == record.best:
            axes.plot(*_points(curve), color=BLUE, linewidth=2.2, label=f"best (trial {curve.number})", zorder=4)
    for state in ("running", "waiting", "pruned"):
        _draw_forecasts(axes, state, record)
    seen = [_points(curve)[1] for curve in record.curves]
    ends = [values[-1] for values in seen if values]
    ends += [curve.forecast.value for curve in record.curves if curve.forecast is not None]
    limits = _limits(ends, better=record.direction)
    axes.set_ylim(limits)
    _note_beyond(axes, limits, seen, "curve", " in part")
    axes.xaxis.set_major_locator(_whole_numbers())
    _legend(axes)
    return figure


def _draw_trainings(axes: Axes, state: str, curves: Sequence[LearningCurve]) -> None:
    colour, alpha, width = CURVE_STYLES[state]
    above = 5 if state in ("running", "waiting") else 2
    for i, curve in enumerate(curves):
        steps, values = _points(curve)
        label = f"{state} ({len(curves)})" if i == 0 else None
        axes.plot(steps, values, color=colour, alpha=alpha, linewidth=width, label=label, zorder=above)
        if state != "complete":
            axes.plot(steps[-1:], values[-1:], "o", color=colour, markersize=3, alpha=alpha)


def _draw_forecasts(axes: Axes, state: str, record: LearningCurves) -> None:
    first = min(curve.steps[0] for curve in record.curves)
    expected = [curve for curve in record.curves if curve.state == state and curve.forecast and _points(curve)[0]]
    for i, curve in enumerate(expected):
        # Side by side beyond the last step, so that intervals do not hide each other.
        end = record.last_step + INTERVAL_GAP * i * max(record.last_step - first, 1)
        _draw_forecast(axes, curve, end, f"{state}: forecast, 95 %" if i == 0 else None)


def _points(curve: LearningCurve) -> tuple[list[int], list[float]]:
    """The steps and values of a curve that can be drawn."""
    known = [(step, value) for step, value in zip(curve.steps, curve.values, strict=True) if math.isfinite(value)]
    return [step for step, _ in known], drawable([value for _, value in known])


def _draw_forecast(axes: Axes, curve: LearningCurve, at: float, label: str | None) -> None:
    """The way from the last value of a curve to its forecast, drawn at a step: a dashed line and a 95 % interval.

    The interval of a training that goes on is also a cone.
    """
    assert curve.forecast is not None, "the caller has checked"
    steps, values = _points(curve)
    colour, stopped = CURVE_STYLES[curve.state][0], curve.state == "pruned"
    end, low, high = drawable(curve.forecast)
    way = [steps[-1], max(at, steps[-1])]
    if not stopped:
        axes.fill_between(way, [values[-1], low], [values[-1], high], color=colour, alpha=0.13, linewidth=0)
    axes.plot(way, [values[-1], end], ":" if stopped else "--", color=colour, linewidth=1.0, alpha=0.9)
    width, alpha = (0.7, 0.6) if stopped else (1.2, 0.9)
    interval = curve.forecast
    _interval(axes, way[1], interval, fmt="_", color=colour, elinewidth=width, capsize=2, alpha=alpha, label=label)


def _interval(axes: Axes, at: float, interval: Sequence[float], **style: Any) -> None:
    """A value with the ends of its interval, (value, low, high)."""
    value, low, high = drawable(interval)
    axes.errorbar([at], [value], [[value - low], [high - value]], **style)


def _note_beyond(
    axes: Axes, limits: tuple[float, float], drawn: Sequence[Sequence[float]], what: str, part: str
) -> None:
    """Say how many of the values or curves lie beyond the range that is shown."""
    beyond = sum(any(not limits[0] <= value <= limits[1] for value in values) for values in drawn)
    if beyond:
        _note(axes, f"{texts.counted(beyond, what)} {'lies' if beyond == 1 else 'lie'}{part} beyond this range")


def _note(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="right", fontsize=8, color=GREY)


def draw_front(record: Front, title: str) -> Figure:
    """All trials in the space of the objectives, one panel for each pair; the front as a line, infeasible ones pale."""
    pairs = list(combinations(range(len(record.names)), 2))
    figure, grid = _grid(title, len(pairs), (4.4, 3.7))
    values, best, wrong = np.array(record.values), np.array(record.on_front), np.array(record.infeasible)
    for axes, (i, j) in zip(grid, pairs, strict=True):
        for chosen, colour, mark, name in (
            (~best & ~wrong, GREY, "o", "dominated"),
            (wrong, AMBER, "x", "infeasible"),
            (best, BLUE, "o", "front"),
        ):
            if chosen.any():
                x, y = drawable(values[chosen, i].tolist()), drawable(values[chosen, j].tolist())
                axes.scatter(x, y, s=18, color=colour, marker=mark, alpha=0.9 if name == "front" else 0.5, label=name)
        if len(record.names) == 2 and best.any():
            line = values[best][np.argsort(values[best, i], kind="stable")]
            x, y = (drawable(line[:, column].tolist()) for column in (i, j))
            # The dominated part lies after the front of a first objective that is minimised.
            axes.step(x, y, where="post" if record.directions[0] == "minimize" else "pre", color=BLUE, lw=1)
        axes.set_xlim(_limits(values[:, i].tolist()))
        axes.set_ylim(_limits(values[:, j].tolist()))
        axes.set_xlabel(_cut(f"{record.names[i]} ({record.directions[i]})", 40))
        axes.set_ylabel(_cut(f"{record.names[j]} ({record.directions[j]})", 40))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9, frameon=False)
    return figure


def draw_slices(records: Sequence[Slice], title: str) -> Figure:
    """The model through the best trial along each parameter, with a band of two standard deviations.

    With measured constraints, the probability that all of them hold is a line with an axis of its own at the right.
    """
    figure, grid = _grid(title, len(records), (3.6, 2.9), sharey=True)
    columns = min(COLUMNS, len(records))
    handles: dict[str, Any] = {}
    for i, (axes, record) in enumerate(zip(grid, records, strict=True)):
        _draw_slice(axes, record)
        drawn = [axes]
        if record.feasible:
            last = (i + 1) % columns == 0 or i + 1 == len(records)
            drawn.append(_draw_chance(axes, record, labelled=last))
        for each in drawn:
            for handle, label in zip(*each.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
    for axes in grid[::columns]:
        axes.set_ylabel("value")
    seen = [value for record in records for _, value in record.seen]
    grid[0].set_ylim(_limits([*seen, *(v for record in records for v in record.middle)]))
    labels, most = list(handles), max(4, 3 * columns)
    figure.legend(handles.values(), labels, loc="outside lower center", ncols=most, fontsize=8, frameon=False)
    return figure


def _grid(title: str, count: int, size: tuple[float, float], **options: Any) -> tuple[Figure, list[Axes]]:
    """A figure of this many axes, in rows of at most three; ``size`` is the size of each."""
    columns = min(COLUMNS, count)
    rows = math.ceil(count / columns)
    figure = Figure(figsize=(size[0] * columns + 0.6, size[1] * rows + 0.7), layout="constrained")
    figure.suptitle(plain(title), fontsize=11)
    grid = list(figure.subplots(rows, columns, squeeze=False, **options).flat)
    for axes in grid[count:]:
        axes.set_visible(False)
    return figure, grid[:count]


def draw_importances(record: Mapping[str, float], title: str) -> Figure:
    """The share of each parameter in the variation of the model as a bar, the largest one on top."""
    shown = list(record.items())[:BARS]
    figure, axes = _figure(title, size=(8.0, 0.3 * len(shown) + 1.1))
    bars = axes.barh(range(len(shown)), [share for _, share in shown], color=BLUE, height=0.65)
    axes.bar_label(bars, [texts.percent(share) for _, share in shown], padding=3, fontsize=8)
    axes.set_yticks(range(len(shown)), [_cut(name, 40) for name, _ in shown])
    axes.invert_yaxis()
    axes.set_xlim(0.0, 1.12 * max((share for _, share in shown), default=0.0) or 1.0)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    if len(record) > len(shown):
        _note(axes, f"{texts.counted(len(record) - len(shown), 'more parameter')} with less")
    return figure


def draw_parallel(record: Coordinates, title: str) -> Figure:
    """Trials as lines over their parameters; better ones are darker and drawn on top."""
    figure, axes = _figure(title, size=(max(8.0, 1.5 * len(record.names) + 2), 4.5))
    # By rank: a few diverged trials would leave one colour for all others.
    ranks = np.linspace(0.0, 1.0, len(record.values)) if len(record.values) > 1 else np.ones(1)
    positions = [float(i) for i in range(len(record.names))]
    segments = [np.column_stack([positions, line]) for line in record.lines]
    lines = LineCollection(segments, cmap="viridis_r", array=ranks, linewidths=0.6 + 1.2 * ranks**4, alpha=0.7)
    axes.add_collection(lines)
    axes.set_xlim(-0.1, max(len(record.names) - 1, 0) + 0.35)
    axes.set_ylim(-0.04, 1.04)
    axes.set_yticks([])
    axes.set_xticks(positions, [_cut(name) for name in record.names])
    axes.spines[:].set_visible(False)
    box = {"boxstyle": "round,pad=0.15", "fc": "white", "ec": "none", "alpha": 0.8}
    style: dict[str, Any] = {"xytext": (4, 0), "textcoords": "offset points", "fontsize": 7.5, "va": "center"}
    for position, distribution in zip(positions, record.distributions, strict=True):
        axes.axvline(position, color="black", linewidth=0.8)
        for value in _ticks(distribution):
            axes.annotate(_label(value), (position, place(distribution, value)), bbox=box, **style)
    bar = figure.colorbar(lines, ax=axes, pad=0.01, ticks=[0.0, 0.5, 1.0])
    bar.ax.set_yticklabels([_label(record.values[int(t * (len(record.values) - 1))]) for t in (0.0, 0.5, 1.0)])
    bar.set_label("value, by rank")
    return figure


def drawable(values: Sequence[float]) -> list[float]:
    """Values that matplotlib can draw."""
    drawn: list[float] = np.clip(values, -LARGEST_DRAWN, LARGEST_DRAWN).tolist()
    return drawn


def as_bytes(figure: Figure, kind: str) -> bytes:
    """A picture as the content of a file: "png", "svg" or "pdf"."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format=kind, dpi=PNG_DPI)
    return buffer.getvalue()


def _draw_slice(axes: Axes, record: Slice) -> None:
    distinct = record.choice
    where: list[Any] = list(range(len(record.places))) if distinct else record.places
    at = {place: i for i, place in enumerate(record.places)} if distinct else None
    low, middle, high = drawable(record.low), drawable(record.middle), drawable(record.high)
    _draw_seen(axes, record, at)
    if distinct:
        errors = [np.subtract(middle, low), np.subtract(high, middle)]
        axes.errorbar(where, middle, errors, fmt="_", color=BLUE, markersize=14, capsize=3, label="model ± 2σ")
        shown = where[:: max(1, math.ceil(len(where) / LABELS))]
        axes.set_xticks(shown, [_cut(str(record.places[i])) for i in shown], rotation=30 if len(where) > 3 else 0)
        axes.set_xlim(-0.5, len(where) - 0.5)
    else:
        axes.fill_between(where, low, high, color=BLUE, alpha=0.18, linewidth=0, label="± 2σ")
        axes.plot(where, middle, color=BLUE, label="model")
        axes.set_xscale("log" if record.log else "linear")
        if record.log:
            ticks = log_ticks(record.places[0], record.places[-1])
            axes.set_xticks(ticks, [_label(float(tick)) for tick in ticks])
            axes.xaxis.set_minor_formatter(NullFormatter())
        else:
            axes.xaxis.set_major_locator(_ticker(record.places[0]))
    best, value = record.best
    axes.plot([at[best] if at else best], drawable([value]), "*", color=RED, markersize=11, label="best trial")
    axes.set_xlabel(_cut(record.name, 28))
    axes.spines[["top", "right"]].set_visible(False)


def _draw_seen(axes: Axes, record: Slice, at: dict[Any, int] | None) -> None:
    """The trials of a slice: points, and crosses where they are infeasible. ``at`` has the positions of choices."""
    wrong = record.infeasible or [False] * len(record.seen)
    known = [(at[x] if at else x, y, bad) for (x, y), bad in zip(record.seen, wrong, strict=True) if not at or x in at]
    fine, bad = ([(x, y) for x, y, infeasible in known if infeasible == kind] for kind in (False, True))
    axes.scatter(
        [x for x, _ in fine], drawable([y for _, y in fine]), s=8, color=GREY, alpha=0.4, linewidths=0, label="trials"
    )
    if bad:
        x, y = [x for x, _ in bad], drawable([y for _, y in bad])
        axes.scatter(x, y, s=12, marker="x", color=AMBER, alpha=0.7, linewidths=0.8, label="infeasible")


def _draw_chance(axes: Axes, record: Slice, *, labelled: bool) -> Axes:
    """P(feasible) on an axis from 0 to 1 at the right of a slice; ``labelled`` if it has its own numbers."""
    twin = axes.twinx()
    where: list[Any] = list(range(len(record.places))) if record.choice else record.places
    mark = "_" if record.choice else "--"
    twin.plot(where, record.feasible, mark, color=GREEN, linewidth=1.3, markersize=14, label="P(feasible)")
    twin.set_ylim(-0.02, 1.02)
    twin.spines["top"].set_visible(False)
    twin.spines["right"].set_color(GREEN)
    twin.tick_params(axis="y", colors=GREEN, labelright=labelled)
    if labelled:
        twin.set_ylabel("P(feasible)", color=GREEN)
    return twin


def _figure(title: str, x: str = "", y: str = "", size: tuple[float, float] = (8.0, 4.5)) -> tuple[Figure, Axes]:
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots()
    figure.suptitle(plain(title), fontsize=11)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.spines[["top", "right"]].set_visible(False)
    if x:
        axes.grid(axis="y", alpha=0.25)
    return figure, axes


def _legend(axes: Axes) -> None:
    """Below the axes, where it covers nothing."""
    axes.figure.legend(loc="outside lower center", ncols=4, fontsize=9, frameon=False)


def _limits(values: Sequence[float], better: str | None = None) -> tuple[float, float]:
    """The range of most values and of the best ones: values that diverged do not flatten all others.

    If it is known which values are ``better`` ("minimize" or "maximize"), almost half of all may have diverged.
    """
    part = {"minimize": (0.0, 0.5), "maximize": (0.5, 1.0)}.get(better or "", (0.25, 0.75))
    low, first, last, high = np.quantile(drawable(values), (0.0, *part, 1.0))
    reach = 6.0 * (last - first) or abs(high) or 1.0
    bottom, top = max(low, first - reach), min(high, last + reach)
    margin = 0.06 * (top - bottom) or 0.5 * abs(top) or 1.0
    return float(bottom - margin), float(top + margin)


def place(distribution: BaseDistribution, value: Any) -> float:
    """The position of a value on an axis of `Coordinates`."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.to_internal_repr(value) / max(len(distribution.choices) - 1, 1)
    low, high, log = distribution.low, distribution.high, distribution.log  # type: ignore[attr-defined]
    if log:
        low, high, value = math.log(low), math.log(high), math.log(value)
    # Halves, since the difference of two doubles may overflow.
    return float((value / 2 - low / 2) / (high / 2 - low / 2))


def _ticks(distribution: BaseDistribution) -> list[Any]:
    if isinstance(distribution, CategoricalDistribution):
        return list(distribution.choices[:: max(1, math.ceil(len(distribution.choices) / LABELS))])
    low, high = distribution.low, distribution.high  # type: ignore[attr-defined]
    if distribution.log:  # type: ignore[attr-defined]
        inner = [t for t in log_ticks(low, high) if 0.06 < place(distribution, t) < 0.94]
        return [low, *inner, high]
    inner = [t for t in _ticker(low).tick_values(low, high) if low < t < high]
    return [low, *(t for t in inner if 0.06 < place(distribution, t) < 0.94), high]


def log_ticks(low: float, high: float) -> list[float]:
    """At most five round numbers for a logarithmic axis: powers of ten far apart, or 1, 2, 5 and so on within them."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    for digits in ((1, 2, 3, 4, 5, 6, 7, 8, 9), (1, 2, 5), (1, 3), (1,)):
        ticks = [float(f"{digit}e{power}") for power in range(first, last + 1) for digit in digits]
        # An end that went through a logarithm and back is off by a rounding.
        ticks = [tick for tick in ticks if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
        if len(ticks) <= LOG_TICKS:
            break
    most = LOG_TICKS if max(-first, last) < 100 else LOG_TICKS - 2  # exponents of three digits take more space
    ticks = ticks[:: math.ceil(len(ticks) / most)]
    return ticks if len(ticks) > 1 else [low, high]


def _whole_numbers() -> MaxNLocator:
    return MaxNLocator(8, integer=True, steps=[1, 2, 5, 10])


def _ticker(value: Any) -> MaxNLocator:
    """Round numbers for the axis of a parameter, whole ones if it is."""
    return MaxNLocator(5, integer=isinstance(value, int), steps=[1, 2, 5, 10])


def _label(value: Any) -> str:
    if not isinstance(value, float):
        return _cut(str(value))
    if value.is_integer() and abs(value) < LARGEST_PLAIN:
        return str(int(value))
    return re.sub(r"e([+-])0*(?=\d)", r"e\1", f"{value:.3g}").replace("e+", "e")  # 1e-5 rather than 1e-05


def _cut(text: str, length: int = LABEL_LENGTH) -> str:
    return plain(texts.shortened(texts.printable(text), length))


def plain(text: str) -> str:
    """Text that matplotlib shows unchanged: a dollar sign would start a formula."""
    return texts.printable(text).replace("$", r"\$")
