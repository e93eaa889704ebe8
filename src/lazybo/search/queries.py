"""Read-only queries: what the records and the models say. Nothing here changes what is suggested later.

If learning is due, a query learns for itself, and nothing is kept. `Optimizer.learn` keeps it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from lazybo.core import Array, Direction, checks, one_thread, texts
from lazybo.gp import Process, Warping
from lazybo.search.gain import GainParts, earlier_gains, play, played_gains
from lazybo.search.hypervolume import non_dominated
from lazybo.search.predictions import Contender, Evaluation, FinalCheck, Limit, Predictor, Recommendation
from lazybo.search.records import Index, Record, Records, point_of
from lazybo.search.surrogate import POOL_POINTS, Current

if TYPE_CHECKING:
    from lazybo.search.decide import Search

Configurations: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]


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
        return texts.table("Best", ("", ""), [*values, *self.constraints.items(), *self.params.items()])


@dataclass(frozen=True, slots=True)
class Relation:
    """An earlier study, how many of its results are used, and the probability that this problem is like it."""

    name: str
    results: int
    share: float


def signs_of(directions: Sequence[Direction]) -> tuple[float, ...]:
    """-1 for each objective that is maximised, else 1: internally, values are minimised."""
    return tuple(-1.0 if each == "maximize" else 1.0 for each in directions)


def one_objective(directions: Sequence[Direction], what: str, instead: str) -> None:
    """Raise a ValueError if there are several objectives."""
    if len(directions) > 1:
        raise ValueError(f"{what}: there are {len(directions)} objectives; use {instead}")


def feasible_rows(records: Records, what: str) -> Index:
    """The rows that are feasible and have a value; a ValueError if there are none."""
    if records.n_complete == 0:
        raise ValueError(f"{what}: no evaluation has succeeded")
    rows = np.flatnonzero(records.feasible())
    if len(rows) == 0:
        names = ", ".join(map(repr, records.violations))
        raise ValueError(f"{what}: no evaluation is feasible, that is, has all constraints ({names}) at most 0")
    return rows


def front_of(records: Records, signs: Sequence[float]) -> list[Best]:
    """The feasible records that no other dominates, in the order in which they were added."""
    rows = np.flatnonzero(records.feasible())
    values = np.column_stack([records.values(j)[rows] for j in range(records.objectives)])
    return [best_of(records[row], signs) for row in rows[non_dominated(values)]]


def best_of(record: Record, signs: Sequence[float]) -> Best:
    """A record as users see it."""
    values = tuple(sign * value for sign, value in zip(signs, record.result.values, strict=True))
    return Best(dict(record.params), values, record.number, dict(record.result.constraints))


@dataclass(frozen=True)
class Queries:
    """What a search knows about its space: `Optimizer.model`. The next suggestion has ``number``."""

    search: "Search"
    directions: tuple[Direction, ...]
    seed: int
    number: int

    # ------------------------------------------------------------- predictions

    @one_thread()
    def predictor(self, objective: int = 0) -> Predictor:
        """The posterior and the warping of an objective, for predictions. Later results do not change them."""
        if self.search.records.n_complete == 0:
            raise ValueError("there is no model yet: no evaluation has succeeded")
        return self._predictor(self.search.models.objectives[objective].current(), objective)

    def _predictor(self, now: Current, objective: int) -> Predictor:
        sign = signs_of(self.directions)[objective]
        return Predictor(self.search.space, now.posterior, now.warping, sign, now.forecasts, now.is_exact)

    def surrogate(self) -> tuple[Process, Warping]:
        """The most probable process with all records, and the warping from values to its targets, for minimisation.

        They are copies: later results do not change them. The next `ask` would use the same ones. Once there are local
        models, the process has the best records and some others.
        """
        if self.search.records.n_complete and self.search.space.points.dim == 0:
            raise ValueError("there is no model: no parameter of this space can vary")
        predictor = self.predictor()
        return predictor.posterior.leading.copy(), predictor.warping

    @one_thread()
    def predict_all(self, params: Configurations) -> Any:
        """What `Optimizer.predict` says, for each objective: a list, or a list of lists for several configurations."""
        points = self._points(params)
        found = [self.predictor(objective).predictions(points) for objective in range(len(self.directions))]
        return [each[0] for each in found] if isinstance(params, Mapping) else found

    @one_thread()
    def predict_feasible(self, params: Configurations) -> Any:
        """The probability that all measured constraints hold at a configuration, or a list of them for several.

        It is 1 if no constraint was measured.
        """
        chances: list[float] = self.search.models.feasible_chance(self._points(params)).tolist()
        return chances[0] if isinstance(params, Mapping) else chances

    def _points(self, params: Configurations) -> Array:
        """The points of a configuration or of several, (m, d)."""
        if isinstance(params, str | bytes) or not isinstance(params, Mapping | Sequence):
            raise ValueError(
                f"params must be a configuration or a list of configurations, not {checks.shortened(params)}"
            )
        space, given = self.search.space, [params] if isinstance(params, Mapping) else params
        points = [point_of(self.search.records, space, space.plain(each)) for each in given]
        return np.array(points).reshape(len(points), space.points.dim)

    @one_thread()
    def limits(self) -> tuple[dict[str, Limit], Limit | None]:
        """The models behind `predict_feasible`, by constraint, and the model of success.

        The second one is None if no evaluation has failed.
        """
        models = self.search.models
        failures = None if models.failures is None else models.failures.current()
        constraints = {name: each.current() for name, each in models.constraints.items()}
        limits = {name: Limit(now.posterior, now.threshold) for name, now in constraints.items()}
        return limits, None if failures is None else Limit(failures.posterior, failures.threshold)

    # ---------------------------------------------------------------- the best one

    @one_thread()
    def recommend(self) -> Recommendation:
        """The evaluated configuration that the model predicts to be best."""
        one_objective(self.directions, "there is no single recommendation", "front")
        feasible_rows(self.search.records, "there is nothing to recommend yet")
        return self.predictor().recommendation(self.evaluations())

    @one_thread()
    def contenders(self) -> list[Contender]:
        """The evaluated configurations that may be the best one, by the model, with the chance of each; best first.

        Only feasible ones. Chances below 1 % are left out.
        """
        one_objective(self.directions, "there is no single best", "front")
        evaluations = self.evaluations()
        return self.final_check(evaluations).contenders() if evaluations else []

    def final_check(self, evaluations: Sequence[Evaluation]) -> FinalCheck:
        """The contenders among some evaluations, at least one, by the model as it is."""
        return FinalCheck(self.predictor(), evaluations, self.seed)

    def to_repeat(self, evaluations: Sequence[Evaluation]) -> Evaluation | None:
        """The evaluation to repeat so that one contender leads with 95 %, by a model that was just learned."""
        surrogate = self.search.models.objectives[0]
        predictor = self._predictor(surrogate.current(), 0)
        return FinalCheck(predictor, evaluations, self.seed).to_repeat(learns=surrogate.learns)

    def evaluations(self) -> list[Evaluation]:
        """The feasible evaluations that may be recommended."""
        records, signs = self.search.records, signs_of(self.directions)
        rows = np.flatnonzero(records.feasible())
        found = [records[row] for row in rows[self.search.models.inside(rows)]]
        return [
            Evaluation(dict(each.params), each.point, signs[0] * each.result.values[0], each.number) for each in found
        ]

    # --------------------------------------------------------------- what is next

    def expected_gain(self, n: int = 10) -> float:
        """How much the next ``n`` evaluations together are expected to improve the best value.

        By the model, and by what the evaluations before gained. In the units of the objective, at least 0; on average
        about twice the true gain (docs/benchmarks-noise.md).
        """
        return self.gain_parts([n]).expected()[0]

    @one_thread()
    def gain_parts(self, counts: Sequence[int]) -> GainParts:
        """The two parts of the expected gain of each of these numbers of evaluations."""
        counts = [checks.whole("n", n, 1) for n in counts]
        search, records = self.search, self.search.records
        one_objective(self.directions, "an expected gain is of one objective", "front")
        feasible_rows(records, "there is no expected gain yet")
        if search.space.points.dim == 0:
            return GainParts(np.zeros(len(counts)), np.zeros(len(counts)))
        rng = np.random.default_rng((self.seed, len(records), 3))
        points, evaluated = search.prospects(self.seed, rng)
        now = search.models.objectives[0].current()
        played = played_gains(play(now.posterior, points, evaluated, max(counts), rng), now.warping, counts)
        rows, means = now.denoised()
        means = np.where(records.feasible(forecasts=True)[rows], means, means.max())  # others have gained nothing
        return GainParts(played, earlier_gains(means[np.argsort(rows)], now.warping, counts))

    def maxima(self) -> list[tuple[dict[str, Any], float]]:
        """The distinct local maxima of the current acquisition function, best first: configurations and values."""
        if self.search.records.n_complete == 0 or self.search.space.points.dim == 0:
            return []
        found = self.search.maxima(self.seed, np.random.default_rng((self.seed, self.number)), POOL_POINTS // 16)
        return [(self.search.space.points.decode(maximum.x), maximum.value) for maximum in found]

    @one_thread()
    def related(self) -> list[Relation]:
        """The earlier studies that are used, and how much each says about this problem; the most similar one first.

        The shares add up to less than 1: the rest is the probability that this problem is like none of them. With
        several objectives they are means.
        """
        found: dict[str, list[Relation]] = {}
        objectives = [each for each in self.search.models.objectives if each.earlier is not None]
        for surrogate in objectives:
            tasks, related = surrogate.earlier, surrogate.current().fitted.related
            assert tasks is not None
            assert related is not None
            for task, share in zip(tasks.tasks, related.shares.tolist(), strict=True):
                found.setdefault(task.name, []).append(Relation(task.name, len(task.targets), share))
        means = [
            Relation(name, each[0].results, sum(one.share for one in each) / len(objectives))
            for name, each in found.items()
        ]
        return sorted(means, key=lambda relation: -relation.share)
