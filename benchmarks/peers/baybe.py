"""BayBE, with its defaults, on the shares of a mixture: they sum to one, and at most ``at_most`` are positive."""

import random
from typing import Any

import baybe
import numpy as np
import pandas as pd
import torch
from baybe import Campaign
from baybe.constraints import ContinuousCardinalityConstraint, ContinuousLinearConstraint
from baybe.objectives import SingleTargetObjective
from baybe.parameters import NumericalContinuousParameter
from baybe.searchspace import SearchSpace
from baybe.targets import NumericalTarget

from benchmarks.peers.protocol import Message, converse


class BayBE:
    def __init__(self, n: int, at_most: int, seed: int) -> None:
        torch.set_num_threads(1)
        random.seed(seed)
        np.random.seed(seed)  # noqa: NPY002 - BayBE uses the global generators
        torch.manual_seed(seed)
        self.names = [f"x{i}" for i in range(n)]
        parameters = [NumericalContinuousParameter(name, bounds=(0.0, 1.0)) for name in self.names]
        constraints: list[Any] = [ContinuousLinearConstraint(self.names, "=", [1.0] * n, 1.0)]
        if at_most < n:
            constraints.append(ContinuousCardinalityConstraint(self.names, max_cardinality=at_most))
        space = SearchSpace.from_product(parameters, constraints)
        self.campaign = Campaign(space, SingleTargetObjective(NumericalTarget("value", minimize=True)))

    def ask(self) -> list[float]:
        point = self.campaign.recommend(batch_size=1).iloc[0]
        return [float(point[name]) for name in self.names]

    def tell(self, point: list[float], value: float) -> None:
        self.campaign.add_measurements(pd.DataFrame([{**dict(zip(self.names, point, strict=True)), "value": value}]))


def begin(hello: Message) -> Any:
    """A campaign that answers messages."""
    peer = BayBE(len(hello["space"]), hello["at_most"], hello["seed"])

    def answer(message: Message) -> Message:
        if "ask" in message:
            return {"point": peer.ask()}
        peer.tell(message["tell"][0], message["values"][0])
        return {}

    return answer


if __name__ == "__main__":
    converse(begin, f"baybe {baybe.__version__}")
