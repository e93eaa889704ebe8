"""The model of a study as plain data for JSON: what a program without lazybo needs to predict as `Optimizer.predict`.

======  ===================================================================  ========
symbol  meaning                                                              shape
======  ===================================================================  ========
X       points of all rows, which all outputs share; NaN: inactive           (n, d)
θ       the parameters of an output's kernel                                 (p,)
α       K⁻¹ t, the weights of the rows; 0 where pending                      (n,)
m       prior mean, 0 unless there are earlier studies (`model.prior_mean`)
t       targets minus m; of pending rows those that make their weights 0     (n,)
v       what K has on its diagonal beside k(x, x): noise and jitter          (n,)
S       the rows that the variance is computed from                          (m,)
======  ===================================================================  ========

The mean at u is m(u) + k(u, X) α, and the variance needs the factor L of K. It does not travel, since it has n²/2
numbers: whoever reads the data factors K again, O(m³). With L the mean is m(u) + (L⁻¹ k)ᵀ L⁻¹ t, as in
`Process.posterior`, and k(u, X) α is the same with larger rounding errors, for as long as there is no factor.

If there are more than `EXACT_ROWS` rows, only some of them (S) are factored, and there is no t. The mean is still that
of all rows. The variance is that of a model that has seen only S, so intervals are too wide and never too narrow.
`widening` says by how much.

Arrays are base64 of little-endian doubles.
"""

import base64
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from optuna.distributions import CategoricalDistribution, IntDistribution

from lazybo.core.blas import one_thread
from lazybo.core.checks import Array
from lazybo.gp.kernels.base import PriorMean
from lazybo.gp.posterior import NO_VALUE
from lazybo.gp.process import Process
from lazybo.search.acquisition import MIN_STD
from lazybo.search.optimizer import Optimizer
from lazybo.search.prediction import HALF_WIDTH, Limit, Predictor
from lazybo.space.space import Space

# More rows than this are not all factored by a reader: a browser takes seconds and tens of megabytes for them.
EXACT_ROWS = 2000
# Points at which `widening` is measured.
SAMPLE = 256


@one_thread()
def portable_model(
    optimizer: Optimizer, names: Sequence[str], predictors: Sequence[Predictor], most: int = EXACT_ROWS
) -> dict[str, Any]:
    """The models of all objectives, of the measured constraints and of success, as plain data for JSON.

    ``predictors`` are those of the objectives, with their ``names``. At most ``most`` rows are used for variances.
    """
    limits, success = optimizer.limits()
    first = predictors[0].process
    rows = variance_rows(first, most)
    return {
        "parameters": portable_parameters(optimizer.space),
        "halfWidth": HALF_WIDTH,
        "minDeviation": MIN_STD,
        "kernel": first.kernel.name,
        "columns": [
            {"categories": c.categories, "conditional": c.conditional, "label": c.is_label}
            for c in first.kernel.columns
        ],
        "x": encoded(first.X),
        "rows": None if rows is None else rows.tolist(),
        "widening": None if rows is None else widening(predictors[0], rows),
        "objectives": [_objective(*pair, whole=rows is None) for pair in zip(names, predictors, strict=True)],
        "constraints": [{"name": name, **_limit(each, whole=rows is None)} for name, each in limits.items()],
        "success": None if success is None else _limit(success, whole=rows is None),
    }


def portable_parameters(space: Space) -> list[dict[str, Any]]:
    """The parameters that can vary, in the order of the columns of X."""
    return [_parameter(space, name) for name in space.names]


def _parameter(space: Space, name: str) -> dict[str, Any]:
    """A parameter: its values, and ``needs``: when it is active (`active_if`)."""
    distribution = space.distributions[name]
    needs = active_if(space, name)
    if isinstance(distribution, CategoricalDistribution):
        return {"name": name, "kind": "choice", "choices": [str(each) for each in distribution.choices], "needs": needs}
    levels = float(space.levels[space.names.index(name)])
    return {
        "name": name,
        "kind": "whole" if isinstance(distribution, IntDistribution) else "number",
        "low": distribution.low,  # type: ignore[attr-defined]
        "high": distribution.high,  # type: ignore[attr-defined]
        "step": distribution.step,  # type: ignore[attr-defined]
        "log": distribution.log,  # type: ignore[attr-defined]
        "levels": levels if math.isfinite(levels) else None,
        "needs": needs,
    }


def active_if(space: Space, name: str) -> list[tuple[int, list[float]]]:
    """The columns of all parents of a parameter that can vary, each with the coordinates for which it is active."""
    needs = []
    while name in space.conditions:
        condition = space.conditions[name]
        if condition.parent in space.names:  # a parent with one value always has it
            needs.append((space.names.index(condition.parent), space.places(condition)))
        name = condition.parent
    return needs


def _objective(name: str, predictor: Predictor, *, whole: bool) -> dict[str, Any]:
    warping = predictor.warping
    fields = ("exponent", "middle", "width", "power", "shift", "scale")
    return {
        "name": name,
        "sign": predictor.sign,
        "warping": {field: getattr(warping, field) for field in fields},
        **_process(predictor.process, whole=whole),
    }


def _limit(limit: Limit, *, whole: bool) -> dict[str, Any]:
    return {"threshold": limit.threshold, **_process(limit.process, whole=whole)}


def _process(process: Process, *, whole: bool) -> dict[str, Any]:
    added = process.noise + process.known_variances + process.factor.jitter
    return {
        "values": process.kernel.values.tolist(),
        "alpha": encoded(process.alpha),
        "added": encoded(added),
        "targets": encoded(process.factor.factor @ process.whitened) if whole else None,
        "prior": None if process.prior is None else _prior(process.prior),
    }


def _prior(prior: PriorMean) -> dict[str, Any]:
    """m: ``z`` are the features of its centers, (N, D), in units of its own length scales."""
    used = np.flatnonzero(prior.weights)
    return {
        "values": prior.kernel.values.tolist(),
        "z": encoded(prior.z[used]),
        "weights": encoded(prior.weights[used]),
        "offset": prior.offset,
    }


def variance_rows(process: Process, most: int) -> NDArray[np.intp] | None:
    """The rows to factor if there are more than ``most``: half of them the best ones, the others spread over the rest.

    None means all rows. Rows that failed say nothing about values and are left out first.
    """
    if process.n <= most:
        return None
    useful = np.flatnonzero(process.known_variances < NO_VALUE)
    targets = np.where(np.isnan(process.targets), -np.inf, process.targets)  # pending rows lower the variance too
    order = useful[np.argsort(targets[useful], kind="stable")]
    best, rest = order[: most // 2], np.sort(order[most // 2 :])
    wanted = min(most - len(best), len(rest))
    return np.sort(np.concatenate((best, rest[np.linspace(0, len(rest) - 1, wanted).round().astype(np.intp)])))


@one_thread()
def widening(predictor: Predictor, rows: NDArray[np.intp]) -> float:
    """How much wider the intervals are by these rows alone, as a median over random points: 0.02 means 2 %."""
    process, space = predictor.process, predictor.space
    part = Process(process.kernel, process.noise)
    targets = np.where(np.isnan(process.targets[rows]), 0.0, process.targets[rows])
    part.append(process.X[rows], targets, variance=process.known_variances[rows])
    points = space.as_rows(space.sample(np.random.default_rng(0), SAMPLE))
    whole, less = process.posterior(points).variance, part.posterior(points).variance
    return float(np.median(np.sqrt(less / np.maximum(whole, MIN_STD**2))) - 1.0)


def encoded(numbers: Array) -> str:
    """Doubles as base64."""
    return base64.b64encode(np.ascontiguousarray(numbers, dtype="<f8").tobytes()).decode("ascii")


def decoded(text: str, width: int | None = None) -> Array:
    """The inverse of `encoded`, (n,) or (n, width)."""
    numbers = np.frombuffer(base64.b64decode(text), dtype="<f8").astype(np.float64)
    return numbers if width is None else numbers.reshape(-1, width)
