"""The surrogates of all outputs: one for each objective and one for each measured constraint.

All of them have the same rows. Each has its own kernel, noise and warping, and its own factor: q outputs cost q times
O(n²) a step. A constraint that an evaluation did not measure is pending in the surrogate of that constraint.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.checks import Array, shortened
from lazybo.model.process import Process
from lazybo.search.acquisition import (
    Acquisition,
    Judge,
    automatic,
    confidence_bound,
    expected_improvement,
    log_expected_improvement,
)
from lazybo.search.feasible_set import FeasibleSet
from lazybo.search.hypervolume import MOST_OBJECTIVES, HypervolumeImprovement, non_dominated
from lazybo.search.joint import ChebyshevImprovement, constrained, feasibility, improvement, widened
from lazybo.search.landscape import Landscape, Layer
from lazybo.search.maxima import BEST_CENTERS
from lazybo.search.observations import Constraint, Objective, Observations, Rows
from lazybo.search.space import Space
from lazybo.search.surrogate import Fitted, Surrogate

Index: TypeAlias = NDArray[np.intp]

# Points of the front around which the search starts.
FRONT_CENTERS = 8
# A reference point is beyond the worst value by this share of the front's extent.
REFERENCE_MARGIN = 0.1
# The weight of log P(feasible) once something is feasible. With 2, more trials near an active constraint are feasible
# than with 1, and the best one is as good (docs/constraints.md).
CAUTION = 2.0
# How often the far reference point is used, and the factor of the standard deviations then.
FAR_SHARE = 0.25
WIDENING = 2.0


class Outputs:
    """The surrogates of all outputs, kept in sync with the observations."""

    def __init__(
        self,
        space: Space,
        observations: Observations,
        objectives: int,
        make: Callable[[Rows], Surrogate],
        known: FeasibleSet | None = None,
    ) -> None:
        self._space, self._observations, self._make = space, observations, make
        self._known = known
        views = [observations] if objectives == 1 else [Objective(observations, j) for j in range(objectives)]
        self.objectives = [make(view) for view in views]
        self._constraints: dict[str, Surrogate] = {}

    @property
    def constraints(self) -> dict[str, Surrogate]:
        """The surrogates of the constraints that were measured, by name, in alphabetical order."""
        return {name: self._constraint(name) for name in self._observations.constraints}

    def _constraint(self, name: str) -> Surrogate:
        if name not in self._constraints:
            self._constraints[name] = self._make(Constraint(self._observations, name))
        return self._constraints[name]

    def _all(self) -> list[Surrogate]:
        return [*self.objectives, *self._constraints.values()]

    def cut(self, row: int) -> None:
        """Remove this row and all later ones from every process; the next use appends them again."""
        for surrogate in self._all():
            surrogate.cut(row)

    @contextmanager
    def without_changes(self) -> Iterator[None]:
        """Undo at the end what this block learns."""
        before = dict(self._constraints)
        try:
            with ExitStack() as stack:
                for surrogate in self._all():
                    stack.enter_context(surrogate.without_changes())
                yield
        finally:
            self._constraints = before

    # ----------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """What was learned, as plain data for JSON: that of the first objective, and of the others where there are."""
        first, *others = (surrogate.fitted.state() for surrogate in self.objectives)
        constraints = {name: each.fitted.state() for name, each in sorted(self._constraints.items())}
        return {
            **first,
            **({"others": others} if others else {}),
            **({"constraints": constraints} if constraints else {}),
        }

    def parse(self, state: Mapping[str, Any]) -> tuple[list[Fitted], dict[str, Fitted]]:
        """The inverse of `state`."""
        if not isinstance(state, Mapping):
            raise ValueError(f"it must be a mapping, not {shortened(state)}")
        states = [state, *state.get("others", [])]
        if len(states) != len(self.objectives):
            raise ValueError(f"it is of {len(states)} objectives, not {len(self.objectives)}")
        objectives = [each.fitted.parse(part) for each, part in zip(self.objectives, states, strict=True)]
        new = self._make(self._observations).fitted
        return objectives, {name: new.parse(part) for name, part in state.get("constraints", {}).items()}

    def restore(self, objectives: list[Fitted], constraints: Mapping[str, Fitted]) -> None:
        """Continue with what was learned before."""
        for surrogate, fitted in zip(self.objectives, objectives, strict=True):
            surrogate.restore(fitted)
        for name, fitted in constraints.items():
            self._constraint(name).restore(fitted)

    # ---------------------------------------------------------------- search

    def expects_feasible(self, points: Array) -> NDArray[np.bool_]:
        """Whether each measured constraint holds at these points with a chance of at least one half, (m,)."""
        expected = np.ones(len(points), dtype=bool)
        for surrogate in self.constraints.values():
            expected &= surrogate.sync().mean(points) <= surrogate.warping(np.zeros(1))
        return expected

    def feasible_chance(self, points: Array) -> Array:
        """The probability that all measured constraints hold at these points, (m,); 1 where there are none."""
        surrogates = list(self.constraints.values())
        if not surrogates:
            return np.ones(len(points))
        posteriors = [each.sync().posterior(self._space.as_rows(points)) for each in surrogates]
        judge = feasibility([float(each.warping(np.zeros(1))[0]) for each in surrogates])
        means, variances = zip(*posteriors, strict=True)
        return np.exp(judge(np.array(means), np.sqrt(variances)).value)

    def inside(self, rows: Index, enough: int | None = None) -> Index:
        """Which of these rows satisfy the known constraint, as indices of ``rows``; all of them if none does.

        Results that were observed may lie outside. Later rows may be left out once there are ``enough``.
        """
        everything = np.arange(len(rows))
        if self._known is None or self._space.dim == 0:
            return everything
        kept = everything[:0]
        for count in (len(rows) if enough is None else 4 * enough, len(rows)):
            points = self._space.clip(self._observations.points(rows[:count]))
            kept = np.flatnonzero(self._known.contains(points))
            if enough is None or len(kept) >= enough:
                break
        return kept if len(kept) else everything

    def landscape(self, seed: int, rng: np.random.Generator, acquisition: Acquisition) -> tuple[Landscape, Index]:
        """The acquisition that the next point maximises, and the rows around which it is searched."""
        objectives = [_Synced(each, each.sync()) for each in self.objectives]
        constraints = [_Synced(each, each.sync()) for each in self.constraints.values()]
        points = self.objectives[0].pool(seed).points
        chance = feasibility([float(each.surrogate.warping(np.zeros(1))[0]) for each in constraints])
        feasible = self._observations.feasible()
        if constraints and not feasible.any():
            return Landscape([each.layer(points) for each in constraints], chance), self._least_violation(constraints)
        if constraints and acquisition is expected_improvement:
            acquisition = log_expected_improvement  # has the same maxima, and is a logarithm as the constraints are
        if acquisition is automatic and self.objectives[0].fitted.is_noisy and not constraints:
            acquisition = confidence_bound
        judge, rows = _judge_of(objectives, feasible, self.inside, acquisition, rng)
        if constraints:
            judge = constrained(judge, len(objectives), chance, CAUTION)
        return Landscape([each.layer(points) for each in (*objectives, *constraints)], judge), rows

    def doubtful(self) -> bool:
        """Whether an objective's surrogate has found noise that no repeated evaluation has shown."""
        return any(each.doubtful() for each in self.objectives)

    def _least_violation(self, constraints: Sequence["_Synced"]) -> Index:
        """The rows that are nearest to feasible, by the sum of what the model expects beyond the thresholds."""
        excess = np.zeros(len(self._observations))
        for each in constraints:
            threshold = each.surrogate.warping(np.zeros(1))
            excess += np.maximum(each.means(len(excess)) - threshold, 0.0)
        measured = np.flatnonzero(~np.isnan(excess))
        measured = measured[np.argsort(excess[measured], kind="stable")]
        return measured[self.inside(measured, BEST_CENTERS)[:BEST_CENTERS]]


class _Synced(NamedTuple):
    """A surrogate, and its process with all rows."""

    surrogate: Surrogate
    process: Process

    def layer(self, points: Array) -> Layer:
        """The process with a pool of these points."""
        return Layer(self.process, self.surrogate.pool_at(points), self.surrogate.fitted.built_rows)

    def means(self, n: int) -> Array:
        """The values without noise of all rows, NaN where there is none, (n,)."""
        found = np.full(n, np.nan)
        rows, means = self.surrogate.denoised(self.process)
        found[rows] = means
        return found


def _judge_of(
    objectives: Sequence[_Synced],
    feasible: NDArray[np.bool_],
    inside: Callable[..., Index],
    acquisition: Acquisition,
    rng: np.random.Generator,
) -> tuple[Judge, Index]:
    """The acquisition of the objectives, and the rows of the best observations: only feasible ones count.

    ``inside`` is `Outputs.inside`.
    """
    if len(objectives) == 1:
        rows, means = objectives[0].surrogate.denoised(objectives[0].process)
        rows, means = rows[feasible[rows]], means[feasible[rows]]
        kept = inside(rows, BEST_CENTERS)
        return improvement(acquisition, float(means[kept[0]])), rows[kept[:BEST_CENTERS]]
    rows = np.flatnonzero(feasible)
    rows = rows[inside(rows)]
    values = np.column_stack([each.means(len(feasible))[rows] for each in objectives])
    on_front = non_dominated(values)
    front, rows = values[on_front], rows[on_front]
    if len(rows) > FRONT_CENTERS:
        rows = rows[np.sort(rng.choice(len(rows), FRONT_CENTERS, replace=False))]
    if len(objectives) <= MOST_OBJECTIVES:
        far = bool(rng.random() < FAR_SHARE)
        judge = HypervolumeImprovement(front, reference_point(front, values, far))
        return widened(judge, WIDENING) if far else judge, rows
    return ChebyshevImprovement(front, rng.dirichlet(np.ones(len(objectives)))), rows


def reference_point(front: Array, values: Array, far: bool) -> Array:
    """The reference point of the hypervolume, (q,), for a front of these values, (n, q).

    A near one is as far beyond the worst value on the front as the front extends in that objective. It fills the front,
    but a part of the front that is longer than what is known may stay beyond it. A far one is the worst of all values:
    nothing is beyond it, but extreme points gain more than those between. A share of suggestions uses it, at random.
    """
    worst, extent = front.max(axis=0), np.ptp(front, axis=0)
    extent = np.where(extent > 0, extent, np.ptp(values, axis=0))
    extent = np.where(extent > 0, extent, 1.0)
    farthest = np.maximum(values.max(axis=0), worst) + REFERENCE_MARGIN * extent
    return farthest if far else np.minimum(worst + extent, farthest)
