"""A study on MPI without a space: mpirun -n 3 python -m mpi4py.futures mpi_define_by_run.py study.db."""

import json
import sys
import time
from typing import Any

import optuna

from lazybo import optimize


def objective(trial: Any) -> float:
    from mpi4py import MPI

    time.sleep(0.1)
    x, y = trial.suggest_float("x", -5, 5), trial.suggest_float("y", -5, 5)
    trial.set_user_attr("rank", MPI.COMM_WORLD.Get_rank())
    trial.storage.set_trial_system_attr(trial._trial_id, "name", trial.study.study_name)
    return float(x**2 + y**2)


if __name__ == "__main__":
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optimize(objective, n_trials=8, executor="mpi", storage=sys.argv[1], seed=0, progress=False)
    found = {
        "states": [trial.state.name for trial in study.trials],
        "names": sorted({trial.system_attrs["name"] for trial in study.trials}),
        "ranks": sorted({trial.user_attrs["rank"] for trial in study.trials}),
        "parameters": sorted({name for trial in study.trials for name in trial.params}),
    }
    print(json.dumps(found))
