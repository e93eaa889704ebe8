"""The model: a Gaussian process on a Cholesky factor that grows by rows."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.gp.curve_forecasts import CurveModel as CurveModel
    from lazybo.gp.curve_forecasts import Forecast as Forecast
    from lazybo.gp.earlier import EarlierTasks as EarlierTasks
    from lazybo.gp.fit import Learner as Learner
    from lazybo.gp.fitted import Fitted as Fitted
    from lazybo.gp.kernels import Column as Column
    from lazybo.gp.kernels import Kernel as Kernel
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
            "CurveModel": "curve_forecasts",  # learning curves, and forecasts of where others end
            "EarlierTasks": "earlier",  # what earlier, related functions say about a new one
            "Fitted": "fitted",  # what was learned about an output, and plain data of it
            "Forecast": "curve_forecasts",  # where a curve ends: a value, an interval, chances
            "Kernel": "kernels",  # a covariance function: by name, of points, distances
            "Learner": "fit",  # when and how kernel parameters are learned
            "Posterior": "mixture",  # weighted processes with the same rows: predictions of an output
            "Priors": "priors",  # what is believed about kernel parameters and noise (public)
            "Process": "process",  # one Gaussian process, in units of the targets
            "Targets": "targets",  # values shifted and scaled for a process, and back
            "Warping": "targets",  # values warped for a process, and back
        },
    )
