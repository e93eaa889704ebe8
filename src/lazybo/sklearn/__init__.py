"""lazybo as scikit-learn estimators; needs scikit-learn (``pip install 'lazybo[sklearn]'``)."""

try:
    import sklearn  # noqa: F401 (only to test that it is installed)
except ImportError as error:
    raise ImportError(f"lazybo.sklearn needs scikit-learn ({error}): pip install 'lazybo[sklearn]'") from error

from lazybo.sklearn.regressor import LazyGPRegressor
from lazybo.sklearn.search import LazySearchCV

__all__ = ["LazyGPRegressor", "LazySearchCV"]
