"""Fingerprint of a stored search, so that it resumes only if its candidates are comparable with new ones."""

import json
from collections.abc import Mapping
from typing import Any

import joblib
from optuna.storages import BaseStorage
from optuna.study import Study

from lazybo.core.codec import readable
from lazybo.sklearn.spaces import described
from lazybo.study.attributes import SEARCH_KEY, object_of, of_study, rewritable_parts

REMEDY = "use another study_name, or another storage"
# Longer texts are cut in messages.
SHOWN = 200


def identity(settings: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, str]:
    """Settings as texts and data as hashes, by name."""
    return {name: described(value) for name, value in settings.items()} | {
        name: _digest(value) for name, value in data.items()
    }


def check(storage: BaseStorage, study_name: str, ours: Mapping[str, str]) -> None:
    """Raise a ValueError if the stored study is another search. Nothing is written."""
    found = next((study for study in storage.get_all_studies() if study.study_name == study_name), None)
    if found is None or not storage.get_n_trials(found._study_id):
        return
    with readable(of_study(SEARCH_KEY, study_name), REMEDY):
        theirs = object_of(storage.get_study_system_attrs(found._study_id), SEARCH_KEY)
    if not theirs:
        raise ValueError(f"the study {study_name!r} has trials that were not made by LazySearchCV; {REMEDY}")
    for name, text in ours.items():
        if theirs.get(name) != text:
            shown = f": there {_short(theirs.get(name))}, here {_short(text)}" if not text.startswith("hash ") else ""
            hint = " (a splitter that shuffles needs a random_state)" if name == "cv splits" else ""
            raise ValueError(f"the study {study_name!r} was made with another {name}{shown}{hint}; {REMEDY}")


def write(study: Study, ours: Mapping[str, str]) -> None:
    """Store the fingerprint with the study."""
    for key, part in rewritable_parts(SEARCH_KEY, json.dumps(ours)).items():
        study._storage.set_study_system_attr(study._study_id, key, part)


def _digest(thing: Any) -> str:
    try:
        return f"hash {joblib.hash(thing)}"
    except Exception:  # pickling may raise anything
        return described(thing)


def _short(text: object) -> str:
    text = str(text)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
