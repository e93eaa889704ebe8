"""Searches that are kept, go on, or run elsewhere."""

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState
from scipy.stats import loguniform, randint, uniform
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.datasets import make_classification
from sklearn.exceptions import FitFailedWarning
from sklearn.model_selection import KFold, ShuffleSplit, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import lazybo
from lazybo.sklearn import LazySearchCV
from lazybo.sklearn.candidates import SEARCH_KEY

X, Y = make_classification(n_samples=60, n_features=4, flip_y=0.2, random_state=0)
SPACE = [{"kernel": ["rbf"], "C": loguniform(1e-2, 1e2), "gamma": loguniform(1e-3, 1)}, {"kernel": ["linear"]}]
fits = threading.local()


class Counted(SVC):
    """A classifier that counts its fits."""

    def fit(self, *args: Any, **kwargs: Any) -> "Counted":
        fits.count = getattr(fits, "count", 0) + 1
        super().fit(*args, **kwargs)
        return self


def search(storage: Any, estimator: Any = None, spaces: Any = SPACE, **options: Any) -> LazySearchCV:
    options = {"n_iter": 8, "cv": 3, "random_state": 0, "storage": storage, **options}
    return LazySearchCV(estimator or Counted(), spaces, **options)


def counted(ours: LazySearchCV, x: Any = X, y: Any = Y, **params: Any) -> int:
    fits.count = 0
    ours.fit(x, y, **params)
    return int(fits.count)


def scores(ours: LazySearchCV) -> dict[str, Any]:
    return {name: np.asarray(column).tolist() for name, column in ours.cv_results_.items() if "_test_" in name}


@pytest.fixture(scope="module")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "search.db"
    search(path, n_iter=2).fit(X, Y)
    return path


@pytest.fixture
def stored(made_once: Path, tmp_path: Path) -> Path:
    """A copy of a stored search with two candidates."""
    return Path(shutil.copy(made_once, tmp_path / "search.db"))


# -------------------------------------------------------------- to go on


OPTIONS: list[dict[str, Any]] = [
    {},
    {"return_train_score": True},
    {"scoring": ["accuracy", "f1"], "refit": "f1"},
    {"refit": "recommended"},
    {"scoring": lambda estimator, x, y: {"right": estimator.score(x, y), "one": 1.0}, "refit": "right"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "train", "metrics", "recommended", "function"])
def test_a_stored_search_goes_on_and_ends_as_if_it_had_never_stopped(tmp_path: Path, options: dict[str, Any]) -> None:
    storage = InMemoryStorage() if options else tmp_path / "search.db"
    assert counted(search(storage, n_iter=6, **options)) == 6 * 3 + 1
    resumed = search(storage, n_iter=9, **options)
    assert counted(resumed) == 3 * 3 + 1
    whole = search(None, n_iter=9, **options).fit(X, Y)
    assert resumed.cv_results_["params"] == whole.cv_results_["params"]
    assert scores(resumed) == scores(whole)
    assert resumed.best_params_ == whole.best_params_
    again = search(storage, n_iter=9, **options)
    assert counted(again) == 1, "only the best one is fitted again"
    for name, column in resumed.cv_results_.items():
        assert str(column) == str(again.cv_results_[name]), name


def test_what_is_stored_is_an_ordinary_study(tmp_path: Path) -> None:
    path = tmp_path / "search.db"
    ours = search(path, make_pipeline(StandardScaler(), SVC()), {"svc__C": loguniform(0.1, 10)}).fit(X, Y)
    study = optuna.load_study(study_name="Pipeline", storage=f"sqlite:///{path}")
    assert study.best_params == ours.best_params_
    assert study.best_value == pytest.approx(ours.best_score_)
    assert [trial.params for trial in study.trials] == ours.cv_results_["params"]


class Fragile(ClassifierMixin, BaseEstimator):
    """Fails, leaves the process or interrupts it, while a file is there."""

    def __init__(self, parameter: float = 0.0, how: str = "", path: str = "") -> None:
        self.parameter = parameter
        self.how = how
        self.path = path

    def fit(self, x: Any, y: Any) -> "Fragile":
        self.classes_, self.n_features_in_ = np.unique(y), np.shape(x)[1]
        if self.parameter > 0.5 and os.path.exists(self.path):  # noqa: PTH110 - a parameter is compared as text
            if self.how == "raise":
                raise ValueError("it is too large")
            if self.how == "exit":
                os._exit(3)
            if self.how == "interrupt":
                os.remove(self.path)  # noqa: PTH107 - only once
                os.kill(os.getpid(), signal.SIGINT)
        return self

    def predict(self, x: Any) -> Any:
        return np.full(len(x), self.classes_[int(self.parameter > 0.25)])


@pytest.fixture
def trap(tmp_path: Path) -> Path:
    path = tmp_path / "trap"
    path.touch()
    return path


def test_after_an_error_the_same_search_tries_again(tmp_path: Path, trap: Path) -> None:
    ours = search(
        tmp_path / "s.db", Fragile(how="raise", path=str(trap)), {"parameter": uniform(0, 1)}, error_score="raise"
    )
    with pytest.raises(ValueError, match="it is too large"):
        ours.fit(X, Y)
    trap.unlink()
    ours.fit(X, Y)
    assert len(ours.cv_results_["params"]) == 8
    assert np.isfinite(ours.cv_results_["mean_test_score"]).all()
    assert len(ours.study_.trials) == 9, "the one that raised is no candidate"


def test_ctrl_c_ends_the_search_and_the_same_call_goes_on(tmp_path: Path, trap: Path) -> None:
    ours = search(tmp_path / "s.db", Fragile(how="interrupt", path=str(trap)), {"parameter": uniform(0, 1)})
    with pytest.raises(KeyboardInterrupt):
        ours.fit(X, Y)
    assert not hasattr(ours, "cv_results_")
    stored = optuna.load_study(study_name="Fragile", storage=f"sqlite:///{tmp_path / 's.db'}").trials
    assert all(trial.state == TrialState.COMPLETE for trial in stored), "what ran was waited for"
    assert len(stored) < 8
    whole = search(None, Fragile(), {"parameter": uniform(0, 1)}).fit(X, Y)
    assert ours.fit(X, Y).cv_results_["params"] == whole.cv_results_["params"]


def test_a_killed_search_goes_on(tmp_path: Path, trap: Path) -> None:
    program = f"""
import sys; sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_search_stored import *
ours = search({str(tmp_path / "s.db")!r}, Fragile(how="exit", path={str(trap)!r}), {{"parameter": uniform(0, 1)}})
ours.fit(X, Y)
print(len(ours.cv_results_["params"]))
"""
    first = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert first.returncode == 3, first.stderr
    trap.unlink()
    second = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert second.stdout.strip() == "8"


# ------------------------------------------------------------- to refuse


CHANGES: dict[str, tuple[dict[str, Any], Any, Any, str]] = {
    "rows": ({}, X[:50], Y[:50], "with another X"),
    "values": ({}, X + 1e-9, Y, "with another X"),
    "labels": ({}, X, 1 - Y, "with another y"),
    "folds": ({"cv": 4}, X, Y, "with another cv splits"),
    "splitter": ({"cv": KFold(3, shuffle=True, random_state=1)}, X, Y, "with another cv splits .a splitter"),
    "scoring": ({"scoring": "f1"}, X, Y, "with another scoring: there None, here 'f1'"),
    "estimator": ({"estimator": Counted(shrinking=False)}, X, Y, r"with another estimator: there Counted\(\), here"),
    "space": ({"search_spaces": {"C": loguniform(1e-2, 1e3)}}, X, Y, "with another search_spaces"),
    "train scores": ({"return_train_score": True}, X, Y, "with another return_train_score: there False, here True"),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_search_about_something_else_is_refused_and_the_stored_one_stays(stored: Path, name: str) -> None:
    options, x, y, message = CHANGES[name]
    before = stored.read_bytes()
    with pytest.raises(ValueError, match=f"'Counted' was made {message}.*use another study_name") as error:
        search(stored, n_iter=3).set_params(**options).fit(x, y)
    assert "\n" not in str(error.value)
    assert stored.read_bytes() == before
    search(stored, n_iter=2, study_name="another").set_params(**options).fit(x, y)


def test_weights_and_groups_belong_to_the_search(tmp_path: Path) -> None:
    path = tmp_path / "search.db"
    search(path, n_iter=2).fit(X, Y, sample_weight=np.ones(60))
    assert counted(search(path, n_iter=2), sample_weight=np.ones(60)) == 1
    with pytest.raises(ValueError, match="with another fit parameters"):
        search(path, n_iter=2).fit(X, Y, sample_weight=np.full(60, 0.5))


def test_splits_that_never_repeat_cannot_be_stored(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"ShuffleSplit.* splits differently at every call.*set its random_state"):
        search(tmp_path / "search.db", cv=ShuffleSplit(3)).fit(X, Y)
    assert not (tmp_path / "search.db").exists()


def test_a_study_that_no_search_made_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "search.db"
    space = {"C": optuna.distributions.FloatDistribution(0, 1)}
    lazybo.optimize(lambda p: p["C"], space, n_trials=2, storage=path, study_name="Counted", direction="maximize")
    with pytest.raises(
        ValueError, match="'Counted' has trials that were not made by LazySearchCV; use another study_name"
    ):
        search(path, spaces=space).fit(X, Y)


# --------------------------------------------------------------- elsewhere


@pytest.mark.parametrize("executor", ["threads", "processes"])
def test_candidates_are_evaluated_elsewhere_with_the_same_results(executor: str) -> None:
    near, far = (search(None, SVC(), executor=where, n_iter=6).fit(X, Y) for where in (None, executor))
    assert near.cv_results_["params"] == far.cv_results_["params"]
    assert scores(near) == scores(far)
    np.testing.assert_array_equal(near.predict(X), far.predict(X))


def test_several_candidates_run_at_once_on_an_executor_of_the_caller(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=30)

    class Waiting(SVC):
        def fit(self, *args: Any, **kwargs: Any) -> "Waiting":
            if threading.current_thread() is not threading.main_thread():
                both.wait()
            super().fit(*args, **kwargs)
            return self

    with ThreadPoolExecutor(2) as pool:
        ours = search(tmp_path / "s.db", Waiting(), executor=pool, n_points=2).fit(X, Y)
        assert pool.submit(int).result() == 0, "it is the caller's to close"
    assert len(ours.cv_results_["params"]) == 8
    space = {"C": loguniform(0.1, 10), "degree": randint(1, 4)}
    assert np.isfinite(cross_val_score(search(None, SVC(), space, executor="threads", n_points=2), X, Y, cv=2)).all()


class Mortal(ThreadPoolExecutor):
    """Workers that a large parameter kills."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        if args[1].params["parameter"] < 0.5:
            return super().submit(fn, *args, **kwargs)
        future: Future[Any] = Future()
        future.cancel()
        return future


@pytest.mark.parametrize("options", [{}, {"scoring": ["accuracy", "f1"], "refit": "f1", "return_train_score": True}])
def test_a_worker_that_dies_is_a_candidate_that_failed(options: dict[str, Any]) -> None:
    with Mortal(2) as pool, pytest.warns(FitFailedWarning, match="its worker died"), pytest.warns(match="non-finite"):
        ours = search(None, Fragile(), {"parameter": uniform(0, 1)}, executor=pool, n_points=2, **options).fit(X, Y)
    failed = np.asarray(ours.cv_results_["param_parameter"], dtype=float) > 0.5
    mean = ours.cv_results_["mean_test_f1" if options else "mean_test_score"]
    np.testing.assert_array_equal(np.isnan(mean), failed)
    assert 0 < failed.sum() < 8


def test_an_error_in_another_process_is_told() -> None:
    ours = search(None, SVC(), {"kernel": ["none such"]}, n_iter=1, error_score="raise", executor="processes")
    with pytest.raises(RuntimeError, match="InvalidParameterError: The 'kernel' parameter"):
        ours.fit(X, Y)


@pytest.mark.parametrize("value", [7, "{", "[1]", "[" * 100_000])
def test_an_edited_fingerprint_is_one_error_that_names_it(value: Any) -> None:
    storage = InMemoryStorage()
    search(storage, n_iter=2, study_name="s").fit(X, Y)
    number = storage.get_study_id_from_name("s")
    storage.set_study_system_attr(number, f"{SEARCH_KEY}:0", value)
    storage.set_study_system_attr(number, f"{SEARCH_KEY}:length", len(str(value)))
    with pytest.raises(ValueError, match=r"the attribute 'lazybo:search' of the study 's' cannot be read: .*; use"):
        search(storage, n_iter=3, study_name="s").fit(X, Y)


@pytest.mark.parametrize("value", [7, "x", None, [], [{}] * 3, {"a": 1}, "a score"])
def test_edited_folds_are_one_error_that_names_them_before_anything_runs(value: Any, stored: Path) -> None:
    study = optuna.load_study(study_name="Counted", storage=f"sqlite:///{stored}")
    kept = study.trials[0].user_attrs["folds"]
    edited = [{**fold, "test_scores": "high"} for fold in kept] if value == "a score" else value
    with contextlib.closing(sqlite3.connect(stored)) as connection, connection:
        update = "UPDATE trial_user_attributes SET value_json = ? WHERE key = 'folds' AND trial_id = 1"
        connection.execute(update, (json.dumps(edited),))
    with pytest.raises(ValueError, match=r"the attribute 'folds' of trial 0 cannot be read: .*; use another"):
        counted(search(stored, n_iter=3))
    assert fits.count == 0
