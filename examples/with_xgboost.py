"""XGBoost: Optuna's callback stops boosting that looks unpromising."""

import optuna
import xgboost
from optuna_integration import XGBoostPruningCallback
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split

import lazybo

X_train, X_test, y_train, y_test = train_test_split(*load_breast_cancer(return_X_y=True), random_state=0)
train, test = xgboost.DMatrix(X_train, y_train), xgboost.DMatrix(X_test, y_test)


def objective(trial):
    params = {
        "objective": "binary:logistic",
        "eval_metric": "logloss",
        "nthread": 1,
        "eta": trial.suggest_float("eta", 1e-3, 1.0, log=True),
        "max_depth": trial.suggest_int("max_depth", 1, 8),
        "subsample": trial.suggest_float("subsample", 0.3, 1.0),
    }
    found = {}
    stop_early = XGBoostPruningCallback(trial, "test-logloss")
    xgboost.train(
        params, train, 30, evals=[(test, "test")], evals_result=found, callbacks=[stop_early], verbose_eval=False
    )
    return found["test"]["logloss"][-1]


study = optuna.create_study(sampler=lazybo.LazySampler(seed=0), pruner=lazybo.LazyPruner())
study.optimize(objective, n_trials=25)

pruned = [trial for trial in study.trials if trial.state == optuna.trial.TrialState.PRUNED]
assert study.best_value < 0.15
assert pruned
assert all(len(trial.intermediate_values) < 30 for trial in pruned)
