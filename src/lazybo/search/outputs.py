"""The surrogates of all outputs: one for each objective and each measured constraint, one for failures and the cost.

All of them have the same rows. Each has its own kernel, noise and warping, and its own factor: q outputs cost q times
O(n²) a step. A constraint that an evaluation did not measure is pending in the surrogate of that constraint, and so is
a cost that is not known. Where evaluations fail is learned once one has failed (`lazybo.search.failures`).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from lazybo.core.checks import Array, shortened
from lazybo.gp.earlier import EarlierTasks
from lazybo.gp.process import Process
from lazybo.gp.targets import scaling
from lazybo.search.acquisition import (
    Acquisition,
    Judge,
    automatic,
    confidence_bound,
    expected_improvement,
    log_confidence_bound,
    log_expected_improvement,
)
from lazybo.search.failures import LABELS, caution, chance_of_success, threshold_of
from lazybo.search.hypervolume import MOST_OBJECTIVES, HypervolumeImprovement, non_dominated
from lazybo.search.joint import ChebyshevImprovement, constrained, feasibility, improvement, per_cost, widened
from lazybo.search.landscape import Landscape, Layer
from lazybo.search.maxima import BEST_CENTERS
from lazybo.search.observations import Observations
from lazybo.search.prediction import Limit
from lazybo.search.results import State
from lazybo.search.surrogate import Fitted, Surrogate
from lazybo.search.views import Constraint, Cost, Objective, Outcomes, Rows
from lazybo.space.feasible import FeasibleSet
from lazybo.space.space import Space

Index: TypeAlias = NDArray[np.intp]

# Points of the front around which the search starts.
FRONT_CENTERS = 8
# A reference point is beyond the worst value by this share of the front's extent.
REFERENCE_MARGIN = 0.1
# The weight of log P(feasible) once something is feasible. With 2, more trials near an active constraint are feasible
# than with 1, and the best one is as good (docs/constraints.md).
CAUTION = 2.0
# Acquisitions that have the same maxima and are logarithms, for the logarithm of the cost.
AS_LOGARITHM: dict[Acquisition, Acquisition] = {
    expected_improvement: log_expected_improvement,
    confidence_bound: log_confidence_bound,
}
# If the end of the search is not known: up to this suggestion the cost has its full weight, later as 1/√k.
FULL_WEIGHT = 5
# How often the far reference point is used, and the factor of the standard deviations then.
FAR_SHARE = 0.25
WIDENING = 2.0


class Learned(NamedTuple):
    """What the surrogates have learned; None: nothing yet."""

    objectives: list[Fitted]
    constraints: dict[str, Fitted]
    failures: Fitted | None
    cost: Fitted | None


class Outputs:
    """The surrogates of all outputs, kept in sync with the observations.

    ``earlier`` has, for each objective, the earlier tasks that it is compared with.
    """

    def __init__(
        self,
        space: Space,
        observations: Observations,
        earlier: Sequence[EarlierTasks | None],
        make: Callable[..., Surrogate],
        known: FeasibleSet | None = None,
        make_cost: Callable[[Rows], Surrogate] | None = None,
    ) -> None:
        self._space, self._observations, self._make = space, observations, make
        self._known = known
        self.objectives = [make(Objective(observations, j), earlier=tasks) for j, tasks in enumerate(earlier)]
        self._constraints: dict[str, Surrogate] = {}
        self._failures: Surrogate | None = None
        self.cost = None if make_cost is None else make_cost(Cost(observations))
        self.budget_left: float | None = None
        self._prior = Learned(
            [each.fitted for each in self.objectives], {}, None, None if self.cost is None else self.cost.fitted
        )

    @property
    def cost_weight(self) -> float:
        """α: the share of the budget that is left, or as if it were, if nobody knows when the search ends."""
        if self.budget_left is not None:
            return self.budget_left
        return min(1.0, math.sqrt(FULL_WEIGHT / (1 + len(self._observations))))

    @property
    def constraints(self) -> dict[str, Surrogate]:
        """The surrogates of the constraints that were measured, by name, in alphabetical order."""
        return {name: self._constraint(name) for name in self._observations.constraints}

    def _constraint(self, name: str) -> Surrogate:
        if name not in self._constraints:
            self._constraints[name] = self._make(Constraint(self._observations, name))
        return self._constraints[name]

    @property
    def failures(self) -> Surrogate | None:
        """The surrogate of the labels that say which evaluations failed; None if none has."""
        return self._labels() if len(self._observations.rows(State.FAILED)) else None

    def _labels(self) -> Surrogate:
        if self._failures is None:
            view = Outcomes(self._observations)
            self._failures = self._make(view, make_warping=scaling, priors=LABELS, noise=None)
        return self._failures

    def _all(self) -> list[Surrogate]:
        others = [each for each in (self._failures, self.cost) if each is not None]
        return [*self.objectives, *self._constraints.values(), *others]

    def sync(self) -> None:
        """Learn what is due, and update the processes of all outputs, as the next suggestion needs them."""
        for surrogate in [*self.objectives, *self.constraints.values()]:
            surrogate.sync()
        if self.failures is not None:
            self.failures.sync()
        self._synced_cost()

    def remove(self, row: int) -> None:
        """Take a row that is removed from the observations out of every process."""
        for surrogate in self._all():
            surrogate.remove(row)

    def release(self) -> None:
        """Give the memory of all processes back. The next use builds them again."""
        for surrogate in self._all():
            surrogate.release()

    @contextmanager
    def without_changes(self) -> Iterator[None]:
        """Undo at the end what this block learns."""
        before = dict(self._constraints), self._failures
        try:
            with ExitStack() as stack:
                for surrogate in self._all():
                    stack.enter_context(surrogate.without_changes())
                yield
        finally:
            self._constraints, self._failures = before

    # ----------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """What was learned, as plain data for JSON: that of the first objective, and of the others where there are."""
        first, *others = (surrogate.fitted.state() for surrogate in self.objectives)
        constraints = {name: each.fitted.state() for name, each in sorted(self._constraints.items())}
        return {
            **first,
            **({"others": others} if others else {}),
            **({"constraints": constraints} if constraints else {}),
            **({} if self._failures is None else {"failures": self._failures.fitted.state()}),
            **({} if self.cost is None else {"cost": self.cost.fitted.state()}),
        }

    def parse(self, state: Mapping[str, Any]) -> Learned:
        """The inverse of `state`. States of earlier versions have no failures: where they are is learned anew."""
        if not isinstance(state, Mapping):
            raise ValueError(f"it must be a mapping, not {shortened(state)}")
        states = [state, *state.get("others", [])]
        if len(states) != len(self.objectives):
            raise ValueError(f"it is of {len(states)} objectives, not {len(self.objectives)}")
        objectives = [each.fitted.parse(part) for each, part in zip(self.objectives, states, strict=True)]
        new = self._make(Objective(self._observations, 0)).fitted
        constraints = {name: new.parse(part) for name, part in state.get("constraints", {}).items()}
        failures = new.parse(state["failures"]) if "failures" in state else None
        # What was learned of the cost may be of a run with this option, and this one is without it, or the reverse.
        cost = self.cost.fitted.parse(state["cost"]) if self.cost is not None and "cost" in state else None
        return Learned(objectives, constraints, failures, cost)

    def restore(self, learned: Learned) -> None:
        """Continue with what was learned before."""
        for surrogate, fitted in zip(self.objectives, learned.objectives, strict=True):
            surrogate.restore(fitted)
        for name, fitted in learned.constraints.items():
            self._constraint(name).restore(fitted)
        if learned.failures is not None:
            self._labels().restore(learned.failures)
        if self.cost is not None and learned.cost is not None:
            self.cost.restore(learned.cost)

    def learn_anew(self) -> None:
        """Forget all that was learned. The next use learns from all observations."""
        self._constraints, self._failures = {}, None
        self.restore(self._prior)

    # ---------------------------------------------------------------- search

    def expects_feasible(self, points: Array) -> NDArray[np.bool_]:
        """Whether each measured constraint, and success, has a chance of at least one half at these points, (m,)."""
        expected = np.ones(len(points), dtype=bool)
        for surrogate in self.constraints.values():
            expected &= surrogate.sync().mean(points) <= surrogate.warping(np.zeros(1))
        return expected & (self.success_chance(points) >= 0.5)

    def success_chance(self, points: Array) -> Array:
        """P(success) at these points, (m,); 1 if no evaluation has failed."""
        return np.ones(len(points)) if self.failures is None else chance_of_success(self.failures, points)

    def feasible_chance(self, points: Array) -> Array:
        """The probability that all measured constraints hold at these points, (m,); 1 where there are none."""
        surrogates = list(self.constraints.values())
        if not surrogates:
            return np.ones(len(points))
        posteriors = [each.sync().posterior(self._space.as_rows(points)) for each in surrogates]
        judge = feasibility([float(each.warping(np.zeros(1))[0]) for each in surrogates])
        means, variances = zip(*posteriors, strict=True)
        return np.exp(judge(np.array(means), np.sqrt(variances)).value)

    def limits(self) -> dict[str, Limit]:
        """The measured constraints, by name. The product of their chances is `feasible_chance`."""
        return {
            name: Limit(each.sync(), float(each.warping(np.zeros(1))[0])) for name, each in self.constraints.items()
        }

    def success(self) -> Limit | None:
        """What `success_chance` is the chance of; None if no evaluation has failed."""
        return None if self.failures is None else Limit(self.failures.sync(), threshold_of(self.failures))

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
        cost = self._synced_cost()
        points = self.objectives[0].pool(seed).points
        chance = feasibility([float(each.surrogate.warping(np.zeros(1))[0]) for each in constraints])
        feasible = self._observations.feasible(forecasts=True)
        if constraints and not feasible.any():
            return self._landscape(constraints, chance, cost, points), self._least_violation(constraints)
        if (constraints or self.failures) and acquisition is expected_improvement:
            acquisition = log_expected_improvement  # has the same maxima, and is a logarithm as the constraints are
        if acquisition is automatic and self.objectives[0].fitted.is_noisy and not constraints:
            acquisition = confidence_bound
        if cost is not None:
            acquisition = AS_LOGARITHM.get(acquisition, acquisition)
        judge, rows = _judge_of(objectives, feasible, self.inside, acquisition, rng)
        if constraints:
            judge = constrained(judge, len(objectives), chance, CAUTION)
        return self._landscape([*objectives, *constraints], judge, cost, points), rows

    def _synced_cost(self) -> "_Synced | None":
        """The surrogate of the cost, if it counts and any cost is known."""
        if self.cost is None or self.cost_weight == 0.0 or not len(Cost(self._observations).rows(State.COMPLETE)):
            return None
        return _Synced(self.cost, self.cost.sync())

    def _landscape(
        self, outputs: Sequence["_Synced"], judge: Judge, cost: "_Synced | None", points: Array
    ) -> Landscape:
        """The acquisition of some outputs; plus c log P(success) if any evaluation has failed, and per cost."""
        outputs, failures = list(outputs), self.failures
        if failures is not None:
            labels, weight = _Synced(failures, failures.sync()), caution(Outcomes(self._observations).values)
            judge = constrained(judge, len(outputs), feasibility([threshold_of(failures)]), weight)
            outputs.append(labels)
        if cost is not None:
            # The process has log cost in units of its warping, which is linear.
            judge = per_cost(judge, self.cost_weight * float(np.exp(-cost.surrogate.warping.log_slope)))
            outputs.append(cost)
        return Landscape([each.layer(points) for each in outputs], judge)

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
