"""A run without a space that kills its own process in one trial: python define_by_run.py study.db FOLDER."""

import os
import signal
import sys
from pathlib import Path
from typing import Any

import lazybo


def objective(trial: Any) -> float:
    """Kills the driver in trial 4, the first time."""
    x = trial.suggest_float("x", 0.0, 1.0)
    n = trial.suggest_int("n", 1, 9) if x > 0.3 else 1
    mark = Path(sys.argv[2]) / f"{trial.number} {x!r}"
    if trial.number == 4 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return x + n


if __name__ == "__main__":
    lazybo.optimize(objective, n_trials=9, seed=0, storage=sys.argv[1], progress=False)
