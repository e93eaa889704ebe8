"""The model: a Gaussian process on a Cholesky factor that grows by rows."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.gp.cholesky import GrowingCholesky as GrowingCholesky
    from lazybo.gp.curve_forecasts import CurveModel as CurveModel
    from lazybo.gp.curve_forecasts import Forecast as Forecast
    from lazybo.gp.earlier import EarlierTasks as EarlierTasks
    from lazybo.gp.earlier import Related as Related
    from lazybo.gp.earlier import Task as Task
    from lazybo.gp.fit import Learner as Learner
    from lazybo.gp.kernels import Column as Column
    from lazybo.gp.kernels import Kernel as Kernel
    from lazybo.gp.kernels import Matern52 as Matern52
    from lazybo.gp.lazy_gp import LazyGP as LazyGP
    from lazybo.gp.mixture import Components as Components
    from lazybo.gp.mixture import Particle as Particle
    from lazybo.gp.mixture import Posterior as Posterior
    from lazybo.gp.priors import Priors as Priors
    from lazybo.gp.process import Process as Process
    from lazybo.gp.targets import Targets as Targets
    from lazybo.gp.targets import Warping as Warping
else:
    __getattr__ = lazily(
        __name__,
        {
            "Column": "kernels",  # a column of points: numbers, choices, or a block of numbers
            "Components": "mixture",  # what each particle predicts at some points, and quantiles of their mixture
            "CurveModel": "curve_forecasts",  # learning curves, and forecasts of where others end
            "EarlierTasks": "earlier",  # what earlier, related functions say about a new one
            "Forecast": "curve_forecasts",  # where a curve ends: a value, an interval, chances
            "GrowingCholesky": "cholesky",  # a Cholesky factor that grows by rows (public)
            "Kernel": "kernels",  # a covariance function: by name, of points, distances
            "LazyGP": "lazy_gp",  # a process in units of the observed values (public)
            "Learner": "fit",  # when and how kernel parameters are learned
            "Matern52": "kernels",  # the kernel with one length scale for each column (public)
            "Particle": "mixture",
            "Posterior": "mixture",  # weighted processes with the same rows: predictions of an output
            "Priors": "priors",  # what is believed about kernel parameters and noise (public)
            "Process": "process",  # one Gaussian process, in units of the targets
            "Related": "earlier",
            "Targets": "targets",  # values shifted and scaled for a process, and back
            "Task": "earlier",
            "Warping": "targets",  # values warped for a process, and back
        },
    )
