"""scikit-learn's own checks, on searches like those that its own RandomizedSearchCV is checked with.

No failure is expected. Of RandomizedSearchCV scikit-learn expects two: it neither says that its estimator takes several
targets, nor that it requires y.
"""

from typing import Any

import pytest
from optuna.distributions import FloatDistribution
from scipy.stats import loguniform
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from lazybo.sklearn import LazySearchCV

COMMON: dict[str, Any] = {"n_iter": 2, "cv": 2, "error_score": "raise", "random_state": 0}
SEARCHES = [
    LazySearchCV(Ridge(), {"alpha": FloatDistribution(0.1, 1.0)}, **COMMON),
    LazySearchCV(Pipeline([("pca", PCA()), ("lr", LogisticRegression())]), {"lr__C": loguniform(0.1, 1.0)}, **COMMON),
    LazySearchCV(Ridge(), param_distributions={"alpha": (0.1, 1.0)}, **COMMON),
]


# A class label that is infinite is cast to a whole number before it is refused, in scikit-learn itself.
@pytest.mark.filterwarnings("ignore:invalid value encountered in cast:RuntimeWarning")
@parametrize_with_checks(SEARCHES)
def test_scikit_learns_own_checks(estimator: LazySearchCV, check: Any) -> None:
    check(estimator)
