"""The model: a Gaussian process on a Cholesky factor that grows by rows."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.gp.cholesky import GrowingCholesky as GrowingCholesky
    from lazybo.gp.earlier import MAX_ROWS as MAX_ROWS
    from lazybo.gp.earlier import MAX_TASK_ROWS as MAX_TASK_ROWS
    from lazybo.gp.earlier import EarlierTasks as EarlierTasks
    from lazybo.gp.earlier import Related as Related
    from lazybo.gp.earlier import Task as Task
    from lazybo.gp.earlier import portfolio as portfolio
    from lazybo.gp.fit import MAX_POINTS as MAX_POINTS
    from lazybo.gp.fit import MAX_TARGET as MAX_TARGET
    from lazybo.gp.fit import MOST_PARTICLES as MOST_PARTICLES
    from lazybo.gp.fit import NOISY_START as NOISY_START
    from lazybo.gp.fit import Data as Data
    from lazybo.gp.fit import Lag as Lag
    from lazybo.gp.fit import Particle as Particle
    from lazybo.gp.fit import check_lag as check_lag
    from lazybo.gp.fit import draw as draw
    from lazybo.gp.fit import is_due as is_due
    from lazybo.gp.fit import maximum_a_posteriori as maximum_a_posteriori
    from lazybo.gp.fit import modes as modes
    from lazybo.gp.fit import particles_at as particles_at
    from lazybo.gp.fit import subset as subset
    from lazybo.gp.kernels import KERNELS as KERNELS
    from lazybo.gp.kernels import Column as Column
    from lazybo.gp.kernels import Kernel as Kernel
    from lazybo.gp.kernels import Matern52 as Matern52
    from lazybo.gp.kernels import check_choice as check_choice
    from lazybo.gp.kernels import kernel_for as kernel_for
    from lazybo.gp.kernels.base import PriorMean as PriorMean
    from lazybo.gp.kernels.base import coordinates_of as coordinates_of
    from lazybo.gp.kernels.base import distances as distances
    from lazybo.gp.lazy_gp import LazyGP as LazyGP
    from lazybo.gp.learning_curves import CurveKernel as CurveKernel
    from lazybo.gp.learning_curves import CurveProcess as CurveProcess
    from lazybo.gp.learning_curves import CurveRows as CurveRows
    from lazybo.gp.learning_curves import learn as learn
    from lazybo.gp.marginal import evidence as evidence
    from lazybo.gp.mixture import Components as Components
    from lazybo.gp.mixture import Posterior as Posterior
    from lazybo.gp.mixture import PosteriorPool as PosteriorPool
    from lazybo.gp.posterior import CHUNK_ROWS as CHUNK_ROWS
    from lazybo.gp.posterior import NO_VALUE as NO_VALUE
    from lazybo.gp.posterior import NearField as NearField
    from lazybo.gp.posterior import groups_of_rows as groups_of_rows
    from lazybo.gp.posterior import root_of as root_of
    from lazybo.gp.priors import NOISY as NOISY
    from lazybo.gp.priors import K as K
    from lazybo.gp.priors import Priors as Priors
    from lazybo.gp.priors import check_priors as check_priors
    from lazybo.gp.priors import prior_kernel as prior_kernel
    from lazybo.gp.priors import priors_for as priors_for
    from lazybo.gp.process import Process as Process
    from lazybo.gp.targets import LARGEST as LARGEST
    from lazybo.gp.targets import PROOF_IF_DISCRETE as PROOF_IF_DISCRETE
    from lazybo.gp.targets import WARPINGS as WARPINGS
    from lazybo.gp.targets import Repeats as Repeats
    from lazybo.gp.targets import Targets as Targets
    from lazybo.gp.targets import Warping as Warping
    from lazybo.gp.targets import identity as identity
    from lazybo.gp.targets import in_units as in_units
    from lazybo.gp.targets import repeats_of as repeats_of
    from lazybo.gp.targets import scaling as scaling
    from lazybo.gp.targets import standardize as standardize
    from lazybo.gp.targets import warping as warping
else:
    __getattr__ = lazily(
        __name__,
        {
            "CHUNK_ROWS": "posterior",
            "Column": "kernels",
            "Components": "mixture",
            "CurveKernel": "learning_curves",
            "CurveProcess": "learning_curves",
            "CurveRows": "learning_curves",
            "Data": "fit",
            "EarlierTasks": "earlier",
            "GrowingCholesky": "cholesky",
            "K": "priors",
            "KERNELS": "kernels",
            "Kernel": "kernels",
            "LARGEST": "targets",
            "Lag": "fit",
            "LazyGP": "lazy_gp",
            "MAX_POINTS": "fit",
            "MAX_ROWS": "earlier",
            "MAX_TARGET": "fit",
            "MAX_TASK_ROWS": "earlier",
            "MOST_PARTICLES": "fit",
            "Matern52": "kernels",
            "NOISY": "priors",
            "NOISY_START": "fit",
            "NO_VALUE": "posterior",
            "NearField": "posterior",
            "PROOF_IF_DISCRETE": "targets",
            "Particle": "fit",
            "Posterior": "mixture",
            "PosteriorPool": "mixture",
            "PriorMean": "kernels.base",
            "Priors": "priors",
            "Process": "process",
            "Related": "earlier",
            "Repeats": "targets",
            "Targets": "targets",
            "Task": "earlier",
            "WARPINGS": "targets",
            "Warping": "targets",
            "check_choice": "kernels",
            "check_lag": "fit",
            "check_priors": "priors",
            "coordinates_of": "kernels.base",
            "distances": "kernels.base",
            "draw": "fit",
            "evidence": "marginal",
            "groups_of_rows": "posterior",
            "identity": "targets",
            "in_units": "targets",
            "is_due": "fit",
            "kernel_for": "kernels",
            "learn": "learning_curves",
            "maximum_a_posteriori": "fit",
            "modes": "fit",
            "particles_at": "fit",
            "portfolio": "earlier",
            "prior_kernel": "priors",
            "priors_for": "priors",
            "repeats_of": "targets",
            "root_of": "posterior",
            "scaling": "targets",
            "standardize": "targets",
            "subset": "fit",
            "warping": "targets",
        },
    )
