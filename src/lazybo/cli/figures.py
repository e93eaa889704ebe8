"""Which figures a study has, and their numbers for programs. Needs no matplotlib."""

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import Study

from lazybo.report import curves, records
from lazybo.study import ledger

RECORDS: dict[str, Callable[[Study], Any]] = {
    "history": records.history,
    "time": records.times,
    "importances": records.importances,
    "slices": records.slices,
    "parallel": records.coordinates,
    "front": records.front,
    "curves": curves.curves,
}


def kinds_of(kind: str, study: Study) -> list[str]:
    """The figures to draw: one, or all that show something. Raises a ValueError if a study has no such figure."""
    if kind != "curves" and not records.front(study).numbers:
        raise ValueError(f"no trial of the study {study.study_name!r} has completed yet: there is nothing to draw")
    drawable = _drawable(study)
    if kind == "all" or kind in drawable:
        return drawable if kind == "all" else [kind]
    several = len(study.directions)
    if kind == "curves":
        raise ValueError(curves.nothing_reported(study))
    if kind == "front":
        raise ValueError(f"the study {study.study_name!r} has one objective, so there is no front; draw its history")
    if several > 1:
        raise ValueError(
            f"{kind} shows one objective, but the study {study.study_name!r} has {several}; draw its front"
        )
    raise ValueError(f"no parameter of the study {study.study_name!r} varies, so there is nothing to draw for {kind!r}")


def numbers(kind: str, study: Study) -> Any:
    """The numbers of a figure as plain data for JSON; of all figures by their names."""
    found = {each: _plain(RECORDS[each](study)) for each in kinds_of(kind, study)}
    return found if kind == "all" else found[kind]


def _drawable(study: Study) -> list[str]:
    """The figures that show something of a study."""
    reported = ["curves"] if any(trial.intermediate_values for trial in ledger.read(study)) else []
    if len(study.directions) > 1:
        return ["front", "time", *reported]
    of_model = ["importances", "slices", "parallel"] if records.varies(study) else []
    return ["history", "time", *of_model, *reported]


def _plain(thing: Any) -> Any:
    """A record as dicts and lists. JSON has no NaN and no infinity: they are None."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return {field.name: _plain(getattr(thing, field.name)) for field in dataclasses.fields(thing)}
    if isinstance(thing, np.ndarray):
        return _plain(thing.tolist())
    if isinstance(thing, BaseDistribution):
        return str(thing)
    if isinstance(thing, tuple) and hasattr(thing, "_asdict"):
        return _plain(thing._asdict())
    if isinstance(thing, Mapping):
        return {name: _plain(each) for name, each in thing.items()}
    if isinstance(thing, Sequence) and not isinstance(thing, str):
        return [_plain(each) for each in thing]
    return None if isinstance(thing, float) and not math.isfinite(thing) else thing
