"""lazybo as scikit-learn estimators; needs scikit-learn (``pip install scikit-learn``)."""

try:
    import sklearn  # noqa: F401 (only to test that it is installed)
except ImportError as error:
    raise ImportError(f"lazybo.sklearn needs scikit-learn ({error}): pip install scikit-learn") from error

from lazybo.core import checks

checks.check_optuna()

from lazybo.sklearn.regressor import LazyGPRegressor  # noqa: E402 (needs Optuna)
from lazybo.sklearn.search import LazySearchCV  # noqa: E402 (needs Optuna)

__all__ = ["LazyGPRegressor", "LazySearchCV"]
