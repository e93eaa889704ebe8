"""Every attribute that lazybo writes to studies and trials: its key, what it holds, who writes it.

Optuna keeps two kinds of attributes. Users see those marked "user" in ``study.user_attrs`` and ``trial.user_attrs``;
all others are system attributes. Keys marked "in parts" hold a JSON text that may be longer than a database allows in
one attribute: see `parts` and `joined`.
"""

from collections.abc import Mapping
from typing import Any

from optuna.trial import FrozenTrial

from lazybo.core.checks import shortened, whole
from lazybo.core.codec import object_from_json

# ------------------------------------------------------------------- of a study

# Optuna's own: the names of the objectives; `study.storage`.
METRIC_NAMES_KEY = "study:metric_names"
# The space of a run as texts, its constraints and its seed: what a second run must agree with. In parts;
# `study.storage`.
RUN_KEY = "lazybo:run"
# Which of several objectives `trial.report` gives, by position; 0 if there is no such attribute; `study.storage`.
REPORTS_KEY = "lazybo:reports"
# The options of the model of `optimize()`, and its space. In parts; `study.factory`.
OPTIONS_KEY = "lazybo:options"
# What the model has learned in `optimize()`. In parts; `StudyModel.unsaved_attributes`.
MODEL_KEY = "lazybo:model"
# What a search of `LazySearchCV` is about: settings as texts, data as digests. In parts; `sklearn.identity`.
SEARCH_KEY = "lazybo:search"
# User: what `lazybo run` tunes, the words of a command or the name of a Python function; `cli.tune`.
COMMAND_KEY = "lazybo:command"
OBJECTIVE_KEY = "lazybo:objective"
# User: how the value of a program is read if not in the default way: the key, the regular expression, the file.
READING_KEY = "lazybo:value"
# Followed by ":" and the name of a driver: its machine, its process, and a count that rises; `run.presence`.
HEARTBEAT_KEY = "lazybo:heartbeat"
# Why the last run started no more trials, a `StopReason`; None if it had all of them; `run.optimize`, `cli.tune`.
STOPPED_KEY = "lazybo:stopped"
# The expected gain that ended the search of a run (``gain``), and after how many trials, without repeats (``trials``);
# `run.gain`.
GAIN_KEY = "lazybo:gain"
# The expressions of the parameters that must hold, as texts (`--require`); `cli.storages`.
REQUIRE_KEY = "lazybo:require"
# The common folder of the checkpoints of a study; `run.checkpoints`.
CHECKPOINTS_KEY = "lazybo:checkpoints"

# ------------------------------------------------------------------- of a trial

# The announcement of a trial: its parameters, and perhaps what was learned (``columns``, ``model``, ``finished``) and
# the options of the sampler (``options``). In parts; `study.model`, for `LazySampler` and `optimize()`.
SUGGESTION_KEY = "lazybo:suggestion"
# The known variance of the noise in the value of a trial; `run.driver`.
VARIANCE_KEY = "lazybo:variance"
# How many seconds the evaluation of a trial took in its worker, if the run has a cost; `run.driver`.
SECONDS_KEY = "lazybo:seconds"
# Optuna's own: followed by ":" and a name, what a trial has measured of a constraint; `trial.set_constraint`.
CONSTRAINT_KEY = "constraints"
# User: what scikit-learn knows of each fold of a candidate, or why the candidate could not be evaluated;
# `sklearn.candidates`.
FOLDS_KEY = "folds"
ERROR_KEY = "error"
# This trial repeats a configuration in the final check of a run: the number of the first trial with it; `run.source`.
REPEAT_KEY = "lazybo:repeat"
# How a program failed: a code (``kind``), and the reason without paths (``summary``); `run.driver`.
FAILURE_KEY = "lazybo:failure"
# The name of the driver that runs a trial; `run.ledger`.
DRIVER_KEY = "lazybo:driver"
# How many evaluations of a trial died with their worker or driver; `run.ledger`, `run.open_trials`.
ATTEMPTS_KEY = "lazybo:attempts"
# Which driver's worker started a trial, and the value of ATTEMPTS_KEY then; `run.orphans`.
BEGAN_KEY = "lazybo:began"
# How many values a training with a checkpoint had reported when its driver last died; `run.orphans`.
STEPS_KEY = "lazybo:steps"
# The initial configuration that a trial was queued for, as it was given. In parts; `run.ledger`.
INITIAL_KEY = "lazybo:initial"

# User: the last step of a training that is paused; None when it runs again. A trial with it that waits is paused;
# `run.ledger`, `study.paused`.
PAUSED_KEY = "lazybo:paused"
# A paused trial was resumed by hand: it is not paused again; `study.paused`.
TO_END_KEY = "lazybo:to_end"

# Nobody makes the experiment of this trial: it failed for Optuna, and the model learns nothing of it; `run.by_hand`.
SKIPPED_KEY = "lazybo:skipped"
# User: what a trial had before each correction by hand, oldest first: state, values, attributes, and when it was
# corrected; `run.ledger`.
CORRECTIONS_KEY = "lazybo:corrections"

# --------------------------------------------------------------- texts in parts

# Databases limit the length of one attribute, MySQL to 64 KiB. Longer texts are split.
ATTRIBUTE_LENGTH = 30_000
# The largest count that every storage can hold.
MAX_STORED = 2**31 - 1


def parts(key: str, text: str) -> dict[str, str]:
    """A text as attributes that are short enough for every storage.

    The first part is written last: a text that was not written completely does not exist for `joined`.
    """
    starts = range(0, len(text), ATTRIBUTE_LENGTH)
    in_order = {f"{key}:{part}": text[i : i + ATTRIBUTE_LENGTH] for part, i in enumerate(starts)}
    return dict(reversed(in_order.items()))


def rewritable_parts(key: str, text: str) -> dict[str, Any]:
    """The same with the length of the text, for a text that may replace a longer one."""
    return {**parts(key, text), f"{key}:length": len(text)}


def joined(attributes: Mapping[str, Any], key: str) -> str:
    """A text that was kept in parts; the rest of a longer one, which it replaced, is cut off.

    Raises a ValueError if the parts are no texts.
    """
    found: list[str] = []
    while f"{key}:{len(found)}" in attributes:
        part = attributes[f"{key}:{len(found)}"]
        if not isinstance(part, str):
            raise ValueError(f"its part {len(found)} must be a text, not {shortened(part)}")
        found.append(part)
    text = "".join(found)
    return text[: whole("its length", attributes.get(f"{key}:length", len(text)), 0)]


def object_of(attributes: Mapping[str, Any], key: str) -> dict[str, Any]:
    """An object of JSON that was kept in parts; empty if there is none. Raises a ValueError if it is damaged."""
    return object_from_json(joined(attributes, key) or "{}")


def count_of(trial: FrozenTrial, key: str) -> int:
    """A count that is kept with a trial; 0 if there is none, or if it is damaged."""
    found = trial.system_attrs.get(key)
    return found if isinstance(found, int) and 0 <= found <= MAX_STORED else 0


def failure_of(trial: FrozenTrial) -> Mapping[str, Any]:
    """How a program failed (`FAILURE_KEY`); empty if that is not known."""
    found = trial.system_attrs.get(FAILURE_KEY)
    return found if isinstance(found, Mapping) else {}


def of_study(key: str, study_name: str) -> str:
    """Where an attribute is, for messages."""
    return f"the attribute {key!r} of the study {study_name!r}"


def of_trial(key: str, number: int) -> str:
    """The same for an attribute of a trial."""
    return f"the attribute {key!r} of trial {number}"
