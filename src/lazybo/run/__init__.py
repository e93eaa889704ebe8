"""A run: evaluations on any engine, recorded in a study."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.run.by_hand import ByHand as ByHand
    from lazybo.run.by_hand import Measurement as Measurement
    from lazybo.run.goals import Goals as Goals
    from lazybo.run.limits import Limits as Limits
    from lazybo.run.limits import RunFailed as RunFailed
    from lazybo.run.objective import kfold as kfold
    from lazybo.run.plan import RunPlan as RunPlan
    from lazybo.run.plan import optimize as optimize
    from lazybo.run.presence import Process as Process
    from lazybo.run.trainings import Trainings as Trainings
    from lazybo.run.trial import Trial as Trial
    from lazybo.run.worker import EvaluationFailed as EvaluationFailed
else:
    __getattr__ = lazily(
        __name__,
        {
            "ByHand": "by_hand",  # experiments that people make: ask, tell, correct
            "EvaluationFailed": "worker",  # a failure that an objective describes in its own words
            "Goals": "goals",  # what is optimised: directions, names, bounds on metrics, the best so far
            "Limits": "limits",  # when a run ends, and why it did
            "Measurement": "by_hand",  # the result of an experiment
            "Process": "presence",  # a process, and whether it may still run
            "RunFailed": "limits",  # a run ended early; has the study
            "RunPlan": "plan",  # a run whose arguments were checked, before anything is written
            "Trainings": "trainings",  # trainings that another tool runs: report, verdict, which to resume
            "Trial": "trial",  # what an objective gets: parameters, reports, devices; also in a job elsewhere
            "kfold": "objective",  # an objective that is the mean over folds
            "optimize": "plan",  # one call from an objective to an optimised study
        },
    )
