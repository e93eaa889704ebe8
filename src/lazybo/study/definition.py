"""What a study optimises, and with which options: stored with it, and checked when it is opened again.

The first run keeps its space, constraints and seed as an attribute of the study (`RUN_KEY`), and a study with another
space or direction is rejected.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.study import Study

from lazybo.core.checks import Direction, check_seed, shortened, whole
from lazybo.core.codec import as_object, readable
from lazybo.study.attributes import METRIC_NAMES_KEY, REPORTS_KEY, RUN_KEY, object_of, of_study, parts
from lazybo.study.store import Store, with_retries
from lazybo.study.trial import Structure

# The default name of a study, so that the same call finds it again.
DEFAULT_NAME = "lazybo"
REMEDY = "use another study_name, or begin a new study and give this one as warm_start"


@dataclass(frozen=True)
class About:
    """What a study optimises: directions, and if there are any, the names of objectives and of constraints.

    ``reports`` is the position of the objective whose curves trials report.
    """

    directions: tuple[Direction, ...] = ("minimize",)
    names: tuple[str, ...] | None = None
    constraints: tuple[str, ...] = ()
    reports: int = 0


@dataclass(frozen=True)
class Run:
    """What a second run must agree with: the space and the constraints as texts, and the seed."""

    space: Mapping[str, str]
    seed: int
    constraints: tuple[str, ...] = ()


def kept_run(study_name: str, attributes: Mapping[str, Any]) -> Run | None:
    """What the first run has kept with its study; None if there was none. Raises a ValueError if it is damaged."""
    with readable(of_study(RUN_KEY, study_name), REMEDY):
        written = object_of(attributes, RUN_KEY)
        if not written:
            return None
        space, constraints = as_object(written["space"]), written.get("constraints", [])
        texts = [*space.values(), *constraints]
        if not isinstance(constraints, list) or not all(isinstance(text, str) for text in texts):
            raise ValueError("its space and its constraints must be texts")
        return Run(space, check_seed(whole("seed", written["seed"], 0)), tuple(constraints))


def open_study(
    storage: BaseStorage, study_name: str | None, about: About | Direction, structure: Structure, seed: int | None
) -> tuple[Study, int]:
    """The study with this name, created if there is none, and the seed to continue with."""
    about = about if isinstance(about, About) else About((about,))
    return with_retries(partial(_open_study, storage, study_name or DEFAULT_NAME, about, structure, seed))


def _open_study(
    storage: BaseStorage, name: str, about: About, structure: Structure, seed: int | None
) -> tuple[Study, int]:
    if name in {study.study_name for study in storage.get_all_studies()}:
        study = optuna.load_study(study_name=name, storage=storage)
        _check_directions(study, about)
    else:
        study = optuna.create_study(
            study_name=name, storage=storage, directions=list(about.directions), load_if_exists=True
        )
    store = Store(study)
    attributes = store.attributes()
    written = kept_run(name, attributes)
    space = _space_of(structure)
    if written is None:
        _check_trials(study, structure)
    elif written.space != space:
        raise ValueError(f"the study {name!r} has another space: {_difference(written.space, space)}; {REMEDY}")
    elif written.constraints != about.constraints:
        theirs = ", ".join(written.constraints) or "none"
        ours = ", ".join(about.constraints) or "none"
        raise ValueError(f"the study {name!r} has other constraints: there {theirs}, here {ours}; {REMEDY}")
    elif (objective := attributes.get(REPORTS_KEY, 0)) != about.reports:
        raise ValueError(
            f"the trials of the study {name!r} report objective {shortened(objective)}, not {about.reports} (from 0); "
            f"{REMEDY}"
        )
    seed = check_seed(written.seed if seed is None and written is not None else seed)
    if written is None:
        written_now: dict[str, Any] = {METRIC_NAMES_KEY: list(about.names)} if about.names else {}
        if about.reports:
            written_now[REPORTS_KEY] = about.reports
        constraints = {"constraints": list(about.constraints)} if about.constraints else {}
        run = json.dumps({"space": space, "seed": seed, **constraints})
        store.set_attributes({**written_now, **parts(RUN_KEY, run)})
    return study, seed


def _check_directions(study: Study, about: About) -> None:
    theirs = tuple(each.name.lower() for each in study.directions)
    if len(theirs) != len(about.directions):
        what = f"{len(theirs)} objective{'s' if len(theirs) > 1 else ''}, not {len(about.directions)}"
        raise ValueError(f"the study {study.study_name!r} has {what}; {REMEDY}")
    if theirs != about.directions:
        is_so, given = (" and ".join(map(repr, each)) for each in (theirs, about.directions))
        raise ValueError(f"the study {study.study_name!r} has the direction {is_so}, not {given}; {REMEDY}")
    names = study.metric_names
    if names and about.names and list(about.names) != names:
        is_so, given = ", ".join(names), ", ".join(about.names)
        raise ValueError(f"the study {study.study_name!r} has the objectives {is_so}, not {given}; {REMEDY}")


def _check_trials(study: Study, structure: Structure) -> None:
    """Reject a study with trials of another program that have other parameters."""
    ours = structure.distributions
    for trial in Store(study).trials():
        for name, distribution in trial.distributions.items():
            if ours.get(name) != distribution:
                theirs, here = {name: str(distribution)}, {name: str(ours[name])} if name in ours else {}
                difference = _difference(theirs, here)
                raise ValueError(f"the study {study.study_name!r} has another space: {difference}; {REMEDY}")


def _space_of(structure: Structure) -> dict[str, str]:
    """The space as text, to be compared."""
    conditions = {name: f" if {c.parent} in {list(c.values)}" for name, c in structure.conditions.items()}
    return {name: f"{d}{conditions.get(name, '')}" for name, d in structure.distributions.items()}


def _difference(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """The first parameter that differs."""
    name = next(name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name))
    if name not in ours:
        return f"its parameter {name!r} is not in this one"
    if name not in theirs:
        return f"it has no parameter {name!r}"
    return f"there {name!r} is {theirs[name]}, here {ours[name]}"
