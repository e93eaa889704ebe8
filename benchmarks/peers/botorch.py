"""BoTorch: SingleTaskGP with its own priors, log expected improvement, its own multi-start search.

BoTorch leaves the rest to its user. Here: the unit cube (logarithmic parameters as logarithms), standardised values,
and as many initial Sobol points as in Ax. The model sees choices as one-hot columns. Whole numbers and choices are
searched by ``optimize_acqf_mixed_alternating``, which on a continuous space is ``optimize_acqf``.
"""

from collections.abc import Sequence
from functools import partial

import botorch
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Standardize
from botorch.models.transforms.input import NumericToCategoricalEncoding
from botorch.optim.optimize_mixed import optimize_acqf_mixed_alternating
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch.nn.functional import one_hot

from benchmarks.peers.encoding import UnitCube
from benchmarks.peers.protocol import Parameter, Point, serve


class BoTorch:
    def __init__(self, space: Sequence[Parameter], seed: int, _budget: int) -> None:
        torch.set_num_threads(1)
        torch.manual_seed(seed)
        self.cube = UnitCube(space, one_hot=False)
        self.choices = {j: list(range(each[1])) for j, each in enumerate(space) if each[0] == "choice"}
        self.levels = {j: _levels(each) for j, each in enumerate(space) if each[0] == "int" and each[1] < each[2]}
        tops = [each[1] - 1 if each[0] == "choice" else 1 for each in space]
        self.bounds = torch.tensor([[0] * len(space), tops], dtype=torch.double)
        self.sobol = torch.quasirandom.SobolEngine(len(space), scramble=True, seed=seed)
        self.n_startup = max(5, 2 * len(space))
        self.x: list[list[float]] = []
        self.y: list[float] = []

    def ask(self) -> Point:
        if len(self.y) < self.n_startup:
            row = self.sobol.draw(1, dtype=torch.double)[0].tolist()
            for j, indices in self.choices.items():
                row[j] = int(row[j] * len(indices))
            return self.cube.decode(row)
        y = -torch.tensor(self.y, dtype=torch.double)[:, None]
        improvement = LogExpectedImprovement(self._model(y), best_f=y.max())
        best, _ = optimize_acqf_mixed_alternating(
            improvement, self.bounds, self.levels, self.choices, q=1, num_restarts=10, raw_samples=512
        )
        return self.cube.decode(best[0].tolist())

    def _model(self, y: torch.Tensor) -> SingleTaskGP:
        x = torch.tensor(self.x, dtype=torch.double)
        model = SingleTaskGP(x, y, outcome_transform=Standardize(1), input_transform=self._one_hot())
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    def _one_hot(self) -> NumericToCategoricalEncoding | None:
        counts = {j: len(indices) for j, indices in self.choices.items()}
        encoders = {j: partial(one_hot, num_classes=count) for j, count in counts.items()}
        return NumericToCategoricalEncoding(self.cube.width, counts, encoders) if counts else None

    def tell(self, points: list[Point], values: list[float]) -> None:
        self.x += map(self.cube.encode, points)
        self.y += values


def _levels(parameter: Parameter) -> list[float]:
    """All values of a whole number in the unit interval."""
    cube = UnitCube([parameter])
    return [cube.encode([value])[0] for value in range(parameter[1], parameter[2] + 1)]


if __name__ == "__main__":
    serve(BoTorch, f"BoTorch {botorch.__version__}")
