"""Bayesian optimisation with a Gaussian process that is extended instead of rebuilt."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lazybo.gp import Column, Priors
    from lazybo.gp.cholesky import GrowingCholesky
    from lazybo.gp.kernels import Matern52
    from lazybo.gp.lazy_gp import LazyGP
    from lazybo.report import importances, ranges, recommend, write_report
    from lazybo.run import Limits, RunFailed, kfold, optimize
    from lazybo.search import Optimizer, Prediction, Recommendation, Suggestion
    from lazybo.space import Belief, Condition, Described, Graph, Mixture, Permutation, Space, Subset
    from lazybo.study import LazyPruner, LazySampler, repair_storage, resume, suggest

__version__ = "0.1.0"

# Where the public names are. Each is imported when it is first used: a worker needs few of them, and starts in a third
# of the time.
_MODULES = {
    "Belief": "lazybo.space",
    "Column": "lazybo.gp",
    "Condition": "lazybo.space",
    "Described": "lazybo.space",
    "Graph": "lazybo.space",
    "GrowingCholesky": "lazybo.gp.cholesky",
    "LazyGP": "lazybo.gp.lazy_gp",
    "LazyPruner": "lazybo.study",
    "LazySampler": "lazybo.study",
    "Limits": "lazybo.run",
    "Matern52": "lazybo.gp.kernels",
    "Mixture": "lazybo.space",
    "Optimizer": "lazybo.search",
    "Permutation": "lazybo.space",
    "Prediction": "lazybo.search",
    "Priors": "lazybo.gp",
    "Recommendation": "lazybo.search",
    "RunFailed": "lazybo.run",
    "Space": "lazybo.space",
    "Subset": "lazybo.space",
    "Suggestion": "lazybo.search",
    "importances": "lazybo.report",
    "kfold": "lazybo.run",
    "optimize": "lazybo.run",
    "ranges": "lazybo.report",
    "recommend": "lazybo.report",
    "repair_storage": "lazybo.study",
    "resume": "lazybo.study",
    "suggest": "lazybo.study",
    "write_report": "lazybo.report",
}

__all__ = [
    "Belief",
    "Column",
    "Condition",
    "Described",
    "Graph",
    "GrowingCholesky",
    "LazyGP",
    "LazyPruner",
    "LazySampler",
    "Limits",
    "Matern52",
    "Mixture",
    "Optimizer",
    "Permutation",
    "Prediction",
    "Priors",
    "Recommendation",
    "RunFailed",
    "Space",
    "Subset",
    "Suggestion",
    "__version__",
    "importances",
    "kfold",
    "optimize",
    "ranges",
    "recommend",
    "repair_storage",
    "resume",
    "suggest",
    "write_report",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'lazybo' has no attribute {name!r}")
    if not _MODULES[name].startswith("lazybo.gp"):  # these need no Optuna
        from lazybo.core import checks

        checks.check_optuna()
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
