"""Optuna studies: opened, read, modelled, sampled and written."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.study.definition import Definition as Definition
    from lazybo.study.pruner import LazyPruner as LazyPruner
    from lazybo.study.replaying import replay as replay
    from lazybo.study.sampler import LazySampler as LazySampler
    from lazybo.study.sampler import suggest as suggest
    from lazybo.study.session import Session as Session
    from lazybo.study.store import Store as Store
    from lazybo.study.store import repair_storage as repair_storage
    from lazybo.study.trial import Result as Result
    from lazybo.study.trial import TrialView as TrialView
    from lazybo.study.view import StudyView as StudyView
    from lazybo.study.view import resume as resume
else:
    __getattr__ = lazily(
        __name__,
        {
            "Definition": "definition",  # what a study optimises; opens it, and reads earlier ones
            "LazyPruner": "pruner",  # Optuna's pruner that forecasts where trainings end
            "LazySampler": "sampler",  # Optuna's sampler with our model
            "Result": "trial",  # how a trial ended
            "Session": "session",  # what one process does with a study: sync, propose, begin, report, pause, finish
            "Store": "store",  # a study in its storage: opened, retried, its attributes
            "StudyView": "view",  # what a study says, computed from its trials
            "TrialView": "trial",  # what one trial says
            "repair_storage": "store",  # make a storage readable again after a kill
            "replay": "replaying",  # every suggestion of a study made again
            "resume": "view",  # queue paused trials
            "suggest": "sampler",  # a parameter with structure in an objective for Optuna
        },
    )
