"""The optimiser: ask and tell. It does not know the objective, and uses no clock, file or executor.

It has three parts: the observations (`observations`), the Gaussian processes that are learned from them, one for each
objective, each measured constraint and the failures (`outputs`), and the choice of the next points (`chooser`).
Internally, values are minimised: with the direction "maximize" they are negated.

Every configuration that was suggested or observed is one row of every process, in that order. A row without a value is
pending: it lowers the variance around it and does not change the mean. When its value is told, only the right-hand side
changes. A failed row has no value; it teaches where evaluations fail.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, TypeAlias, overload

import numpy as np
from numpy.typing import NDArray

from lazybo.blas import one_thread
from lazybo.checks import Array, Direction, check_directions, finite_number, one_of, positive, renamed, shortened, whole
from lazybo.model.fit import Priors
from lazybo.model.kernels import Kernel
from lazybo.model.lag import Lag, check_lag
from lazybo.model.process import Process
from lazybo.model.targets import WARPINGS, Warping, scaling
from lazybo.search.acquisition import Acquisition, check_acquisition
from lazybo.search.chooser import Chooser
from lazybo.search.contenders import Contender, Race
from lazybo.search.feasibility import Predicate
from lazybo.search.feasible_set import FeasibleSet
from lazybo.search.gain import GainParts, earlier_gains, play, played_gains
from lazybo.search.hypervolume import non_dominated
from lazybo.search.observations import PENDING, Observations, Result, State
from lazybo.search.outputs import Outputs
from lazybo.search.pool import POOL_POINTS
from lazybo.search.prediction import Evaluation, Limit, Prediction, Predictor, Recommendation
from lazybo.search.shorthand import as_distributions
from lazybo.search.space import Condition, Space
from lazybo.search.surrogate import Surrogate

# From this size on, the best local maxima make a better batch (`python -m benchmarks.batch`: better for 20, worse for
# 5).
LARGE_BATCH = 10
STATE_VERSION = 3
# States of version 2 have one objective and no constraints.
READABLE_VERSIONS = (2, STATE_VERSION)
# What `tell` takes: one value, one for each of several objectives, or None.
Values: TypeAlias = float | Sequence[float | None] | None
# NumPy's own seeds have 128 bits too. Every storage and JSON can hold them.
MAX_SEED = 2**128 - 1


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A configuration to evaluate, and its number, by which its value can be told."""

    number: int
    params: dict[str, Any]


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


class Optimizer:
    """Bayesian optimisation with a lazy Gaussian process.

    - ``space``: a dict of lists of choices, ranges ``(low, high)`` or ``(low, high, "log")``, and Optuna distributions
      (`lazybo.search.shorthand`). ``conditions`` says when a parameter is active; ``optional`` names parameters that
      observations may lack for other reasons.
    - ``direction`` is that of one objective, ``directions`` a list of those of several. `tell` then takes a list of
      values, and `front` has the best observations.
    - ``feasible``: a function of a configuration (a dict of the active parameters) that says whether it may be
      evaluated: ``lambda params: params["a"] + params["b"] <= 1``. Only feasible configurations are suggested.
    - ``lag``: how often the kernel is learned: after so many observations, None (never) or "auto".
    - ``acquisition``: "auto" (log EI, and an upper confidence bound where the model finds noise), "logei", "ei", "pi",
      "ucb" or a function as in `lazybo.acquisition`.
    - ``batch``: how ``ask(n)`` chooses several points: "fantasy" (one after the other; earlier ones are pending for
      later ones), "maxima" (the n best local maxima, as in the paper) or "auto" (maxima for large batches).
    - ``n_startup``: how many points are spread over the space before the model is used.
    - ``kernel``: "additive" (the default: a share of the variance is a sum over single parameters), "matern52" or a
      kernel of `lazybo.kernels`. Learning starts from a kernel object and ``noise``; with the lag None they are kept.
    - ``value_transform``: how the values are transformed for the model: "warped" (to look like a normal sample),
      "scaled" (mean 0, standard deviation 1) or "centred" (mean 0 in their own units, as in the paper).
    - ``cost``: evaluations differ in what they cost, and cheap ones are preferred while much of the budget is left
      (`budget_left`). It is "seconds", or another name for what `tell` gets as the cost of an evaluation.
    """

    @renamed(targets="value_transform")
    def __init__(
        self,
        space: Mapping[str, Any],
        *,
        conditions: Mapping[str, Condition] | None = None,
        optional: Collection[str] = (),
        feasible: Predicate | None = None,
        direction: Direction | None = None,
        directions: Sequence[Direction] | None = None,
        seed: int | None = None,
        lag: Lag = "auto",
        acquisition: str | Acquisition = "auto",
        batch: Literal["auto", "fantasy", "maxima"] = "auto",
        n_startup: int | None = None,
        kernel: str | Kernel | None = None,
        noise: float | None = None,
        priors: Priors | None = None,
        value_transform: Literal["warped", "scaled", "centred"] = "warped",
        cost: str | None = None,
    ) -> None:
        self.space = Space(as_distributions(space), conditions, optional)
        self.directions = check_directions(direction, directions)
        self.lag = check_lag(lag)
        self.batch = one_of("batch", batch, ("auto", "fantasy", "maxima"))
        self.seed = check_seed(seed)
        self.n_startup = default_startup(self.space.dim) if n_startup is None else whole("n_startup", n_startup, 0)
        self._signs = tuple(-1.0 if each == "maximize" else 1.0 for each in self.directions)
        self._next_number = 0
        self._observations = Observations(self.space, len(self._signs))
        self._feasible = None if feasible is None else FeasibleSet(self.space, feasible)
        make = partial(
            Surrogate,
            self.space,
            lag=self.lag,
            kernel=kernel,
            noise=noise,
            priors=priors,
            make_warping=WARPINGS[one_of("value_transform", value_transform, tuple(WARPINGS))],
            feasible=self._feasible,
        )
        self.cost = check_cost(cost)
        # Measured costs have noise even if the objective has none.
        of_cost = partial(make, noise=None, priors=None, make_warping=scaling) if cost is not None else None
        self._outputs = Outputs(self.space, self._observations, len(self.directions), make, self._feasible, of_cost)
        acquire = check_acquisition(acquisition)
        self._chooser = Chooser(self.space, self._observations, self._outputs, acquire, self.n_startup, self._feasible)
        if self._feasible is not None:
            self._feasible.check(self.seed)

    @property
    def direction(self) -> Direction:
        """The direction, if there is one objective."""
        self._one_objective("there is no single direction", "directions")
        return self.directions[0]

    @property
    def budget_left(self) -> float | None:
        """The share of the budget that is left, from 1 to 0: the weight of the cost. None if that is not known.

        Set it before each `ask` if you know when the search ends: for example to ``1 - spent / budget``. If it is
        None, the weight falls slowly with the number of suggestions.
        """
        return self._outputs.budget_left

    @budget_left.setter
    def budget_left(self, share: float | None) -> None:
        given = None if share is None else finite_number("budget_left", share)
        if given is not None and not 0.0 <= given <= 1.0:
            raise ValueError(f"budget_left must be a share from 0 to 1, or None, not {shortened(share)}")
        self._outputs.budget_left = given

    @property
    def _surrogate(self) -> Surrogate:
        """The surrogate of the first objective."""
        return self._outputs.objectives[0]

    # ------------------------------------------------------------------- ask

    @overload
    def ask(self) -> Suggestion: ...
    @overload
    def ask(self, n: int) -> list[Suggestion]: ...
    def ask(self, n: int | None = None) -> Suggestion | list[Suggestion]:
        """One suggestion, or a list of n. Each is pending until it is told; later suggestions take it into account."""
        return self._ask(self._next_number, 1)[0] if n is None else self._ask(self._next_number, whole("n", n, 1))

    def propose(self, number: int) -> dict[str, Any]:
        """The configuration that `ask` would suggest with this number; nothing is recorded.

        As in `ask`, the kernel is learned if it is due.
        """
        return self._observations.configuration(self._chooser.choose(self.seed, whole("number", number, 0), 1)[0])

    def propose_batch(self, number: int, n: int) -> list[dict[str, Any]]:
        """The configurations that ``ask(n)`` would suggest, the first with this number; nothing is recorded."""
        number, n, before = whole("number", number, 0), whole("n", n, 1), self._next_number
        rows = len(self._observations)
        try:
            return [suggestion.params for suggestion in self._ask(number, n)]
        finally:
            while len(self._observations) > rows:
                self._remove(len(self._observations) - 1)
            self._next_number = before

    def complete(self, fixed: Mapping[str, Any], number: int) -> dict[str, Any]:
        """A configuration with the ``fixed`` values; the others are those of the proposal with this number.

        If that is not feasible, the others are chosen so that it is. Raises a ValueError if that is impossible.
        """
        rng = np.random.default_rng((self.seed, number))
        if self._feasible is None:
            return self.space.complete(fixed, self.space.encode(self.propose(number)), rng)
        if self.is_complete(fixed):
            self.check_feasible(fixed)
            return dict(fixed)
        return self._feasible.completed(self.seed, fixed, self.space.encode(self.propose(number)), rng)

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

    def announce(self, params: Mapping[str, Any]) -> Suggestion:
        """Add an evaluation that another process has started. It is pending until it is told, like a suggestion."""
        return self._pend(self.space.plain(params))

    def maxima(self) -> list[tuple[dict[str, Any], float]]:
        """The distinct local maxima of the current acquisition function, best first: configurations and values."""
        if self._observations.n_complete == 0 or self.space.dim == 0:
            return []
        rng = np.random.default_rng((self.seed, self._next_number))
        with self._outputs.without_changes():
            found = self._chooser.maxima(self.seed, rng, POOL_POINTS // 16)
        return [(self.space.decode(maximum.x), maximum.value) for maximum in found]

    def confirm(self) -> Suggestion | None:
        """An evaluated configuration to evaluate once more, so that one of the `contenders` leads with 95 %.

        None if one does; or if the values of pending suggestions are needed first. Like a suggestion of `ask` it is
        pending until it is told. If the model knows of hardly any noise and nothing was repeated yet, the leader is
        repeated once to test that. The kernel and the noise are learned from all values.
        """
        chosen = self.propose_repeat()
        return None if chosen is None else self._pend(self.space.plain(chosen.params))

    @one_thread()
    def propose_repeat(self, evaluations: Sequence[Evaluation] | None = None) -> Evaluation | None:
        """The configuration that `confirm` would repeat, by its first evaluation; nothing is recorded.

        ``evaluations`` are those to choose from, by default all that have a value.
        """
        self._one_objective("there is no single best to confirm", "front")
        possible = self._evaluations() if evaluations is None else evaluations
        inside = [each for each in possible if self.space.has(each.params) and self._may_evaluate(each.params)]
        if not inside or self._observations.n_complete == 0:
            return None
        process = self._surrogate.sync(fresh=True)
        predictor = Predictor(self.space, process, self._surrogate.warping, self._signs[0])
        return Race(predictor, inside, self.seed).to_repeat(learns=self._surrogate.learns)

    def _ask(self, number: int, wanted: int) -> list[Suggestion]:
        """Suggest a batch; its random numbers are those of ``number`` and the following numbers."""
        suggestions: list[Suggestion] = []
        by_maxima = self.batch == "maxima" or (self.batch == "auto" and wanted >= LARGE_BATCH)
        while len(suggestions) < wanted:
            count = wanted - len(suggestions) if by_maxima else 1
            points = self._chooser.choose(self.seed, number + len(suggestions), count)
            suggestions += [self._pend(self._observations.configuration(x)) for x in points]
        return suggestions

    def _pend(self, params: dict[str, Any]) -> Suggestion:
        number = self._next_number
        self._next_number += 1
        self._observations.add(params, PENDING, number)
        return Suggestion(number, dict(params))

    # ------------------------------------------------------------------ tell

    def tell(
        self,
        suggestion: Suggestion | int,
        value: Values,
        *,
        constraints: Mapping[str, float | None] | None = None,
        variance: float | Sequence[float] = 0.0,
        seconds: float | None = None,
        cost: float | None = None,
    ) -> None:
        """Tell the value of a suggestion. None, NaN or infinity mean that the evaluation failed.

        With several objectives, ``value`` is a list of one value for each. ``constraints`` are measured constraints by
        name; each is satisfied if it is at most 0. A constraint that is None, NaN or left out was not measured.
        ``variance`` is the known variance of the noise in this value, if any. ``seconds`` is the time that the
        evaluation took, and counts if the optimiser was made with ``cost="seconds"``; ``cost`` is what it cost if that
        has another name. A cost that is not known is left out.
        """
        row = self._observations.pending_row(_number(suggestion))
        result = Result.of(value, self._signs, variance, constraints, self._cost_of(seconds, cost))
        forecast = self._observations[row].result.variances or (0.0,) * len(self.directions)
        # What a failure teaches about values depends on whether an earlier row at its point has one.
        changed = result.state is State.FAILED or self._observations.has_failed_at(row)
        for surrogate, *variances in zip(self._outputs.objectives, result.variances, forecast, strict=True):
            if changed or any(variances):
                surrogate.cut(row)
        self._observations.resolve(row, result)

    def forecast(
        self,
        suggestion: Suggestion | int,
        value: float,
        variance: float,
        *,
        objective: int = 0,
        constraints: Mapping[str, float | None] | None = None,
    ) -> None:
        """Tell where a pending evaluation is expected to end in one objective, and the variance of that forecast.

        The model learns it. The evaluation stays pending: it is never the best one, and its value is told later. A new
        forecast replaces an earlier one. ``constraints`` are those that it has measured already.
        """
        row = self._observations.pending_row(_number(suggestion))
        result = Result.forecast(value, variance, self._signs, objective, constraints)
        self._outputs.objectives[objective].cut(row)
        self._observations.resolve(row, result)

    def repeats(self, suggestion: Suggestion | int) -> bool:
        """Whether a pending suggestion has the configuration of another evaluation."""
        return self._observations.repeats(self._observations.pending_row(_number(suggestion)))

    def revise(self, values: Mapping[int, tuple[float, float]], *, objective: int = 0) -> None:
        """Change values that were told, and forecasts: by the numbers of suggestions, new values with their variances.

        Their constraints and costs stay. The process of the objective is built anew, also if there are no values to
        change.
        """
        results = {}
        for number, (value, variance) in values.items():
            row = self._observations.told_row(number)
            known = self._observations[row].result
            if known.state is State.PENDING:
                results[row] = Result.forecast(value, variance, self._signs, objective, known.constraints)
            else:
                results[row] = Result.of(value, self._signs, variance, known.constraints, known.cost)
        self._outputs.objectives[objective].cut(0)
        for row, result in results.items():
            self._observations.resolve(row, result)

    def observe(
        self,
        params: Mapping[str, Any],
        value: Values,
        *,
        constraints: Mapping[str, float | None] | None = None,
        variance: float | Sequence[float] = 0.0,
        seconds: float | None = None,
        cost: float | None = None,
        outside: bool = False,
    ) -> None:
        """Add a result that was not asked for. None, NaN or infinity mean that the evaluation failed.

        ``value`` and the options are those of `tell`. With ``outside``, numbers may lie outside their range, for
        example because the range was narrowed since.
        """
        plain = self.space.plain(params, outside=outside)
        result = Result.of(value, self._signs, variance, constraints, self._cost_of(seconds, cost))
        self._observations.add(plain, result, None)

    def _cost_of(self, seconds: float | None, cost: float | None) -> float | None:
        """The cost that was told; None if it is not known or does not count."""
        if cost is not None and self.cost in (None, "seconds"):
            remedy = "tell seconds=" if self.cost else "make the optimiser with cost='NAME', or leave it out"
            raise ValueError(f"tell(cost={shortened(cost)}): this optimiser has cost={self.cost!r}; {remedy}")
        took = None if seconds is None else positive("seconds", seconds)
        told = None if cost is None else positive(f"the cost, {self.cost!r},", cost)
        return took if self.cost == "seconds" else told

    def forget(self, suggestion: Suggestion | int) -> None:
        """Remove a pending suggestion that will never be told."""
        self._remove(self._observations.pending_row(_number(suggestion)))

    def _remove(self, row: int) -> None:
        self._outputs.cut(row)
        self._observations.remove(row)

    # ------------------------------------------------------------------ look

    @property
    def pending(self) -> list[Suggestion]:
        """The suggestions that were not told yet."""
        rows = [self._observations[row] for row in self._observations.rows(State.PENDING)]
        return [Suggestion(each.number, dict(each.params)) for each in rows if each.number is not None]

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
        return self._best(int(rows[np.argmin(self._observations.values[rows])]))

    @property
    def front(self) -> list[Best]:
        """The observations that no other dominates, in the order in which they were added; empty if there are none.

        Failures do not count, nor do observations that violate a constraint or have not measured it.
        """
        rows = np.flatnonzero(self._observations.feasible())
        values = np.column_stack([self._observations.values_of(j)[rows] for j in range(len(self.directions))])
        return [self._best(int(row)) for row in rows[non_dominated(values)]]

    def _best(self, row: int) -> Best:
        found = self._observations[row]
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
        with self._outputs.without_changes():
            points, evaluated = self._chooser.prospects(self.seed, rng)
            process, warping = self._surrogate.sync(), self._surrogate.warping
            played = played_gains(play(process, points, evaluated, max(counts), rng), warping, counts)
            rows, means = self._surrogate.denoised(process)
            means = np.where(self._observations.feasible()[rows], means, means.max())  # others have gained nothing
            return GainParts(played, earlier_gains(means[np.argsort(rows)], warping, counts))

    def race(self, evaluations: Sequence[Evaluation]) -> Race:
        """The contenders among some evaluations, at least one, by the model as it is."""
        return Race(self.predictor(), evaluations, self.seed)

    def _evaluations(self) -> list[Evaluation]:
        """The feasible evaluations."""
        rows = np.flatnonzero(self._observations.feasible())
        found = [(self._observations[row].point, self._best(int(row))) for row in rows[self._outputs.inside(rows)]]
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
    def surrogate(self) -> tuple[Process, Warping]:
        """The process with all observations, and the warping from values to its targets. Both are for minimisation.

        The next `ask` would use the same process. This call does not change later suggestions.
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
            return Predictor(self.space, process, surrogate.warping, self._signs[objective])

    @one_thread()
    def learn(self) -> None:
        """Learn the kernels now if that is due, as the next `ask` would.

        Methods that do not change what is suggested later learn each time they are called, and forget it. If several
        of them are called and nothing is suggested, this saves time; they return the same numbers.
        """
        if self._observations.n_complete:
            for surrogate in self._outputs.objectives:
                surrogate.sync()
            self._outputs.limits()
            self._outputs.success()

    @one_thread()
    def limits(self) -> tuple[dict[str, Limit], Limit | None]:
        """The models of the measured constraints by name, whose chances make `predict_feasible`, and that of success.

        The second one is None if no evaluation has failed. Calling this does not change what is suggested later.
        """
        with self._outputs.without_changes():
            return self._outputs.limits(), self._outputs.success()

    # ----------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """The whole state as plain data for JSON: observations, kernel parameters, counters."""
        return {
            "version": STATE_VERSION,
            "seed": self.seed,
            "next_number": self._next_number,
            "rows": self._observations.state(),
            "model": self.model_state(),
            **({} if self.cost is None else {"budget_left": self.budget_left}),
        }

    def model_state(self) -> dict[str, Any]:
        """The learned model as plain data for JSON: kernel parameters, warping, counters."""
        return self._outputs.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`. Call it on a new optimiser that was made with the same arguments."""
        if len(self._observations) or self._next_number:
            raise ValueError("restore() needs a new optimiser, but this one has been used")
        if not isinstance(state, Mapping) or state.get("version") not in READABLE_VERSIONS:
            found = state.get("version") if isinstance(state, Mapping) else state
            raise ValueError(f"the state must be of version {STATE_VERSION}, not {shortened(found)}")
        with _readable("state"):
            seed, next_number = whole("seed", state["seed"], 0), whole("next_number", state["next_number"], 0)
            rows = [self._observations.parse(row, len(self.directions)) for row in state["rows"]]
            numbers = [number for *_, number in rows if number is not None]
            if len(set(numbers)) < len(numbers) or max(numbers, default=-1) >= next_number:
                raise ValueError(f"the numbers of its rows must be different and below {next_number}")
            self.restore_model(state["model"])
            self.budget_left = state.get("budget_left")
        for row in rows:
            self._observations.add(*row)
        self.seed, self._next_number = seed, next_number

    def restore_model(self, state: Mapping[str, Any]) -> None:
        """Restore the learned model from a `model_state`."""
        with _readable("model's state"):
            learned = self._outputs.parse(state)
        self._outputs.restore(learned)


def default_startup(dim: int) -> int:
    """The default number of startup points."""
    return min(max(dim, 5), 10)


def check_seed(seed: int | None) -> int:
    """Validate a seed; None gives a random one."""
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    number = whole("seed", seed, 0)
    if number > MAX_SEED:
        raise ValueError("seed must be below 2**128")
    return number


def check_cost(cost: object) -> str | None:
    """``cost`` itself if it is None or a name."""
    if cost is not None and not (isinstance(cost, str) and cost.strip()):
        raise ValueError(f"cost must be 'seconds' or the name of a metric, not {shortened(cost)}")
    return cost


def _number(suggestion: Suggestion | int) -> object:
    return suggestion.number if isinstance(suggestion, Suggestion) else suggestion


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Turn all errors about invalid plain data into a ValueError."""
    try:
        yield
    except (LookupError, TypeError, ValueError, OverflowError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"this {what} cannot be read: {reason}") from None
