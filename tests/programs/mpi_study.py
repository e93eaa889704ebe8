"""A study on the ranks of an MPI job: ``mpiexec -n 3 python -m mpi4py.futures mpi_study.py study.db``."""

import json
import sys

from mpi4py import MPI
from mpi4py.futures import MPIPoolExecutor
from optuna.distributions import FloatDistribution

import lazybo


def main() -> None:
    space = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}
    offset = 1.0  # a closure: workers get the objective by value

    def objective(params, trial):  # type: ignore[no-untyped-def]
        trial.report(0.0, 0)
        return {"value": (params["x"] - offset) ** 2 + params["y"] ** 2, "rank": MPI.COMM_WORLD.Get_rank()}

    with MPIPoolExecutor() as pool:
        study = lazybo.optimize(objective, space, n_trials=20, executor=pool, storage=sys.argv[1], seed=0)
    print(
        json.dumps(
            {
                "states": [trial.state.name for trial in study.trials],
                "ranks": sorted({trial.user_attrs["rank"] for trial in study.trials}),
                "reports": sum(len(trial.intermediate_values) for trial in study.trials),
                "best": study.best_value,
            }
        )
    )


if __name__ == "__main__":
    main()
