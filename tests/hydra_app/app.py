"""An application of Hydra: a stand-in for a training, with groups, learning curves and failures."""

import math
import os
import signal
import time
from typing import Any

import hydra
import optuna
from hydra.core.hydra_config import HydraConfig

import lazybo.hydra


@hydra.main(version_base=None, config_path="conf", config_name="config")
def main(config: Any) -> Any:
    """The loss, or the loss and the size of the model."""
    trial = lazybo.hydra.trial()
    if config.kills and HydraConfig.get().job.num == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if config.fails and config.model.layers == 2:
        raise RuntimeError("two layers are broken")
    loss = (math.log10(config.lr) + 3) ** 2 + 0.1 * abs(config.model.layers - 3) + (config.model.name == "linear")
    for step in range(1, 4):
        time.sleep(config.waits)
        trial.report(loss + 1 / step, step)
        if config.prunes and (trial.should_prune() or config.lr > 1e-2):
            raise optuna.TrialPruned
    return (loss, config.model.layers) if config.several else loss


if __name__ == "__main__":
    main()
