"""The attributes that every part of lazybo knows of studies and trials: the key, and what it holds.

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


class Key:
    """The keys of attributes. Optuna's own begin without our prefix."""

    # ------------------------------------------------------------------- of a study

    METRIC_NAMES = "study:metric_names"  # the names of the objectives
    # The space of a run as strings, its constraints and its seed: a second run must have the same. In parts.
    RUN = "lazybo:run"
    # User: followed by ":" and the name of a parameter with structure: its kind and arguments.
    KIND = "lazybo:kind"
    FORMAT = "lazybo:format"  # the version; nothing writes it yet: a study without it has version 1
    REPORTS = "lazybo:reports"  # the objective that `trial.report` gives, by position; 0 without it
    OPTIONS = "lazybo:options"  # the options of the model of `optimize()`, and its space; in parts
    MODEL = "lazybo:model"  # what the model has learned in `optimize()`; in parts

    # ------------------------------------------------------------------- of a trial

    # Its announcement: its parameters, and perhaps what was learned (``columns``, ``model``, ``finished``) and the
    # options of the sampler (``options``). In parts.
    SUGGESTION = "lazybo:suggestion"
    SEEN = "lazybo:seen"  # what its suggestion had seen: the events of its session since the last trial; in parts
    VARIANCE = "lazybo:variance"  # the known variance of the noise in its value
    SECONDS = "lazybo:seconds"  # how long its evaluation took in its worker, if the run has a cost
    CONSTRAINT = "constraints"  # followed by ":" and a name, the value of a constraint: `trial.set_constraint`
    REPEAT = "lazybo:repeat"  # in a final check: the number of the first trial with its configuration
    FAILURE = "lazybo:failure"  # how a program failed: a code (``kind``), and the reason without paths (``summary``)
    DRIVER = "lazybo:driver"  # the driver that runs it
    ATTEMPTS = "lazybo:attempts"  # how many evaluations of it died with their worker or driver
    STEPS = "lazybo:steps"  # how many values a training with a checkpoint had reported when its driver last died
    BEGAN = "lazybo:began"  # the driver whose worker started it, and its attempts then
    INITIAL = "lazybo:initial"  # the initial configuration that it was queued for, as it was given; in parts
    # User: the last step of a training that is paused; None when it runs again. A trial with it that waits is paused.
    PAUSED = "lazybo:paused"
    # The step and the time (seconds since 1970) of a training's last pause. It stays when the training runs again.
    PAUSE = "lazybo:pause"
    TO_END = "lazybo:to_end"  # it was resumed by hand: it is not paused again
    SKIPPED = "lazybo:skipped"  # its experiment was skipped: Optuna counts it as failed, and the model ignores it
    # User: its state, values and attributes before each correction by hand, and the time of that, oldest first.
    CORRECTIONS = "lazybo:corrections"


# Users see these without our prefix: the output folder of a program, and the device of an evaluation and its position
# among the devices.
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
    return parts(Key.SUGGESTION, json.dumps({"params": internal, **(extra or {})}))
