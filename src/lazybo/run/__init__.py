"""A run: evaluations on any engine, recorded in a study."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.run.by_hand import TOLD as TOLD
    from lazybo.run.by_hand import ByHand as ByHand
    from lazybo.run.by_hand import Measurement as Measurement
    from lazybo.run.channel import RemoteTrial as RemoteTrial
    from lazybo.run.devices import Claim as Claim
    from lazybo.run.devices import parse_devices as parse_devices
    from lazybo.run.engines import ADDRESSES as ADDRESSES
    from lazybo.run.engines import CLUSTERS as CLUSTERS
    from lazybo.run.engines import LOCAL as LOCAL
    from lazybo.run.failure import NothingCompleted as NothingCompleted
    from lazybo.run.failure import RunFailed as RunFailed
    from lazybo.run.failure import is_failed_trial as is_failed_trial
    from lazybo.run.goals import Goals as Goals
    from lazybo.run.goals import check_goals as check_goals
    from lazybo.run.goals import check_pruner as check_pruner
    from lazybo.run.limits import STOPPED_KEY as STOPPED_KEY
    from lazybo.run.limits import Limits as Limits
    from lazybo.run.limits import StopReason as StopReason
    from lazybo.run.limits import Tally as Tally
    from lazybo.run.limits import describe_stop as describe_stop
    from lazybo.run.loop import shows_bar as shows_bar
    from lazybo.run.objective import Call as Call
    from lazybo.run.objective import Given as Given
    from lazybo.run.objective import kfold as kfold
    from lazybo.run.optimizing import optimize as optimize
    from lazybo.run.presence import Process as Process
    from lazybo.run.presence import born as born
    from lazybo.run.trainings import Trainings as Trainings
    from lazybo.run.trial import DEVICE as DEVICE
    from lazybo.run.trial import Trial as Trial
    from lazybo.run.warm_start import check_initial as check_initial
    from lazybo.run.warm_start import check_initial_feasible as check_initial_feasible
    from lazybo.run.worker import EvaluationFailed as EvaluationFailed
    from lazybo.run.worker import TrialPaused as TrialPaused
else:
    __getattr__ = lazily(
        __name__,
        {
            "ADDRESSES": "engines",
            "ByHand": "by_hand",
            "CLUSTERS": "engines",
            "Call": "objective",
            "Claim": "devices",
            "DEVICE": "trial",
            "EvaluationFailed": "worker",
            "Given": "objective",
            "Goals": "goals",
            "LOCAL": "engines",
            "Limits": "limits",
            "Measurement": "by_hand",
            "NothingCompleted": "failure",
            "Process": "presence",
            "RemoteTrial": "channel",  # what a program needs to be the trial of an evaluation elsewhere
            "RunFailed": "failure",
            "STOPPED_KEY": "limits",
            "StopReason": "limits",
            "TOLD": "by_hand",
            "Tally": "limits",
            "Trainings": "trainings",  # trainings that another tool runs: report, verdict, which to resume
            "Trial": "trial",
            "TrialPaused": "worker",
            "born": "presence",
            "check_goals": "goals",
            "check_initial": "warm_start",
            "check_initial_feasible": "warm_start",
            "check_pruner": "goals",
            "describe_stop": "limits",
            "is_failed_trial": "failure",
            "kfold": "objective",
            "optimize": "optimizing",
            "parse_devices": "devices",
            "shows_bar": "loop",
        },
    )
