"""Checks of a study, in words: what may be wrong with it, and what to do.

Each check is a function of plain numbers that returns a `Finding`, or None if it says nothing about this study.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from lazybo.core import Array, texts
from lazybo.space import Space

if TYPE_CHECKING:
    from lazybo.report.predictions import Noise, Quality
    from lazybo.report.records import Failures

# With fewer values than this, or than twice the number of parameters, the model knows little.
FEW_TRIALS = 10
# A number is at the edge within this share of its range, a discrete one with few levels at its first or last level.
EDGE, FEW_LEVELS = 0.01, 20
# Parameters with a smaller share of the variation do not matter, at the edge or anywhere.
MATTERS, NOTHING = 0.05, 0.01
# To call a parameter useless, the model needs this many values, this many for each parameter, and to explain this much.
ENOUGH_TRIALS, ENOUGH_EACH, ENOUGH_EXPLAINED = 20, 3, 0.5
# If there are many parameters, a useless one also has less than this part of an equal share.
PART_OF_EQUAL = 0.1
# The share of variance that a good and a bad model explains, and the least share of values in their 95 % intervals.
GOOD_EXPLAINED, BAD_EXPLAINED, BAD_COVERED = 0.5, 0.2, 0.8
# Shares of the noise in the variance of the values.
SOME_NOISE, MUCH_NOISE = 0.1, 0.5
# Shares of trials.
MANY_FAILURES, FEW_FEASIBLE, MOST_OF_FRONT = 0.2, 0.1, 0.8
REASON_LENGTH = 160
ENDS = ("lower", "upper")


@dataclass(frozen=True)
class Finding:
    """The result of a check: a short title, and a sentence or two with the numbers and what to do."""

    check: str
    level: Literal["good", "note", "warning"]
    title: str
    text: str


def few_trials(complete: int, dim: int) -> Finding:
    """Whether there are enough values for a model of this many parameters."""
    enough = max(FEW_TRIALS, 2 * dim)
    values = f"{texts.counted(complete, 'trial')} {'has' if complete == 1 else 'have'} completed"
    if complete >= enough:
        return Finding("trials", "good", "Enough trials for a model", f"{values}.")
    if not complete:
        text = "No trial has completed, so there is no best one and no model. See the failures, or wait."
        return Finding("trials", "warning", "No values yet", text)
    text = f"{values}; with {texts.counted(dim, 'parameter')} the model says little before about {enough}. Run more."
    return Finding("trials", "note", "Few trials so far", text)


def many_failures(failed: int, ended: int, reasons: "Sequence[Failures]") -> Finding | None:
    """Whether many of the trials that ended have failed, and why most of them did."""
    if not ended:
        return None
    if not failed:
        return Finding("failures", "good", "No failures", f"None of {texts.counted(ended, 'trial')} failed.")
    most = reasons[0]
    why = f"The most frequent reason ({len(most.numbers)} ×): {texts.shortened(most.reason, REASON_LENGTH)}"
    text = f"{failed} of {texts.counted(ended, 'trial')} failed ({texts.percent(failed / ended)}). {why}"
    if failed / ended > MANY_FAILURES and failed >= 3:
        return Finding("failures", "warning", "Many trials fail", text)
    return Finding("failures", "note", "Some trials fail", text)


def few_feasible(feasible: int, complete: int, constraints: Sequence[str]) -> Finding | None:
    """Whether enough of the completed trials satisfy the measured constraints."""
    if not constraints or not complete:
        return None
    names, completed = ", ".join(constraints), texts.counted(complete, "completed trial")
    if not feasible:
        text = f"None of {completed} satisfies {names}. Relax a bound, or give feasible initial trials."
        return Finding("feasible", "warning", "Nothing is feasible yet", text)
    text = f"{feasible} of {completed} satisfy {names} ({texts.percent(feasible / complete)}); only these count."
    rare = feasible / complete < FEW_FEASIBLE
    return Finding("feasible", "note" if rare else "good", "Few feasible trials" if rare else "Feasible trials", text)


def equal_values(values: Sequence[float], objective: str = "") -> Finding | None:
    """Whether all values are the same, so that there is nothing to learn."""
    if len(values) < 3 or min(values) < max(values):
        return None
    of = _of(objective)
    text = f"All {len(values)} values{of} are {values[0]:.6g}: there is nothing to learn. Is this the right metric?"
    return Finding("equal", "warning", f"All values{of} are equal", text)


def edges_of(space: Space, point: Array) -> dict[str, str]:
    """The parameters that are at an end of their range at a point, each with ``lower`` or ``upper``."""
    found = {}
    for name, columns in space.points.slices.items():
        place, levels = point[columns.start], space.points.levels[columns.start]
        if columns.stop - columns.start > 1 or not space.points.numeric[columns.start] or np.isnan(place) or levels < 3:
            continue
        margin = 0.0 if levels <= FEW_LEVELS else EDGE
        if place <= margin or place >= 1.0 - margin:
            found[name] = "lower" if place <= margin else "upper"
    return found


def best_at_edge(space: Space, points: Array, importances: Sequence[Mapping[str, float]]) -> Finding | None:
    """Whether the best configurations, (m, d), are at an end of the range of a parameter that matters."""
    if not len(points):
        return None
    ends = [edges_of(space, point) for point in points]
    counts = {(name, end): sum(each.get(name) == end for each in ends) for name in space.points.names for end in ENDS}
    found = [
        (name, end)
        for (name, end), count in counts.items()
        if count >= MOST_OF_FRONT * len(points)
        and max((each.get(name, 0.0) for each in importances), default=1.0) > MATTERS
    ]
    what = "best configuration is" if len(points) == 1 else "best trade-offs are"
    if not found:
        text = f"The {what} inside the range of every parameter that matters."
        return Finding("edge", "good", "Not at the edge of the space", text)
    listed = " and ".join(f"the {end} end of {name} ({_end_of(space, name, end)})" for name, end in found)
    beyond, wider = ("it", "this range") if len(found) == 1 else ("them", "these ranges")
    text = f"The {what} at {listed}. Better values may lie beyond {beyond}: widen {wider} if you can."
    return Finding("edge", "warning", "The best is at the edge of the space", text)


def _end_of(space: Space, name: str, end: str) -> str:
    value = space.distributions[name].low if end == "lower" else space.distributions[name].high  # type: ignore[attr-defined]
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def predictions(quality: "Quality | None", noise: "Noise | None", objective: str = "") -> Finding | None:
    """Whether the model predicts values that it has not seen, and whether its intervals are wide enough."""
    if quality is None or len(quality.measured) < FEW_TRIALS:
        return None
    of = _of(objective)
    text = (
        f"Each value{of} predicted from all others: this explains "
        f"{texts.percent(max(quality.explained, 0.0))} of their "
        f"variance, and {texts.percent(quality.covered)} of the values are within their 95 % interval."
    )
    noisy = noise is not None and noise.share > MUCH_NOISE
    if quality.covered < BAD_COVERED:
        text += " Do not rely on the intervals: real values scatter more than the model expects."
        return Finding("predictions", "warning", f"The model is too sure{of}", text)
    if quality.explained < BAD_EXPLAINED and not noisy:
        text += (
            " Do not rely on importances and slices. More trials, a logarithmic scale, or a smaller space may help, "
            "and so may parameters that are missing here."
        )
        return Finding("predictions", "warning", f"The model predicts badly{of}", text)
    if quality.explained < GOOD_EXPLAINED:
        return Finding("predictions", "note", f"The model predicts roughly{of}", text)
    return Finding("predictions", "good", f"The model predicts well{of}", text)


def noise_level(noise: "Noise | None", objective: str = "") -> Finding | None:
    """Whether most of the differences between values are noise."""
    if noise is None:
        return None
    of = _of(objective)
    if noise.share == 0:
        return Finding("noise", "good", f"No noise{of}", f"A repeated measurement{of} gives the same value.")
    size = f"By the model, a repeated measurement{of} varies by about ± {noise.deviation:.2g} (one standard deviation)"
    if noise.share > MUCH_NOISE:
        text = (
            f"{size}, which is {texts.percent(noise.share)} of the variance of all values. "
            "Single values say little: use the recommended trial, average over repeats or folds, or run a "
            "final check (--confirm)."
        )
        return Finding("noise", "warning", f"Noise dominates{of}", text)
    if noise.share > SOME_NOISE:
        text = f"{size}, {texts.percent(noise.share)} of the variance. The best value seen is partly luck."
        return Finding("noise", "note", f"The values{of} are noisy", text)
    return Finding("noise", "good", f"Little noise{of}", f"{size}.")


def useless(
    importances: Sequence[Mapping[str, float]], quality: "Sequence[Quality | None]", indifferent: Collection[str]
) -> Finding | None:
    """Whether the model sees parameters that do nothing. Only a model that predicts well can say that.

    ``indifferent`` are those that may have any value at the best configurations: a parameter may matter only there.
    """
    dim = len(importances[0]) if importances else 0
    if dim < 2 or not all(_is_sure(each, dim) for each in quality):
        return None
    limit = min(NOTHING, PART_OF_EQUAL / dim)
    less = f"less than {100 * limit:.2g} % of the variation"
    small = [name for name in importances[0] if all(each[name] < limit for each in importances)]
    idle = [name for name in small if name in indifferent]
    if idle:
        has, them = ("each has", "them") if len(idle) > 1 else ("it has", "it")
        text = f"{', '.join(idle)}: {has} {less}. Fix {them} at any value, and the search has less to learn."
        title = f"{len(idle)} parameters do nothing" if len(idle) > 1 else "One parameter does nothing"
        return Finding("useless", "note", title, text)
    text = f"None has {less}."
    if small:
        has, they = ("each has", "they matter") if len(small) > 1 else ("it has", "it matters")
        text = f"{', '.join(small)}: {has} {less} over the whole space, but {they} near the best."
    return Finding("useless", "good", "Every parameter matters", text)


def _is_sure(quality: "Quality | None", dim: int) -> bool:
    enough = max(ENOUGH_TRIALS, ENOUGH_EACH * dim)
    return quality is not None and len(quality.measured) >= enough and quality.explained >= ENOUGH_EXPLAINED


def _of(objective: str) -> str:
    return f" of {objective}" if objective else ""
