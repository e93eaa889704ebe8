"""One driver of a study that others drive too: python shared_study.py URL LOG N_TRIALS SECONDS WORKERS."""

import json
import os
import random
import sys
import time
from typing import Any

import optuna
from optuna.distributions import FloatDistribution

import lazybo
from lazybo.run import Trial

SPACE = {name: FloatDistribution(-5.0, 5.0) for name in ("x", "y", "z")}


def main(url: str, log: str, n_trials: str, seconds: str, workers: str) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)

    def write(event: str, trial: Trial, value: float | None = None) -> None:
        line = {"event": event, "pid": os.getpid(), "number": trial.number, "params": trial.params, "value": value}
        file = os.open(log, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
        os.write(file, f"{json.dumps(line)}\n".encode())
        os.close(file)

    def objective(params: dict[str, Any], trial: Trial) -> float:
        write("begin", trial)
        time.sleep(float(seconds) * random.uniform(0.5, 1.5))
        value = (params["x"] - 1) ** 2 + (params["y"] + 2) ** 2 + abs(params["z"]) + random.uniform(0, 1e-6)
        write("return", trial, value)
        return float(value)

    lazybo.optimize(
        objective,
        SPACE,
        n_trials=int(n_trials),
        n_parallel=int(workers),
        executor="threads",
        storage=url,
        study_name="shared",
        progress=False,
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
