"""When local models take over from the one with all observations, whose memory grows with their number squared."""

from typing import Literal, TypeAlias

from lazybo.search.core import Core

# A number of results, "auto", or None for never.
LocalAfter: TypeAlias = int | Literal["auto"] | None
# With this many results, local models take over: the factor of all has 0.4 GB then.
LOCAL_AFTER = 10_000
# The same for one objective without noise, constraints and costs: local models are better there, and cost less.
EARLY_LOCAL_AFTER = 1000


def local_models_are_due(core: Core, local_after: LocalAfter, n_startup: int) -> bool:
    """Whether local models take over from a core with all observations. Those that are pending do not count."""
    if local_after is None or core.space.dim == 0 or core.observations.n_complete < max(n_startup, 1):
        return False
    return core.observations.n_ended >= (local_after if isinstance(local_after, int) else _default(core))


def _default(core: Core) -> int:
    """From how many observations on local models take over if that is "auto"."""
    observations, outputs = core.observations, core.outputs
    if observations.n_ended < EARLY_LOCAL_AFTER or len(outputs.objectives) > 1 or outputs.cost is not None:
        return LOCAL_AFTER
    fitted = outputs.objectives[0].fitted
    # Whether there is noise is known once the kernel was learned.
    noisy = fitted.learned_at == 0 or fitted.is_noisy or observations.variances().any()
    return LOCAL_AFTER if noisy or observations.constraints else EARLY_LOCAL_AFTER
