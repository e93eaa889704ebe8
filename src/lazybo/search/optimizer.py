"""The optimiser: ask and tell. It does not know the objective, and uses no clock or executor, and a file only to save.

It has three parts: the observations (`observations`), the Gaussian processes that are learned from them, one for each
objective, each measured constraint and the failures (`outputs`), and the choice of the next points (`chooser`).
Internally, values are minimised: with the direction "maximize" they are negated. What the model says, `recommend` and
`predict`, is in `judgement`; corrections, `save` and `load` are in `resumable`.

Every configuration that was suggested or observed is one row of every process, in that order. A row without a value is
pending: it lowers the variance around it and does not change the mean. When its value is told, only the right-hand side
changes. A failed row has no value; it teaches where evaluations fail.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Self, overload

import numpy as np

from lazybo.core.blas import one_thread
from lazybo.core.checks import (
    Direction,
    check_directions,
    check_seed,
    finite_number,
    hinting,
    shortened,
    whole,
)
from lazybo.gp.fit import Lag, Priors
from lazybo.gp.kernels.base import Kernel
from lazybo.search.acquisition import Acquisition
from lazybo.search.contenders import Race
from lazybo.search.core import Core
from lazybo.search.earlier import earlier_studies
from lazybo.search.observations import Suggestion
from lazybo.search.options import Options, check_sources
from lazybo.search.parts import default_startup, make_parts, tasks_of
from lazybo.search.prediction import Evaluation
from lazybo.search.results import PENDING, Result, State, Values, cost_of
from lazybo.search.resumable import Resumable
from lazybo.search.takeover import local_models_are_due
from lazybo.space.space import Space, as_space

__all__ = ["Optimizer", "Suggestion"]

_SPACE = "it belongs to the space: Optimizer(lazybo.Space({...}, %s=...))"
HINTS = {
    "n_startup_trials": "use n_startup=",
    "directions": "use direction=, which also takes a list",
    **{name: _SPACE % name for name in ("conditions", "feasible", "optional")},
}


class Optimizer(Resumable):
    """Bayesian optimisation with a lazy Gaussian process: ask for configurations, and tell their values.

    ``space`` is a dict of parameters or a `lazybo.Space`. ``direction`` is "minimize", "maximize", or a list with one
    of them for each of several objectives: `tell` then takes a list of values, and `front` has the best observations.
    The other options are described in `lazybo.search.options.Options`.
    """

    @hinting(HINTS)
    def __init__(
        self,
        space: Space | Mapping[str, Any],
        *,
        direction: Direction | Sequence[Direction] = "minimize",
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
        earlier: Sequence[Any] = (),
        local_after: int | Literal["auto"] | None = "auto",
        deterministic: bool = False,
    ) -> None:
        options = Options(
            seed=check_seed(seed),
            lag=lag,
            acquisition=acquisition,
            batch=batch,
            n_startup=n_startup,
            kernel=kernel,
            noise=noise,
            priors=priors,
            value_transform=value_transform,
            cost=cost,
            earlier=check_sources(earlier),
            local_after=local_after,
            deterministic=deterministic,
        )
        self._begin(as_space(space), check_directions(direction), options)

    @classmethod
    def with_options(cls, space: Space, directions: tuple[Direction, ...], options: Options) -> Self:
        """An optimiser with options that were checked before."""
        made = cls.__new__(cls)
        made._begin(space, directions, options)
        return made

    def _begin(self, space: Space, directions: tuple[Direction, ...], options: Options) -> None:
        self.space, self.directions, self.seed = space, directions, options.seed
        self.options = replace(options, earlier=earlier_studies(options.earlier, directions))
        tasks = tasks_of(self.options.earlier, space, len(directions), options.kernel, options.learned_priors)
        self.n_startup = default_startup(space, tasks) if options.n_startup is None else options.n_startup
        self._signs = tuple(-1.0 if each == "maximize" else 1.0 for each in directions)
        self._next_number = 0
        self.lag, self.batch, self.cost, self._local_after = (
            options.lag,
            options.batch,
            options.cost,
            options.local_after,
        )
        self._all, self._regions = make_parts(space, tasks, self.n_startup, self.options)
        self._observations, self._feasible = self._all.observations, self._all.feasible
        self._whole: tuple[int, Core] | None = None  # the version of the observations, and their core
        if self._feasible is not None:
            self._feasible.check(self.seed)

    @property
    def budget_left(self) -> float | None:
        """The share of the budget that is left, from 1 to 0: the weight of the cost. None if that is not known.

        Set it before each `ask` if you know when the search ends: for example to ``1 - spent / budget``. If it is
        None, the weight falls slowly with the number of suggestions.
        """
        return self._all.outputs.budget_left

    @budget_left.setter
    def budget_left(self, share: float | None) -> None:
        given = None if share is None else finite_number("budget_left", share)
        if given is not None and not 0.0 <= given <= 1.0:
            raise ValueError(f"budget_left must be a share from 0 to 1, or None, not {shortened(share)}")
        self._all.outputs.budget_left = given

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

        If nothing changes in between, an `ask` that follows suggests the same. As in `ask`, what is due is learned, and
        stays learned.
        """
        return self._choose(whole("number", number, 0), 1)[0]

    def propose_batch(self, number: int, n: int) -> list[dict[str, Any]]:
        """The configurations that ``ask(n)`` would suggest, the first with this number; nothing is recorded.

        If nothing changes in between, an ``ask(n)`` that follows suggests the same. What is due for the first one is
        learned, and stays learned.
        """
        number, n, before = whole("number", number, 0), whole("n", n, 1), self._next_number
        rows = len(self._observations)
        self._settle()
        try:
            with self._all.outputs.without_changes():
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

    def announce(self, params: Mapping[str, Any], *, outside: bool = False) -> Suggestion:
        """Add an evaluation that another process has started. It is pending until it is told, like a suggestion.

        With ``outside``, numbers may lie outside their range.
        """
        return self._pend(self.space.plain(params, outside=outside))

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
        predictor = self._predictor_of(process, self._surrogate, self._signs[0])
        return Race(predictor, inside, self.seed).to_repeat(learns=self._surrogate.learns)

    def _ask(self, number: int, wanted: int) -> list[Suggestion]:
        """Suggest a batch; its random numbers are those of ``number`` and the following numbers."""
        suggestions: list[Suggestion] = []
        while len(suggestions) < wanted:
            count = wanted - len(suggestions) if self.batch == "maxima" else 1
            chosen = self._choose(number + len(suggestions), count)
            suggestions += [self._pend(params) for params in chosen]
        return suggestions

    def _choose(self, number: int, count: int) -> list[dict[str, Any]]:
        """At least one and at most ``count`` configurations; the first is the suggestion with this number."""
        self._settle()
        if self._is_local():
            return [self._regions.propose(self.seed, number)]
        points = self._all.chooser.choose(self.seed, number, count)
        return [self._observations.configuration(point) for point in points]

    @one_thread()
    def _settle(self) -> None:
        """Learn what is due for the next suggestion, whatever its number is. A second call changes nothing."""
        if not self._is_local() and self._all.chooser.uses_model(self.seed):
            self._all.learn()
        if self._is_local():  # perhaps since it was learned that there is no noise
            self._regions.settle(self.seed, self.budget_left)
            self._all.outputs.release()

    def _is_local(self) -> bool:
        """Whether local models choose. Once they do, they always do."""
        if self._regions or self.lag is None:
            return bool(self._regions)
        return local_models_are_due(self._all, self._local_after, self.n_startup)

    @property
    def _core(self) -> Core:
        """The core to ask what the model says: that with all observations, or with as many as one factor serves."""
        if not self._is_local():
            return self._all
        version = self._observations.version
        if self._whole is None or self._whole[0] != version:
            core = self._regions.of_whole_space(self.seed)
            core.learn()
            self._whole = version, core
        return self._whole[1]

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
        row = self._observations.pending_row(suggestion)
        result = Result.of(value, self._signs, variance, constraints, cost_of(self.cost, seconds, cost))
        self._all.resolve(row, result)

    def forecast(
        self,
        suggestion: Suggestion | int,
        value: float,
        variance: float,
        *,
        objective: int = 0,
        constraints: Mapping[str, float | None] | None = None,
        stopped: bool = False,
        seconds: float | None = None,
        cost: float | None = None,
    ) -> None:
        """Tell where a pending evaluation is expected to end in one objective, and the variance of that forecast.

        The model learns it, but the evaluation is never the best one. It stays pending and its value is told later,
        unless it was ``stopped`` for good. A new forecast replaces an earlier one. ``constraints`` are those that it
        has measured already; ``seconds`` and ``cost`` are what it has cost, as in `tell`.
        """
        row = self._observations.pending_row(suggestion)
        state, paid = State.STOPPED if stopped else State.PENDING, cost_of(self.cost, seconds, cost)
        result = Result.forecast(value, variance, self._signs, objective, constraints, state=state, cost=paid)
        self._all.resolve(row, result)

    def repeats(self, suggestion: Suggestion | int) -> bool:
        """Whether a pending suggestion has the configuration of another evaluation."""
        return self._observations.repeats(self._observations.pending_row(suggestion))

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
        result = Result.of(value, self._signs, variance, constraints, cost_of(self.cost, seconds, cost))
        self._observations.add(plain, result, None)

    def forget(self, suggestion: Suggestion | int) -> None:
        """Remove a pending suggestion that will never be told."""
        self._remove(self._observations.pending_row(suggestion))

    def _remove(self, row: int) -> None:
        self._regions.remove(row)
        self._all.remove(row)

    @property
    def pending(self) -> list[Suggestion]:
        """The suggestions that were not told yet."""
        rows = [self._observations[row] for row in self._observations.rows(State.PENDING)]
        return [Suggestion(each.number, dict(each.params)) for each in rows if each.number is not None]

    @one_thread()
    def learn(self) -> None:
        """Learn the kernels now if that is due, as the next `ask` would.

        Methods that do not change what is suggested later learn each time they are called, and forget it. If several
        of them are called and nothing is suggested, this saves time; they return the same numbers.
        """
        self._core.learn()
