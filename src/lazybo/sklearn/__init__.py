"""lazybo as scikit-learn estimators; needs scikit-learn (``pip install lazybo[sklearn]``)."""

from lazybo.sklearn.regressor import LazyGPRegressor
from lazybo.sklearn.search import LazySearchCV

__all__ = ["LazyGPRegressor", "LazySearchCV"]
