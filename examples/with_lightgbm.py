"""LightGBM: Optuna's callback stops boosting that looks unpromising; two processes evaluate."""

import lightgbm
from optuna.trial import TrialState
from optuna_integration import LightGBMPruningCallback
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import lazybo


def objective(rate, leaves, trial):
    X_train, X_test, y_train, y_test = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
    train = lightgbm.Dataset(X_train, label=y_train)
    params = {
        "objective": "binary",
        "metric": "binary_logloss",
        "learning_rate": rate,
        "num_leaves": leaves,
        "num_threads": 1,
        "verbosity": -1,
    }
    stop_early = LightGBMPruningCallback(trial, "binary_logloss")
    found = lightgbm.train(
        params, train, 30, valid_sets=[train.create_valid(X_test, label=y_test)], callbacks=[stop_early]
    )
    return found.best_score["valid_0"]["binary_logloss"]


if __name__ == "__main__":
    space = {"rate": (1e-3, 1.0, "log"), "leaves": (2, 64)}
    study = lazybo.optimize(objective, space, n_trials=20, seed=0, n_parallel=2, progress=False)

    assert study.best_value < 0.15
    assert {trial.state for trial in study.trials} <= {TrialState.COMPLETE, TrialState.PRUNED}
    assert all(trial.intermediate_values for trial in study.trials)
