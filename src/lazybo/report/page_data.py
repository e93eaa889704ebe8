"""What the script of a page draws, as plain data for JSON: trials, curves, and the model.

The model lets a program without lazybo predict as `Optimizer.predict` does:

======  ===================================================================  ========
symbol  meaning                                                              shape
======  ===================================================================  ========
X       points of all rows, shared by all outputs; NaN: inactive             (n, d)
θ       the parameters of an output's kernel                                 (p,)
α       K⁻¹ t, the weights of the rows; 0 where pending                      (n,)
m       prior mean, 0 unless there are earlier studies (`PriorMean`)
t       targets minus m; for pending rows those that make their weights 0    (n,)
v       what K has on its diagonal besides k(x, x): noise and jitter         (n,)
S       the rows that the variance is computed from                          (m,)
======  ===================================================================  ========

The mean at u is m(u) + k(u, X) α, and the variance needs the factor L of K. L has n²/2 numbers, so the page does not
contain it: its script factors K again, O(m³). With L the mean is m(u) + (L⁻¹ k)ᵀ L⁻¹ t, as in `Process.posterior`.
Until L is ready the script uses k(u, X) α, which is the same with larger rounding errors.

If there are more than `EXACT_ROWS` rows, only some of them (S) are factored, and there is no t. The mean still uses all
rows. The variance comes from a model that has seen only S, so intervals are too wide and never too narrow. `widening`
says by how much. Arrays are base64 of little-endian doubles.
"""

import base64
import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import CategoricalDistribution, IntDistribution

from lazybo.core import Array, one_thread, texts
from lazybo.gp import Posterior, Process
from lazybo.report.records import counted_state, plain
from lazybo.search import Optimizer, Predictor
from lazybo.space import Space
from lazybo.study import StudyView, TrialView

if TYPE_CHECKING:
    from lazybo.report.facts import Facts, ModelFacts
    from lazybo.report.records import LearningCurves

# The kernels that page/model.js can compute.
KERNELS = ("matern52", "additive")
# A page factors at most this many rows: for more, a browser would take seconds and tens of megabytes.
EXACT_ROWS = 2000
# Random points at which `widening` is measured.
SAMPLE = 256
# Limits of what is drawn: trials in slices and parallel coordinates, learning curves, points of a curve.
MOST_TRIALS, MOST_CURVES, MOST_STEPS = 2000, 300, 100
NAME_LENGTH = 200
# What is drawn of leave-one-out predictions.
LEFT_OUT = ("measured", "expected", "low", "high")


def as_json(thing: Any) -> str:
    """Plain data as JSON that is harmless inside a script element: it has no ``<``. NaN and infinity are null."""
    text = json.dumps(plain(thing), ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=str)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def name_of(text: object) -> str:
    """A name or a choice as a page can show it."""
    return texts.shortened(texts.printable(texts.without_password(str(text))), NAME_LENGTH)


def data_of(facts: "Facts") -> dict[str, Any]:
    """The numbers that the script draws, and the model."""
    view, model = facts.view, facts.model
    places = _Places(model.optimizer.space, facts.portable) if model and facts.portable else None
    return {
        "objectives": [
            {"name": name_of(name), "maximize": direction == "maximize"}
            for name, direction in zip(view.objectives, view.directions, strict=True)
        ],
        "trials": _trials(view, places),
        "best": [trial.number for trial in view.front],
        "bestPlaces": places.of(view.front[0]) if places and view.front else None,
        **{state: [t.number for t in view.trials if counted_state(t) == state] for state in ("failed", "pruned")},
        "model": facts.portable,
        **(_of_model(model, places) if model else {"recommended": None, "order": [], "quality": []}),
        "curves": facts.curves and _curves(facts.curves),
    }


def _of_model(model: "ModelFacts", places: "_Places | None") -> dict[str, Any]:
    """The recommended trial, the columns of the parameters by importance for any objective, and leave-one-out."""
    advice, names = model.advice, model.optimizer.space.points.names
    largest = {name: max(each[name] for each in model.importances) for name in names}
    recommended = advice and {
        **{name: getattr(advice.recommendation, name) for name in ("number", "value", "low", "high")},
        "places": places and places.of(advice.trial),
    }
    return {
        "recommended": recommended,
        "order": sorted(range(len(names)), key=lambda column: -largest[names[column]]),
        "quality": [q and {name: getattr(q, name) for name in LEFT_OUT} for q in model.quality],
    }


class _Places:
    """Where trials are: a coordinate for each parameter, None where it is not active; a position in its ``choices``."""

    def __init__(self, space: Space, portable: dict[str, Any]) -> None:
        x = np.frombuffer(base64.b64decode(portable["x"]), dtype="<f8").reshape(-1, space.points.dim)
        self._space = space
        self._known = {
            name: {x[row, space.points.slices[name]].tobytes(): i for i, row in enumerate(spec["rows"])}
            for name, spec in zip(space.points.names, portable["parameters"], strict=True)
            if "rows" in spec
        }

    def of(self, trial: TrialView) -> list[float | None] | None:
        """The places of a trial; None if it is not in the model."""
        point = trial.point_in(self._space)
        if point is None:
            return None
        parts = [(name, point[self._space.points.slices[name]]) for name in self._space.points.names]
        return [self._known[name].get(x.tobytes()) if name in self._known else plain(float(x[0])) for name, x in parts]


def _trials(view: StudyView, places: _Places | None) -> dict[str, Any]:
    """The completed trials by number: values, which are feasible, and the places of those that are drawn."""
    drawn = {trial.number for trial in _thinned(view)}
    found = [places.of(trial) if places and trial.number in drawn else None for trial in view.complete]
    return {
        "numbers": [trial.number for trial in view.complete],
        "values": [[float(value) for value in trial.values] for trial in view.complete],
        "feasible": [trial.number in view.feasible_numbers for trial in view.complete],
        "places": [each and [None if x is None else round(x, 6) for x in each] for each in found],
    }


def _thinned(view: StudyView) -> Sequence[TrialView]:
    """At most `MOST_TRIALS` trials: half of them the best ones by the first objective, the others spread."""
    if len(view.complete) <= MOST_TRIALS:
        return view.complete
    sign, half = -1.0 if view.maximizes else 1.0, MOST_TRIALS // 2
    order = sorted(view.complete, key=lambda trial: sign * trial.values[0])
    return [*order[:half], *_spread(order[half:], half)]


def _spread(things: Sequence[Any], most: int) -> list[Any]:
    """At most ``most`` of the things, evenly spaced, with the first and the last."""
    if len(things) <= most:
        return list(things)
    return [things[round(i * (len(things) - 1) / (most - 1))] for i in range(most)]


def _curves(found: "LearningCurves") -> dict[str, Any]:
    wanted = [each for each in found.curves if each.forecast is not None or each.number == found.best]
    rest = [each for each in found.curves if each not in wanted]
    kept = sorted([*wanted, *_spread(rest, MOST_CURVES)], key=lambda each: each.number)
    return {
        "objective": name_of(found.objective),
        "lastStep": found.last_step,
        "best": found.best,
        "left": len(found.curves) - len(kept),
        "curves": [
            {
                "number": each.number,
                "state": each.state,
                "points": _spread(list(zip(each.steps, each.values, strict=True)), MOST_STEPS),
                "forecast": None if each.forecast is None else list(each.forecast),
            }
            for each in kept
        ],
    }


# ---------------------------------------------------------------------------- the model


@one_thread()
def portable_model(
    optimizer: Optimizer, names: Sequence[str], predictors: Sequence[Predictor], most: int = EXACT_ROWS
) -> dict[str, Any]:
    """The models of all objectives, of the measured constraints and of success, as plain data for JSON.

    ``predictors`` belong to the objectives with these ``names``. At most ``most`` rows are used for variances.
    Raises a ValueError for a kernel that the page cannot compute.
    """
    limits, success = optimizer.model.limits()
    first = predictors[0].posterior.leading
    if first.kernel.name not in KERNELS:
        raise ValueError(f"the page cannot compute the kernel {first.kernel.name!r}, only {', '.join(KERNELS)}")
    rows = variance_rows(first, most)
    whole = rows is None
    return {
        "parameters": [_parameter(optimizer.space, name, first) for name in optimizer.space.points.names],
        **Predictor.widths(),
        "kernel": first.kernel.name,
        "columns": [
            {"categories": c.categories, "conditional": c.conditional, "size": c.size} for c in first.kernel.columns
        ],
        "x": encoded(first.X),
        "rows": None if rows is None else rows.tolist(),
        "widening": None if rows is None else widening(predictors[0], rows),
        "objectives": [_objective(*pair, whole=whole) for pair in zip(names, predictors, strict=True)],
        "constraints": [
            {"name": name_of(name), "threshold": each.threshold, **_mixture(each.posterior, whole=whole)}
            for name, each in limits.items()
        ],
        "success": success and {"threshold": success.threshold, **_mixture(success.posterior, whole=whole)},
    }


def _parameter(space: Space, name: str, process: Process) -> dict[str, Any]:
    """A parameter that can vary: its values, and ``needs``: when it is active (`active_if`).

    One with structure has the values that were tried, the most promising first. Their coordinates are in ``rows`` of X.
    """
    columns = space.points.slices[name]
    common = {"name": name_of(name), "needs": active_if(space, name), "width": columns.stop - columns.start}
    if name in space.kinds:
        axis = space.points.axes[name]
        tried = process.X[:, columns]
        rows = [i for i in np.argsort(process.posterior(process.X)[0], kind="stable") if not np.isnan(tried[i, 0])]
        first = {tried[i].tobytes(): int(i) for i in reversed(rows)}
        kept = [i for i in rows if first[tried[i].tobytes()] == i]
        values = [name_of(space.kinds[name].text(space.kinds[name].read(axis.decode(tried[i])))) for i in kept]
        return {**common, "kind": "choice", "choices": values, "rows": [int(i) for i in kept]}
    distribution = space.distributions[name]
    if isinstance(distribution, CategoricalDistribution):
        return {**common, "kind": "choice", "choices": [name_of(each) for each in distribution.choices]}
    levels = float(space.points.axes[name].levels)
    return {
        **common,
        "kind": "whole" if isinstance(distribution, IntDistribution) else "number",
        "low": distribution.low,  # type: ignore[attr-defined]
        "high": distribution.high,  # type: ignore[attr-defined]
        "step": distribution.step,  # type: ignore[attr-defined]
        "log": distribution.log,  # type: ignore[attr-defined]
        "levels": levels if math.isfinite(levels) else None,
    }


def active_if(space: Space, name: str) -> list[tuple[int, list[float]]]:
    """The parents of a parameter that can vary, by position, each with the coordinates for which it is active."""
    needs = []
    while name in space.conditions:
        condition = space.conditions[name]
        if condition.parent in space.points.names:  # a parent with one value always has it
            needs.append((space.points.names.index(condition.parent), space.points.places[name][:, 0].tolist()))
        name = condition.parent
    return needs


def _objective(name: str, predictor: Predictor, *, whole: bool) -> dict[str, Any]:
    fields = ("exponent", "middle", "width", "power", "shift", "scale")
    warping = {field: getattr(predictor.warping, field) for field in fields}
    return {
        "name": name_of(name),
        "sign": predictor.sign,
        "warping": warping,
        **_mixture(predictor.posterior, whole=whole),
    }


def _mixture(posterior: Posterior, *, whole: bool) -> dict[str, Any]:
    """All particles, which share a prior mean. Its centers ``z``, (N, D), are features."""
    particles = [_process(process, whole=whole) for process in posterior.processes]
    mixture, prior = {"weights": posterior.weights.tolist(), "particles": particles}, posterior.leading.prior
    if prior is None:
        return {**mixture, "prior": None}
    used = np.flatnonzero(prior.weights)
    centers, weights = encoded(prior.z[used]), encoded(prior.weights[used])
    values = prior.kernel.values.tolist()
    return {**mixture, "prior": {"values": values, "z": centers, "weights": weights, "offset": prior.offset}}


def _process(process: Process, *, whole: bool) -> dict[str, Any]:
    added = process.noise + process.known_variances + process.factor.jitter
    return {
        "values": process.kernel.values.tolist(),
        "alpha": encoded(process.alpha),
        "added": encoded(added),
        "targets": encoded(process.factor.factor @ process.whitened) if whole else None,
    }


def variance_rows(process: Process, most: int) -> NDArray[np.intp] | None:
    """The rows to factor if there are more than ``most``: half of them the best ones, the others spread over the rest.

    None means all rows. Rows that failed say nothing about values and are left out first.
    """
    if process.n <= most:
        return None
    useful = np.flatnonzero(process.rows.informative)
    targets = np.where(np.isnan(process.targets), -np.inf, process.targets)  # pending rows lower the variance too
    order = useful[np.argsort(targets[useful], kind="stable")]
    best, rest = order[: most // 2], np.sort(order[most // 2 :])
    wanted = min(most - len(best), len(rest))
    return np.sort(np.concatenate((best, rest[np.linspace(0, len(rest) - 1, wanted).round().astype(np.intp)])))


@one_thread()
def widening(predictor: Predictor, rows: NDArray[np.intp]) -> float:
    """How much wider the intervals are with these rows alone, as a median over random points: 0.02 means 2 %."""
    process, space = predictor.posterior.leading, predictor.space
    part = Process(process.kernel, process.noise)
    targets = np.where(np.isnan(process.targets[rows]), 0.0, process.targets[rows])
    part.append(process.X[rows], targets, variance=process.known_variances[rows])
    points = space.points.as_rows(space.points.sample(np.random.default_rng(0), SAMPLE))
    whole, less = process.posterior(points).variance, part.posterior(points).variance
    return float(np.median(np.sqrt(less / np.maximum(whole, predictor.widths()["minDeviation"] ** 2))) - 1.0)


def encoded(numbers: Array) -> str:
    """Doubles as base64."""
    return base64.b64encode(np.ascontiguousarray(numbers, dtype="<f8").tobytes()).decode("ascii")
