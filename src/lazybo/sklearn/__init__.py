"""lazybo as scikit-learn estimators; needs scikit-learn (``pip install lazybo[sklearn]``)."""

from lazybo.sklearn.regressor import LazyGPRegressor

__all__ = ["LazyGPRegressor"]
