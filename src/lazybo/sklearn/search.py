"""LazySearchCV: Bayesian search over an estimator's parameters, with the interface of scikit-learn's searches.

scikit-learn's `BaseSearchCV` parses the scoring, routes the parameters of `fit`, makes the table of results and
predicts. Its own loop is not used: it raises as soon as all folds of one round failed, draws new splits for every
round, and cannot reuse earlier evaluations. Here every candidate is a trial of a study that `lazybo.optimize` runs.
"""

import copy
import logging
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from optuna.storages import BaseStorage
from optuna.study import Study
from optuna.trial import FrozenTrial
from sklearn import get_config
from sklearn.base import _fit_context, clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.model_selection._validation import _insert_error_scores, _warn_or_raise_about_fit_failures
from sklearn.utils import check_random_state, get_tags
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _check_method_params, indexable

import lazybo
from lazybo.core import Direction
from lazybo.sklearn.candidates import (
    Candidates,
    check_fingerprint,
    check_fit_arguments,
    counts,
    fingerprint,
    folds_of,
    front_rows,
    write_fingerprint,
)
from lazybo.sklearn.spaces import SearchSpace
from lazybo.space import FeasibleSet
from lazybo.study import Definition, Store

MAX_SEED = 2**31 - 1
# The value of ``refit`` that chooses by the model.
RECOMMENDED = "recommended"


@dataclass(frozen=True)
class _Problem:
    """The validated input of one call of `fit`."""

    candidates: Candidates
    scorers: Any
    refit_metric: Any
    routed: Any  # the parameters of `fit`, by who gets them
    objectives: tuple[str, ...]  # the metrics that are maximised; empty if it is one

    @property
    def metrics(self) -> dict[str, Any]:
        """The scorers by metric; empty if there is one, or if they are not known before it runs."""
        return _metrics_of(self.scorers)


def _metrics_of(scorers: Any) -> dict[str, Any]:
    found = getattr(scorers, "_scorers", None)
    return found if isinstance(found, dict) else {}


class LazySearchCV(BaseSearchCV):  # type: ignore[misc] # scikit-learn has no types
    """Search for the parameters of an estimator with a lazy Gaussian process, cross-validating each candidate.

    A drop-in replacement for `RandomizedSearchCV`, and with few differences for scikit-optimize's `BayesSearchCV`. It
    maximises the mean test score.

    Parameters
    ----------
    estimator : estimator
        It has a ``score`` method, or ``scoring`` is given. A pipeline's parameters are called ``step__param``.
    search_spaces : dict or list of dicts
        For each parameter a list of values, a range ``(low, high)`` or ``(low, high, "log")``, a frozen distribution of
        scipy.stats, or an Optuna distribution. A list of three or more numbers is ordered: the model knows which are
        neighbours. In a list of dicts each dict is a sub-space, and each candidate belongs to one sub-space.
    n_iter : int, default=50
        Total number of candidates; fewer if the space has fewer.
    scoring, refit, cv, error_score, return_train_score, pre_dispatch
        As in `RandomizedSearchCV`. With several metrics the search maximises the one that ``refit`` names. If ``refit``
        is False or a function, each metric is an objective, and the search looks for the best trade-offs between them
        (``front_index_``); of metrics that a ``scoring`` function returns, it maximises the first. The model treats a
        candidate with a failed fit as failed, whatever ``error_score`` is.
        ``refit="recommended"`` refits the candidate that the model recommends (`lazybo.recommend`) instead of the one
        with the best mean score, which may be luck. It needs a single metric.
    n_jobs : int or None, default=None
        How many folds joblib fits at once.
    n_points : int, default=1
        How many candidates are evaluated at once. Without an ``executor`` they run in rounds of at most ``n_jobs``
        candidates; with one, the next candidate starts as soon as another ends.
    random_state : int, RandomState instance or None, default=None
        The same integer gives the same search, except with an ``executor`` and ``n_points`` above 1.
    verbose : int, default=0
        As in scikit-learn, with a progress bar on a terminal.
    storage : path, URL, Optuna storage or None, default=None
        Where every candidate is recorded when it starts and when it ends. The same `fit` resumes the search:
        recorded candidates are not evaluated again, and are part of ``cv_results_``. A path is an SQLite file.
    study_name : str or None, default=None
        The name of the search in the storage; by default the name of the estimator's class.
    param_distributions : dict or list of dicts
        Another name for ``search_spaces``, as in `RandomizedSearchCV`. Give one of the two.
    executor : optional
        Where whole candidates are evaluated, ``n_points`` at once: any executor of `lazybo.optimize`.
    feasible : function or None, default=None
        Which candidates may be evaluated: it gets the estimator's parameters as a dict and returns True or False.

    Attributes
    ----------
    cv_results_, best_estimator_, best_params_, best_score_, best_index_, refit_time_, scorer_, n_splits_, multimetric_
        As in `RandomizedSearchCV`; the candidates are in the order in which they started. With ``refit="recommended"``
        those with "best" are about the recommended candidate; ``best_score_`` is its mean test score.
    front_index_, front_params_ : ndarray of int, list of dicts
        If several metrics are maximised: the rows of ``cv_results_``, and their parameters, that no other candidate
        dominates. Another one dominates if its mean test scores are at least as good in all metrics, and better in one.
    study_ : optuna.study.Study
        The study of the search. It is not pickled with the estimator.

    """

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 - scikit-learn's name and place for them
        **BaseSearchCV._parameter_constraints,
        "search_spaces": [dict, list, None],
        "param_distributions": [dict, list, None],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
        "n_points": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "study_name": [str, None],
        "feasible": [callable, None],
        "storage": "no_validation",
        "executor": "no_validation",
    }

    def __init__(
        self,
        estimator: Any,
        search_spaces: Mapping[str, Any] | list[Mapping[str, Any]] | None = None,
        *,
        param_distributions: Mapping[str, Any] | list[Mapping[str, Any]] | None = None,
        n_iter: int = 50,
        scoring: Any = None,
        n_jobs: int | None = None,
        n_points: int = 1,
        cv: Any = None,
        refit: bool | str | Callable[..., int] = True,
        random_state: int | np.random.RandomState | None = None,
        error_score: float | str = np.nan,
        return_train_score: bool = False,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        storage: str | Path | BaseStorage | None = None,
        study_name: str | None = None,
        executor: Any = None,
        feasible: Callable[[dict[str, Any]], bool] | None = None,
    ) -> None:
        super().__init__(
            estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.search_spaces = search_spaces
        self.param_distributions = param_distributions
        self.n_iter = n_iter
        self.n_points = n_points
        self.random_state = random_state
        self.storage = storage
        self.study_name = study_name
        self.executor = executor
        self.feasible = feasible

    @_fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator] # the estimator is not validated yet
    def fit(self, X: Any, y: Any = None, **params: Any) -> "LazySearchCV":
        """Evaluate candidates, then fit the best one to all data.

        ``params`` go to the estimator's ``fit``; ``groups`` to the splitter, ``sample_weight`` to the scorers too, as
        in scikit-learn. If `fit` raises, the estimator is unchanged.
        """
        problem = self._problem(X, y, params)
        study = self._search(problem)
        found = self._results(problem, study)
        if self.refit:
            found |= self._refitted(problem, found["best_params_"])
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("_")]:
            delattr(self, name)
        self.__dict__.update(found)
        return self

    # ---------------------------------------------------------------- problem

    def _problem(self, x: Any, y: Any, params: dict[str, Any]) -> _Problem:
        """Validate the input. Nothing is evaluated or written yet."""
        if y is None and get_tags(self).target_tags.required:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        self._check_recommended()
        scorers, refit_metric = self._get_scorers()
        space = self._space()
        x, y = indexable(x, y)
        routed = self._get_routed_params_for_fit(_check_method_params(x, params=params))
        if not get_config()["enable_metadata_routing"]:  # with it, routing has raised
            check_fit_arguments(self.estimator, routed.estimator.fit, space.names())
        splits = self._splits(x, y, routed.splitter.split)
        estimator = clone(self.estimator)
        for candidate in space.examples():  # a name that is wrong is an error before a study is made
            clone(estimator).set_params(**clone(candidate, safe=False))
        options = {name: getattr(self, name) for name in ("return_train_score", "error_score", "verbose")}
        options |= {"scorer": scorers, "fit_params": routed.estimator.fit, "score_params": routed.scorer.score}
        any_metric = self.refit is False or callable(self.refit)
        objectives = tuple(metrics) if any_metric and len(metrics := _metrics_of(scorers)) > 1 else ()
        guide = self.refit if isinstance(self.refit, str) else (objectives or None) if any_metric else "score"
        parallel = {"n_jobs": self.n_jobs, "pre_dispatch": self.pre_dispatch}
        candidates = Candidates(estimator, (x, y), splits, space, guide, parallel, options)
        return _Problem(candidates, scorers, refit_metric, routed, objectives)

    def _fingerprint(self, problem: _Problem) -> dict[str, str]:
        """What decides whether scores can be compared; empty if nothing is stored."""
        if self.storage is None:
            return {}
        own = ("estimator", "scoring", "error_score", "return_train_score")
        settings = {name: getattr(self, name) for name in own} | {"search_spaces": problem.candidates.space.text}
        # The same candidates are tried whether the best or the recommended one is refitted.
        by_name = isinstance(self.refit, str) and (self.refit != RECOMMENDED or self._names_metrics())
        settings["refit metric"] = self.refit if by_name else list(problem.objectives) or None
        x, y = problem.candidates.data
        given = {"fit parameters": problem.routed.estimator.fit, "score parameters": problem.routed.scorer.score}
        return fingerprint(settings, {"X": x, "y": y, "cv splits": problem.candidates.splits, **given})

    def _names_metrics(self) -> bool:
        """Whether ``scoring`` has several metrics, as far as can be seen before it is used."""
        return isinstance(self.scoring, list | tuple | set | Mapping)

    def _check_recommended(self) -> None:
        """With several metrics ``refit`` must name the one to maximise, unless a metric is called "recommended"."""
        if self.refit == RECOMMENDED and self._names_metrics() and RECOMMENDED not in self.scoring:
            raise ValueError(
                f"refit={RECOMMENDED!r} needs a single metric, but scoring has several: name the one to maximise with "
                f"refit, then lazybo.recommend(search.study_) says which candidate the model recommends"
            )

    def _space(self) -> SearchSpace:
        """The space, from whichever of its two arguments was given."""
        if (self.search_spaces is None) == (self.param_distributions is None):
            given = "neither is" if self.search_spaces is None else "both are"
            raise ValueError(f"give either search_spaces or param_distributions; here {given} given")
        if self.search_spaces is None:
            return SearchSpace(self.param_distributions, "param_distributions")
        return SearchSpace(self.search_spaces)

    def _splits(self, x: Any, y: Any, params: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        """The splits, drawn once, so that every candidate gets the same ones."""
        cv = check_cv(self.cv, y, classifier=is_classifier(self.estimator))
        splits = list(cv.split(x, y, **params))
        expected = cv.get_n_splits(x, y, **params)
        if len(splits) != expected:
            raise ValueError(
                "cv.split and cv.get_n_splits return inconsistent results. "
                f"Expected {expected} splits, got {len(splits)}"
            )
        if not splits:
            raise ValueError("No fits were performed. Was the CV iterator empty?")
        if self.storage is not None and joblib.hash(splits) != joblib.hash(list(cv.split(x, y, **params))):
            raise ValueError(
                f"{cv} splits differently at every call, so a stored search could not be resumed; set its random_state"
            )
        return splits

    # ----------------------------------------------------------------- search

    def _search(self, problem: _Problem) -> Study:
        """Run the search and return its study."""
        candidates, storage = problem.candidates, Store.open(self.storage)
        name, seed, space = self.study_name or type(self.estimator).__name__, self._seed(), self._where(candidates)
        about = self._fingerprint(problem)
        check_fingerprint(storage, name, about)
        directions: list[Direction] = ["maximize" for _ in problem.objectives or (None,)]
        with _no_log_of_new_studies():
            definition = Definition(tuple(directions), problem.objectives or None)
            study, _ = definition.open(storage, name, space, seed)
        write_fingerprint(study, about)
        wanted, n_splits = self._wanted(space), len(candidates.splits)
        known = [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
        for trial in filter(counts, known):
            folds_of(trial, n_splits, math.nan, self.return_train_score)  # raises if they were edited
        n_trials = wanted + sum(not counts(trial) for trial in known)
        if self.verbose > 0:
            left = max(n_trials - len(known), 0)
            there = "" if left == wanted else f" ({wanted - left} candidates are already evaluated)"
            print(f"Fitting {n_splits} folds for each of {left} candidates, totalling {n_splits * left} fits{there}")
        here = self.executor is None
        at_once = int(min(self.n_points, joblib.effective_n_jobs(self.n_jobs)) if here else self.n_points)
        lazybo.optimize(
            candidates,
            space,
            n_trials=n_trials,
            direction=dict(zip(problem.objectives, directions, strict=True)) if problem.objectives else directions,
            n_parallel=at_once,
            executor="threads" if here and at_once > 1 else self.executor,
            synchronous=here,
            storage=storage,
            study_name=name,
            seed=seed,
            limits=lazybo.Limits(max_failures=None),
            callbacks=[candidates.stop_at_errors],
            progress=self.verbose > 0,
        )
        return study

    def _where(self, candidates: Candidates) -> lazybo.Space:
        """The space of the optimiser, with the user's predicate."""
        space, feasible = candidates.space.space, self.feasible
        if feasible is None:
            return space
        return space.changed(feasible=lambda params: feasible(candidates.space.candidate(params)))

    def _seed(self) -> int | None:
        """The seed of the study. None if a stored study decides: it keeps the seed that it was made with."""
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        if self.random_state is None and self.storage is not None:
            return None
        return int(check_random_state(self.random_state).randint(MAX_SEED))

    def _wanted(self, space: lazybo.Space) -> int:
        """The number of candidates: ``n_iter``, or all feasible ones of a small space if they are fewer."""
        count = space.size
        if space.feasible is not None and space.is_small:
            count = len(FeasibleSet(space, space.feasible).everything(0))
        if count >= self.n_iter:
            return int(self.n_iter)
        size = int(count)
        warnings.warn(
            f"The total space of parameters {size} is smaller than n_iter={self.n_iter}. Running {size} iterations. "
            "For exhaustive searches, use GridSearchCV.",
            UserWarning,
            stacklevel=5,  # the caller of fit
        )
        return size

    # ---------------------------------------------------------------- results

    def _results(self, problem: _Problem, study: Study) -> dict[str, Any]:
        """The fitted attributes about the candidates."""
        trials = [trial for trial in study.get_trials() if trial.state.is_finished() and counts(trial)]
        folds = self._folds(problem, trials)
        candidates = [problem.candidates.space.candidate(trial.params) for trial in trials]
        results = self._format_results(candidates, len(problem.candidates.splits), folds)
        first, metric = folds[0]["test_scores"], problem.refit_metric
        multimetric = isinstance(first, dict)
        if callable(self.scoring) and multimetric:
            self._check_refit_for_multimetric(first)
            metric = self.refit
        found = {
            "cv_results_": results,
            "n_splits_": len(problem.candidates.splits),
            "multimetric_": multimetric,
            "scorer_": problem.metrics or problem.scorers,
            "study_": study,
        }
        if problem.objectives:
            rows = front_rows(results, problem.objectives)
            found |= {"front_index_": rows, "front_params_": [candidates[row] for row in rows]}
        if self.refit or not multimetric:
            best = self._best_row(study, trials, results, metric)
            found |= {"best_index_": best, "best_params_": candidates[best]}
            if not callable(self.refit):
                found["best_score_"] = results[f"mean_test_{metric}"][best]
        return found

    def _best_row(self, study: Study, trials: Sequence[FrozenTrial], results: dict[str, Any], metric: str) -> Any:
        """The row of the table that is refitted."""
        if self.refit == RECOMMENDED and metric == "score":
            number = lazybo.recommend(study).number
            for row, trial in enumerate(trials):
                if trial.number == number:  # it may be one that is no candidate of ours
                    return row
        return self._select_best_index(self.refit, metric, results)

    def _folds(self, problem: _Problem, trials: Sequence[FrozenTrial]) -> list[dict[str, Any]]:
        """What scikit-learn's table is made from: each fold of each candidate."""
        failed: Any = math.nan if self.error_score == "raise" else self.error_score
        failed = dict.fromkeys(problem.metrics, failed) if problem.metrics else failed
        n_splits = len(problem.candidates.splits)
        folds = [fold for t in trials for fold in folds_of(t, n_splits, failed, self.return_train_score)]
        _warn_or_raise_about_fit_failures(folds, self.error_score)
        if callable(self.scoring):
            _insert_error_scores(folds, self.error_score)
        return folds

    def _refitted(self, problem: _Problem, best_params: dict[str, Any]) -> dict[str, Any]:
        # Parameter values may be estimators: clone them, so that the user's own stay unfitted.
        best = clone(problem.candidates.estimator).set_params(**clone(best_params, safe=False))
        x, y = problem.candidates.data
        start = time.time()
        best.fit(x, *(() if y is None else (y,)), **problem.routed.estimator.fit)
        found = {"best_estimator_": best, "refit_time_": time.time() - start}
        if hasattr(best, "feature_names_in_"):
            found["feature_names_in_"] = best.feature_names_in_
        return found

    # ------------------------------------------------------------ scikit-learn

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags = copy.deepcopy(get_tags(self.estimator).target_tags)
        return tags

    def __sklearn_clone__(self) -> "LazySearchCV":
        """A clone shares the executor and the storage: neither can be copied."""
        bare = copy.copy(self).set_params(executor=None, storage=None)
        twin: LazySearchCV = super(LazySearchCV, bare).__sklearn_clone__()
        return twin.set_params(executor=self.executor, storage=self.storage)

    def __getstate__(self) -> dict[str, Any]:
        # Loading the pickle elsewhere would look for the study's storage there.
        return {name: value for name, value in super().__getstate__().items() if name != "study_"}


@contextmanager
def _no_log_of_new_studies() -> Iterator[None]:
    """Hide Optuna's log line about a new study in this thread: nested searches make many studies."""
    here = threading.get_ident()
    logger = logging.getLogger("optuna.storages._in_memory")

    def others(record: logging.LogRecord) -> bool:
        return record.thread != here

    logger.addFilter(others)
    try:
        yield
    finally:
        logger.removeFilter(others)
