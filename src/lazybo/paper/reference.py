"""The paper's loop with the search of its own program: random candidates and a few climbs on expected improvement.

Our search samples around the best observations and climbs on the logarithm of expected improvement. The paper's program
draws 10,000 points, climbs from 10 more, and takes the best. It searches less near the best observation.
Whether the paper's table depends on that is an experiment: ``lazybo paper levy --methods lazy-random,naive-random``.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from optuna.distributions import FloatDistribution
from scipy.optimize import minimize

from lazybo.core.checks import Array
from lazybo.gp.fit import is_due, learn
from lazybo.gp.lazy_gp import LazyGP
from lazybo.gp.targets import WARPINGS, Targets
from lazybo.paper.presets import XI
from lazybo.search.acquisition import expected_improvement
from lazybo.search.optimizer import Suggestion
from lazybo.search.queries import Best

CANDIDATES = 10_000
STARTS = 10
# Expected improvement is exactly 0 in doubles for z = γ/σ below about -38.6; σ is at most 1 here.
UNDERFLOW = 39.0


class Reference:
    """Ask, tell and observe like `lazybo.Optimizer`, with the paper's search; maximises."""

    def __init__(self, space: Mapping[str, FloatDistribution], options: Mapping[str, Any], seed: int) -> None:
        self._names = list(space)
        self._low = np.array([d.low for d in space.values()])
        self._width = np.array([d.high - d.low for d in space.values()])
        self._lag, self._priors = options["lag"], options["priors"]
        warp = WARPINGS[options["value_transform"]]

        def transform(y: Array) -> Targets:
            warping = warp(y)
            shift, above = warping.inverse(np.array([0.0, 1.0]))  # both of the paper's warpings are linear
            return Targets(warping(y), float(shift), float(above - shift))

        self._gp = LazyGP(options["kernel"], options["noise"], transform=transform)
        self._rng = np.random.default_rng((seed, 2))
        self._learned_at = 0
        self._asked: dict[int, Array] = {}

    def observe(self, params: Mapping[str, float], value: float) -> None:
        """Add a result that was not asked for."""
        self._append((np.array([params[name] for name in self._names]) - self._low) / self._width, value)

    def tell(self, suggestion: Suggestion, value: float) -> None:
        """Add the value of a suggestion."""
        self._append(self._asked.pop(suggestion.number), value)

    def ask(self) -> Suggestion:
        """Suggest the point with the largest expected improvement that the search finds."""
        if is_due(self._lag, self._learned_at, self._gp.n):
            learn(self._gp, self._priors)
            self._learned_at = self._gp.n
        x = self._search()
        number = self._gp.n
        self._asked[number] = x
        return Suggestion(number, dict(zip(self._names, map(float, self._low + x * self._width), strict=True)))

    @property
    def best(self) -> Best:
        """The best value observed or told."""
        row = int(np.argmin(self._gp.y))
        values = map(float, self._low + self._gp.X[row] * self._width)
        return Best(dict(zip(self._names, values, strict=True)), (-float(self._gp.y[row]),), None)

    def _append(self, x: Array, value: float) -> None:
        self._gp.append(x[None], [-value])  # internally, values are minimised

    def _search(self) -> Array:
        candidates = self._rng.random((CANDIDATES, len(self._names)))
        values = self._improvement(candidates)
        x, best = candidates[int(np.argmax(values))], float(values.max())
        box = [(0.0, 1.0)] * len(self._names)
        for start in self._rng.random((STARTS, len(self._names))):
            found = minimize(self._negative, start, jac=True, method="L-BFGS-B", bounds=box)
            if -found.fun > best:
                x, best = np.clip(found.x, 0.0, 1.0), -float(found.fun)
        return x

    def _improvement(self, points: Array) -> Array:
        """Expected improvement in units of the targets, (m,). Points where it underflows to 0 skip the variance."""
        _, shift, scale = self._gp.targets
        incumbent = (float(self._gp.y.min()) - shift) / scale
        mean = self._gp.process.mean(points)
        near = np.flatnonzero(incumbent - mean - XI > -UNDERFLOW)
        values = np.zeros(len(points))
        if len(near):
            variance = self._gp.posterior(points[near]).variance / scale / scale
            values[near] = expected_improvement(mean[near], np.sqrt(variance), incumbent, XI).value
        return values

    def _negative(self, x: Array) -> tuple[float, Array]:
        """-EI and its gradient at one point."""
        _, shift, scale = self._gp.targets
        incumbent = (float(self._gp.y.min()) - shift) / scale
        p = self._gp.posterior_gradient(x[None])
        std = np.sqrt(np.maximum(p.variance, 1e-18)) / scale
        found = expected_improvement((p.mean - shift) / scale, std, incumbent, XI)
        slope = found.by_mean[0] * p.mean_gradient[0] / scale
        slope += found.by_std[0] * p.variance_gradient[0] / (2 * std[0] * scale * scale)
        return -float(found.value[0]), -slope
