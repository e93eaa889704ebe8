"""What the observations and the model learned from them say: the best values, predictions, recommendations.

Nothing here changes what is suggested later. Internally, values are minimised: with the direction "maximize" they are
negated.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from lazybo.core import text
from lazybo.core.blas import one_thread
from lazybo.core.checks import Array, Direction, shortened, whole
from lazybo.gp.process import Process
from lazybo.gp.targets import Warping
from lazybo.search.contenders import Contender, Race
from lazybo.search.core import Core
from lazybo.search.gain import GainParts, earlier_gains, play, played_gains
from lazybo.search.hypervolume import non_dominated
from lazybo.search.observations import Observation, Observations
from lazybo.search.outputs import Outputs
from lazybo.search.pool import POOL_POINTS
from lazybo.search.prediction import Evaluation, Limit, Prediction, Predictor, Recommendation
from lazybo.search.results import State
from lazybo.search.rows import rows_of, to_frame, write_csv
from lazybo.search.surrogate import Surrogate
from lazybo.space.feasible import FeasibleSet
from lazybo.space.space import Space


@dataclass(frozen=True, slots=True)
class Best:
    """One of the best observations so far; ``number`` is None if it was given to `Optimizer.observe`, not suggested.

    ``values`` has the value of each objective, ``constraints`` what was measured of each constraint.
    """

    params: dict[str, Any]
    values: tuple[float, ...]
    number: int | None
    constraints: dict[str, float] = field(default_factory=dict)

    @property
    def value(self) -> float:
        """The value, if there is one objective."""
        if len(self.values) > 1:
            raise ValueError(f"there are {len(self.values)} objectives; use values")
        return self.values[0]

    def _repr_html_(self) -> str:
        values = [("value" if len(self.values) == 1 else f"value {i}", each) for i, each in enumerate(self.values)]
        return text.table("Best", ("", ""), [*values, *self.constraints.items(), *self.params.items()])


@dataclass(frozen=True, slots=True)
class Relation:
    """An earlier study, how many of its results are used, and the probability that this problem is like it."""

    name: str
    results: int
    share: float


class Judgement(ABC):
    """The half of an `Optimizer` that only looks."""

    space: Space
    directions: tuple[Direction, ...]
    seed: int
    cost: str | None
    _signs: tuple[float, ...]
    _observations: Observations
    _feasible: FeasibleSet | None
    _next_number: int

    @property
    def direction(self) -> Direction:
        """The direction, if there is one objective."""
        self._one_objective("there is no single direction", "directions")
        return self.directions[0]

    @property
    @abstractmethod
    def _core(self) -> Core:
        """The core to ask what the model says."""

    @property
    def _outputs(self) -> Outputs:
        """The surrogates to ask what the model says."""
        return self._core.outputs

    @property
    def _surrogate(self) -> Surrogate:
        """The surrogate of the first objective."""
        return self._outputs.objectives[0]

    @property
    def n_complete(self) -> int:
        """The number of evaluations with a value."""
        return self._observations.n_complete

    @property
    def n_feasible(self) -> int:
        """The number of evaluations with a value that have measured and satisfied all constraints."""
        return int(self._observations.feasible().sum())

    @property
    def best(self) -> Best:
        """The best value told or observed; failures do not count, nor do those that violate a constraint."""
        self._one_objective("there is no single best", "front")
        rows = self._feasible_rows("there is no best yet")
        return self._best(self._observations[int(rows[np.argmin(self._observations.values[rows])])])

    @property
    def front(self) -> list[Best]:
        """The observations that no other dominates, in the order in which they were added; empty if there are none.

        Failures do not count, nor do observations that violate a constraint or have not measured it.
        """
        rows = np.flatnonzero(self._observations.feasible())
        values = np.column_stack([self._observations.values_of(j)[rows] for j in range(len(self.directions))])
        return [self._best(self._observations[row]) for row in rows[non_dominated(values)]]

    def _best(self, found: Observation) -> Best:
        values = tuple(sign * value for sign, value in zip(self._signs, found.result.values, strict=True))
        return Best(dict(found.params), values, found.number, dict(found.result.constraints))

    def _one_objective(self, what: str, instead: str) -> None:
        if len(self.directions) > 1:
            raise ValueError(f"{what}: there are {len(self.directions)} objectives; use {instead}")

    def _feasible_rows(self, what: str) -> NDArray[np.intp]:
        if self._observations.n_complete == 0:
            raise ValueError(f"{what}: no evaluation has succeeded")
        rows = np.flatnonzero(self._observations.feasible())
        if len(rows) == 0:
            names = ", ".join(map(repr, self._observations.constraints))
            raise ValueError(f"{what}: no evaluation is feasible, that is, has all constraints ({names}) at most 0")
        return rows

    @one_thread()
    def recommend(self) -> Recommendation:
        """The configuration to use: of the evaluated ones, the one with the best posterior mean.

        It has the median and the 95 % interval of the objective there. `best` has the best value seen, which may be the
        luckiest one if the objective is noisy. Only evaluations that satisfy all measured constraints are recommended,
        and results at configurations that are not ``feasible`` only if there are no others. Calling this does not
        change what is suggested later.
        """
        self._one_objective("there is no single recommendation", "front")
        self._feasible_rows("there is nothing to recommend yet")
        return self.predictor().recommendation(self._evaluations())

    @one_thread()
    def contenders(self) -> list[Contender]:
        """The evaluated configurations that may be the best one, by the model, with the chance of each; best first.

        Only feasible ones. Chances below 1 % are left out. Calling this does not change what is suggested later.
        """
        self._one_objective("there is no single best", "front")
        evaluations = self._evaluations()
        return self.race(evaluations).contenders() if evaluations else []

    def expected_gain(self, n: int = 10) -> float:
        """How much the next ``n`` evaluations together are expected to improve the best value.

        By the model, and by what the evaluations before gained. In the units of the objective, at least 0; in the mean
        about twice too much (`python -m benchmarks.gain`). Calling this does not change what is suggested later.
        """
        return self.expected_gains([n])[0]

    def expected_gains(self, counts: Sequence[int]) -> list[float]:
        """`expected_gain` for several numbers of evaluations."""
        return self.gain_parts(counts).expected()

    @one_thread()
    def gain_parts(self, counts: Sequence[int]) -> GainParts:
        """The two parts of `expected_gains`."""
        counts = [whole("n", n, 1) for n in counts]
        self._one_objective("an expected gain is of one objective", "front")
        self._feasible_rows("there is no expected gain yet")
        if self.space.dim == 0:
            return GainParts(np.zeros(len(counts)), np.zeros(len(counts)))
        rng = np.random.default_rng((self.seed, len(self._observations), 3))
        core = self._core
        with core.outputs.without_changes():
            points, evaluated = core.chooser.prospects(self.seed, rng)
            process, warping = self._surrogate.sync(), self._surrogate.warping
            played = played_gains(play(process, points, evaluated, max(counts), rng), warping, counts)
            rows, means = self._surrogate.denoised(process)
            means = np.where(
                core.observations.feasible(forecasts=True)[rows], means, means.max()
            )  # others have gained nothing
            return GainParts(played, earlier_gains(means[np.argsort(rows)], warping, counts))

    def race(self, evaluations: Sequence[Evaluation]) -> Race:
        """The contenders among some evaluations, at least one, by the model as it is."""
        return Race(self.predictor(), evaluations, self.seed)

    def _evaluations(self) -> list[Evaluation]:
        """The feasible evaluations."""
        core = self._core
        rows = np.flatnonzero(core.observations.feasible())
        observed = [core.observations[row] for row in rows[core.outputs.inside(rows)]]
        found = [(each.point, self._best(each)) for each in observed]
        return [Evaluation(best.params, point, best.value, best.number) for point, best in found]

    @overload
    def predict(self, params: Mapping[str, Any]) -> Prediction: ...
    @overload
    def predict(self, params: Sequence[Mapping[str, Any]]) -> list[Prediction]: ...
    @one_thread()
    def predict(self, params: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Prediction | list[Prediction]:
        """The median and the 95 % interval of the objective at a configuration, or a list of them for several.

        Both are without the noise of a measurement. Calling this does not change what is suggested later.
        """
        self._one_objective("a prediction has one value", "predict_all")
        return self.predict_all(params)[0]

    @overload
    def predict_all(self, params: Mapping[str, Any]) -> list[Prediction]: ...
    @overload
    def predict_all(self, params: Sequence[Mapping[str, Any]]) -> list[list[Prediction]]: ...
    @one_thread()
    def predict_all(
        self, params: Mapping[str, Any] | Sequence[Mapping[str, Any]]
    ) -> list[Prediction] | list[list[Prediction]]:
        """What `predict` says, for each objective: a list, or a list of lists for several configurations."""
        points = self._points(params)
        found = [self.predictor(objective).predictions(points) for objective in range(len(self.directions))]
        return [each[0] for each in found] if isinstance(params, Mapping) else found

    @overload
    def predict_feasible(self, params: Mapping[str, Any]) -> float: ...
    @overload
    def predict_feasible(self, params: Sequence[Mapping[str, Any]]) -> list[float]: ...
    @one_thread()
    def predict_feasible(self, params: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> float | list[float]:
        """The probability that all measured constraints hold at a configuration, or a list of them for several.

        It is 1 if no constraint was measured. Calling this does not change what is suggested later.
        """
        points = self._points(params)
        with self._outputs.without_changes():
            chances: list[float] = self._outputs.feasible_chance(points).tolist()
        return chances[0] if isinstance(params, Mapping) else chances

    def _points(self, params: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Array:
        """The points of a configuration or of several, (m, d)."""
        if isinstance(params, str | bytes) or not isinstance(params, Mapping | Sequence):
            raise ValueError(f"params must be a configuration or a list of configurations, not {shortened(params)}")
        configurations = [params] if isinstance(params, Mapping) else params
        points = [self.space.encode(self.space.plain(each)) for each in configurations]
        return np.array(points).reshape(len(points), self.space.dim)

    @one_thread()
    def related(self) -> list[Relation]:
        """The earlier studies that are used, and how much each says about this problem; the most similar one first.

        The shares add up to less than 1: the rest is the probability that this problem is like none of them. With
        several objectives they are means. Calling this does not change what is suggested later.
        """
        found: dict[str, list[Relation]] = {}
        objectives = [each for each in self._outputs.objectives if each.earlier is not None]
        for surrogate in objectives:
            with surrogate.without_changes():
                surrogate.sync()
                tasks, related = surrogate.earlier, surrogate.fitted.related
            assert tasks is not None
            assert related is not None
            for task, share in zip(tasks.tasks, related.shares.tolist(), strict=True):
                found.setdefault(task.name, []).append(Relation(task.name, len(task.targets), share))
        means = [
            Relation(name, each[0].results, sum(one.share for one in each) / len(objectives))
            for name, each in found.items()
        ]
        return sorted(means, key=lambda relation: -relation.share)

    @one_thread()
    def surrogate(self) -> tuple[Process, Warping]:
        """The process with all observations, and the warping from values to its targets. Both are for minimisation.

        The next `ask` would use the same process. This call does not change later suggestions. Once there are local
        models, it is a process with the best observations and some others.
        """
        if self._observations.n_complete and self.space.dim == 0:
            raise ValueError("there is no model: no parameter of this space can vary")
        predictor = self.predictor()
        return predictor.process, predictor.warping

    @one_thread()
    def predictor(self, objective: int = 0) -> Predictor:
        """The process and the warping of `surrogate`, for predictions; also if no parameter of the space can vary."""
        if self._observations.n_complete == 0:
            raise ValueError("there is no model yet: no evaluation has succeeded")
        surrogate = self._outputs.objectives[objective]
        with surrogate.without_changes():
            process = surrogate.sync()
            return self._predictor_of(process, surrogate, self._signs[objective])

    def _predictor_of(self, process: Process, surrogate: Surrogate, sign: float) -> Predictor:
        return Predictor(self.space, process, surrogate.warping, sign, surrogate.forecasts, surrogate.is_exact)

    @one_thread()
    def limits(self) -> tuple[dict[str, Limit], Limit | None]:
        """The models of the measured constraints by name, whose chances make `predict_feasible`, and that of success.

        The second one is None if no evaluation has failed. Calling this does not change what is suggested later.
        """
        with self._outputs.without_changes():
            return self._outputs.limits(), self._outputs.success()

    def maxima(self) -> list[tuple[dict[str, Any], float]]:
        """The distinct local maxima of the current acquisition function, best first: configurations and values."""
        if self._observations.n_complete == 0 or self.space.dim == 0:
            return []
        rng = np.random.default_rng((self.seed, self._next_number))
        core = self._core
        with core.outputs.without_changes():
            found = core.chooser.maxima(self.seed, rng, POOL_POINTS // 16)
        return [(self.space.decode(maximum.x), maximum.value) for maximum in found]

    @property
    def constrained(self) -> bool:
        """Whether only a part of the space is feasible."""
        return self._feasible is not None

    def check_feasible(self, params: Mapping[str, Any]) -> None:
        """Raise a ValueError if a configuration may not be evaluated."""
        if not self._may_evaluate(params):
            raise ValueError(f"{shortened(dict(params), 400)} is not feasible")

    def _may_evaluate(self, params: Mapping[str, Any]) -> bool:
        return self._feasible is None or self._feasible.contains.holds(params)

    def is_complete(self, params: Mapping[str, Any]) -> bool:
        """Whether these are all parameters of a configuration of the space."""
        return self.space.has(params)

    def records(self) -> list[dict[str, Any]]:
        """All observations as rows of plain data, in their order: number, values, parameters, constraints, state.

        The columns are those of ``lazybo export``. ``number`` is None for what was observed rather than asked for, and
        the state of a pending suggestion is RUNNING.
        """
        return rows_of([*self._observations], self._signs, self.cost)

    def to_dataframe(self) -> Any:
        """The `records` as a pandas data frame."""
        return to_frame(self.records())

    def to_csv(self, path: str | Path) -> None:
        """Write the `records` to a CSV file, which ``optimize(warm_start=path)`` and ``lazybo tell --table`` read."""
        write_csv(self.records(), path)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {summary(self)}>"

    def _repr_html_(self) -> str:
        return as_html(self)


# ----------------------------------------------------------------------- display

# A notebook shows so many of the last observations.
ROWS_SHOWN = 10


def summary(found: Judgement) -> str:
    """An optimiser in one line: its parameters and directions, how many evaluations there are, and the best."""
    observations = found._observations
    counts = {state: len(observations.rows(state)) for state in State}
    parts = [
        f"of {len(found.space.distributions)} parameters",
        ", ".join(found.directions),
        f"{counts[State.COMPLETE]} values",
        *([f"{counts[State.FAILED]} failed"] if counts[State.FAILED] else []),
        *([f"{counts[State.PENDING]} pending"] if counts[State.PENDING] else []),
    ]
    if found.n_feasible:
        best = found.front
        one = len(found.directions) == 1
        parts.append(f"best {text.shown(best[0].value)}" if one else f"a front of {len(best)}")
    return ", ".join(parts).replace("parameters, ", "parameters: ", 1)


def as_html(found: Judgement) -> str:
    """The summary with the last observations as a table."""
    observations = [*found._observations]
    rows = rows_of(observations, found._signs, None)[-ROWS_SHOWN:]
    headings = [name.removeprefix("params_").removeprefix("constraints_") for name in rows[0]] if rows else []
    cells = [["" if cell is None else cell for cell in row.values()] for row in rows]
    left_out = len(observations) - len(rows)
    note = f"{left_out} earlier observations are not shown; to_dataframe() has all of them." if left_out else ""
    return text.table(f"Optimizer {summary(found)}", headings, cells, note)
