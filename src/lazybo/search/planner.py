"""The planner: which configuration to evaluate next, by one search or by local ones.

It has the records and everything that was learned from them. It proposes configurations and records none of them.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from lazybo.core import Direction, checks, codec, one_thread
from lazybo.search.acquisition import check_acquisition
from lazybo.search.decide import FEW_PARAMETERS, Search
from lazybo.search.earlier import EarlierStudy, tasks_of
from lazybo.search.options import Options
from lazybo.search.output import Learning
from lazybo.search.predictions import Evaluation
from lazybo.search.queries import Queries, one_objective, signs_of
from lazybo.search.records import Record, Suggestion, pending_row, told_row
from lazybo.search.regions import Regions
from lazybo.search.results import PENDING, Result, State
from lazybo.space import Space

# With few observations the posterior has this many kernels.
MOST_PARTICLES = 8
# The default number of startup points is the number of parameters, but at least this; and this with many parameters,
# since no number of points would fill such a space.
LEAST_STARTUP = 5
# The default number of startup points with earlier studies.
EARLIER_STARTUP = 3


class Planner:
    """Proposes configurations of a space. ``options`` are those of the optimiser."""

    def __init__(self, space: Space, directions: tuple[Direction, ...], options: Options) -> None:
        self.space, self.directions = space, directions
        self.options = replace(options, earlier=EarlierStudy.read(options.earlier, directions))
        tasks = tasks_of(self.options.earlier, space, len(directions), options.kernel, options.learned_priors)
        learning = Learning(
            options.lag,
            options.kernel,
            options.noise,
            options.learned_priors,
            options.value_transform,
            particles=MOST_PARTICLES,
        )
        default = LEAST_STARTUP if space.points.dim > FEW_PARAMETERS else max(space.points.dim, LEAST_STARTUP)
        default = EARLIER_STARTUP if any(each is not None for each in tasks) else default
        self._search = Search(
            space,
            learning,
            check_acquisition(options.acquisition),
            tasks,
            n_startup=default if options.n_startup is None else options.n_startup,
            has_cost=options.cost is not None,
        )
        self.records, self._sizes = self._search.records, options.local_models
        self._regions: Regions | None = None  # made when local models take over
        self._whole: tuple[int, Search] | None = None  # the version of the records, and a search with some of them
        self._feasible = self._search.feasible
        if self._feasible is not None:
            self._feasible.check(options.seed)

    @property
    def n_feasible(self) -> int:
        """The number of evaluations with a value that have measured and satisfied all constraints."""
        return int(self.records.feasible().sum())

    # ----------------------------------------------------------------- propose

    def propose(self, number: int, n: int = 1) -> list[dict[str, Any]]:
        """The n configurations that an optimiser would suggest, the first with this number; nothing is recorded.

        If nothing changes in between, `Optimizer.ask` suggests the same. As there, what is due for the first one is
        learned, and stays learned.
        """
        number, n = checks.whole("number", number, 0), checks.whole("n", n, 1)
        self.settle()
        learned = self._search.models.learned()
        found: list[dict[str, Any]] = []
        added: list[Record] = []
        try:
            while len(found) < n:
                count = n - len(found) if self.options.batch == "maxima" else 1
                chosen = self.choose(number + len(found), count)
                found += chosen
                if len(found) < n:  # these are pending while the others are chosen
                    added += [self.records.add(params, PENDING, None) for params in chosen]
        finally:
            for each in reversed(added):
                self.remove(self.records.row_of(each.serial))
            self._search.models.restore(learned)
        return found

    def choose(self, number: int, count: int) -> list[dict[str, Any]]:
        """At least one and at most ``count`` configurations; the first is the suggestion with this number."""
        self.settle()
        if self._regions is not None:
            return [self._regions.propose(self.options.seed, number)]
        points = self._search.choose(self.options.seed, number, count)
        return [self._search.configuration(point) for point in points]

    @one_thread()
    def settle(self) -> None:
        """Learn what is due for the next suggestion, whatever its number is. A second call changes nothing."""
        if not self._is_local() and self._search.uses_model(self.options.seed):
            self._search.learn()
        if self._is_local():  # perhaps since it was learned that there is no noise
            self._regions = self._regions or Regions(self._search, self._sizes)
            self._regions.settle(self.options.seed, self.budget_left)
            self._search.models.release()

    def _is_local(self) -> bool:
        """Whether local models choose. Once they do, they always do. Pending records do not count."""
        if self._regions is not None:
            return True
        ended = len(self.records) - len(self.records.rows(State.PENDING))
        has_model = self.records.n_complete >= max(self._search.n_startup, 1) and self.space.points.dim > 0
        return has_model and ended >= self._local_after()

    def _local_after(self) -> float:
        """The number of results from which on local models choose: earlier for one objective that has no noise."""
        records, sizes, options = self.records, self._sizes, self.options
        if options.lag is None or sizes.after is None:
            return math.inf
        if isinstance(sizes.after, int):
            return sizes.after
        if records.objectives > 1 or options.cost is not None or records.violations:
            return sizes.late_after
        fitted = self._search.models.objectives[0].fitted
        # Whether there is noise is known once the kernel was learned.
        noisy = fitted.learned_at == 0 or fitted.is_noisy or records.variances().any()
        return sizes.late_after if noisy else sizes.early_after

    def complete(self, fixed: Mapping[str, Any], number: int) -> dict[str, Any]:
        """A configuration with the ``fixed`` values; the others are those of the proposal with this number.

        If that is not feasible, the others are chosen so that it is. Raises a ValueError if that is impossible.
        """
        rng = np.random.default_rng((self.options.seed, number))
        if self._feasible is None:
            return self.space.complete(fixed, self.space.points.encode(self.choose(number, 1)[0]), rng)
        if self.space.has(fixed):
            self.check_feasible(fixed)
            return dict(fixed)
        return self._feasible.completed(
            self.options.seed, fixed, self.space.points.encode(self.choose(number, 1)[0]), rng
        )

    def check_feasible(self, params: Mapping[str, Any]) -> None:
        """Raise a ValueError if a configuration may not be evaluated."""
        if not self._may_evaluate(params):
            raise ValueError(f"{checks.shortened(dict(params), 400)} is not feasible")

    def _may_evaluate(self, params: Mapping[str, Any]) -> bool:
        return self._feasible is None or self._feasible.contains.holds(params)

    @one_thread()
    def propose_repeat(self, evaluations: Sequence[Evaluation] | None = None) -> Evaluation | None:
        """The configuration that `Optimizer.confirm` would repeat, by its first evaluation; nothing is recorded.

        ``evaluations`` are those to choose from, by default all that have a value.
        """
        one_objective(self.directions, "there is no single best to confirm", "front")
        model = self.model(0)
        possible = model.evaluations() if evaluations is None else evaluations
        inside = [each for each in possible if self.space.has(each.params) and self._may_evaluate(each.params)]
        if not inside or self.records.n_complete == 0:
            return None
        model.search.models.objectives[0].learn(fresh=True)
        return model.to_repeat(inside)

    def model(self, number: int) -> Queries:
        """Read-only queries about what was learned; the next suggestion has this number."""
        search = self._search
        if self._is_local():
            version = search.records.version
            if self._whole is None or self._whole[0] != version:
                regions = self._regions or Regions(self._search, self._sizes)
                self._whole = version, regions.of_whole_space(self.options.seed)
                self._whole[1].learn()
            search = self._whole[1]
        return Queries(search, self.directions, self.options.seed, number)

    # ------------------------------------------------------------------ change

    def resolve(self, row: int, result: Result) -> None:
        """Set the result of a row."""
        self._search.resolve(row, result)

    def withdraw(self, suggestion: Suggestion) -> None:
        """Forget the forecast of a pending suggestion."""
        self.resolve(pending_row(self.records, suggestion), PENDING)

    def repeats(self, suggestion: Suggestion) -> bool:
        """Whether a pending suggestion has the configuration of another evaluation."""
        return len(self.records.places.at(self.records[pending_row(self.records, suggestion)].point)) > 1

    def remove(self, row: int) -> None:
        """Remove a pending row."""
        if self._regions is not None:
            self._regions.remove(self.records[row])
        self._search.remove(row)

    def correct(self, row: int, result: Result) -> None:
        """Replace a result that was wrong, and forget what was learned from it."""
        self.records.resolve(row, result)
        self._search.models.forget()
        if self._regions is not None:
            self._regions.changed()

    def revise(self, values: Mapping[int, tuple[float, float]], *, objective: int = 0) -> None:
        """Change values that were told, and forecasts: by the numbers of suggestions, new values with their variances.

        Their constraints and costs stay.
        """
        signs, results = signs_of(self.directions), {}
        for number, (value, variance) in values.items():
            row = told_row(self.records, number)
            results[row] = self.records[row].result.revised(value, variance, signs, objective)
        for row, result in results.items():
            self._search.resolve(row, result)
        if results and self._regions is not None:
            self._regions.changed()

    def rebuild(self, objective: int = 0, *, noise_range: tuple[float, float] | None = None) -> None:
        """Build the process of an objective again.

        ``noise_range`` is the least and the most variance that noise may give to measured values, if that is known.
        """
        self._search.models.objectives[objective].revise(noise_range)
        if self._regions is not None:
            self._regions.changed()

    @property
    def budget_left(self) -> float | None:
        """The share of the budget that is left, from 1 to 0: the weight of the cost. None if that is not known."""
        return self._search.models.budget_left

    @budget_left.setter
    def budget_left(self, share: float | None) -> None:
        given = None if share is None else checks.finite_number("budget_left", share)
        if given is not None and not 0.0 <= given <= 1.0:
            raise ValueError(f"budget_left must be a share from 0 to 1, or None, not {checks.shortened(share)}")
        self._search.models.budget_left = given

    # ------------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """What was learned, as plain data for JSON: kernel parameters, warping, counters."""
        regions = {} if self._regions is None else {"regions": self._regions.state()}
        return {**self._search.models.state(), **regions}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue with what was learned before, from a `state`."""
        with codec.readable("this model's state"):
            learned = self._search.models.parse(state)
            written = state.get("regions")
            regions = Regions.parse(self._search, self._sizes, written) if written else None
        self._search.models.restore(learned)
        self._regions = regions
        self._whole = None
