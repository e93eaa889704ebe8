"""The one place where the model of a study is made: by `optimize()`, by `LazySampler`, and for reports.

The options are kept with the study, so that whatever opens its model later gets the same one. `optimize()` keeps them,
and its space, as an attribute of the study. `LazySampler` puts them into the first announcement that it writes, which
saves a commit.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, distribution_to_json, json_to_distribution
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial

from lazybo.core.checks import Direction, whole
from lazybo.core.codec import as_object, readable
from lazybo.gp.fit import Lag, Priors
from lazybo.gp.kernels import KERNELS, Kernel, kernel_for
from lazybo.search.acquisition import Acquisition
from lazybo.search.earlier import EarlierStudy
from lazybo.search.optimizer import Optimizer
from lazybo.space.space import Condition, Predicate, Space
from lazybo.study.attributes import (
    OPTIONS_KEY,
    REPORTS_KEY,
    SUGGESTION_KEY,
    object_of,
    of_study,
    of_trial,
    rewritable_parts,
)
from lazybo.study.earlier import pack, unpack
from lazybo.study.model import StudyModel, read_announcement
from lazybo.study.retry import with_retries
from lazybo.study.structure import Structure, infer_structure

_logger = optuna.logging.get_logger("optuna.samplers.lazybo")

# What to do if the options of a study cannot be read.
REMEDY = "continue the study with optimize() or LazySampler, which write it again"
# The options that the Gaussian process depends on. The others only matter for suggestions.
OF_PROCESS = ("lag", "kernel", "noise", "priors", "value_transform", "earlier", "local_after")
# The options that are never written: a predicate is a function. Reports do not need it.
UNWRITTEN = ("feasible",)
# The options that are written only if they are given: earlier versions did not know them.
LATER = ("cost", "earlier", "local_after")


@dataclass(frozen=True)
class ModelOptions:
    """The options of an `Optimizer`, beside its space and its directions."""

    seed: int = 0
    lag: Lag = "auto"
    acquisition: str | Acquisition = "auto"
    batch: Literal["auto", "fantasy", "maxima"] = "auto"
    n_startup: int | None = None
    kernel: str | Kernel | None = None
    noise: float | None = None
    priors: Priors | None = None
    value_transform: Literal["warped", "scaled", "centred"] = "warped"
    feasible: Predicate | None = None
    cost: str | None = None
    earlier: tuple[EarlierStudy, ...] = ()
    local_after: int | Literal["auto"] | None = "auto"

    def optimizer(self, structure: Structure, *directions: Direction) -> Optimizer:
        """A new optimiser of objectives with these directions. Raises a ValueError if an option is wrong."""
        space = Space(
            structure.distributions,
            conditions=structure.conditions,
            optional=structure.optional,
            feasible=self.feasible,
        )
        options = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "feasible"}
        return Optimizer(space, direction=directions, **options)

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON. Objects that JSON cannot hold are listed as "not kept"; `from_json` uses defaults."""
        plain: dict[str, Any] = {
            **{name: _plain_number(getattr(self, name)) for name in _written(self)},
            "priors": None if self.priors is None else _numbers(self.priors),
        }
        if self.earlier:
            plain["earlier"] = pack(self.earlier)
        lost = {}
        if callable(self.acquisition):
            plain["acquisition"], lost["acquisition"] = "auto", repr(self.acquisition)
        if not isinstance(self.kernel, str | None):
            known = KERNELS.get(self.kernel.name) is type(self.kernel)
            plain["kernel"] = {"name": self.kernel.name, "values": self.kernel.values.tolist()} if known else None
            if not known:
                lost["kernel"] = repr(self.kernel)
        return {**plain, "not kept": lost}

    @staticmethod
    def from_json(written: Mapping[str, Any], structure: Structure) -> "ModelOptions":
        """The options of `to_json`. A kernel with parameters needs the columns of the space."""
        known = {name: written[name] for name in (*_written(), *LATER) if name in written or name not in LATER}
        if "earlier" in known:
            known["earlier"] = unpack(known["earlier"])
        if known["priors"] is not None:
            known["priors"] = Priors(**known["priors"])
        if isinstance(known["kernel"], Mapping):
            space = Space(structure.distributions, conditions=structure.conditions, optional=structure.optional)
            named = kernel_for(known["kernel"]["name"], space.columns)
            known["kernel"] = named.with_values(known["kernel"]["values"])
        return ModelOptions(**known)


def open_model(study: Study, options: ModelOptions, structure: Structure, trials: Sequence[FrozenTrial]) -> StudyModel:
    """A model with what was learned earlier in this study; it is told of no trial yet."""
    model = StudyModel(structure, options.optimizer(structure, *directions_of(study)), reports=reporting_of(study))
    model.recall(_attributes(study), trials)
    return model


def model_of(study: Study, trials: Sequence[FrozenTrial]) -> StudyModel:
    """The model that the last run or sampler of a study would continue with, told of all trials."""
    options, structure = options_of(study, trials)
    model = open_model(study, options, structure, trials)
    model.absorb(trials, -1)
    return model


def options_of(study: Study, trials: Sequence[FrozenTrial]) -> tuple[ModelOptions, Structure]:
    """The options and the structure of `model_of`; without a predicate, which is not kept."""
    kept = kept_options(study, trials)
    with readable(kept.where, REMEDY):
        structure, options = _kept_structure(kept.options, trials), ModelOptions()
        if kept.options:
            options = ModelOptions.from_json(kept.options, structure)
            options.optimizer(structure, *directions_of(study))  # raises if any of them is wrong
        kernel = as_object(kept.options.get("not kept", {})).get("kernel")
    if kernel is not None:
        _logger.warning(f"This study has the kernel {kernel}, which cannot be restored; its model has the default one.")
    return options, structure


def directions_of(study: Study) -> tuple[Direction, ...]:
    """The directions of a study as `Optimizer` takes them."""
    return tuple("maximize" if each == StudyDirection.MAXIMIZE else "minimize" for each in study.directions)


def reporting_of(study: Study) -> int:
    """The objective whose curves the trials of a study report, by position."""
    count = len(study.directions)
    if count == 1:
        return 0
    with readable(of_study(REPORTS_KEY, study.study_name), "set it to the position of the objective that is reported"):
        return whole("it", _attributes(study).get(REPORTS_KEY, 0), 0, count - 1)


# ------------------------------------------------------------------ kept options


def keep_options(study: Study, options: ModelOptions, structure: Structure, trials: Sequence[FrozenTrial]) -> None:
    """Keep the options of a run that begins when its study has these trials."""
    written = json.loads(json.dumps({**options.to_json(), "structure": _structure_to_json(structure)}))
    if {**_known_options(study, trials), "trials": 0} != {**written, "trials": 0}:
        text = json.dumps({**written, "trials": len(trials)})
        for key, part in rewritable_parts(OPTIONS_KEY, text).items():
            with_retries(partial(study._storage.set_study_system_attr, study._study_id, key, part))


class Kept(NamedTuple):
    """Options as plain data, and where they are kept."""

    options: dict[str, Any]
    where: str


def kept_options(study: Study, trials: Sequence[FrozenTrial]) -> Kept:
    """The latest options that were kept with a study or with its trials; empty if there are none.

    Raises a ValueError if they are damaged.
    """
    where = of_study(OPTIONS_KEY, study.study_name)
    with readable(where, REMEDY):
        of_run = object_of(_attributes(study), OPTIONS_KEY)
        first = whole("trials", of_run.get("trials", 0), 0)
    for trial in reversed(trials[first:]):
        options = read_announcement(trial).get("options")
        if options:
            where = of_trial(SUGGESTION_KEY, trial.number)
            with readable(where, REMEDY):
                return Kept(as_object(options), where)
    return Kept(of_run, where)


def _known_options(study: Study, trials: Sequence[FrozenTrial]) -> dict[str, Any]:
    """The same; empty if they are damaged, so that they are written again."""
    try:
        return kept_options(study, trials).options
    except ValueError:
        return {}


class Unkept(NamedTuple):
    """Options that are not kept with a study yet, as a part of an announcement."""

    attributes: dict[str, Any]
    needed: bool  # reports would show another Gaussian process without them


def unkept_options(study: Study, options: ModelOptions, trials: Sequence[FrozenTrial]) -> Unkept:
    """What a sampler has to keep with its next announcement."""
    ours = json.loads(json.dumps(options.to_json()))
    kept = _known_options(study, trials)
    if kept == ours:
        return Unkept({}, needed=False)
    shown = kept or ModelOptions().to_json()
    return Unkept({"options": ours}, needed=any(shown.get(name) != ours.get(name) for name in OF_PROCESS))


def _attributes(study: Study) -> dict[str, Any]:
    return with_retries(partial(study._storage.get_study_system_attrs, study._study_id))


def _structure_to_json(structure: Structure) -> dict[str, Any] | None:
    """A structure as plain data; None if a choice cannot be written as JSON."""
    try:
        space = {name: distribution_to_json(d) for name, d in structure.distributions.items()}
    except TypeError:
        return None
    conditions = {
        name: [c.parent, [structure.distributions[c.parent].to_internal_repr(value) for value in c.values]]
        for name, c in structure.conditions.items()
    }
    return {"space": space, "conditions": conditions, "optional": sorted(structure.optional)}


def _kept_structure(written: Mapping[str, Any], trials: Sequence[FrozenTrial]) -> Structure:
    """The structure of a run; of a sampler the one that its trials show."""
    seen: dict[str, BaseDistribution] = {}
    for trial in trials:
        seen.update(trial.distributions)
    structure = written.get("structure")
    if not structure:
        # As in the sampler: without parameters that cannot vary, unless there are no others.
        return infer_structure({name: d for name, d in seen.items() if not d.single()} or seen, trials)
    # Choices that are tuples are lists in JSON. The trials have what was given.
    space = {
        name: seen[name] if name in seen and distribution_to_json(seen[name]) == text else json_to_distribution(text)
        for name, text in structure["space"].items()
    }
    conditions = {
        name: Condition(parent, tuple(space[parent].to_external_repr(value) for value in values))
        for name, (parent, values) in structure["conditions"].items()
    }
    return Structure(space, conditions, frozenset(structure["optional"]))


def _written(options: ModelOptions | None = None) -> list[str]:
    """The names of the options that are written as JSON: all that earlier versions knew, and others that are given."""
    default = ModelOptions()
    given = [name for name in LATER if options is not None and getattr(options, name) != getattr(default, name)]
    always = [field.name for field in fields(ModelOptions) if field.name not in (*UNWRITTEN, *LATER)]
    return [*always, *given]


def _numbers(priors: Priors) -> dict[str, float]:
    return {each.name: float(getattr(priors, each.name)) for each in fields(priors) if each.name != "like"}


def _plain_number(value: Any) -> Any:
    """NumPy's numbers as Python's, everything else as it is."""
    return value.item() if isinstance(value, np.generic) else value
