"""BoTorch: SingleTaskGP with its own priors, log expected improvement, its own multi-start search.

BoTorch leaves the rest to its user. Here: the unit cube (logarithmic parameters as logarithms), choices as one-hot
columns, integers relaxed and rounded, standardised values, and as many initial Sobol points as in Ax.
"""

from collections.abc import Sequence

import botorch
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Standardize
from botorch.optim import optimize_acqf
from gpytorch.mlls import ExactMarginalLogLikelihood

from benchmarks.peers.encoding import UnitCube
from benchmarks.peers.protocol import Parameter, Point, serve


class BoTorch:
    def __init__(self, space: Sequence[Parameter], seed: int, _budget: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.cube = UnitCube(space)
        self.sobol = torch.quasirandom.SobolEngine(self.cube.width, scramble=True, seed=seed)
        self.n_startup = max(5, 2 * len(space))
        self.x: list[list[float]] = []
        self.y: list[float] = []

    def ask(self) -> Point:
        if len(self.y) < self.n_startup:
            return self.cube.decode(self.sobol.draw(1, dtype=torch.double)[0].tolist())
        x = torch.tensor(self.x, dtype=torch.double)
        y = -torch.tensor(self.y, dtype=torch.double)[:, None]
        model = SingleTaskGP(x, y, outcome_transform=Standardize(1))
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        bounds = torch.tensor([[0.0], [1.0]], dtype=torch.double).repeat(1, self.cube.width)
        improvement = LogExpectedImprovement(model, best_f=y.max())
        best, _ = optimize_acqf(improvement, bounds, q=1, num_restarts=10, raw_samples=512)
        return self.cube.decode(best[0].tolist())

    def tell(self, points: list[Point], values: list[float]) -> None:
        self.x += map(self.cube.encode, points)
        self.y += values


if __name__ == "__main__":
    serve(BoTorch, f"BoTorch {botorch.__version__}")
