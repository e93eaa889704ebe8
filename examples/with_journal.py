"""Optuna's journal: a study in one file that processes share; it is resumed."""

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

import lazybo


def loss(x, y):
    return (x - 1) ** 2 + (y + 2) ** 2


space = {"x": (-5.0, 5.0), "y": (-5.0, 5.0)}
storage = JournalStorage(JournalFileBackend("study.log"))
lazybo.optimize(loss, space, n_trials=10, seed=0, storage=storage, study_name="bowl", n_parallel=2, progress=False)
study = lazybo.optimize(loss, space, n_trials=20, seed=0, storage="study.log", study_name="bowl", progress=False)
assert len(study.trials) == 20

loaded = optuna.load_study(study_name="bowl", storage=storage, sampler=lazybo.LazySampler(seed=0))
loaded.optimize(lambda trial: loss(trial.suggest_float("x", -5, 5), trial.suggest_float("y", -5, 5)), n_trials=5)

assert len(loaded.trials) == 25
assert loaded.best_value < 0.1
