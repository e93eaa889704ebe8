"""Weights & Biases: offline, each trial is a run in the group of its study."""

from pathlib import Path

import lazybo
from lazybo.track.wandb import WandB


def train(lr, trial):
    for epoch in range(1, 4):
        loss = abs(lr - 0.01) + 1 / epoch
        trial.report(loss, epoch)
    return loss


tracker = WandB("demo", mode="offline", dir=".")
study = lazybo.optimize(
    train, {"lr": (1e-4, 1.0, "log")}, n_trials=3, seed=0, study_name="tuned", callbacks=[tracker], progress=False
)

assert len(study.trials) == 3
assert len(list(Path("wandb").glob("offline-run-*-tuned-*"))) == 3  # `wandb sync wandb/*` sends them
