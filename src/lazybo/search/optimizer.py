"""The optimiser: ask, tell, predict, save. It knows no objective, clock or executor, and uses a file only to save.

Every configuration that was suggested or observed is one row of every process, in that order. A row without a value is
pending: it lowers the variance around it and does not change the mean. When its value is told, only the right-hand side
changes. A failed row has no value; it teaches where evaluations fail. Internally, values are minimised.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from lazybo.core import Direction, Lag, checks, codec, texts
from lazybo.gp import Kernel, Priors
from lazybo.search import saved
from lazybo.search.acquisition import Acquisition, Function
from lazybo.search.options import LocalModels, Options
from lazybo.search.planner import Planner
from lazybo.search.predictions import Recommendation
from lazybo.search.queries import Best, Queries, best_of, feasible_rows, front_of, one_objective, signs_of
from lazybo.search.records import Suggestion, Table, pending_row, result_row, rows_of
from lazybo.search.results import PENDING, Result, State, Values, cost_of
from lazybo.space import Space

__all__ = ["Optimizer", "Suggestion"]

_SPACE = "it belongs to the space: Optimizer(lazybo.Space({...}, %s=...))"
HINTS = {
    "n_startup_trials": "use n_startup=",
    "directions": "use direction=, which also takes a list",
    **{name: _SPACE % name for name in Space.KNOWLEDGE},
}
# A notebook shows this many of the last observations.
ROWS_SHOWN = 10


class Optimizer:
    """Bayesian optimisation with a lazy Gaussian process: ask for configurations, and tell their values.

    ``space`` is a dict of parameters or a `lazybo.Space`. ``direction`` is "minimize", "maximize", or a list with one
    of them for each of several objectives: `tell` then takes a list of values, and `front` has the best observations.
    The other options are described in `lazybo.search.options.Options`; ``options`` has them, and none can be changed.
    ``model`` answers further questions about what was learned, and ``planner`` proposes without recording.
    """

    __slots__ = ("_next_number", "_signs", "directions", "options", "planner", "space")

    @checks.hinting(HINTS)
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
        local_after: LocalModels | int | Literal["auto"] | None = "auto",
        deterministic: bool = False,
    ) -> None:
        space = Space.of(space)
        options = Options(
            seed=checks.check_seed(seed),
            lag=lag,
            acquisition=acquisition,
            batch=batch,
            n_startup=n_startup,
            kernel=kernel,
            noise=noise,
            priors=priors,
            value_transform=value_transform,
            cost=cost,
            earlier=earlier,  # type: ignore[arg-type]
            local_after=local_after,
            deterministic=deterministic,
        )
        space, options = options.joined(space)
        self.planner = Planner(space, checks.check_directions(direction), options)
        self.space, self.directions, self.options = self.planner.space, self.planner.directions, self.planner.options
        self._signs, self._next_number = signs_of(self.directions), 0

    @classmethod
    def with_options(cls, space: Space, directions: tuple[Direction, ...], options: Options) -> Self:
        """An optimiser with these options, which may know more about the space."""
        return cls(options.informed(space), direction=directions, **options.arguments())

    # ------------------------------------------------------------------- ask

    def ask(self, n: int | None = None, *, budget_left: float | None = None) -> Any:
        """One `Suggestion`, or a list of n. Each is pending until it is told; later ones take it into account.

        ``budget_left`` is the share of the budget that is left, from 1 to 0: the weight of the cost, if evaluations
        have one. Without it, the weight falls slowly with the number of suggestions.
        """
        if budget_left is not None:
            self.planner.budget_left = budget_left
        suggestions: list[Suggestion] = []
        wanted = 1 if n is None else checks.whole("n", n, 1)
        while len(suggestions) < wanted:
            count = wanted - len(suggestions) if self.options.batch == "maxima" else 1
            suggestions += [self._pend(params) for params in self.planner.choose(self._next_number, count)]
        return suggestions[0] if n is None else suggestions

    def announce(self, params: Mapping[str, Any], *, outside: bool = False) -> Suggestion:
        """Add an evaluation that another process has started. It is pending until it is told, like a suggestion.

        With ``outside``, numbers may lie outside their range.
        """
        return self._pend(self.space.plain(params, outside=outside))

    def confirm(self) -> Suggestion | None:
        """An evaluated configuration to evaluate once more, so that one of the contenders leads with 95 %.

        None if one does, or if the values of pending suggestions are needed first. Like a suggestion of `ask` it is
        pending until it is told. If the model knows of hardly any noise and nothing was repeated yet, the leader is
        repeated once to test that. The kernel and the noise are learned from all values.
        """
        chosen = self.planner.propose_repeat()
        return None if chosen is None else self._pend(self.space.plain(chosen.params))

    def _pend(self, params: dict[str, Any]) -> Suggestion:
        number = self._next_number
        self._next_number += 1
        self.planner.records.add(params, PENDING, number)
        return Suggestion(number, self.space.values(params))

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
        row = pending_row(self.planner.records, suggestion)
        result = Result.of(value, self._signs, variance, constraints, cost_of(self.options.cost, seconds, cost))
        self.planner.resolve(row, result)

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
        row = pending_row(self.planner.records, suggestion)
        state, paid = State.STOPPED if stopped else State.PENDING, cost_of(self.options.cost, seconds, cost)
        result = Result.forecast(value, variance, self._signs, objective, constraints, state=state, cost=paid)
        self.planner.resolve(row, result)

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
        result = Result.of(value, self._signs, variance, constraints, cost_of(self.options.cost, seconds, cost))
        self.planner.records.add(plain, result, None)

    def forget(self, suggestion: Suggestion | int) -> None:
        """Remove a pending suggestion that will never be told."""
        self.planner.remove(pending_row(self.planner.records, suggestion))

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
        forgets what it had learned, also from the wrong value, and learns again from all observations.
        """
        row = result_row(self.planner.records, self.space, which)
        paid = cost_of(self.options.cost, seconds, cost)
        result = self.planner.records[row].result.corrected(value, self._signs, variance, constraints, paid)
        self.planner.correct(row, result)

    # --------------------------------------------------------------- predict

    @property
    def model(self) -> Queries:
        """Read-only queries: contenders, expected gain, predictions of all objectives, earlier studies, maxima."""
        return self.planner.model(self._next_number)

    def learn(self) -> None:
        """Learn the kernels now if that is due, as the next `ask` would.

        Queries learn for themselves and forget it. If there are several and nothing is suggested, this saves time; they
        return the same numbers.
        """
        self.model.search.learn()

    def predict(self, params: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> Any:
        """The `Prediction` for a configuration, or a list of them for several: the median and the 95 % interval.

        Both are those of the objective itself, without the noise of a measurement.
        """
        one_objective(self.directions, "a prediction has one value", "model.predict_all")
        return self.model.predict_all(params)[0]

    def recommend(self) -> Recommendation:
        """The configuration to use: the evaluated one that the model predicts to be best.

        It has the median and the 95 % interval of the objective there. `best` has the best value seen, which may be the
        luckiest one if the objective is noisy. Only evaluations that satisfy all measured constraints are recommended,
        and results at configurations that are not ``feasible`` only if there are no others.
        """
        found = self.model.recommend()
        return replace(found, params=self.space.values(found.params))

    @property
    def best(self) -> Best:
        """The best value told or observed; failures do not count, nor do those that violate a constraint."""
        one_objective(self.directions, "there is no single best", "front")
        records = self.planner.records
        rows = feasible_rows(records, "there is no best yet")
        return _shown(best_of(records[int(rows[np.argmin(records.values()[rows])])], self._signs), self.space)

    @property
    def front(self) -> list[Best]:
        """The observations that no other dominates, in the order in which they were added; empty if there are none.

        Failures do not count, nor do observations that violate a constraint or have not measured it.
        """
        return [_shown(best, self.space) for best in front_of(self.planner.records, self._signs)]

    @property
    def pending(self) -> list[Suggestion]:
        """The suggestions that were not told yet."""
        records = self.planner.records
        rows = [records[row] for row in records.rows(State.PENDING)]
        values = self.space.values
        return [Suggestion(each.number, values(each.params)) for each in rows if each.number is not None]

    def records(self) -> Table:
        """All observations as rows of plain data, in their order: number, values, parameters, constraints, state.

        The columns are those of ``lazybo export``. ``number`` is None for what was observed rather than asked for, and
        the state of a pending suggestion is RUNNING. The list has methods ``to_dataframe()`` and ``to_csv(path)``.
        """
        return rows_of([*self.planner.records], self._signs, self.options.cost)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {_summary(self)}>"

    def _repr_html_(self) -> str:
        rows = rows_of([*self.planner.records], self._signs, None)
        shown = rows[-ROWS_SHOWN:]
        headings = [name.removeprefix("params_").removeprefix("constraints_") for name in shown[0]] if shown else []
        cells = [["" if cell is None else cell for cell in row.values()] for row in shown]
        left_out = len(rows) - len(shown)
        note = f"{left_out} earlier observations are not shown; records() has all of them." if left_out else ""
        return texts.table(f"Optimizer {_summary(self)}", headings, cells, note)

    # ------------------------------------------------------------------ save

    def save(self, path: str | Path) -> None:
        """Write the whole optimiser to a JSON file: space, options, observations, and what was learned.

        `load` continues from it to the last bit. A file that is there is replaced as a whole, or not at all.
        """
        content = saved.to_text(self.space, self.directions, self.options, self.state())
        codec.write_whole(Path(path).expanduser(), content)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        feasible: Callable[[dict[str, Any]], bool] | None = None,
        features: Callable[[dict[str, Any]], Sequence[float]] | None = None,
        canonical: Callable[[dict[str, Any]], Any] | None = None,
        acquisition: Acquisition | Function | None = None,
        kernel: Kernel | None = None,
    ) -> Self:
        """The optimiser that `save` wrote. Functions are not in the file: give the same ones again.

        Raises a ValueError if the file cannot be read, or if such a function is missing.
        """
        of_space = {"feasible": feasible, "features": features, "canonical": canonical}
        given = {**of_space, "acquisition": acquisition, "kernel": kernel}
        with codec.readable(f"the file {str(path)!r}", "give a file as Optimizer.save() wrote it"):
            read = saved.from_text(saved.read(path), given)
            found = cls.with_options(read.space, read.directions, read.options)
            found.restore(read.state)
        return found

    def state(self) -> dict[str, Any]:
        """The whole state as plain data for JSON: observations, kernel parameters, counters."""
        planner, seed = self.planner, self.options.seed
        budget = {} if self.options.cost is None else {"budget_left": planner.budget_left}
        return saved.to_state(seed, self._next_number, planner.records, planner.state()) | budget

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`. Call it on a new optimiser that was made with the same arguments."""
        planner = self.planner
        if len(planner.records) or self._next_number:
            raise ValueError("restore() needs a new optimiser, but this one has been used")
        found = saved.from_state(state, planner.space, planner.records.objectives)
        with codec.readable("this state"):
            planner.restore(found.model)
            planner.budget_left = found.budget_left
        for row in found.rows:
            planner.records.add(*row)
        self.options = planner.options = replace(planner.options, seed=found.seed)
        self._next_number = found.next_number


def _summary(optimizer: Optimizer) -> str:
    """An optimiser in one line: its parameters and directions, how many evaluations there are, and the best."""
    states = [row["state"] for row in optimizer.records()]
    counts = {"values": states.count("COMPLETE"), "failed": states.count("FAIL"), "pending": states.count("RUNNING")}
    parts = [", ".join(optimizer.directions), f"{counts['values']} values"]
    parts += [f"{counts[name]} {name}" for name in ("failed", "pending") if counts[name]]
    front = optimizer.front
    if front:
        one = len(optimizer.directions) == 1
        parts.append(f"best {texts.shown(front[0].value)}" if one else f"a front of {len(front)}")
    return f"of {len(optimizer.space.distributions)} parameters: {', '.join(parts)}"


def _shown(best: Best, space: Space) -> Best:
    """One of the best observations with the values that users see."""
    return replace(best, params=space.values(best.params))
