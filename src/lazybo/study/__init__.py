"""Optuna studies: opened, read into a model, and sampled."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.study.attributes import ATTEMPTS_KEY as ATTEMPTS_KEY
    from lazybo.study.attributes import CORRECTIONS_KEY as CORRECTIONS_KEY
    from lazybo.study.attributes import DRIVER_KEY as DRIVER_KEY
    from lazybo.study.attributes import FAILURE_KEY as FAILURE_KEY
    from lazybo.study.attributes import KIND_KEY as KIND_KEY
    from lazybo.study.attributes import MAX_STORED as MAX_STORED
    from lazybo.study.attributes import REPEAT_KEY as REPEAT_KEY
    from lazybo.study.attributes import RUN_KEY as RUN_KEY
    from lazybo.study.attributes import SECONDS_KEY as SECONDS_KEY
    from lazybo.study.attributes import SKIPPED_KEY as SKIPPED_KEY
    from lazybo.study.attributes import TO_END_KEY as TO_END_KEY
    from lazybo.study.attributes import VARIANCE_KEY as VARIANCE_KEY
    from lazybo.study.attributes import announced_params as announced_params
    from lazybo.study.attributes import count_of as count_of
    from lazybo.study.attributes import failure_of as failure_of
    from lazybo.study.attributes import metric_at as metric_at
    from lazybo.study.attributes import of_study as of_study
    from lazybo.study.attributes import of_trial as of_trial
    from lazybo.study.definition import DEFAULT_NAME as DEFAULT_NAME
    from lazybo.study.definition import REMEDY as REMEDY
    from lazybo.study.definition import Definition as Definition
    from lazybo.study.definition import first_run as first_run
    from lazybo.study.definition import keep_options as keep_options
    from lazybo.study.definition import open_study as open_study
    from lazybo.study.definition import options_digest as options_digest
    from lazybo.study.definition import options_of as options_of
    from lazybo.study.definition import read_earlier as read_earlier
    from lazybo.study.definition import reporting_of as reporting_of
    from lazybo.study.definition import stored_options as stored_options
    from lazybo.study.feed import Unannounced as Unannounced
    from lazybo.study.journal import open_alone as open_alone
    from lazybo.study.ledger import Entry as Entry
    from lazybo.study.ledger import Ledger as Ledger
    from lazybo.study.ledger import Params as Params
    from lazybo.study.ledger import Result as Result
    from lazybo.study.ledger import open_ledger as open_ledger
    from lazybo.study.ledger import was_enqueued as was_enqueued
    from lazybo.study.model import StudyModel as StudyModel
    from lazybo.study.model import model_of as model_of
    from lazybo.study.model import open_model as open_model
    from lazybo.study.pruner import LazyPruner as LazyPruner
    from lazybo.study.replaying import Replayed as Replayed
    from lazybo.study.replaying import replay as replay
    from lazybo.study.sampler import LazySampler as LazySampler
    from lazybo.study.store import Store as Store
    from lazybo.study.store import database_url as database_url
    from lazybo.study.store import explained as explained
    from lazybo.study.store import open_storage as open_storage
    from lazybo.study.store import repair_storage as repair_storage
    from lazybo.study.store import with_retries as with_retries
    from lazybo.study.structured import suggest as suggest
    from lazybo.study.training_curves import FACTOR as FACTOR
    from lazybo.study.training_curves import Ending as Ending
    from lazybo.study.training_curves import rungs as rungs
    from lazybo.study.trial import SECONDS as SECONDS
    from lazybo.study.trial import as_attributes as as_attributes
    from lazybo.study.trial import as_given as as_given
    from lazybo.study.trial import best_trial as best_trial
    from lazybo.study.trial import complete_trials as complete_trials
    from lazybo.study.trial import constraints_of as constraints_of
    from lazybo.study.trial import directions_of as directions_of
    from lazybo.study.trial import evaluations_of as evaluations_of
    from lazybo.study.trial import feasible_trials as feasible_trials
    from lazybo.study.trial import front_of as front_of
    from lazybo.study.trial import is_cost as is_cost
    from lazybo.study.trial import is_paused as is_paused
    from lazybo.study.trial import measured_constraints as measured_constraints
    from lazybo.study.trial import measured_seconds as measured_seconds
    from lazybo.study.trial import metrics_of as metrics_of
    from lazybo.study.trial import most_promising as most_promising
    from lazybo.study.trial import names_of as names_of
    from lazybo.study.trial import paused_step as paused_step
    from lazybo.study.trial import paused_trials as paused_trials
    from lazybo.study.trial import point_of as point_of
    from lazybo.study.trial import resume as resume
    from lazybo.study.trial import seconds_of as seconds_of
    from lazybo.study.trial import state_of as state_of
    from lazybo.study.trial import violates as violates
else:
    __getattr__ = lazily(
        __name__,
        {
            "ATTEMPTS_KEY": "attributes",
            "CORRECTIONS_KEY": "attributes",
            "DEFAULT_NAME": "definition",
            "DRIVER_KEY": "attributes",
            "Definition": "definition",
            "Ending": "training_curves",
            "Entry": "ledger",
            "FACTOR": "training_curves",
            "FAILURE_KEY": "attributes",
            "KIND_KEY": "attributes",
            "LazyPruner": "pruner",
            "LazySampler": "sampler",
            "Ledger": "ledger",
            "MAX_STORED": "attributes",
            "Params": "ledger",
            "REMEDY": "definition",
            "REPEAT_KEY": "attributes",
            "RUN_KEY": "attributes",
            "Replayed": "replaying",
            "Result": "ledger",
            "SECONDS": "trial",
            "SECONDS_KEY": "attributes",
            "SKIPPED_KEY": "attributes",
            "Store": "store",
            "StudyModel": "model",
            "TO_END_KEY": "attributes",
            "Unannounced": "feed",
            "VARIANCE_KEY": "attributes",
            "announced_params": "attributes",
            "as_attributes": "trial",
            "as_given": "trial",
            "best_trial": "trial",
            "complete_trials": "trial",
            "constraints_of": "trial",
            "count_of": "attributes",
            "database_url": "store",
            "directions_of": "trial",
            "evaluations_of": "trial",
            "explained": "store",
            "failure_of": "attributes",
            "feasible_trials": "trial",
            "first_run": "definition",
            "front_of": "trial",
            "is_cost": "trial",
            "is_paused": "trial",
            "keep_options": "definition",
            "measured_constraints": "trial",
            "measured_seconds": "trial",
            "metric_at": "attributes",
            "metrics_of": "trial",
            "model_of": "model",
            "most_promising": "trial",
            "names_of": "trial",
            "of_study": "attributes",
            "of_trial": "attributes",
            "open_alone": "journal",
            "open_ledger": "ledger",
            "open_model": "model",
            "open_storage": "store",
            "open_study": "definition",
            "options_digest": "definition",
            "options_of": "definition",
            "paused_step": "trial",
            "paused_trials": "trial",
            "point_of": "trial",
            "read_earlier": "definition",
            "repair_storage": "store",
            "replay": "replaying",
            "reporting_of": "definition",
            "resume": "trial",
            "rungs": "training_curves",
            "seconds_of": "trial",
            "state_of": "trial",
            "stored_options": "definition",
            "suggest": "structured",
            "violates": "trial",
            "was_enqueued": "ledger",
            "with_retries": "store",
        },
    )
