"""Optuna's Terminator: it ends a run when the possible gain is below the error of cross-validation."""

import optuna
from optuna.terminator import TerminatorCallback, report_cross_validation_scores
from sklearn.datasets import make_classification
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import lazybo

X, y = make_classification(120, flip_y=0.2, random_state=0)


def accuracy(C, gamma, trial):
    scores = cross_val_score(make_pipeline(StandardScaler(), SVC(C=C, gamma=gamma)), X, y, cv=5)
    report_cross_validation_scores(trial, list(scores))
    return scores.mean()


space = {"C": (1e-2, 1e3, "log"), "gamma": (1e-4, 1.0, "log")}
stop = TerminatorCallback(optuna.terminator.Terminator(min_n_trials=20))
study = lazybo.optimize(accuracy, space, n_trials=100, direction="maximize", seed=0, callbacks=[stop])

assert 20 <= len(study.trials) < 100
assert study.best_value > 0.7
