"""The part of an optimiser that goes on from before: corrected values, its state as plain data, and its file."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

from lazybo.core.codec import readable, write_whole
from lazybo.gp.kernels.base import Kernel
from lazybo.search import saved
from lazybo.search.acquisition import Acquisition
from lazybo.search.core import Core
from lazybo.search.judgement import Judgement
from lazybo.search.observations import Suggestion
from lazybo.search.options import Options
from lazybo.search.regions import Regions
from lazybo.search.results import Values, cost_of
from lazybo.space.space import Predicate


class Resumable(Judgement):
    """An `Optimizer` as far as it is corrected, saved and restored: whatever it was told and has learned."""

    budget_left: float | None
    options: Options
    _all: Core
    _regions: Regions
    _whole: tuple[int, Core] | None

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
        row = self._observations.result_row(which)
        paid = cost_of(self.cost, seconds, cost)
        result = self._observations[row].result.corrected(value, self._signs, variance, constraints, paid)
        self._observations.resolve(row, result)
        self._all.outputs.learn_anew()
        self._regions.changed()

    def revise(
        self,
        values: Mapping[int, tuple[float, float]],
        *,
        objective: int = 0,
        noise_range: tuple[float, float] | None = None,
    ) -> None:
        """Change values that were told, and forecasts: by the numbers of suggestions, new values with their variances.

        Their constraints and costs stay. ``noise_range`` is the least and the most variance that noise may give to
        measured values, if that is known. The process of the objective is built again, even if there are no values to
        change.
        """
        results = {}
        for number, (value, variance) in values.items():
            row = self._observations.told_row(number)
            results[row] = self._observations[row].result.revised(value, variance, self._signs, objective)
        for row, result in results.items():
            self._all.resolve(row, result)
        surrogate = self._all.outputs.objectives[objective]
        surrogate.fitted = replace(surrogate.fitted, noise_range=noise_range)
        surrogate.discard()
        self._regions.changed()

    # ----------------------------------------------------------------- state

    def save(self, path: str | Path) -> None:
        """Write the whole optimiser to a JSON file: space, options, observations, and what was learned.

        `load` continues from it to the last bit. A file that is there is replaced as a whole, or not at all.
        """
        write_whole(Path(path).expanduser(), saved.to_text(self.space, self.directions, self.options, self.state()))

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        feasible: Predicate | None = None,
        acquisition: Acquisition | None = None,
        kernel: Kernel | None = None,
    ) -> Self:
        """The optimiser that `save` wrote. Functions are not in the file: give the same ones again.

        Raises a ValueError if the file cannot be read, or if such a function is missing.
        """
        given = {"feasible": feasible, "acquisition": acquisition, "kernel": kernel}
        with readable(f"the file {str(path)!r}", "give a file as Optimizer.save() wrote it"):
            read = saved.from_text(saved.read(path), given)
            found: Self = cls.with_options(  # type: ignore[attr-defined]
                read.space, read.directions, read.options
            )
            found.restore(read.state)
        return found

    def state(self) -> dict[str, Any]:
        """The whole state as plain data for JSON: observations, kernel parameters, counters."""
        rows, model = self._observations.state(), self.model_state()
        budget = {} if self.cost is None else {"budget_left": self.budget_left}
        return saved.to_state(self.seed, self._next_number, rows, model) | budget

    def model_state(self) -> dict[str, Any]:
        """The learned model as plain data for JSON: kernel parameters, warping, counters."""
        regions = self._regions.state()
        return {**self._all.outputs.state(), **({"regions": regions} if regions else {})}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from a `state`. Call it on a new optimiser that was made with the same arguments."""
        if len(self._observations) or self._next_number:
            raise ValueError("restore() needs a new optimiser, but this one has been used")
        found = saved.from_state(state, self._observations)
        with readable("this state"):
            self.restore_model(found.model)
            self.budget_left = found.budget_left
        for row in found.rows:
            self._observations.add(*row)
        self.seed, self._next_number = found.seed, found.next_number

    def restore_model(self, state: Mapping[str, Any]) -> None:
        """Restore the learned model from a `model_state`."""
        with readable("this model's state"):
            learned = self._all.outputs.parse(state)
            regions = self._regions.parse(state.get("regions", ()))
        self._all.outputs.restore(learned)
        self._regions.restore(regions)
        self._whole = None
