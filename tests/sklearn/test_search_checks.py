"""scikit-learn's own checks, on searches like the ones that scikit-learn checks RandomizedSearchCV with.

No failure is expected. scikit-learn itself expects two failures of RandomizedSearchCV, whose tags do not tell that its
estimator takes several targets and requires y.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from optuna.distributions import FloatDistribution
from scipy.stats import loguniform
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

from lazybo.sklearn import LazySearchCV

COMMON: dict[str, Any] = {"n_iter": 2, "cv": 2, "error_score": "raise", "random_state": 0}
PIPELINE = Pipeline([("pca", PCA()), ("lr", LogisticRegression())])
SEARCHES = {
    "ridge": LazySearchCV(Ridge(), {"alpha": FloatDistribution(0.1, 1.0)}, **COMMON),
    "pipeline": LazySearchCV(PIPELINE, {"lr__C": loguniform(0.1, 1.0)}, **COMMON),
}


def _checks() -> Iterator[Any]:
    """Every check of every search. pytest-xdist needs names without the memory address that a repr may hold."""
    for name, search in SEARCHES.items():
        for estimator, check in estimator_checks_generator(search):
            check_name = getattr(check, "func", check).__name__
            yield pytest.param(estimator, check, id=f"{name}-{check_name}")


# scikit-learn itself casts an infinite class label to an integer before it raises its error.
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
# Ridge says that it uses another solver for arrays that are not NumPy's.
@pytest.mark.filterwarnings("ignore:Using Array API dispatch:UserWarning")
@pytest.mark.parametrize(("estimator", "check"), list(_checks()))
def test_scikit_learns_own_checks(estimator: LazySearchCV, check: Any) -> None:
    check(estimator)
