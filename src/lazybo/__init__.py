"""Bayesian optimisation with a Gaussian process that is extended instead of rebuilt."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lazybo.gp.cholesky import GrowingCholesky
    from lazybo.gp.kernels import Column, Matern52
    from lazybo.gp.lazy_gp import LazyGP
    from lazybo.gp.priors import Priors
    from lazybo.report.html import write_report
    from lazybo.report.predictions import importances, ranges, recommend
    from lazybo.run.failure import RunFailed
    from lazybo.run.limits import Limits
    from lazybo.run.objective import kfold
    from lazybo.run.optimize import optimize
    from lazybo.search.optimizer import Optimizer, Suggestion
    from lazybo.search.predictions import Prediction, Recommendation
    from lazybo.space.beliefs import Belief
    from lazybo.space.graphs import Graph
    from lazybo.space.mixtures import Described, Mixture
    from lazybo.space.orders import Permutation, Subset
    from lazybo.space.space import Condition, Space
    from lazybo.study.pruner import LazyPruner
    from lazybo.study.sampler import LazySampler
    from lazybo.study.store import repair_storage
    from lazybo.study.structured import suggest
    from lazybo.study.trial import resume

__version__ = "0.1.0"

# Where the public names are. Each is imported when it is first used: a worker needs few of them, and starts in a third
# of the time.
_MODULES = {
    "Belief": "lazybo.space.beliefs",
    "Column": "lazybo.gp.kernels",
    "Condition": "lazybo.space.space",
    "Described": "lazybo.space.mixtures",
    "Graph": "lazybo.space.graphs",
    "GrowingCholesky": "lazybo.gp.cholesky",
    "LazyGP": "lazybo.gp.lazy_gp",
    "LazyPruner": "lazybo.study.pruner",
    "LazySampler": "lazybo.study.sampler",
    "Limits": "lazybo.run.limits",
    "Matern52": "lazybo.gp.kernels",
    "Mixture": "lazybo.space.mixtures",
    "Optimizer": "lazybo.search.optimizer",
    "Permutation": "lazybo.space.orders",
    "Prediction": "lazybo.search.predictions",
    "Priors": "lazybo.gp.priors",
    "Recommendation": "lazybo.search.predictions",
    "RunFailed": "lazybo.run.failure",
    "Space": "lazybo.space.space",
    "Subset": "lazybo.space.orders",
    "Suggestion": "lazybo.search.optimizer",
    "importances": "lazybo.report.predictions",
    "kfold": "lazybo.run.objective",
    "optimize": "lazybo.run.optimize",
    "ranges": "lazybo.report.predictions",
    "recommend": "lazybo.report.predictions",
    "repair_storage": "lazybo.study.store",
    "resume": "lazybo.study.trial",
    "suggest": "lazybo.study.structured",
    "write_report": "lazybo.report.html",
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
    if not _MODULES[name].startswith("lazybo.gp."):  # these need no Optuna
        from lazybo.core.checks import check_optuna

        check_optuna()
    value = globals()[name] = getattr(import_module(_MODULES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
