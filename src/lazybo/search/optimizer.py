"""The optimiser: ask and tell. It does not know the objective, and uses no clock or executor, and a file only to save.

It has three parts: the observations (`observations`), the Gaussian processes that are learned from them, one for each
objective, each measured constraint and the failures (`outputs`), and the choice of the next points (`chooser`).
Internally, values are minimised: with the direction "maximize" they are negated. What the model says, `recommend` and
`predict`, is in `judgement`; corrections, `save` and `load` are in `resumable`.

Every configuration that was suggested or observed is one row of every process, in that order. A row without a value is
pending: it lowers the variance around it and does not change the mean. When its value is told, only the right-hand side
changes. A failed row has no value; it teaches where evaluations fail.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, overload

import numpy as np

from lazybo.core.blas import one_thread
from lazybo.core.checks import (
    Direction,
    check_cost,
    check_directions,
    check_seed,
    finite_number,
    hinting,
    one_of,
    renamed,
    shortened,
    whole,
)
from lazybo.gp.fit import Lag, Priors, check_lag, priors_for
from lazybo.gp.kernels.base import Kernel
from lazybo.search.acquisition import Acquisition
from lazybo.search.contenders import Race
from lazybo.search.core import Core
from lazybo.search.earlier import earlier_studies
from lazybo.search.observations import Suggestion
from lazybo.search.parts import Options, default_startup, make_parts, tasks_of
from lazybo.search.prediction import Evaluation
from lazybo.search.results import PENDING, Result, State, Values, cost_of
from lazybo.search.resumable import Resumable
from lazybo.search.takeover import check_local_after, local_models_are_due
from lazybo.space.feasibility import Predicate
from lazybo.space.shorthand import as_distributions, warn_of_misreading
from lazybo.space.space import Condition, Space

__all__ = ["Optimizer", "Suggestion"]


class Optimizer(Resumable):
    """Bayesian optimisation with a lazy Gaussian process.

    - ``space``: a dict of lists of choices, ranges ``(low, high)`` or ``(low, high, "log")``, and Optuna distributions
      (`lazybo.space.shorthand`). ``conditions`` says when a parameter is active; ``optional`` names parameters that
      observations may lack for other reasons.
    - ``direction`` is that of one objective, ``directions`` a list of those of several. `tell` then takes a list of
      values, and `front` has the best observations.
    - ``feasible``: a function of a configuration (a dict of the active parameters) that says whether it may be
      evaluated: ``lambda params: params["a"] + params["b"] <= 1``. Only feasible configurations are suggested.
    - ``lag``: how often the kernel is learned: after so many observations, None (never) or "auto".
    - ``acquisition``: "auto" (log EI, and an upper confidence bound where the model finds noise), "logei", "ei", "pi",
      "ucb" or a function as in `lazybo.acquisition`.
    - ``batch``: how ``ask(n)`` chooses several points: "fantasy" (one after the other; earlier ones are pending for
      later ones), "maxima" (the n best local maxima, as in the paper, in less time) or "auto", which is "fantasy".
      Local models choose one after the other.
    - ``n_startup``: how many points are spread over the space before the model is used.
    - ``kernel``: "additive" (the default: a share of the variance is a sum over single parameters), "matern52" or a
      kernel of `lazybo.kernels`. Learning starts from a kernel object and ``noise``; with the lag None they are kept.
    - ``value_transform``: how the values are transformed for the model: "warped" (to look like a normal sample),
      "scaled" (mean 0, standard deviation 1) or "centred" (mean 0 in their own units, as in the paper).
    - ``cost``: evaluations differ in what they cost, and cheap ones are preferred while much of the budget is left
      (`budget_left`). It is "seconds", or another name for what `tell` gets as the cost of an evaluation.
    - ``earlier``: a list of earlier studies of related problems (`lazybo.search.earlier`): Optuna studies, data frames,
      or lists of dicts with the parameters and ``value``. The first suggestions come from what was good there, and the
      model learns which of them are like this problem. Their values are not ours: results of the same problem are given
      to `observe`.
    - ``deterministic``: the same configuration always has the same value. Noise is excluded, nothing is evaluated
      twice, and `recommend` returns the best value.
    - ``local_after``: with this many results, local models take over from the one with all observations, whose memory
      grows with their square (`lazybo.search.regions`). "auto": 1,000 for one objective without noise, constraints and
      costs, else 10,000. None disables it; so does ``lag=None``.
    """

    @renamed(targets="value_transform")
    @hinting({"n_startup_trials": "use n_startup="})
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
        earlier: Sequence[Any] = (),
        local_after: int | Literal["auto"] | None = "auto",
        deterministic: bool = False,
    ) -> None:
        priors = priors_for(priors, noise, deterministic=deterministic)
        self.space = Space(as_distributions(space), conditions, optional)
        warn_of_misreading(space)
        self.directions = check_directions(direction, directions)
        self.lag = check_lag(lag)
        self.batch = one_of("batch", batch, ("auto", "fantasy", "maxima"))
        self.seed = check_seed(seed)
        self.earlier = earlier_studies(earlier, self.directions)
        tasks = tasks_of(self.earlier, self.space, len(self.directions), kernel, priors)
        self.n_startup = default_startup(self.space, tasks) if n_startup is None else whole("n_startup", n_startup, 0)
        self._signs = tuple(-1.0 if each == "maximize" else 1.0 for each in self.directions)
        self._next_number = 0
        self.cost = check_cost(cost)
        self._local_after = check_local_after(local_after)
        self._options: Options = {
            "directions": self.directions,
            "seed": self.seed,
            "lag": self.lag,
            "batch": batch,
            "n_startup": n_startup,
            "noise": noise,
            "priors": priors,
            "value_transform": value_transform,
            "cost": cost,
            "feasible": feasible,
            "acquisition": acquisition,
            "kernel": kernel,
            "earlier": self.earlier,
            "local_after": local_after,
        }
        self._all, self._regions = make_parts(self.space, tasks, self.n_startup, self._options)
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
