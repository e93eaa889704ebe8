"""BoTorch's fully Bayesian Gaussian process: NUTS draws kernel parameters, log expected improvement is averaged.

Everything but the model is that of `benchmarks.peers.botorch`, whose environment is used. Beside "ask" and "tell" there
is ``{"predict": [point…]}``, answered with ``{"mean": [[1.0…]…], "std": [[1.0…]…]}``: the prediction of each draw at
each point, in units of the values. It fits the model, which the next "ask" then uses.
"""

from collections.abc import Callable, Sequence

import botorch
import jax
import torch
from botorch.fit import fit_fully_bayesian_model_nuts
from botorch.models.fully_bayesian import FullyBayesianSingleTaskGP
from botorch.models.transforms import Standardize

from benchmarks.peers.botorch import BoTorch
from benchmarks.peers.protocol import Message, Parameter, Point, converse, respond

# 16 draws remain, as with BoTorch's defaults, which are 512, 256 and 16.
WARMUP, SAMPLES, THINNING = 128, 64, 4


class Bayesian(BoTorch):
    def __init__(self, space: Sequence[Parameter], seed: int, budget: int) -> None:
        super().__init__(space, seed, budget)
        jax.config.update("jax_enable_x64", True)  # as precise as everything else here
        self.fitted: FullyBayesianSingleTaskGP | None = None

    def tell(self, points: list[Point], values: list[float]) -> None:
        super().tell(points, values)
        self.fitted = None

    def predict(self, points: list[Point]) -> Message:
        model = self._model(-torch.tensor(self.y, dtype=torch.double)[:, None])
        rows = torch.tensor([self.cube.encode(point) for point in points], dtype=torch.double)
        with torch.no_grad():
            found = model.posterior(rows).distribution
            return {"mean": (-found.mean).tolist(), "std": found.variance.sqrt().tolist()}

    def _model(self, y: torch.Tensor) -> FullyBayesianSingleTaskGP:
        if self.fitted is None:
            x = torch.tensor(self.x, dtype=torch.double)
            model = FullyBayesianSingleTaskGP(x, y, outcome_transform=Standardize(1), input_transform=self._one_hot())
            fit_fully_bayesian_model_nuts(
                model,
                warmup_steps=WARMUP,
                num_samples=SAMPLES,
                thinning=THINNING,
                disable_progbar=True,
                seed=len(self.y),
            )
            self.fitted = model
        return self.fitted


def begin(hello: Message) -> Callable[[Message], Message]:
    peer = Bayesian(hello["space"], hello["seed"], hello["budget"])
    return lambda message: peer.predict(message["predict"]) if "predict" in message else respond(peer, message)


if __name__ == "__main__":
    converse(begin, f"BoTorch {botorch.__version__}")
