"""What becomes of a candidate: its folds are fitted and scored, and kept with its trial as scikit-learn needs them."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState
from sklearn import config_context, get_config
from sklearn.base import clone
from sklearn.model_selection._validation import _fit_and_score
from sklearn.utils.parallel import Parallel, delayed

from lazybo.run import plain
from lazybo.run.evaluate import Measured
from lazybo.run.kfold import variance_of_mean
from lazybo.sklearn.spaces import SearchSpace
from lazybo.study.attributes import ERROR_KEY, FOLDS_KEY

# What scikit-learn knows of one fold: scores, times, and what went wrong.
Fold = dict[str, Any]


class Candidates:
    """The objective of a search: a configuration's mean score over the folds, here or in a worker.

    ``options`` are those of scikit-learn's function for one fold. ``guide`` is the metric to go by, where there are
    several; None: the first.
    """

    def __init__(
        self,
        estimator: Any,
        data: tuple[Any, Any],
        splits: Sequence[tuple[Any, Any]],
        space: SearchSpace,
        guide: str | None,
        parallel: Mapping[str, Any],
        options: Mapping[str, Any],
    ) -> None:
        self.error: Exception | None = None  # what ended the search, if it happened in this process
        self._estimator, self._data, self._splits, self._space = estimator, data, splits, space
        self._guide, self._parallel, self._options = guide, parallel, options
        self._config = get_config()  # of the caller's thread; workers have their own

    def __call__(self, params: Mapping[str, Any]) -> Measured:
        """The mean and its noise, or NaN if a fit failed; what else went wrong is for the caller of the search."""
        try:
            with config_context(**self._config):
                folds = self._fit_and_score(self._space.candidate(params))
            values = [self._guiding(fold["test_scores"]) for fold in folds]
        except Exception as error:  # with error_score="raise"; or an unknown parameter, which no candidate mends
            self.error = error
            return Measured(math.nan, metrics={ERROR_KEY: plain.reason(error)})
        for fold in folds:
            fold["fit_error"] = fold["fit_error"] and fold["fit_error"][-plain.TRACEBACK_LENGTH // len(folds) :]
        failed = any(fold["fit_error"] for fold in folds)
        value = math.nan if failed else statistics.fmean(values)
        spread = len(values) > 1 and math.isfinite(value)
        return Measured(value, variance_of_mean(values) if spread else 0.0, {FOLDS_KEY: folds})

    def _fit_and_score(self, candidate: dict[str, Any]) -> list[Fold]:
        folds: list[Fold] = Parallel(**self._parallel)(
            delayed(_fit_and_score)(
                clone(self._estimator),
                *self._data,
                train=train,
                test=test,
                parameters=candidate,
                split_progress=(i, len(self._splits)),
                return_times=True,
                return_n_test_samples=True,
                **self._options,
            )
            for i, (train, test) in enumerate(self._splits)
        )
        return folds

    def _guiding(self, scores: Any) -> float:
        if not isinstance(scores, Mapping):
            return float(scores)
        if self._guide is not None and self._guide not in scores:
            raise ValueError(
                f"scoring gives the metrics {', '.join(map(repr, scores))}, so refit must be one of them, a function, "
                f"or False; not {self._guide!r}"
            )
        return float(next(iter(scores.values())) if self._guide is None else scores[self._guide])

    def stop_at_errors(self, _: Study, trial: FrozenTrial) -> None:
        """End the search where scikit-learn would; to be called after every trial."""
        lost = trial.state == TrialState.FAIL and FOLDS_KEY not in trial.user_attrs
        if ERROR_KEY in trial.user_attrs or (lost and self._options["error_score"] == "raise"):
            reason = trial.user_attrs.get(ERROR_KEY) or trial.system_attrs.get("fail_reason")
            raise self.error or RuntimeError(f"candidate {trial.number} failed with {trial.params}: {reason}")


def counts(trial: FrozenTrial) -> bool:
    """Whether a trial is a candidate that was evaluated; one that ended the search is not."""
    return FOLDS_KEY in trial.user_attrs or (trial.state == TrialState.FAIL and ERROR_KEY not in trial.user_attrs)


def folds_of(trial: FrozenTrial, n_splits: int, failed: Any, train_scores: bool) -> list[Fold]:
    """The folds of a candidate that counts; if its workers died, ``failed`` scores."""
    if FOLDS_KEY in trial.user_attrs:
        return [
            {name: _score(kept) if "scores" in name else kept for name, kept in fold.items()}
            for fold in trial.user_attrs[FOLDS_KEY]
        ]
    reason = str(trial.system_attrs.get("fail_reason", "it was ended by another process"))
    lost = {"fit_error": reason, "test_scores": failed, "n_test_samples": 0, "fit_time": 0.0, "score_time": 0.0}
    return [{**lost, **({"train_scores": failed} if train_scores else {})} for _ in range(n_splits)]


def _score(kept: Any) -> Any:
    """A score, or one for each metric, as it was: a study keeps NaN as None."""
    if isinstance(kept, Mapping):
        return {name: _score(score) for name, score in kept.items()}
    return math.nan if kept is None else kept
