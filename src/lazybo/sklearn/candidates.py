"""The candidates of a search: fit and score their folds, store them with their trials, and identify the search.

A stored search has a fingerprint, so that it resumes only if its candidates are comparable with new ones.
"""

import inspect
import math
import statistics
import traceback
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from optuna.storages import BaseStorage
from optuna.study import Study, load_study
from optuna.trial import FrozenTrial, TrialState
from sklearn import config_context, get_config
from sklearn.base import clone
from sklearn.model_selection._validation import _fit_and_score
from sklearn.pipeline import Pipeline
from sklearn.utils.parallel import Parallel, delayed

from lazybo.core import checks, codec, texts
from lazybo.sklearn.spaces import SearchSpace, described
from lazybo.study import Store

# User: scikit-learn's results of each fold of a candidate, or why the candidate could not be evaluated.
FOLDS_KEY = "folds"
ERROR_KEY = "error"
# The settings of a search of `LazySearchCV` as strings, its data as hashes.
SEARCH_KEY = "lazybo:search"
# One fold as scikit-learn returns it: scores, times, and the error if there was one.
Fold = dict[str, Any]
REMEDY = "use another study_name, or another storage"
# Longer descriptions are cut in messages, and longer tracebacks of all folds together in the study.
SHOWN, TRACEBACK_LENGTH = 200, 16_000
NO_CALLBACKS = (
    ". Unlike BayesSearchCV, a search has no callbacks: verbose=1 shows its progress, and with storage= other programs "
    "see every candidate"
)
KEPT = {"fit_error", "test_scores", "n_test_samples", "fit_time", "score_time"}


class Candidates:
    """The objective of a search: the mean score of a configuration over the folds, in this process or a worker.

    ``options`` are passed to scikit-learn's function for one fold. ``guide`` names the metric to optimise if there are
    several; None means the first one. If it is a tuple, each of these metrics is an objective.
    """

    def __init__(
        self,
        estimator: Any,
        data: tuple[Any, Any],
        splits: Sequence[tuple[Any, Any]],
        space: SearchSpace,
        guide: str | tuple[str, ...] | None,
        parallel: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        self.error: Exception | None = None  # the error that stopped the search, if it was raised in this process
        self.estimator, self.data, self.splits, self.space = estimator, data, splits, space
        self._guide, self._parallel, self._options = guide, parallel, options
        self._config = get_config()  # of the caller's thread; other threads and processes have their own

    def __call__(self, /, **params: Any) -> dict[str, Any]:
        """The mean score, or one for each objective; NaN if a fit failed. Other errors stop the search.

        All candidates have the same folds, and differences between folds say nothing about differences between
        candidates. So the variance over the folds is not reported: it made the search worse (docs/sklearn.md).
        """
        names = self._guide if isinstance(self._guide, tuple) else ("value",)
        failed = dict.fromkeys(names, math.nan)
        try:
            with config_context(**self._config):
                folds = self._fit_and_score(self.space.candidate(params))
            scores = [self._guide_scores(fold["test_scores"]) for fold in folds]
        except Exception as error:  # from error_score="raise", or an unknown parameter: no other candidate would work
            self.error = error
            return {**failed, ERROR_KEY: "".join(traceback.format_exception_only(error)).strip()}
        for fold in folds:
            fold["fit_error"] = fold["fit_error"] and fold["fit_error"][-TRACEBACK_LENGTH // len(folds) :]
        if any(fold["fit_error"] for fold in folds):
            return {**failed, FOLDS_KEY: folds}
        means = map(statistics.fmean, zip(*scores, strict=True))
        return {**dict(zip(names, means, strict=True)), FOLDS_KEY: folds}

    def _fit_and_score(self, candidate: dict[str, Any]) -> list[Fold]:
        folds: list[Fold] = Parallel(**self._parallel)(
            delayed(_fit_and_score)(
                clone(self.estimator),
                *self.data,
                train=train,
                test=test,
                parameters=candidate,
                split_progress=(i, len(self.splits)),
                return_times=True,
                return_n_test_samples=True,
                **self._options,
            )
            for i, (train, test) in enumerate(self.splits)
        )
        return folds

    def _guide_scores(self, scores: Any) -> list[float]:
        """The scores of a fold that are optimised."""
        if not isinstance(scores, Mapping):
            return [float(scores)]
        if isinstance(self._guide, tuple):
            return [float(scores[name]) for name in self._guide]
        if self._guide is not None and self._guide not in scores:
            raise ValueError(
                f"scoring returns the metrics {', '.join(map(repr, scores))}, so refit must be one of them, a function "
                f"or False, not {self._guide!r}"
            )
        return [float(next(iter(scores.values())) if self._guide is None else scores[self._guide])]

    def stop_at_errors(self, _: Study, trial: FrozenTrial) -> None:
        """A callback that raises the error of a trial where scikit-learn would raise it."""
        lost = trial.state == TrialState.FAIL and FOLDS_KEY not in trial.user_attrs
        if ERROR_KEY in trial.user_attrs or (lost and self._options["error_score"] == "raise"):
            reason = trial.user_attrs.get(ERROR_KEY) or trial.system_attrs.get("fail_reason")
            raise self.error or RuntimeError(f"candidate {trial.number} failed with {trial.params}: {reason}")


def front_rows(results: Mapping[str, Any], metrics: Sequence[str]) -> NDArray[np.intp]:
    """The rows of ``cv_results_`` that no other one dominates. Rows without a finite score in a metric do not count."""
    means = np.column_stack([results[f"mean_test_{name}"] for name in metrics])
    scored = np.flatnonzero(np.isfinite(means).all(axis=1))
    means = means[scored]
    dominated = [((means >= row).all(axis=1) & (means > row).any(axis=1)).any() for row in means]
    return scored[~np.array(dominated, dtype=bool)]


def counts(trial: FrozenTrial) -> bool:
    """Whether a trial counts as an evaluated candidate. One that stopped the search does not."""
    return FOLDS_KEY in trial.user_attrs or (trial.state == TrialState.FAIL and ERROR_KEY not in trial.user_attrs)


def folds_of(trial: FrozenTrial, n_splits: int, failed: Any, train_scores: bool) -> list[Fold]:
    """The folds of a candidate that counts; their scores are ``failed`` if its workers died.

    Raises a ValueError if they were edited.
    """
    if FOLDS_KEY in trial.user_attrs:
        with codec.readable(f"the attribute {FOLDS_KEY!r} of trial {trial.number}", REMEDY):
            return _kept_folds(trial.user_attrs[FOLDS_KEY], n_splits)
    reason = str(trial.system_attrs.get("fail_reason", "another process marked it as failed"))
    lost = {"fit_error": reason, "test_scores": failed, "n_test_samples": 0, "fit_time": 0.0, "score_time": 0.0}
    return [{**lost, **({"train_scores": failed} if train_scores else {})} for _ in range(n_splits)]


def _kept_folds(kept: Any, n_splits: int) -> list[Fold]:
    folds = [
        {name: _score(each) if "scores" in name else each for name, each in codec.as_object(fold).items()}
        for fold in kept
    ]
    if len(folds) != n_splits or not all(fold.keys() >= KEPT for fold in folds):
        raise ValueError(f"there must be {n_splits} folds, each with {', '.join(sorted(KEPT))}")
    return folds


def _score(kept: Any) -> Any:
    """A stored score, or one for each metric. Studies store NaN as None; this converts it back."""
    if isinstance(kept, Mapping):
        return {name: _score(score) for name, score in kept.items()}
    return math.nan if kept is None else checks.as_number("a score", kept)


# ----------------------------------------------------------------- arguments of fit


def check_fit_arguments(estimator: Any, names: Iterable[str], searched: Collection[str]) -> None:
    """Raise a TypeError for an argument that the estimator's ``fit`` does not take: every fit would fail with it.

    Steps of a pipeline that are ``searched`` may take anything.
    """
    for name in names:
        _check_fit_argument(estimator, name, name, searched)


def _check_fit_argument(estimator: Any, name: str, given: str, searched: Collection[str]) -> None:
    if isinstance(estimator, Pipeline):
        step, _, rest = name.partition("__")
        steps = dict(estimator.steps)
        if rest and step in steps:
            if given.removesuffix(f"__{rest}") not in searched and hasattr(steps[step], "fit"):
                _check_fit_argument(steps[step], rest, given, searched)
            return
        known = f"arguments of its steps, such as {list(steps)[-1]}__sample_weight"
    else:
        try:
            taken = inspect.signature(estimator.fit).parameters
        except ValueError:  # a function of an extension module
            return
        if name in taken or any(each.kind is each.VAR_KEYWORD for each in taken.values()):
            return
        known = ", ".join(list(taken)[2:]) or "only X and y"
    hint = NO_CALLBACKS if given == "callback" else ""
    raise TypeError(f"fit() got {given!r}, but {type(estimator).__name__}.fit takes {known}{hint}")


# --------------------------------------------------------------------- fingerprint


def fingerprint(settings: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, str]:
    """Settings as strings and data as hashes, by name."""
    return {name: described(value) for name, value in settings.items()} | {
        name: _digest(value) for name, value in data.items()
    }


def check_fingerprint(storage: BaseStorage, study_name: str, ours: Mapping[str, str]) -> None:
    """Raise a ValueError if the stored study is another search. Nothing is written."""
    if study_name not in {study.study_name for study in storage.get_all_studies()}:
        return
    store = Store(load_study(study_name=study_name, storage=storage))
    if not store.trials():
        return
    with codec.readable(f"the attribute {SEARCH_KEY!r} of the study {study_name!r}", REMEDY):
        theirs = store.object(SEARCH_KEY)
    if not theirs:
        raise ValueError(f"the study {study_name!r} has trials that were not made by LazySearchCV; {REMEDY}")
    for name, text in ours.items():
        if theirs.get(name) != text:
            there, here = (texts.shortened(str(each), SHOWN) for each in (theirs.get(name), text))
            shown = "" if text.startswith("hash ") else f": there {there}, here {here}"
            hint = " (a splitter that shuffles needs a random_state)" if name == "cv splits" else ""
            raise ValueError(f"the study {study_name!r} was made with another {name}{shown}{hint}; {REMEDY}")


def write_fingerprint(study: Study, ours: Mapping[str, str]) -> None:
    """Store the fingerprint with the study."""
    Store(study).set_object(SEARCH_KEY, ours)


def _digest(thing: Any) -> str:
    try:
        return f"hash {joblib.hash(thing)}"
    except Exception:  # pickling may raise anything
        return described(thing)
