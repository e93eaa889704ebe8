"""The models of all outputs: one for each objective and measured constraint, one for failures and one for the cost.

All of them have the same rows. Each has its own kernel, noise and warping, and its own factor: q outputs cost q times
O(n²) a step. A constraint that an evaluation did not measure is pending in its model, and so is a cost that is not
known. Where evaluations fail is learned once one has failed.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lazybo.core import Array, checks
from lazybo.gp import EarlierTasks, Fitted
from lazybo.search.acquisition import (
    Acquisition,
    ChebyshevImprovement,
    Function,
    Joint,
    averaged,
    constrained,
    feasibility,
    improvement,
    per_cost,
    widened,
)
from lazybo.search.hypervolume import MOST_OBJECTIVES, HypervolumeImprovement, non_dominated
from lazybo.search.maximise import BEST_CENTERS, Surface, Term
from lazybo.search.output import Constraint, Cost, FailureLabels, Learning, Objective, Output
from lazybo.search.records import Index, Records
from lazybo.search.results import State
from lazybo.search.surrogate import Current, Surrogate
from lazybo.space import FeasibleSet, Space

# Points of the front around which the search starts.
FRONT_CENTERS = 8
# A reference point is beyond the worst value by this share of the front's extent.
REFERENCE_MARGIN = 0.1
# The weight of log P(feasible) once something is feasible. With 2, more trials near an active constraint are feasible
# than with 1, and the best one is as good (docs/constraints.md).
CAUTION = 2.0
# If the end of the search is not known: up to this suggestion the cost has its full weight, later as 1/√k.
FULL_WEIGHT = 5
# How often the far reference point is used.
FAR_SHARE = 0.25


class Models:
    """The models of all outputs of some records. ``earlier`` has, for each objective, what earlier studies say."""

    def __init__(
        self,
        space: Space,
        records: Records,
        learning: Learning,
        earlier: Sequence[EarlierTasks | None],
        feasible: FeasibleSet | None,
        *,
        has_cost: bool,
    ) -> None:
        self._space, self._records, self._learning, self._feasible = space, records, learning, feasible
        self._has_cost = has_cost
        self.budget_left: float | None = None
        self.objectives = [
            Surrogate(space, Objective(records, j), learning, feasible, tasks) for j, tasks in enumerate(earlier)
        ]
        self._others: dict[Output, Surrogate] = {}  # made when an output is first seen

    @property
    def cost_weight(self) -> float:
        """α: the share of the budget that is left, or a decaying default when no budget is known."""
        if self.budget_left is not None:
            return self.budget_left
        return min(1.0, math.sqrt(FULL_WEIGHT / (1 + len(self._records))))

    @property
    def constraints(self) -> dict[str, Surrogate]:
        """The models of the constraints that were measured, by name, in alphabetical order."""
        return {name: self._of(Constraint(self._records, name)) for name in self._records.violations}

    @property
    def failures(self) -> Surrogate | None:
        """The model of the labels that say which evaluations failed; None if none has."""
        return self._of(FailureLabels(self._records)) if len(self._records.rows(State.FAILED)) else None

    @property
    def cost(self) -> Surrogate | None:
        """The model of the cost, if it counts and any cost is known."""
        output = Cost(self._records)
        counts = self._has_cost and self.cost_weight > 0.0 and len(output.rows(State.COMPLETE))
        return self._of(output) if counts else None

    def _of(self, output: Output) -> Surrogate:
        if isinstance(output, Objective):
            return self.objectives[output.index]
        if output not in self._others:
            self._others[output] = Surrogate(self._space, output, self._learning, self._feasible)
        return self._others[output]

    def learn(self) -> None:
        """Learn what is due in the models that the next suggestion needs."""
        others = [each for each in (self.failures, self.cost) if each is not None]
        for surrogate in [*self.objectives, *self.constraints.values(), *others]:
            surrogate.learn()

    def remove(self, row: int) -> None:
        """Take a row that is removed from the records out of every process."""
        for surrogate in [*self.objectives, *self._others.values()]:
            surrogate.remove(row)

    def release(self) -> None:
        """Give the memory of all processes back. The next use builds them again."""
        for surrogate in [*self.objectives, *self._others.values()]:
            surrogate.release()

    # ----------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """What was learned, as plain data for JSON: the first objective, and whatever else has learned something."""
        first, *others = (surrogate.fitted.state() for surrogate in self.objectives)
        learned = {out: each.fitted.state() for out, each in self._others.items() if each.fitted is not each.prior}
        constraints = {out.name: state for out, state in learned.items() if isinstance(out, Constraint)}
        named = {"failures": FailureLabels(self._records), "cost": Cost(self._records)}
        return {
            **first,
            **({"others": others} if others else {}),
            **({"constraints": dict(sorted(constraints.items()))} if constraints else {}),
            **{name: learned[output] for name, output in named.items() if output in learned},
        }

    def parse(self, state: Mapping[str, Any]) -> dict[Output, Fitted]:
        """The inverse of `state`: what the model of each output has learned."""
        if not isinstance(state, Mapping):
            raise ValueError(f"it must be a mapping, not {checks.shortened(state)}")
        states = [state, *state.get("others", [])]
        if len(states) != len(self.objectives):
            raise ValueError(f"it is of {len(states)} objectives, not {len(self.objectives)}")
        parts: dict[Output, Any] = {Objective(self._records, j): part for j, part in enumerate(states)}
        parts |= {Constraint(self._records, name): part for name, part in state.get("constraints", {}).items()}
        if "failures" in state:
            parts[FailureLabels(self._records)] = state["failures"]
        # What was learned of the cost may come from a run with this option, and this one is without it, or the reverse.
        if self._has_cost and "cost" in state:
            parts[Cost(self._records)] = state["cost"]
        return {output: self._of(output).prior.parse(part) for output, part in parts.items()}

    def learned(self) -> dict[Output, Fitted]:
        """What the model of each output has learned; it is immutable."""
        return {each.output: each.fitted for each in [*self.objectives, *self._others.values()]}

    def restore(self, learned: Mapping[Output, Fitted]) -> None:
        """Continue with what was learned before. Outputs that are not there learn again."""
        self._others = {output: each for output, each in self._others.items() if output in learned}
        for output, fitted in learned.items():
            surrogate = self._of(output)
            if surrogate.fitted is not fitted:
                surrogate.restore(fitted)

    def forget(self) -> None:
        """Forget all that was learned. The next use learns from all records."""
        self.restore({each.output: each.prior for each in self.objectives})

    # ---------------------------------------------------------------- chances

    def expects_feasible(self, points: Array) -> NDArray[np.bool_]:
        """Whether each measured constraint, and success, has a chance of at least one half at these points, (m,)."""
        expected = np.ones(len(points), dtype=bool)
        for surrogate in self.constraints.values():
            now = surrogate.current()
            expected &= now.posterior.mean(points) <= now.threshold
        if self.failures is None:
            return expected
        now = self.failures.current()
        success = np.exp(averaged(feasibility([now.threshold]), [now.posterior.components(points)]))
        return expected & (success >= 0.5)

    def feasible_chance(self, points: Array) -> Array:
        """The probability that all measured constraints hold at these points, (m,); 1 where there are none."""
        models = [each.current() for each in self.constraints.values()]
        if not models:
            return np.ones(len(points))
        rows = self._space.points.as_rows(points)
        chances = [averaged(feasibility([each.threshold]), [each.posterior.components(rows)]) for each in models]
        return np.exp(np.sum(chances, axis=0))

    def inside(self, rows: Index, enough: int | None = None) -> Index:
        """Which of these rows satisfy the known constraint, as indices of ``rows``; all of them if none does.

        Results that were observed may lie outside. Later rows may be left out once there are ``enough``.
        """
        everything = np.arange(len(rows))
        if self._feasible is None or self._space.points.dim == 0:
            return everything
        kept = everything[:0]
        for count in (len(rows) if enough is None else 4 * enough, len(rows)):
            points = self._space.points.clip(self._records.points(rows[:count]))
            kept = np.flatnonzero(self._feasible.contains(points))
            if enough is None or len(kept) >= enough:
                break
        return kept if len(kept) else everything

    # ------------------------------------------------------------- acquisition

    def surface(
        self, seed: int, rng: np.random.Generator, acquisition: Acquisition, term: Term | None = None
    ) -> tuple[Surface, Index]:
        """The acquisition that the next point maximises, with a ``term``, and the rows around which it is searched."""
        failures, cost = (None if each is None else each.current() for each in (self.failures, self.cost))
        points = self.pool_points(seed)
        models, joint, rows = self._promise(acquisition, rng)
        if failures is not None:
            weight = FailureLabels(self._records).caution
            joint = constrained(joint, len(models), feasibility([failures.threshold]), weight)
            models = [*models, failures]
        if cost is not None:
            # The process has log cost in units of its warping, which is linear.
            joint = per_cost(joint, self.cost_weight * float(np.exp(-cost.warping.log_slope)))
            models = [*models, cost]
        return Surface(models[0].fitted.kernel, [each.posterior for each in models], points, joint, term), rows

    def _promise(self, acquisition: Acquisition, rng: np.random.Generator) -> tuple[list[Current], Joint, Index]:
        """The acquisition of objectives and measured constraints, the models that it needs, and the best rows."""
        objectives = [each.current() for each in self.objectives]
        constraints = [each.current() for each in self.constraints.values()]
        feasible = self._records.feasible(forecasts=True)
        chance = feasibility([each.threshold for each in constraints])
        if constraints and not feasible.any():
            return constraints, chance, self._least_violation(constraints)
        if acquisition.if_noisy is not None and objectives[0].fitted.is_noisy and not constraints:
            acquisition = acquisition.if_noisy
        joint, rows = self._improvement(objectives, feasible, acquisition.function, rng)
        if constraints:
            joint = constrained(joint, len(objectives), chance, CAUTION)
        return [*objectives, *constraints], joint, rows

    def pool_points(self, seed: int) -> Array:
        """The points of the pool, which all models share."""
        first = self.objectives[0]
        now = first.current()
        return now.posterior.follow(first.spread(now, seed))

    def _least_violation(self, constraints: Sequence[Current]) -> Index:
        """The rows that are nearest to feasible, by the sum of what the model expects beyond the thresholds."""
        excess = np.zeros(len(self._records))
        for each in constraints:
            excess += np.maximum(each.means() - each.threshold, 0.0)
        measured = np.flatnonzero(~np.isnan(excess))
        measured = measured[np.argsort(excess[measured], kind="stable")]
        return measured[self.inside(measured, BEST_CENTERS)[:BEST_CENTERS]]

    def _improvement(
        self, objectives: Sequence[Current], feasible: NDArray[np.bool_], function: Function, rng: np.random.Generator
    ) -> tuple[Joint, Index]:
        """The acquisition of the objectives, and the rows of the best records: only feasible ones count."""
        if len(objectives) == 1:
            rows, means = objectives[0].denoised()
            rows, means = rows[feasible[rows]], means[feasible[rows]]
            kept = self.inside(rows, BEST_CENTERS)
            return improvement(function, float(means[kept[0]])), rows[kept[:BEST_CENTERS]]
        rows = np.flatnonzero(feasible)
        rows = rows[self.inside(rows)]
        values = np.column_stack([each.means()[rows] for each in objectives])
        on_front = non_dominated(values)
        front, rows = values[on_front], rows[on_front]
        if len(rows) > FRONT_CENTERS:
            rows = rows[np.sort(rng.choice(len(rows), FRONT_CENTERS, replace=False))]
        if len(objectives) <= MOST_OBJECTIVES:
            far = bool(rng.random() < FAR_SHARE)
            joint = HypervolumeImprovement(front, reference_point(front, values, far))
            return widened(joint) if far else joint, rows
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
