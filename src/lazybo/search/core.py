"""The core of a search in one space: the observations, the surrogates of their outputs, and the choice of points.

An optimiser has one core with all observations. Beyond what one factor serves, cores with a part of them take over
(`lazybo.search.regions`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from lazybo.core.blas import one_thread
from lazybo.gp.earlier import EarlierTasks
from lazybo.gp.targets import scaling
from lazybo.search.acquisition import Acquisition
from lazybo.search.chooser import Chooser
from lazybo.search.observations import Observations
from lazybo.search.outputs import Outputs
from lazybo.search.results import Result, State
from lazybo.search.surrogate import Surrogate
from lazybo.space.feasible import FeasibleSet
from lazybo.space.space import Predicate, Space


@dataclass(frozen=True)
class Core:
    """The observations in a space, the surrogates that learn from them, and the choice of the next points."""

    space: Space
    observations: Observations
    outputs: Outputs
    chooser: Chooser
    feasible: FeasibleSet | None

    def resolve(self, row: int, result: Result) -> None:
        """Set the result of a row. Where that changes a row of a factor, it is appended again."""
        unknown = (0.0,) * len(self.outputs.objectives)
        forecast = self.observations[row].result.variances or unknown
        # What a failure teaches about values depends on whether an earlier row at its point has one.
        changed = result.state is State.FAILED or self.observations.has_failed_at(row)
        for surrogate, *variances in zip(self.outputs.objectives, result.variances or unknown, forecast, strict=True):
            if changed or any(variances):
                surrogate.cut(row)
        self.observations.resolve(row, result)

    @one_thread()
    def learn(self) -> None:
        """Learn the kernels that are due."""
        if self.observations.n_complete:
            self.outputs.sync()

    def remove(self, row: int) -> None:
        """Remove a row."""
        self.outputs.remove(row)
        self.observations.remove(row)


def make_core(
    space: Space,
    earlier: Sequence[EarlierTasks | None],
    *,
    make_surrogate: Callable[..., Surrogate],
    predicate: Predicate | None,
    acquisition: Acquisition,
    n_startup: int,
    has_cost: bool,
    repeats: bool = True,
) -> Core:
    """A core without observations. ``earlier`` has what earlier studies say about each objective.

    With ``repeats``, an evaluation is repeated to find out whether there is noise.
    """
    observations = Observations(space, len(earlier))
    feasible = None if predicate is None else FeasibleSet(space, predicate)
    make = partial(make_surrogate, space, feasible=feasible)
    # Measured costs have noise even if the objective has none.
    of_cost = partial(make, noise=None, priors=None, make_warping=scaling) if has_cost else None
    outputs = Outputs(space, observations, earlier, make, feasible, of_cost)
    chooser = Chooser(space, observations, outputs, acquisition, n_startup, feasible, repeats)
    return Core(space, observations, outputs, chooser, feasible)


# Makes a core without observations for a space, and for what earlier studies say about each objective.
MakeCore: TypeAlias = Callable[[Space, Sequence[EarlierTasks | None]], Core]
