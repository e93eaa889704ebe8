"""lazybo as scikit-learn estimators; needs scikit-learn (``pip install lazybo[sklearn]``)."""
