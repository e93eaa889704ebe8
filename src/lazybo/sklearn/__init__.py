"""lazybo as scikit-learn estimators; needs scikit-learn (``pip install 'lazybo[sklearn]'``)."""

try:
    import sklearn  # noqa: F401 (only to test that it is installed)
except ImportError as error:
    raise ImportError(f"lazybo.sklearn needs scikit-learn ({error}): pip install 'lazybo[sklearn]'") from error

from lazybo.core.checks import check_optuna

check_optuna()

from lazybo.sklearn.regressor import LazyGPRegressor  # noqa: E402 (needs Optuna)
from lazybo.sklearn.search import LazySearchCV  # noqa: E402 (needs Optuna)

__all__ = ["LazyGPRegressor", "LazySearchCV"]
