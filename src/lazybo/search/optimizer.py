"""The optimiser: ask and tell. It does not know the objective, and uses no clock or executor, and a file only to save.

It has three parts: the observations (`observations`), the Gaussian processes that are learned from them, one for each
objective, each measured constraint and the failures (`outputs`), and the choice of the next points (`chooser`).
Internally, values are minimised: with the direction "maximize" they are negated.

Every configuration that was suggested or observed is one row of every process, in that order. A row without a value is
pending: it lowers the variance around it and does not change the mean. When its value is told, only the right-hand side
changes. A failed row has no value; it teaches where evaluations fail.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeAlias, overload

import numpy as np

from lazybo import notebook
from lazybo.blas import one_thread
from lazybo.checks import (
    Direction,
    check_cost,
    check_directions,
    check_seed,
    finite_number,
    one_of,
    positive,
    renamed,
    shortened,
    whole,
)
from lazybo.model.earlier import EarlierTasks
from lazybo.model.fit import Priors, check_priors
from lazybo.model.kernels import Kernel, kernel_for
from lazybo.model.lag import Lag, check_lag
from lazybo.model.targets import WARPINGS
from lazybo.search import saved
from lazybo.search.acquisition import Acquisition, check_acquisition
from lazybo.search.chooser import FEW_PARAMETERS
from lazybo.search.contenders import Race
from lazybo.search.core import Core, make_core
from lazybo.search.earlier import earlier_studies, fitting
from lazybo.search.feasibility import Predicate
from lazybo.search.judgement import Judgement
from lazybo.search.observations import PENDING, Result, State
from lazybo.search.pool import POOL_POINTS
from lazybo.search.prediction import Evaluation, Predictor
from lazybo.search.regions import Regions
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
# The default number of startup points is that of the parameters, but at least this; and this if there are many
# parameters: as many points would not fill such a space either.
LEAST_STARTUP = 5
# The default number of startup points if there are earlier studies.
EARLIER_STARTUP = 3
# From so many observations on, local models take over: the factor of all has 0.4 GB then.
LOCAL_AFTER = 10_000
# The same for one objective without noise, constraints and costs: local models are better there, and cost less.
EARLY_LOCAL_AFTER = 1000
# The default kernel of local models. They are learned anew in every round, and the additive one takes longer to learn.
LOCAL_KERNEL = "matern52"


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A configuration to evaluate, and its number, by which its value can be told."""

    number: int
    params: dict[str, Any]

    def _repr_html_(self) -> str:
        return notebook.table(f"Suggestion {self.number}", ("", ""), self.params.items())


class Optimizer(Judgement):
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
      later ones), "maxima" (the n best local maxima, as in the paper) or "auto" (maxima for large batches). Local
      models choose one after the other.
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
    - ``local_after``: from so many observations on, local models take over from the one with all observations, whose
      memory grows with their square (`lazybo.search.regions`). "auto": from 1,000 on for one objective without noise,
      constraints and costs, else from 10,000 on. None: never; nor if the kernel is never learned.
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
        earlier: Sequence[Any] = (),
        local_after: int | Literal["auto"] | None = "auto",
    ) -> None:
        self.space = Space(as_distributions(space), conditions, optional)
        self.directions = check_directions(direction, directions)
        self.lag = check_lag(lag)
        self.batch = one_of("batch", batch, ("auto", "fantasy", "maxima"))
        self.seed = check_seed(seed)
        self.earlier = earlier_studies(earlier, self.directions)
        tasks = self._tasks(kernel, priors)
        self.n_startup = whole("n_startup", n_startup, 0) if n_startup is not None else self._default_startup(tasks)
        self._signs = tuple(-1.0 if each == "maximize" else 1.0 for each in self.directions)
        self._next_number = 0
        self.cost = check_cost(cost)
        self._local_after = _check_local_after(local_after)
        make_surrogate = partial(
            Surrogate,
            lag=self.lag,
            noise=noise,
            priors=priors,
            make_warping=WARPINGS[one_of("value_transform", value_transform, tuple(WARPINGS))],
        )
        make = partial(
            make_core,
            predicate=feasible,
            acquisition=check_acquisition(acquisition),
            has_cost=cost is not None,
        )
        of_all, of_part = (partial(make_surrogate, kernel=each) for each in (kernel, kernel or LOCAL_KERNEL))
        self._all = make(self.space, tasks, make_surrogate=of_all, n_startup=self.n_startup)
        make_part = partial(make, n_startup=0, repeats=False)
        self._observations, self._feasible = self._all.observations, self._all.feasible
        self._regions = Regions(
            self._all, partial(make_part, make_surrogate=of_part), partial(make_part, make_surrogate=of_all)
        )
        self._whole: tuple[int, Core] | None = None  # the version of the observations, and their core
        if self._feasible is not None:
            self._feasible.check(self.seed)
        self._options = {
            "directions": self.directions,
            "seed": self.seed,
            "lag": lag,
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

    def _tasks(self, kernel: str | Kernel | None, priors: Priors | None) -> list[EarlierTasks | None]:
        """What the earlier studies say about each objective."""
        if not self.earlier or self.space.dim == 0:
            return [None] * len(self.directions)
        fits, start = fitting(self.earlier, self.space), kernel_for(kernel, self.space.columns)
        every = [fits.tasks(objective) for objective in range(len(self.directions))]
        return [EarlierTasks(tasks, start, check_priors(priors), fits.unknown) if tasks else None for tasks in every]

    def _default_startup(self, tasks: Sequence[EarlierTasks | None]) -> int:
        if any(each is not None for each in tasks):
            return EARLIER_STARTUP
        return max(self.space.dim, LEAST_STARTUP) if self.space.dim <= FEW_PARAMETERS else LEAST_STARTUP

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

        As in `ask`, the kernel is learned if it is due.
        """
        return self._choose(whole("number", number, 0), 1)[0]

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
        core = self._core
        with core.outputs.without_changes():
            found = core.chooser.maxima(self.seed, rng, POOL_POINTS // 16)
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
            chosen = self._choose(number + len(suggestions), count)
            suggestions += [self._pend(params) for params in chosen]
        return suggestions

    def _choose(self, number: int, count: int) -> list[dict[str, Any]]:
        """At least one and at most ``count`` configurations; the first is the suggestion with this number."""
        if self._is_local():
            params = self._regions.propose(self.seed, number, self.budget_left)
            self._all.outputs.release()
            return [params]
        points = self._all.chooser.choose(self.seed, number, count)
        return [self._observations.configuration(point) for point in points]

    def _is_local(self) -> bool:
        """Whether local models choose. Once they do, they always do."""
        if self._regions or self._local_after is None or self.lag is None or self.space.dim == 0:
            return bool(self._regions)
        enough = self._observations.n_complete >= max(self.n_startup, 1)
        return enough and len(self._observations) >= self._limit()

    def _limit(self) -> int:
        """From how many observations on local models choose."""
        if isinstance(self._local_after, int):
            return self._local_after
        if len(self._observations) < EARLY_LOCAL_AFTER or len(self.directions) > 1 or self.cost is not None:
            return LOCAL_AFTER
        fitted = self._all.outputs.objectives[0].fitted
        # Whether there is noise is known once the kernel was learned.
        noisy = fitted.learned_at == 0 or fitted.is_noisy or self._observations.variances().any()
        return LOCAL_AFTER if noisy or self._observations.constraints else EARLY_LOCAL_AFTER

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
        row = self._observations.pending_row(_number(suggestion))
        result = Result.of(value, self._signs, variance, constraints, self._cost_of(seconds, cost))
        self._all.resolve(row, result)

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
        self._all.outputs.objectives[objective].cut(row)
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
        self._all.outputs.objectives[objective].cut(0)
        self._regions.changed()
        for row, result in results.items():
            self._observations.resolve(row, result)

    def correct(
        self,
        which: Suggestion | int | Mapping[str, Any],
        value: Values,
        *,
        constraints: Mapping[str, float | None] | None = None,
        variance: float | Sequence[float] | None = None,
        seconds: float | None = None,
        cost: float | None = None,
    ) -> None:
        """Change a value that was told or observed, by its suggestion, its number, or its configuration.

        The arguments are those of `tell`. Constraints, variance and cost that are not given stay as they are. The model
        is learned anew from all observations: what it had learned from the wrong value is forgotten.
        """
        row = self._observations.result_row(_number(which) if isinstance(which, Suggestion) else which)
        known = self._observations[row].result
        kept = known.variances if any(known.variances) else 0.0
        if variance is None:
            variance = kept if isinstance(kept, float) or len(kept) > 1 else kept[0]
        paid = self._cost_of(seconds, cost)
        measured = {**known.constraints, **(constraints or {})}
        result = Result.of(value, self._signs, variance, measured, known.cost if paid is None else paid)
        self._observations.resolve(row, result)
        self._all.outputs.learn_anew()
        self._regions.changed()

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
        self._all.remove(row)
        self._regions.removed(row)

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

    # ----------------------------------------------------------------- state

    def save(self, path: str | Path) -> None:
        """Write the whole optimiser to a JSON file: space, options, observations, and what was learned.

        `load` continues from it to the last bit. A file that is there is replaced as a whole, or not at all.
        """
        saved.write(path, saved.to_text(self.space, self._options, self.state()))

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        feasible: Predicate | None = None,
        acquisition: Acquisition | None = None,
        kernel: Kernel | None = None,
    ) -> "Optimizer":
        """The optimiser that `save` wrote. Functions are not in the file: give the same ones again.

        Raises a ValueError if the file cannot be read, or if such a function is missing.
        """
        given = {"feasible": feasible, "acquisition": acquisition, "kernel": kernel}
        with _readable(f"file {str(path)!r}"):
            text = Path(path).expanduser().read_text(encoding="utf-8")
            arguments, state = saved.from_text(text, given)
            found = cls(**arguments)
            found.restore(state)
        return found

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
        regions = self._regions.state()
        return {**self._all.outputs.state(), **({"regions": regions} if regions else {})}

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
            learned = self._all.outputs.parse(state)
            regions = self._regions.parse(state.get("regions", ()))
        self._all.outputs.restore(learned)
        self._regions.restore(regions)
        self._whole = None


def _check_local_after(given: Any) -> int | Literal["auto"] | None:
    if given is None or (isinstance(given, str) and given == "auto"):
        return "auto" if given else None
    try:
        return whole("local_after", given, 0)
    except ValueError:
        raise ValueError(
            f'local_after must be a whole number, "auto" or None (never), not {shortened(given)}'
        ) from None


def _number(suggestion: Suggestion | int) -> object:
    return suggestion.number if isinstance(suggestion, Suggestion) else suggestion


@contextmanager
def _readable(what: str) -> Iterator[None]:
    """Turn all errors about invalid plain data into a ValueError."""
    try:
        yield
    except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise ValueError(f"this {what} cannot be read: {reason}") from None
