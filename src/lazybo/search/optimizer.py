"""The optimiser: ask and tell. It does not know the objective, and uses no clock, file or executor.

It has three parts: the observations (`observations`), the Gaussian process that is learned from them (`surrogate`) and
the choice of the next points (`chooser`). Internally, values are minimised: with the direction "maximize" they are
negated.

Every configuration that was suggested or observed is one row of the process, in that order. A row without a value is
pending: it lowers the variance around it and does not change the mean. When its value is told, only the right-hand side
changes. A failed row gets the worst value so far.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from lazybo.blas import one_thread
from lazybo.checks import one_of, renamed, shortened, whole
from lazybo.model.fit import Priors
from lazybo.model.kernels import Kernel
from lazybo.model.lag import Lag, check_lag
from lazybo.model.process import Process
from lazybo.model.targets import WARPINGS, Warping
from lazybo.search.acquisition import Acquisition, check_acquisition
from lazybo.search.chooser import Chooser
from lazybo.search.observations import PENDING, Observations, Result, State
from lazybo.search.pool import POOL_POINTS
from lazybo.search.prediction import Evaluation, Prediction, Predictor, Recommendation
from lazybo.search.shorthand import as_distributions
from lazybo.search.space import Condition, Space
from lazybo.search.surrogate import Surrogate

# From this size on, the best local maxima make a better batch (`python -m benchmarks.batch`: better for 20, worse for
# 5).
LARGE_BATCH = 10
STATE_VERSION = 2
# NumPy's own seeds have 128 bits too. Every storage and JSON can hold them.
MAX_SEED = 2**128 - 1


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A configuration to evaluate, and its number, by which its value can be told."""

    number: int
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Best:
    """The best observation so far; ``number`` is None if it was given to `Optimizer.observe`, not suggested."""

    params: dict[str, Any]
    value: float
    number: int | None


class Optimizer:
    """Bayesian optimisation with a lazy Gaussian process.

    - ``space``: a dict of lists of choices, ranges ``(low, high)`` or ``(low, high, "log")``, and Optuna distributions
      (`lazybo.search.shorthand`). ``conditions`` says when a parameter is active; ``optional`` names parameters that
      observations may lack for other reasons.
    - ``lag``: how often the kernel is learned: after so many observations, None (never) or "auto".
    - ``acquisition``: "logei", "ei", "pi", "ucb" or a function as in `lazybo.acquisition`.
    - ``batch``: how ``ask(n)`` chooses several points: "fantasy" (one after the other; earlier ones are pending for
      later ones), "maxima" (the n best local maxima, as in the paper) or "auto" (maxima for large batches).
    - ``n_startup``: how many points are spread over the space before the model is used.
    - ``kernel``: "matern52" (the default), "additive" (a share of the variance is a sum over single parameters) or a
      kernel of `lazybo.kernels`. Learning starts from a kernel object and ``noise``; with the lag None they are kept.
    - ``value_transform``: how the values are transformed for the model: "warped" (to look like a normal sample),
      "scaled" (mean 0, standard deviation 1) or "centred" (mean 0 in their own units, as in the paper).
    """

    @renamed(targets="value_transform")
    def __init__(
        self,
        space: Mapping[str, Any],
        *,
        conditions: Mapping[str, Condition] | None = None,
        optional: Collection[str] = (),
        direction: Literal["minimize", "maximize"] = "minimize",
        seed: int | None = None,
        lag: Lag = "auto",
        acquisition: str | Acquisition = "logei",
        batch: Literal["auto", "fantasy", "maxima"] = "auto",
        n_startup: int | None = None,
        kernel: str | Kernel | None = None,
        noise: float | None = None,
        priors: Priors | None = None,
        value_transform: Literal["warped", "scaled", "centred"] = "warped",
    ) -> None:
        self.space = Space(as_distributions(space), conditions, optional)
        self.direction = one_of("direction", direction, ("minimize", "maximize"))
        self.lag = check_lag(lag)
        self.batch = one_of("batch", batch, ("auto", "fantasy", "maxima"))
        self.seed = check_seed(seed)
        self.n_startup = default_startup(self.space.dim) if n_startup is None else whole("n_startup", n_startup, 0)
        self._sign = -1.0 if direction == "maximize" else 1.0
        self._next_number = 0
        self._observations = Observations(self.space)
        self._surrogate = Surrogate(
            self.space,
            self._observations,
            lag=self.lag,
            kernel=kernel,
            noise=noise,
            priors=priors,
            make_warping=WARPINGS[one_of("value_transform", value_transform, tuple(WARPINGS))],
        )
        acquire = check_acquisition(acquisition)
        self._chooser = Chooser(self.space, self._observations, self._surrogate, acquire, self.n_startup)

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
        return self.space.decode(self._chooser.choose(self.seed, whole("number", number, 0), 1)[0])

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

    def announce(self, params: Mapping[str, Any]) -> Suggestion:
        """Add an evaluation that another process has started. It is pending until it is told, like a suggestion."""
        return self._pend(self.space.plain(params))

    def maxima(self) -> list[tuple[dict[str, Any], float]]:
        """The distinct local maxima of the current acquisition function, best first: configurations and values."""
        if self._observations.n_complete == 0 or self.space.dim == 0:
            return []
        rng = np.random.default_rng((self.seed, self._next_number))
        with self._surrogate.without_changes():
            found = self._chooser.maxima(self.seed, rng, POOL_POINTS // 16)
        return [(self.space.decode(maximum.x), maximum.value) for maximum in found]

    def _ask(self, number: int, wanted: int) -> list[Suggestion]:
        """Suggest a batch; its random numbers are those of ``number`` and the following numbers."""
        suggestions: list[Suggestion] = []
        by_maxima = self.batch == "maxima" or (self.batch == "auto" and wanted >= LARGE_BATCH)
        while len(suggestions) < wanted:
            count = wanted - len(suggestions) if by_maxima else 1
            points = self._chooser.choose(self.seed, number + len(suggestions), count)
            suggestions += [self._pend(self.space.decode(x)) for x in points]
        return suggestions

    def _pend(self, params: dict[str, Any]) -> Suggestion:
        number = self._next_number
        self._next_number += 1
        self._observations.add(params, PENDING, number)
        return Suggestion(number, dict(params))

    # ------------------------------------------------------------------ tell

    def tell(self, suggestion: Suggestion | int, value: float | None, *, variance: float = 0.0) -> None:
        """Tell the value of a suggestion. None, NaN or infinity mean that the evaluation failed.

        ``variance`` is the known variance of the noise in this value, if any.
        """
        row = self._observations.pending_row(_number(suggestion))
        result = Result.of(value, self._sign, variance)
        if result.variance:
            self._surrogate.cut(row)
        self._observations.resolve(row, result)

    def revise(self, values: Mapping[int, tuple[float, float]]) -> None:
        """Change values that were told: by the numbers of their suggestions, the new values with their variances.

        The process is built anew, also if there are no values to change.
        """
        results = {self._observations.told_row(n): Result.of(v, self._sign, var) for n, (v, var) in values.items()}
        self._surrogate.cut(0)
        for row, result in results.items():
            self._observations.resolve(row, result)

    def observe(
        self, params: Mapping[str, Any], value: float | None, *, variance: float = 0.0, outside: bool = False
    ) -> None:
        """Add a result that was not asked for. None, NaN or infinity mean that the evaluation failed.

        With ``outside``, numbers may lie outside their range, for example because the range was narrowed since.
        """
        plain = self.space.plain(params, outside=outside)
        self._observations.add(plain, Result.of(value, self._sign, variance), None)

    def forget(self, suggestion: Suggestion | int) -> None:
        """Remove a pending suggestion that will never be told."""
        self._remove(self._observations.pending_row(_number(suggestion)))

    def _remove(self, row: int) -> None:
        self._surrogate.cut(row)
        self._observations.remove(row)

    # ------------------------------------------------------------------ look

    @property
    def pending(self) -> list[Suggestion]:
        """The suggestions that were not told yet."""
        rows = [self._observations[row] for row in self._observations.rows(State.PENDING)]
        return [Suggestion(each.number, dict(each.params)) for each in rows if each.number is not None]

    @property
    def best(self) -> Best:
        """The best value told or observed; failures do not count."""
        if self._observations.n_complete == 0:
            raise ValueError("there is no best yet: no evaluation has succeeded")
        best = self._observations[int(np.nanargmin(self._observations.values))]
        return Best(dict(best.params), self._sign * best.result.value, best.number)

    @one_thread()
    def recommend(self) -> Recommendation:
        """The configuration to use: of the evaluated ones, the one with the best posterior mean.

        It has the median and the 95 % interval of the objective there. `best` has the best value seen, which may be the
        luckiest one if the objective is noisy. Calling this does not change what is suggested later.
        """
        if self._observations.n_complete == 0:
            raise ValueError("there is nothing to recommend yet: no evaluation has succeeded")
        complete = [self._observations[row] for row in self._observations.rows(State.COMPLETE)]
        return self.predictor().recommendation(
            [Evaluation(each.params, each.point, self._sign * each.result.value, each.number) for each in complete]
        )

    @overload
    def predict(self, params: Mapping[str, Any]) -> Prediction: ...
    @overload
    def predict(self, params: Sequence[Mapping[str, Any]]) -> list[Prediction]: ...
    @one_thread()
    def predict(self, params: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Prediction | list[Prediction]:
        """The median and the 95 % interval of the objective at a configuration, or a list of them for several.

        Both are without the noise of a measurement. Calling this does not change what is suggested later.
        """
        if isinstance(params, str | bytes) or not isinstance(params, Mapping | Sequence):
            raise ValueError(f"params must be a configuration or a list of configurations, not {shortened(params)}")
        configurations = [params] if isinstance(params, Mapping) else params
        points = [self.space.encode(self.space.plain(each)) for each in configurations]
        found = self.predictor().predictions(np.array(points).reshape(len(points), self.space.dim))
        return found[0] if isinstance(params, Mapping) else found

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
    def predictor(self) -> Predictor:
        """The process and the warping of `surrogate`, for predictions; also if no parameter of the space can vary."""
        if self._observations.n_complete == 0:
            raise ValueError("there is no model yet: no evaluation has succeeded")
        with self._surrogate.without_changes():
            process = self._surrogate.sync()
            return Predictor(self.space, process, self._surrogate.warping, self._sign)

    # ----------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """The whole state as plain data for JSON: observations, kernel parameters, counters."""
        return {
            "version": STATE_VERSION,
            "seed": self.seed,
            "next_number": self._next_number,
            "rows": self._observations.state(),
            "model": self.model_state(),
        }

    def model_state(self) -> dict[str, Any]:
        """The learned model as plain data for JSON: kernel parameters, warping, counters."""
        return self._surrogate.fitted.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`. Call it on a new optimiser that was made with the same arguments."""
        if len(self._observations) or self._next_number:
            raise ValueError("restore() needs a new optimiser, but this one has been used")
        if not isinstance(state, Mapping) or state.get("version") != STATE_VERSION:
            found = state.get("version") if isinstance(state, Mapping) else state
            raise ValueError(f"the state must be of version {STATE_VERSION}, not {shortened(found)}")
        with _readable("state"):
            seed, next_number = whole("seed", state["seed"], 0), whole("next_number", state["next_number"], 0)
            rows = [self._observations.parse(row) for row in state["rows"]]
            numbers = [number for *_, number in rows if number is not None]
            if len(set(numbers)) < len(numbers) or max(numbers, default=-1) >= next_number:
                raise ValueError(f"the numbers of its rows must be different and below {next_number}")
            self.restore_model(state["model"])
        for row in rows:
            self._observations.add(*row)
        self.seed, self._next_number = seed, next_number

    def restore_model(self, state: Mapping[str, Any]) -> None:
        """Restore the learned model from a `model_state`."""
        with _readable("model's state"):
            fitted = self._surrogate.fitted.parse(state)
        self._surrogate.restore(fitted)


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
