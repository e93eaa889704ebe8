"""The parts of an optimiser, made from its options: what earlier studies say, the core, and the local models."""

from collections.abc import Sequence
from functools import partial

from lazybo.gp.earlier import EarlierTasks
from lazybo.gp.fit import Priors, check_priors
from lazybo.gp.kernels import Kernel, kernel_for
from lazybo.gp.targets import WARPINGS
from lazybo.search.acquisition import check_acquisition
from lazybo.search.chooser import FEW_PARAMETERS
from lazybo.search.core import Core, make_core
from lazybo.search.earlier import EarlierStudy, fitting
from lazybo.search.options import Options
from lazybo.search.regions import Regions
from lazybo.search.surrogate import Surrogate
from lazybo.space.space import Space

# The default number of startup points is that of the parameters, but at least this; and this if there are many
# parameters: as many points would not fill such a space either.
LEAST_STARTUP = 5
# The default number of startup points if there are earlier studies.
EARLIER_STARTUP = 3
# The default kernel of local models. They are learned anew in every round, and the additive one takes longer to learn.
LOCAL_KERNEL = "matern52"


def tasks_of(
    studies: Sequence[EarlierStudy], space: Space, objectives: int, kernel: str | Kernel | None, priors: Priors | None
) -> list[EarlierTasks | None]:
    """What earlier studies say about each objective."""
    if not studies or space.dim == 0:
        return [None] * objectives
    fits, start = fitting(studies, space), kernel_for(kernel, space.columns)
    every = [fits.tasks(objective) for objective in range(objectives)]
    return [EarlierTasks(tasks, start, check_priors(priors), fits.unknown) if tasks else None for tasks in every]


def default_startup(space: Space, tasks: Sequence[EarlierTasks | None]) -> int:
    """How many points are spread over the space before the model is used."""
    if any(each is not None for each in tasks):
        return EARLIER_STARTUP
    return max(space.dim, LEAST_STARTUP) if space.dim <= FEW_PARAMETERS else LEAST_STARTUP


def make_parts(
    space: Space, tasks: Sequence[EarlierTasks | None], n_startup: int, options: Options
) -> tuple[Core, Regions]:
    """A core for all observations, and the local models that may take over; both are empty."""
    make_surrogate = partial(
        Surrogate,
        lag=options.lag,
        noise=options.noise,
        priors=options.learned_priors,
        make_warping=WARPINGS[options.value_transform],
    )
    make = partial(
        make_core,
        predicate=space.feasible,
        acquisition=check_acquisition(options.acquisition),
        has_cost=options.cost is not None,
    )
    kernel = options.kernel
    of_all, of_part = (partial(make_surrogate, kernel=each) for each in (kernel, kernel or LOCAL_KERNEL))
    core = make(space, tasks, make_surrogate=of_all, n_startup=n_startup)
    make_part = partial(make, n_startup=0, repeats=False)
    return core, Regions(core, partial(make_part, make_surrogate=of_part), partial(make_part, make_surrogate=of_all))
