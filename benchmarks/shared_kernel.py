"""`python -m benchmarks.shared_kernel`: one kernel for all objectives beside one for each, by the regret.

With one kernel, one factor would do for all objectives. Here the shared one has the geometric mean of the parameters
that the objectives have learned.
"""

import warnings
from typing import Any

import numpy as np

from benchmarks.objectives import Lazy, run_one
from lazybo.search.models import Models

RUNS = (
    *(("BraninCurrin", 20), ("ZDT1", 20), ("ZDT3", 20), ("VehicleSafety", 20), ("hpobench-car+time", 20)),
    *(("BraninCurrin", 21), ("ZDT3", 21), ("VehicleSafety", 21), ("hpolib-naval_propulsion+time", 20), ("DTLZ2", 20)),
)
OWN = Models.surface


def shared(self: Models, *arguments: Any) -> Any:
    """The acquisition after all objectives got the same kernel and noise."""
    for surrogate in self.objectives:
        surrogate.learn()
    values = np.exp(np.mean([np.log(each.fitted.kernel.values) for each in self.objectives], axis=0))
    noise = float(np.exp(np.mean([np.log(each.fitted.noise) for each in self.objectives])))
    for surrogate in self.objectives:
        kernel = surrogate.fitted.kernel.with_values(values.tolist())
        surrogate.release()
        surrogate.fitted = surrogate.fitted.unbuilt(kernel=kernel, noise=noise)
    return OWN(self, *arguments)


def main() -> None:
    warnings.simplefilter("ignore")
    print("| problem | seed | own kernels | one kernel |\n|---|---|---|---|")
    for name, seed in RUNS:
        regrets = []
        for surface in (OWN, shared):
            setattr(Models, "surface", surface)  # noqa: B010 - mypy rejects an assignment
            regrets.append(run_one(name, "lazybo", Lazy, seed, 50)["r50"])
        print(f"| {name} | {seed} | {regrets[0]} | {regrets[1]} |", flush=True)


if __name__ == "__main__":
    main()
