"""scikit-learn: around XGBoost and LightGBM, and inside pipelines, ensembles and cross-validation."""

from lightgbm import LGBMClassifier
from scipy.stats import loguniform
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from xgboost import XGBClassifier

from lazybo.sklearn import LazySearchCV

X, y = load_breast_cancer(return_X_y=True)
options = {"n_iter": 6, "cv": 3, "random_state": 0}
rates = {"learning_rate": loguniform(1e-3, 1), "max_depth": [2, 3, 5, 8]}
boosted = LazySearchCV(XGBClassifier(n_estimators=20, n_jobs=1), rates, **options)
light = LazySearchCV(LGBMClassifier(n_estimators=20, n_jobs=1, verbosity=-1), rates, **options)
svm = LazySearchCV(SVC(), {"C": loguniform(1e-2, 1e3), "gamma": loguniform(1e-4, 1)}, **options)
scaled = make_pipeline(StandardScaler(), svm)

for model in (
    boosted,
    light,
    scaled,
    VotingClassifier([("boosted", boosted), ("svm", scaled)]),
    StackingClassifier([("svm", scaled)], LogisticRegression(), cv=2),
    GridSearchCV(scaled, {"lazysearchcv__estimator__kernel": ["rbf", "linear"]}, cv=2),
):
    scores = cross_validate(clone(model), X, y, cv=2)
    assert scores["test_score"].min() > 0.9, model
