"""LazySearchCV: Bayesian search over an estimator's parameters, as scikit-learn's searches do it.

scikit-learn's `BaseSearchCV` reads the scoring, routes what `fit` is given, makes the table of results and predicts.
Its own loop is not used: it raises as soon as all folds of one round failed, draws new splits for every round, and can
take in no candidate that was evaluated before. Here every candidate is a trial of a study that `lazybo.optimize` runs.
"""

import copy
import logging
import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import Study
from sklearn.base import _fit_context, clone, is_classifier
from sklearn.model_selection import check_cv
from sklearn.model_selection._search import BaseSearchCV
from sklearn.model_selection._validation import _insert_error_scores, _warn_or_raise_about_fit_failures
from sklearn.utils import check_random_state, get_tags
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import _check_method_params, indexable

from lazybo.run.call import Call, Given
from lazybo.run.optimize import optimize
from lazybo.sklearn import identity
from lazybo.sklearn.candidates import Candidates, counts, folds_of
from lazybo.sklearn.spaces import SearchSpace
from lazybo.study.storage import open_storage, open_study
from lazybo.study.structure import Structure

MAX_SEED = 2**31 - 1


@dataclass(frozen=True)
class _Problem:
    """What one call of `fit` is about."""

    data: tuple[Any, Any]
    splits: list[tuple[Any, Any]]
    scorers: Any
    refit_metric: Any
    fit_params: Mapping[str, Any]
    estimator: Any
    space: SearchSpace
    candidates: Candidates
    identity: Mapping[str, str]  # empty if nothing is stored


class LazySearchCV(BaseSearchCV):  # type: ignore[misc] # scikit-learn has no types
    """Search for the parameters of an estimator with a lazy Gaussian process, cross-validating each candidate.

    Takes the place of `RandomizedSearchCV` and of scikit-optimize's `BayesSearchCV`. The mean test score is what is
    searched for, and its spread over the folds is taken as its noise.

    Parameters
    ----------
    estimator : estimator
        With ``score``, or ``scoring`` must be given. A pipeline's parameters are called ``step__param``.
    search_spaces : dict or list of dicts
        For each parameter a list of values, a range ``(low, high)`` or ``(low, high, "log")``, a frozen distribution of
        scipy.stats, or an Optuna distribution. From three numbers on a list is ordered: the model knows which are
        neighbours. A list of dicts are sub-spaces: each candidate is of one of them.
    n_iter : int, default=50
        How many candidates there are in all; fewer if the space holds fewer.
    scoring, refit, cv, error_score, return_train_score, pre_dispatch
        As in `RandomizedSearchCV`. With several metrics the search goes by the one that ``refit`` names, and by the
        first if it names none. A candidate with a fit that failed teaches that it failed, whatever ``error_score``.
    n_jobs : int or None, default=None
        How many folds joblib fits at once.
    n_points : int, default=1
        How many candidates are evaluated at once: in rounds, as far as there are jobs for them; with an ``executor``
        each is followed by the next as soon as it has ended.
    random_state : int, RandomState instance or None, default=None
        The same number gives the same search, unless there is an ``executor`` and more than one point.
    verbose : int, default=0
        As in scikit-learn, with a line of progress on a terminal.
    storage : path, URL, Optuna storage or None, default=None
        Where every candidate is kept when it begins and when it ends. The same `fit` again goes on: nothing that is
        there is evaluated again, and it is in ``cv_results_``. A path is an SQLite file.
    study_name : str or None, default=None
        The name of the search in the storage; by default that of the estimator's class.
    param_distributions : dict or list of dicts
        The name of ``search_spaces`` in `RandomizedSearchCV`. One of the two must be given.
    executor : optional
        Where whole candidates are evaluated, ``n_points`` of them at once: all that `lazybo.optimize` takes.

    Attributes
    ----------
    cv_results_, best_estimator_, best_params_, best_score_, best_index_, refit_time_, scorer_, n_splits_, multimetric_
        As in `RandomizedSearchCV`; the candidates are in the order in which they were begun.
    study_ : optuna.study.Study
        The search as a study. It is not pickled with the estimator.

    """

    _parameter_constraints: dict[str, Any] = {  # noqa: RUF012 - scikit-learn's name and place for them
        **BaseSearchCV._parameter_constraints,
        "search_spaces": [dict, list, None],
        "param_distributions": [dict, list, None],
        "n_iter": [Interval(Integral, 1, None, closed="left")],
        "n_points": [Interval(Integral, 1, None, closed="left")],
        "random_state": ["random_state"],
        "study_name": [str, None],
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

    @_fit_context(prefer_skip_nested_validation=False)  # type: ignore[untyped-decorator] # the estimator is not validated yet
    def fit(self, X: Any, y: Any = None, **params: Any) -> "LazySearchCV":
        """Evaluate candidates, and fit the best one to all of the data.

        ``params`` go to the estimator's ``fit``; ``groups`` to the splitter, ``sample_weight`` to the scorers too, as
        in scikit-learn. If anything is wrong, the estimator stays as it was.
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
        """What was given, checked; nothing has been evaluated or written."""
        if y is None and get_tags(self).target_tags.required:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        scorers, refit_metric = self._get_scorers()
        space = self._space()
        x, y = indexable(x, y)
        routed = self._get_routed_params_for_fit(_check_method_params(x, params=params))
        splits = self._splits(x, y, routed.splitter.split)
        estimator = clone(self.estimator)
        options = {
            "scorer": scorers,
            "fit_params": routed.estimator.fit,
            "score_params": routed.scorer.score,
            "return_train_score": self.return_train_score,
            "error_score": self.error_score,
            "verbose": self.verbose,
        }
        any_metric = self.refit is False or callable(self.refit)
        guide = self.refit if isinstance(self.refit, str) else None if any_metric else "score"
        parallel = {"n_jobs": self.n_jobs, "pre_dispatch": self.pre_dispatch}
        candidates = Candidates(estimator, (x, y), splits, space, guide, parallel, options)
        about: dict[str, str] = {}
        if self.storage is not None:
            own = ("estimator", "scoring", "error_score", "return_train_score")
            settings = {name: getattr(self, name) for name in own} | {"search_spaces": space.text}
            settings["refit metric"] = self.refit if isinstance(self.refit, str) else None
            given = {"fit parameters": routed.estimator.fit, "score parameters": routed.scorer.score}
            about = identity.identity(settings, {"X": x, "y": y, "cv splits": splits, **given})
        return _Problem(
            (x, y), splits, scorers, refit_metric, routed.estimator.fit, estimator, space, candidates, about
        )

    def _space(self) -> SearchSpace:
        """What is searched, under either of its names."""
        if (self.search_spaces is None) == (self.param_distributions is None):
            given = "neither is" if self.search_spaces is None else "both are"
            raise ValueError(f"give either search_spaces or param_distributions; here {given} given")
        if self.search_spaces is None:
            return SearchSpace(self.param_distributions, "param_distributions")
        return SearchSpace(self.search_spaces)

    def _splits(self, x: Any, y: Any, params: Mapping[str, Any]) -> list[tuple[Any, Any]]:
        """The same splits for every candidate, also where the splitter draws new ones at every call."""
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
                f"{cv} splits differently at every call, so a stored search could not go on; set its random_state"
            )
        return splits

    # ----------------------------------------------------------------- search

    def _search(self, problem: _Problem) -> Study:
        """The study with all candidates."""
        space, storage = problem.space, open_storage(self.storage)
        name = self.study_name or type(self.estimator).__name__
        identity.check(storage, name, problem.identity)
        seed = self._seed()
        with _without_news_of_studies():
            study, _ = open_study(storage, name, "maximize", _structure(space), seed)
        identity.write(study, problem.identity)
        wanted = self._wanted(space)
        known = [trial for trial in study.get_trials(deepcopy=False) if trial.state.is_finished()]
        n_trials = wanted + sum(not counts(trial) for trial in known)
        self._announce(len(problem.splits), wanted, n_trials - len(known))
        at_once = int(
            self.n_points if self.executor is not None else min(self.n_points, joblib.effective_n_jobs(self.n_jobs))
        )
        optimize(
            Call(problem.candidates, (Given.PARAMS,)),  # also where a parameter is called "params"
            space.distributions,
            conditions=space.conditions,
            n_trials=n_trials,
            direction="maximize",
            n_parallel=at_once,
            executor="threads" if self.executor is None and at_once > 1 else self.executor,
            synchronous=self.executor is None,
            storage=storage,
            study_name=name,
            seed=seed,
            max_failures=None,
            callbacks=[problem.candidates.stop_at_errors],
            progress=self.verbose > 0,
        )
        if sum(trial.state.is_finished() for trial in study.get_trials(deepcopy=False)) < n_trials:
            raise KeyboardInterrupt  # the run has waited for what ran, and ended as if nothing were wrong
        return study

    def _seed(self) -> int | None:
        """A number, so that the study can be asked to repeat; None: the study's own, if it is resumed."""
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        if self.random_state is None and self.storage is not None:
            return None
        return int(check_random_state(self.random_state).randint(MAX_SEED))

    def _wanted(self, space: SearchSpace) -> int:
        if space.size >= self.n_iter:
            return int(self.n_iter)
        size = int(space.size)
        warnings.warn(
            f"The total space of parameters {size} is smaller than n_iter={self.n_iter}. Running {size} iterations. "
            "For exhaustive searches, use GridSearchCV.",
            UserWarning,
            stacklevel=5,  # the caller of fit
        )
        return size

    def _announce(self, n_splits: int, wanted: int, left: int) -> None:
        if self.verbose > 0:
            left = max(left, 0)
            known = "" if left == wanted else f" ({wanted - left} candidates are known already)"
            print(f"Fitting {n_splits} folds for each of {left} candidates, totalling {n_splits * left} fits{known}")

    # ---------------------------------------------------------------- results

    def _results(self, problem: _Problem, study: Study) -> dict[str, Any]:
        """The attributes that tell of the candidates."""
        trials = [trial for trial in study.get_trials() if trial.state.is_finished() and counts(trial)]
        failed = math.nan if self.error_score == "raise" else self.error_score
        metrics = getattr(problem.scorers, "_scorers", None)
        failed = dict.fromkeys(metrics, failed) if isinstance(metrics, dict) else failed
        n_splits = len(problem.splits)
        folds = [fold for t in trials for fold in folds_of(t, n_splits, failed, self.return_train_score)]
        _warn_or_raise_about_fit_failures(folds, self.error_score)
        if callable(self.scoring):
            _insert_error_scores(folds, self.error_score)
        candidates = [problem.space.candidate(trial.params) for trial in trials]
        results = self._format_results(candidates, n_splits, folds)

        first, metric = folds[0]["test_scores"], problem.refit_metric
        multimetric = isinstance(first, dict)
        if callable(self.scoring) and multimetric:
            self._check_refit_for_multimetric(first)
            metric = self.refit
        scorer = problem.scorers if metrics is None else metrics
        found = {
            "cv_results_": results,
            "n_splits_": n_splits,
            "multimetric_": multimetric,
            "scorer_": scorer,
            "study_": study,
        }
        if self.refit or not multimetric:
            best = self._select_best_index(self.refit, metric, results)
            found |= {"best_index_": best, "best_params_": candidates[best]}
            if not callable(self.refit):
                found["best_score_"] = results[f"mean_test_{metric}"][best]
        return found

    def _refitted(self, problem: _Problem, best_params: dict[str, Any]) -> dict[str, Any]:
        # Parameters may be estimators, and those that were given stay unfitted.
        best = clone(problem.estimator).set_params(**clone(best_params, safe=False))
        x, y = problem.data
        start = time.time()
        best.fit(x, *(() if y is None else (y,)), **problem.fit_params)
        found = {"best_estimator_": best, "refit_time_": time.time() - start}
        if hasattr(best, "feature_names_in_"):
            found["feature_names_in_"] = best.feature_names_in_
        return found

    # ------------------------------------------------------------------- habits

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags = copy.deepcopy(get_tags(self.estimator).target_tags)
        return tags

    def __sklearn_clone__(self) -> "LazySearchCV":
        """A clone works on the same executor and storage: neither can be copied."""
        bare = copy.copy(self).set_params(executor=None, storage=None)
        twin: LazySearchCV = super(LazySearchCV, bare).__sklearn_clone__()
        return twin.set_params(executor=self.executor, storage=self.storage)

    def __getstate__(self) -> dict[str, Any]:
        # A stored study would be looked for wherever the pickle is read.
        return {name: value for name, value in super().__getstate__().items() if name != "study_"}


def _structure(space: SearchSpace) -> Structure:
    distributions: dict[str, BaseDistribution] = space.distributions
    return Structure(distributions, space.conditions, frozenset())


@contextmanager
def _without_news_of_studies() -> Iterator[None]:
    """Optuna logs every new study, and a search inside another makes many: not for those of this thread."""
    here = threading.get_ident()
    logger = logging.getLogger("optuna.storages._in_memory")

    def others(record: logging.LogRecord) -> bool:
        return record.thread != here

    logger.addFilter(others)
    try:
        yield
    finally:
        logger.removeFilter(others)
