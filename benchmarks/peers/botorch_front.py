"""BoTorch with several outputs: independent SingleTaskGPs, qLogNEHVI for several objectives, qLogNEI for one.

Space, initial points and standardisation are those of `benchmarks.peers.botorch`, whose environment is used. The
reference point is the one that BoTorch infers from the front. Each value of the protocol is a list: the objectives,
to be minimised, then the constraints, feasible when at most 0. The program's argument is the number of objectives.
"""

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, TypeAlias

import botorch
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.acquisition.multi_objective.objective import IdentityMCMultiOutputObjective
from botorch.acquisition.objective import GenericMCObjective
from botorch.fit import fit_gpytorch_mll
from botorch.models import ModelListGP, SingleTaskGP
from botorch.models.transforms import Standardize
from botorch.optim import optimize_acqf
from botorch.utils.multi_objective.hypervolume import infer_reference_point
from botorch.utils.multi_objective.pareto import is_non_dominated
from gpytorch.mlls import ExactMarginalLogLikelihood

from benchmarks.peers.encoding import UnitCube
from benchmarks.peers.protocol import Parameter, Point, serve

Tensor: TypeAlias = torch.Tensor


class BoTorchFront:
    def __init__(self, space: Sequence[Parameter], seed: int, _budget: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.cube = UnitCube(space)
        self.objectives = int(sys.argv[1])
        self.sobol = torch.quasirandom.SobolEngine(self.cube.width, scramble=True, seed=seed)
        self.n_startup = max(5, 2 * len(space))
        self.x: list[list[float]] = []
        self.y: list[list[float]] = []

    def ask(self) -> Point:
        if len(self.y) < self.n_startup:
            return self.cube.decode(self.sobol.draw(1, dtype=torch.double)[0].tolist())
        x = torch.tensor(self.x, dtype=torch.double)
        y = torch.tensor(self.y, dtype=torch.double)
        y[:, : self.objectives] *= -1.0
        models = []
        for j in range(y.shape[1]):
            model = SingleTaskGP(x, y[:, j : j + 1], outcome_transform=Standardize(1))
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
            models.append(model)
        bounds = torch.tensor([[0.0], [1.0]], dtype=torch.double).repeat(1, self.cube.width)
        acquisition = self._acquisition(ModelListGP(*models), x, y)
        best, _ = optimize_acqf(acquisition, bounds, q=1, num_restarts=10, raw_samples=512)
        return self.cube.decode(best[0].tolist())

    def _acquisition(self, model: ModelListGP, x: Tensor, y: Tensor) -> torch.nn.Module:
        q = self.objectives
        constraints = [partial(_column, j=j) for j in range(q, y.shape[1])] or None
        if q == 1:
            objective = GenericMCObjective(partial(_column, j=0))
            return qLogNoisyExpectedImprovement(model, x, objective=objective, constraints=constraints)
        feasible = (y[:, q:] <= 0).all(dim=1)
        values = y[feasible, :q] if feasible.any() else y[:, :q]
        reference = infer_reference_point(values[is_non_dominated(values)])
        return qLogNoisyExpectedHypervolumeImprovement(
            model,
            reference,
            x,
            objective=IdentityMCMultiOutputObjective(outcomes=list(range(q))),
            constraints=constraints,
            prune_baseline=True,
        )

    def tell(self, points: list[Point], values: list[Any]) -> None:
        self.x += map(self.cube.encode, points)
        self.y += values


def _column(samples: Tensor, X: Tensor | None = None, *, j: int) -> Tensor:  # noqa: ARG001, N803 - BoTorch's names
    """One output of samples, (..., q)."""
    return samples[..., j]


if __name__ == "__main__":
    serve(BoTorchFront, f"BoTorch {botorch.__version__}")
