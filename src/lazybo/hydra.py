"""The trial of a Hydra job: ``lazybo.hydra.trial()`` in an application that ``hydra/sweeper=lazybo`` launches."""

import os
from pathlib import Path

from lazybo.core import codec
from lazybo.run import Trial

# The environment variable that names the file with what a job has to know.
VARIABLE = "LAZYBO_TRIAL"


def trial() -> Trial:
    """The trial that this job evaluates: report intermediate values, and ask whether to stop.

    Outside of a sweep, reports go nowhere and nothing is pruned, so the application also runs on its own.
    """
    place = os.environ.get(VARIABLE)
    if not place:
        return Trial(0, {})
    with codec.readable(f"the file {place!r} of a sweep", "start the sweep again: a job cannot outlive it"):
        try:
            return Trial.taken(Path(place).read_text(encoding="utf-8"))
        except OSError as error:
            raise ValueError(error.strerror) from None
