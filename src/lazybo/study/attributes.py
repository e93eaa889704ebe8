"""The attributes that every part of lazybo knows of studies and trials: the key, what it holds, who writes it.

Keys that only one package knows are defined there; docs/formats.md lists all of them.

Optuna keeps two kinds of attributes. Users see those marked "user" in ``study.user_attrs`` and ``trial.user_attrs``;
all others are system attributes. Keys marked "in parts" hold JSON that may be longer than a database allows in one
attribute: see `parts` and `joined`.
"""

import json
from collections.abc import Mapping
from typing import Any

from optuna.distributions import BaseDistribution

from lazybo.core import checks, codec

# ------------------------------------------------------------------- of a study

# Optuna's own: the names of the objectives; `study.definition`.
METRIC_NAMES_KEY = "study:metric_names"
# The space of a run as strings, its constraints and its seed: a second run must have the same. In parts;
# `study.definition`.
RUN_KEY = "lazybo:run"
# User: followed by ":" and the name of a parameter with structure: its kind and arguments. They say what the parameters
# mean that it is stored as; `study.structured`.
KIND_KEY = "lazybo:kind"
# The version of the format of a study. Nothing writes it yet: a study without it has version 1; `study.definition`.
FORMAT_KEY = "lazybo:format"
# The objective that `trial.report` gives, by position; 0 if there is no such attribute; `study.definition`.
REPORTS_KEY = "lazybo:reports"
# The options of the model of `optimize()`, and its space. In parts; `study.definition`.
OPTIONS_KEY = "lazybo:options"
# What the model has learned in `optimize()`. In parts; `study.memory`.
MODEL_KEY = "lazybo:model"

# ------------------------------------------------------------------- of a trial

# The announcement of a trial: its parameters, and perhaps what was learned (``columns``, ``model``, ``finished``) and
# the options of the sampler (``options``). In parts; `study.sampler`, `study.ledger`.
SUGGESTION_KEY = "lazybo:suggestion"
# What the suggestion of a trial had seen: the events of its session since the last trial. In parts; `study.memory`.
SEEN_KEY = "lazybo:seen"
# The known variance of the noise in the value of a trial; `run.loop`.
VARIANCE_KEY = "lazybo:variance"
# The seconds that the evaluation of a trial took in its worker, if the run has a cost; `run.loop`.
SECONDS_KEY = "lazybo:seconds"
# Optuna's own: followed by ":" and a name, the value of a constraint; `trial.set_constraint`.
CONSTRAINT_KEY = "constraints"
# In the final check of a run: the number of the first trial with the configuration that this trial repeats;
# `run.next_trial`.
REPEAT_KEY = "lazybo:repeat"
# How a program failed: a code (``kind``), and the reason without paths (``summary``); `run.loop`.
FAILURE_KEY = "lazybo:failure"
# The name of the driver that runs a trial; `study.ledger`.
DRIVER_KEY = "lazybo:driver"
# How many evaluations of a trial died with their worker or driver; `study.ledger`.
ATTEMPTS_KEY = "lazybo:attempts"
# How many values a training with a checkpoint had reported when its driver last died; `study.session`.
STEPS_KEY = "lazybo:steps"
# The driver whose worker started a trial, and the value of ATTEMPTS_KEY then; `study.session`.
BEGAN_KEY = "lazybo:began"
# The initial configuration that a trial was queued for, as it was given. In parts; `study.ledger`.
INITIAL_KEY = "lazybo:initial"

# User: the last step of a training that is paused; None when it runs again. A trial with it that waits is paused;
# `study.ledger`, `study.trial`.
PAUSED_KEY = "lazybo:paused"
# The step of a training's last pause, and when that was, in seconds since 1970. It stays when the training runs again;
# `study.ledger`, `study.trial`.
PAUSE_KEY = "lazybo:pause"
# A paused trial was resumed by hand: it is not paused again; `study.trial`.
TO_END_KEY = "lazybo:to_end"
# The experiment of this trial was skipped: Optuna counts it as failed, and the model ignores it; `run.by_hand`.
SKIPPED_KEY = "lazybo:skipped"
# User: the state, values and attributes of a trial before each correction by hand, and the time of the correction,
# oldest first; `study.ledger`.
CORRECTIONS_KEY = "lazybo:corrections"

# Users see these without our prefix: the output folder of a program, and the device of an evaluation and its position
# among the devices; `programs.program`, `run.trial`.
OWN_ATTRIBUTES = ("output", "device", "slot")

# ------------------------------------------------------------- strings in parts

# Databases limit the length of one attribute, MySQL to 64 KiB. Longer strings are split.
ATTRIBUTE_LENGTH = 30_000


def parts(key: str, text: str) -> dict[str, str]:
    """Attributes that hold a string of any length.

    The first part is written last: a string that was not written completely does not exist for `joined`.
    """
    starts = range(0, len(text), ATTRIBUTE_LENGTH)
    in_order = {f"{key}:{part}": text[i : i + ATTRIBUTE_LENGTH] for part, i in enumerate(starts)}
    return dict(reversed(in_order.items()))


def rewritable_parts(key: str, text: str) -> dict[str, Any]:
    """The same with the length of the string, which may replace a longer one."""
    return {**parts(key, text), f"{key}:length": len(text)}


def joined(attributes: Mapping[str, Any], key: str) -> str:
    """The string that was stored in parts. Raises a ValueError if a part is not a string."""
    found: list[str] = []
    while f"{key}:{len(found)}" in attributes:
        part = attributes[f"{key}:{len(found)}"]
        if not isinstance(part, str):
            raise ValueError(f"its part {len(found)} must be a string, not {checks.shortened(part)}")
        found.append(part)
    text = "".join(found)
    return text[: checks.whole("its length", attributes.get(f"{key}:length", len(text)), 0)]


def object_of(attributes: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The JSON object that was stored in parts; empty if there is none. Raises a ValueError if it is damaged."""
    return codec.object_from_json(joined(attributes, key) or "{}")


def of_study(key: str, study_name: str) -> str:
    """The name of a study's attribute, for messages."""
    return f"the attribute {key!r} of the study {study_name!r}"


def of_trial(key: str, number: int) -> str:
    """The name of a trial's attribute, for messages."""
    return f"the attribute {key!r} of trial {number}"


def announcement(
    params: Mapping[str, Any], space: Mapping[str, BaseDistribution], extra: Mapping[str, Any] | None = None
) -> dict[str, str]:
    """Attributes that tell other processes what a trial will evaluate, with ``extra`` in the same write.

    Parameters are stored as Optuna's internal numbers, since choices may be anything.
    """
    internal = {name: space[name].to_internal_repr(value) for name, value in params.items()}
    return parts(SUGGESTION_KEY, json.dumps({"params": internal, **(extra or {})}))
