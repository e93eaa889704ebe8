"""LazySearchCV beside scikit-learn's own searches, whose tests are the template (sklearn/model_selection/tests).

The naive twin of a search is a GridSearchCV over the candidates that it tried: the same table, the same best one.
"""

import pickle
import re
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import InMemoryStorage
from optuna.trial import TrialState
from scipy.stats import loguniform, randint, uniform
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.datasets import make_classification
from sklearn.decomposition import PCA
from sklearn.exceptions import FitFailedWarning
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import accuracy_score, confusion_matrix, make_scorer, precision_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeavePGroupsOut,
    RandomizedSearchCV,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.neighbors import KernelDensity, KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

from lazybo import recommend
from lazybo.sklearn import LazySearchCV

X, Y = make_classification(n_samples=60, n_features=6, n_informative=4, flip_y=0.2, random_state=0)
TREE_SPACE = {"max_depth": randint(1, 6), "min_samples_leaf": [1, 2, 5, 9], "criterion": ["gini", "entropy"]}
TREE = DecisionTreeClassifier(random_state=0)
C = loguniform(1e-2, 1e2)


def search(estimator: Any = TREE, spaces: Any = None, **options: Any) -> LazySearchCV:
    """A small search: 7 candidates are five that fill the space and two that the model proposes."""
    return LazySearchCV(estimator, spaces or TREE_SPACE, **{"n_iter": 7, "cv": 3, "random_state": 0, **options})


def twin(fitted: LazySearchCV) -> GridSearchCV:
    """A search over the candidates that were tried."""
    grid = [{name: [value] for name, value in params.items()} for params in fitted.cv_results_["params"]]
    names = ("scoring", "refit", "cv", "error_score", "return_train_score")
    return GridSearchCV(fitted.estimator, grid, **{name: getattr(fitted, name) for name in names})


def assert_same_results(ours: LazySearchCV, theirs: Any) -> None:
    a, b = ours.cv_results_, theirs.cv_results_
    assert list(a) == list(b)
    for name in a:
        if name.endswith("_time"):
            assert (a[name] >= 0).all()
        elif name == "params":
            assert [{k: str(v) for k, v in p.items()} for p in a[name]] == [
                {k: str(v) for k, v in p.items()} for p in b[name]
            ]
        elif name.startswith("param_"):
            np.testing.assert_array_equal(a[name].mask, b[name].mask)
            assert a[name].dtype == b[name].dtype
            assert str(a[name]) == str(b[name])
        else:
            np.testing.assert_array_equal(a[name], b[name], err_msg=name)
    for name in ("best_index_", "best_score_", "n_splits_", "multimetric_"):
        assert hasattr(ours, name) == hasattr(theirs, name), name
        assert getattr(ours, name, None) == getattr(theirs, name, None), name
    assert hasattr(ours, "best_estimator_") == hasattr(theirs, "best_estimator_")


def least_complex(results: dict[str, Any]) -> int:
    """A refit that is a function: the smallest depth within a standard error."""
    good = results["mean_test_score"] >= results["mean_test_score"].max() - results["std_test_score"].mean()
    depth = np.where(good, results["param_max_depth"].astype(float), np.inf)
    return int(depth.argmin())


def all_metrics(estimator: Any, x: Any, y: Any) -> dict[str, float]:
    (tn, fp), (fn, tp) = confusion_matrix(y, estimator.predict(x))
    return {"tn": tn, "fp": fp, "fn": fn, "tp": tp}


GROUPS = np.repeat(np.arange(6), 10)
WEIGHTS = np.linspace(0.1, 2, 60)
STEPS = Pipeline([("scale", StandardScaler()), ("reduce", PCA()), ("svc", SVC())])
STEP_SPACE = {
    "scale": [StandardScaler(), MinMaxScaler(), "passthrough"],
    "reduce": [PCA(2), SelectKBest(k=3), "passthrough"],
    "svc__C": C,
    "svc__kernel": ["rbf", "linear"],
}
FILLED = make_pipeline(SimpleImputer(), SVC())
OPTUNA = {
    "C": FloatDistribution(0.1, 10, log=True),
    "degree": IntDistribution(1, 3),
    "kernel": CategoricalDistribution(["poly", "rbf"]),
}
SUBSPACES = [
    {"kernel": ["rbf"], "C": C, "gamma": loguniform(1e-3, 1)},
    {"kernel": ["poly"], "C": C, "degree": [2, 3, 4]},
    {"kernel": ["linear"], "C": loguniform(0.1, 1)},
]
SCORING: list[Any] = ["accuracy", "f1"]
Case = tuple[LazySearchCV, Any, Any, dict[str, Any]]
CASES: dict[str, Case] = {
    "plain": (search(), X, Y, {}),
    "train scores": (search(return_train_score=True), X, Y, {}),
    "regression": (search(Ridge(), {"alpha": FloatDistribution(0.1, 10)}), X, X[:, 0], {}),
    "scoring": (search(scoring="roc_auc"), X, Y, {}),
    "metrics": (search(scoring=SCORING, refit="f1", return_train_score=True), X, Y, {}),
    "metrics, no refit": (search(scoring=SCORING, refit=False), X, Y, {}),
    "metrics of a function": (search(scoring=all_metrics, refit="tp"), X, Y, {}),
    "no refit": (search(refit=False), X, Y, {}),
    "refit a function": (search(refit=least_complex), X, Y, {}),
    "splitter": (search(cv=StratifiedKFold(4, shuffle=True, random_state=1)), X, Y, {}),
    "splits": (search(cv=list(KFold(3).split(X))), X, Y, {}),
    "groups": (search(cv=GroupKFold(3)), X, Y, {"groups": GROUPS}),
    "groups left out": (search(cv=LeavePGroupsOut(5)), X, Y, {"groups": GROUPS}),
    "weights": (search(), X, Y, {"sample_weight": WEIGHTS}),
    "weights of metrics": (search(scoring=SCORING, refit="f1"), X, Y, {"sample_weight": WEIGHTS}),
    "sparse": (search(LinearSVC(random_state=0), {"C": C}), scipy.sparse.csr_matrix(X), Y, {}),
    "frames": (search(), pd.DataFrame(X, columns=list("abcdef")), pd.Series(Y), {}),
    "missing values": (search(FILLED, {"svc__C": C}), np.where(X > 2, np.nan, X), Y, {}),
    "density": (search(KernelDensity(), {"bandwidth": uniform(0, 3)}), X, None, {}),
    "pipeline": (search(STEPS, STEP_SPACE), X, Y, {}),
    "sub-spaces": (search(SVC(), SUBSPACES, n_iter=12), X, Y, {}),
    "Optuna": (search(SVC(), OPTUNA), X, Y, {}),
    "one candidate": (search(spaces={"max_depth": [3]}, n_iter=1), X, Y, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:Liblinear failed to converge")
def test_the_table_is_that_of_a_grid_search_over_the_same_candidates(name: str) -> None:
    unfitted, x, y, params = CASES[name]
    ours = clone(unfitted).fit(x, y, **params)
    theirs = twin(ours).fit(x, y, **params)
    assert_same_results(ours, theirs)
    assert len(ours.cv_results_["params"]) == ours.n_iter == len(ours.study_.trials)
    if ours.refit:
        assert ours.best_params_ == ours.cv_results_["params"][ours.best_index_]
        assert ours.refit_time_ >= 0
        assert ours.n_features_in_ == theirs.n_features_in_
        assert hasattr(ours, "feature_names_in_") == hasattr(theirs, "feature_names_in_")
        if hasattr(theirs, "predict"):
            np.testing.assert_array_equal(ours.predict(x), theirs.predict(x))
        if not callable(ours.refit) or not ours.multimetric_:
            assert ours.score(x, y) == theirs.score(x, y)


# -------------------------------------------------------------- arguments of fit


class Counted(DecisionTreeClassifier):
    """A tree that counts its fits."""

    fits = 0

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "Counted":  # noqa: N803 - scikit-learn's name
        Counted.fits += 1
        fitted: Counted = super().fit(X, y, sample_weight)
        return fitted


NESTED = Pipeline([("scale", StandardScaler()), ("inner", Pipeline([("tree", Counted())]))])


@pytest.mark.parametrize(
    ("estimator", "name", "message"),
    [
        (Counted(), "callback", "fit() got 'callback', but Counted.fit takes sample_weight. Unlike BayesSearchCV"),
        (Counted(), "sample_weights", "fit() got 'sample_weights', but Counted.fit takes sample_weight"),
        (KNeighborsClassifier(), "sample_weight", "but KNeighborsClassifier.fit takes only X and y"),
        (NESTED, "sample_weight", "but Pipeline.fit takes arguments of its steps, such as inner__sample_weight"),
        (NESTED, "outer__tree__sample_weight", "such as inner__sample_weight"),
        (NESTED, "inner__tree__callback", "fit() got 'inner__tree__callback', but Counted.fit takes sample_weight"),
        (NESTED, "scale__weight", "but StandardScaler.fit takes sample_weight"),
    ],
)
def test_an_argument_that_no_fit_takes_is_one_error_before_any_fit(estimator: Any, name: str, message: str) -> None:
    Counted.fits, storage = 0, InMemoryStorage()
    space = {"inner__tree__max_depth": [1, 2, 3]} if estimator is NESTED else {next(iter(estimator.get_params())): [1]}
    with pytest.raises(TypeError, match=re.escape(message)):
        search(estimator, space, storage=storage).fit(X, Y, **{name: WEIGHTS})
    assert Counted.fits == 0
    assert not storage.get_all_studies()


@pytest.mark.parametrize(
    ("estimator", "space", "name"),
    [
        (NESTED, {"inner__tree__max_depth": [1, 2, 3]}, "inner__tree__sample_weight"),
        # Each candidate has another step. Those of the pipeline itself don't take the argument.
        (Pipeline([("last", KNeighborsClassifier())]), {"last": [TREE, SVC(), LinearSVC()]}, "last__sample_weight"),
        (search(spaces={"max_depth": [1, 2]}, n_iter=2), {"n_points": [1, 2, 3]}, "sample_weight"),
    ],
)
@pytest.mark.filterwarnings("ignore:The scoring:UserWarning")
def test_arguments_that_a_step_takes_reach_it(estimator: Any, space: Any, name: str) -> None:
    ours = search(estimator, space, n_iter=3, error_score="raise").fit(X, Y, **{name: WEIGHTS})
    assert len(ours.study_.trials) == 3


# -------------------------------------------------------------- the model


def test_what_the_study_holds_is_the_mean_and_the_folds_are_no_noise() -> None:
    ours = search(scoring=SCORING, refit="f1").fit(X, Y)
    for i, trial in enumerate(ours.study_.trials):
        assert trial.value == pytest.approx(ours.cv_results_["mean_test_f1"][i])
        assert "lazybo:variance" not in trial.system_attrs
    assert ours.study_.best_value == pytest.approx(ours.best_score_)


class Hill(ClassifierMixin, BaseEstimator):
    """Scores best at (0.3, 0.6), on some rows more than on others."""

    def __init__(self, north: float = 0.0, east: float = 0.0) -> None:
        self.north = north
        self.east = east

    def fit(self, *_: Any) -> "Hill":
        return self

    def score(self, x: Any, _: Any) -> float:
        return float(1 - np.hypot(self.north - 0.3, self.east - 0.6) + 0.05 * np.mean(x))


def test_the_search_finds_what_random_candidates_do_not() -> None:
    space = {"north": uniform(0, 1), "east": uniform(0, 1)}
    scores = [
        [kind(Hill(), space, n_iter=20, cv=3, random_state=seed).fit(X, Y).best_score_ for seed in range(4)]
        for kind in (LazySearchCV, RandomizedSearchCV)
    ]
    assert min(scores[0]) > max(scores[1])


class Noisy(Hill):
    """A hill whose scores have noise: another one each time."""

    noise = np.random.default_rng(0)

    def score(self, *_: Any) -> float:
        truth = 1.0 - (self.north - 0.3) ** 2 - (self.east - 0.6) ** 2
        return float(truth + 0.4 * Noisy.noise.standard_normal())


def test_the_recommended_candidate_is_refitted_where_the_best_score_is_luck() -> None:
    """Which of the two is better is a question about the model: tests/search/test_prediction.py."""
    space, differ = {"north": uniform(0, 1), "east": uniform(0, 1)}, 0

    def searched(seed: int, refit: Any) -> LazySearchCV:
        Noisy.noise = np.random.default_rng(seed)
        return LazySearchCV(Noisy(), space, n_iter=24, cv=3, random_state=seed, refit=refit).fit(X, Y)

    for seed in (8, 9, 10, 20):
        best, chosen = (searched(seed, refit) for refit in (True, "recommended"))
        assert best.cv_results_["params"] == chosen.cv_results_["params"], "the search is the same"
        found = recommend(chosen.study_)
        assert chosen.best_index_ == found.number
        assert chosen.best_params_ == found.params == chosen.cv_results_["params"][chosen.best_index_]
        assert chosen.best_score_ == chosen.cv_results_["mean_test_score"][chosen.best_index_]
        results = chosen.cv_results_
        repeats = [i for i, params in enumerate(results["params"]) if params == found.params]
        assert found.measured == pytest.approx(np.mean(results["mean_test_score"][repeats]))
        assert chosen.best_estimator_.get_params() == found.params
        scores = []
        for scored in (chosen, chosen.best_estimator_):
            Noisy.noise = np.random.default_rng(seed)  # the same noise for both
            scores.append(scored.score(X, Y))
        assert scores[0] == scores[1]
        differ += chosen.best_index_ != best.best_index_
    assert differ


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_what_is_recommended_is_a_candidate_that_did_not_fail() -> None:
    ours = search(Pipeline([("tree", TREE)]), {"tree__max_depth": [-1, 1, 2, 3]}, n_iter=4, refit="recommended")
    with pytest.warns(FitFailedWarning):
        ours.fit(X, Y)
    assert ours.best_params_["tree__max_depth"] > 0
    assert ours.best_estimator_.predict(X).shape == Y.shape


@pytest.mark.parametrize("refit", [False, lambda results: 0])
def test_of_the_metrics_of_a_function_the_first_one_guides_without_a_refit(refit: Any) -> None:
    free, named = (search(refit=r, n_iter=9, scoring=all_metrics).fit(X, Y) for r in (refit, "tn"))
    assert free.cv_results_["params"] == named.cv_results_["params"]
    assert not hasattr(free, "front_index_")


# ------------------------------------------------------- several metrics, no refit


def dominated(row: int, means: np.ndarray) -> bool:
    """Whether another row is at least as good in all columns, and better in one; large is good."""
    return any((other >= means[row]).all() and (other > means[row]).any() for other in means)


@pytest.mark.parametrize("refit", [False, lambda results: int(results["mean_test_recall"].argmax())])
def test_several_metrics_without_a_refit_are_several_objectives(refit: Any) -> None:
    scoring = {"precision": make_scorer(precision_score, zero_division=0.0), "recall": "recall"}
    ours = search(SVC(), {"C": C, "gamma": loguniform(1e-3, 10)}, n_iter=12, scoring=scoring, refit=refit).fit(X, Y)
    assert_same_results(ours, twin(ours).fit(X, Y))
    assert ours.study_.metric_names == ["precision", "recall"]
    assert [each.name for each in ours.study_.directions] == ["MAXIMIZE", "MAXIMIZE"]
    means = np.column_stack([ours.cv_results_[f"mean_test_{name}"] for name in scoring])
    np.testing.assert_allclose([trial.values for trial in ours.study_.trials], means)
    assert list(ours.front_index_) == [row for row in range(12) if not dominated(row, means)]
    assert list(ours.front_index_) == [trial.number for trial in ours.study_.best_trials]
    assert ours.front_params_ == [ours.cv_results_["params"][row] for row in ours.front_index_]
    assert hasattr(ours, "best_estimator_") == hasattr(ours, "best_index_") == bool(refit)
    assert not hasattr(ours, "best_score_")
    restored = pickle.loads(pickle.dumps(ours)) if not refit else ours
    np.testing.assert_array_equal(restored.front_index_, ours.front_index_)


def test_one_metric_and_a_named_metric_have_no_front() -> None:
    for options in ({"scoring": ["f1"], "refit": False}, {"scoring": SCORING, "refit": "f1"}, {}):
        ours = search(**options).fit(X, Y)
        assert not hasattr(ours, "front_index_")
        assert len(ours.study_.directions) == 1


def test_a_front_vanishes_when_the_search_is_fitted_again_for_one_metric() -> None:
    ours = search(scoring=SCORING, refit=False).fit(X, Y)
    assert len(ours.front_index_) >= 1
    ours.set_params(refit="f1").fit(X, Y)
    assert not hasattr(ours, "front_index_")
    assert ours.best_params_ == ours.cv_results_["params"][ours.best_index_]


@pytest.mark.filterwarnings("ignore:One or more of the test scores are non-finite")
def test_failed_candidates_are_not_on_the_front() -> None:
    with pytest.warns(FitFailedWarning):
        ours = search(Failing(), {"parameter": uniform(0, 1)}, scoring=SCORING, refit=False, n_iter=9).fit(X, Y)
    failed = np.array(ours.cv_results_["param_parameter"], dtype=float) > 0.5
    assert 0 < failed.sum() < 9
    assert [trial.state == TrialState.FAIL for trial in ours.study_.trials] == failed.tolist()
    assert len(ours.front_index_) >= 1
    assert not failed[ours.front_index_].any()


def test_with_several_metrics_the_search_looks_for_all_of_the_front() -> None:
    """Two metrics that pull apart: the best of one is the worst of the other."""
    metrics = {"small": lambda e, *_: -((e.north - 0.1) ** 2), "large": lambda e, *_: -((e.north - 0.9) ** 2)}
    space = {"north": uniform(0, 1)}
    ours = search(Hill(), space, scoring=metrics, refit=False, n_iter=20, cv=2).fit(X, Y)
    found = np.sort([params["north"] for params in ours.front_params_])
    assert len(found) >= 15, "all between 0.1 and 0.9 are on the front"
    assert found[0] < 0.2
    assert found[-1] > 0.7
    assert np.diff(found).max() < 0.15


# ------------------------------------------------------------- known constraints


def test_only_feasible_candidates_are_evaluated() -> None:
    asked = []

    def feasible(params: dict[str, Any]) -> bool:
        asked.append(params)
        return params["svc__kernel"] == "linear" or params["svc__C"] < 1

    ours = search(STEPS, STEP_SPACE, n_iter=10, feasible=feasible).fit(X, Y)
    assert len(ours.cv_results_["params"]) == 10
    assert all(feasible(params) for params in ours.cv_results_["params"])
    assert isinstance(asked[0]["scale"], StandardScaler | MinMaxScaler | str), "the estimator's own values"
    clone(ours)


def test_a_finite_space_has_as_many_candidates_as_are_feasible() -> None:
    space = {"max_depth": [1, 2, 3, 4], "min_samples_leaf": [1, 2, 3]}
    with pytest.warns(UserWarning, match="The total space of parameters 6 is smaller than n_iter=7"):
        ours = search(spaces=space, feasible=lambda p: p["max_depth"] + p["min_samples_leaf"] > 4).fit(X, Y)
    tried = {tuple(params.values()) for params in ours.cv_results_["params"]}
    assert tried == {(d, leaf) for d in (1, 2, 3, 4) for leaf in (1, 2, 3) if d + leaf > 4}


@pytest.mark.parametrize("options", [{}, {"n_jobs": 2, "n_points": 2, "n_iter": 6}])
def test_the_same_seed_gives_the_same_search(options: dict[str, Any]) -> None:
    first, again = (search(SVC(), SUBSPACES, **options).fit(X, Y) for _ in range(2))
    assert first.cv_results_["params"] == again.cv_results_["params"]


def test_the_space_may_have_its_name_in_scikit_learn() -> None:
    options = {"n_iter": 4, "cv": 3, "random_state": 0, "storage": InMemoryStorage()}
    ours = LazySearchCV(TREE, TREE_SPACE, **options).fit(X, Y)
    other = LazySearchCV(TREE, param_distributions=TREE_SPACE, **options)
    assert clone(other).get_params()["param_distributions"].keys() == TREE_SPACE.keys()
    assert clone(other).fit(X, Y).cv_results_["params"] == ours.cv_results_["params"]
    with pytest.raises(ValueError, match="param_distributions: 'max_depth' must have"):
        clone(other).set_params(param_distributions={"max_depth": 3}).fit(X, Y)


def test_splits_that_are_drawn_at_every_call_are_drawn_once() -> None:
    ours = search(KNeighborsClassifier(), {"leaf_size": [10, 20, 30, 40]}, n_iter=4, cv=ShuffleSplit(3)).fit(X, Y)
    assert np.ptp([ours.cv_results_[f"split{fold}_test_score"] for fold in range(3)], axis=1).max() == 0


def test_a_space_with_fewer_candidates_is_searched_through() -> None:
    spaces = [{"max_depth": [1, 2]}, {"max_depth": [3], "criterion": ["gini", "entropy"]}]
    with pytest.warns(UserWarning, match="total space of parameters 4 is smaller than n_iter=9. Running 4"):
        ours = search(spaces=spaces, n_iter=9).fit(X, Y)
    assert sorted(map(str, ours.cv_results_["params"])) == [
        "{'criterion': 'entropy', 'max_depth': 3}", "{'criterion': 'gini', 'max_depth': 3}",
        "{'max_depth': 1}", "{'max_depth': 2}",
    ]  # fmt: skip
    assert ours.cv_results_["param_criterion"].mask.sum() == 2


# --------------------------------------------------------------- failures


class Failing(ClassifierMixin, BaseEstimator):
    """Fails for some of its parameters."""

    def __init__(self, parameter: float = 0.0, fails: str = "fit") -> None:
        self.parameter = parameter
        self.fails = fails

    def fit(self, x: Any, y: Any) -> "Failing":
        self.classes_, self.n_features_in_ = np.unique(y), np.shape(x)[1]
        if (self.parameter > 0.5 and self.fails == "fit") or (self.fails == "first fold" and not np.any(x == X[0])):
            raise ValueError(f"cannot fit with {self.parameter}")
        return self

    def predict(self, x: Any) -> Any:
        return np.full(len(x), self.classes_[int(self.parameter > 0.25)])


@pytest.mark.parametrize("error_score", [np.nan, 0.0])
@pytest.mark.parametrize("return_train_score", [False, True])
def test_candidates_that_fail_have_the_error_score_and_the_search_goes_on(
    error_score: float, return_train_score: bool
) -> None:
    options = {"error_score": error_score, "return_train_score": return_train_score, "n_iter": 9}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours = search(Failing(), {"parameter": uniform(0, 1)}, **options).fit(X, Y)
        theirs = twin(ours).fit(X, Y)
    assert_same_results(ours, theirs)
    failed = np.array(ours.cv_results_["param_parameter"], dtype=float) > 0.5
    assert 0 < failed.sum() < 9
    np.testing.assert_array_equal(ours.cv_results_["mean_test_score"][failed], error_score)
    assert [t.state for t in ours.study_.trials] == [TrialState.FAIL if f else TrialState.COMPLETE for f in failed]
    messages = [str(w.message) for w in caught if issubclass(w.category, FitFailedWarning)]
    assert len(messages) == 2, "one for each search"
    assert messages[0].split("Traceback")[0] == messages[1].split("Traceback")[0]
    assert ours.best_params_["parameter"] < 0.5


def test_one_fold_that_fails_is_a_candidate_that_failed() -> None:
    with (
        pytest.warns(FitFailedWarning, match="1 fits failed out of a total of 3"),
        pytest.warns(UserWarning, match="non-finite"),
    ):
        ours = search(Failing(fails="first fold"), {"parameter": [0.0]}, n_iter=1, cv=KFold(3)).fit(X, Y)
    assert np.isnan(ours.cv_results_["split0_test_score"][0])
    assert ours.cv_results_["split1_test_score"][0] > 0
    assert ours.study_.trials[0].state == TrialState.FAIL


def test_if_all_fits_fail_scikit_learns_error_says_so() -> None:
    with pytest.raises(ValueError, match=r"All the 21 fits failed(.|\n)*cannot fit with") as error:
        search(Failing(), {"parameter": uniform(0.6, 0.1)}).fit(X, Y)
    assert "error_score='raise'" in str(error.value)


@pytest.mark.parametrize("options", [{}, {"n_jobs": 2}, {"executor": "threads", "n_points": 2}])
def test_an_error_that_shall_be_raised_is_raised_as_it_is(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"^cannot fit with 0\.\d+(\nlazybo: .*error\.study\.)$"):
        search(Failing(), {"parameter": uniform(0, 1)}, error_score="raise", **options).fit(X, Y)


# ----------------------------------------------------------------- habits


def test_searches_work_inside_others() -> None:
    pipeline = make_pipeline(StandardScaler(), search(SVC(), {"C": C}))
    assert np.isfinite(cross_val_score(pipeline, X, Y, cv=2)).all()
    outer = search(pipeline, {"lazysearchcv__cv": [2, 3], "standardscaler__with_mean": [True, False]}, n_iter=3)
    assert outer.fit(X, Y).best_estimator_[-1].n_splits_ in (2, 3)


def test_metadata_is_routed() -> None:
    with sklearn.config_context(enable_metadata_routing=True):
        estimator = LogisticRegression().set_fit_request(sample_weight=True)
        scorer = make_scorer(accuracy_score).set_score_request(sample_weight=True)
        options: dict[str, Any] = {"scoring": {"a": scorer}, "refit": "a", "cv": GroupKFold(3)}
        for more in ({}, {"executor": "threads", "n_points": 2}):
            ours = search(estimator, {"C": C}, **options, **more).fit(X, Y, sample_weight=WEIGHTS, groups=GROUPS)
            assert_same_results(ours, twin(ours).fit(X, Y, sample_weight=WEIGHTS, groups=GROUPS))
    with pytest.raises(ValueError, match="enable_metadata_routing=True"):
        search().fit(X, Y).score(X, Y, sample_weight=WEIGHTS)


# --------------------------------------------------------------- bad input


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "spaces": ({"search_spaces": {"max_depth": (9, 1)}}, "search_spaces: 'max_depth' has the range .* low end"),
    "two spaces": ({"param_distributions": {"max_depth": [1, 2]}}, "both are given"),
    "neither": ({"search_spaces": None}, "give either search_spaces or param_distributions; here neither is given"),
    "no spaces": ({"search_spaces": {}}, "search_spaces is empty"),
    "scoring": ({"scoring": "best"}, "'scoring' parameter"),
    "refit": ({"scoring": SCORING}, "refit must be set to a scorer key or a callable"),
    "refit of a function": ({"scoring": all_metrics}, "refit must be one of them, a function or False, not 'score'"),
    "refit of no metric": ({"scoring": all_metrics, "refit": "f1"}, "returns the metrics 'tn', 'fp', 'fn', 'tp'"),
    "recommended, metrics": ({"scoring": SCORING, "refit": "recommended"}, "a single metric, but scoring has several"),
    "recommended, function": ({"scoring": all_metrics, "refit": "recommended"}, "function or False, not 'recommended'"),
    "no cv": ({"cv": iter([])}, "Was the CV iterator empty"),
    "executor": ({"executor": "somewhere"}, "executor must be None"),
    "storage": ({"storage": "/nowhere/search.db"}, "folder '/nowhere' does not exist"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_parameters_are_one_clear_error_and_change_nothing(name: str) -> None:
    options, message = BAD[name]
    ours = search(n_iter=2).fit(X, Y)
    before = dict(vars(ours)) | options
    with pytest.raises(ValueError, match=message):
        ours.set_params(**options).fit(X, Y)
    assert dict(vars(ours)) == before
