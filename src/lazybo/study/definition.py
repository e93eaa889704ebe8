"""What a study optimises, and with which options: stored with it, and checked when it is opened again.

The first run stores its space, constraints and seed with the study (`Key.RUN`). A later run with another space or
direction is rejected. The options of the model are stored too, so that whatever opens the model later gets the same
one: `optimize()` stores them and its space with the study (`Key.OPTIONS`), `LazySampler` with the first announcement
that it writes, which saves a commit.

`optimize()`, `LazySampler` and the command take earlier studies as ``name@storage``, names of CSV files, and everything
that `lazybo.search.earlier` takes. Their results are stored with the options, so that a resumed study and
reports need neither the other storages nor the files.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    IntDistribution,
    distribution_to_json,
    json_to_distribution,
)
from optuna.storages import BaseStorage
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, TrialState

from lazybo.core import Direction, checks, codec, texts
from lazybo.search import EarlierStudy, Options
from lazybo.space import (
    Cells,
    Condition,
    Space,
    Structured,
    in_words,
)
from lazybo.study.attributes import Key, object_of, of_study, of_trial, parts, rewritable_parts
from lazybo.study.store import Store
from lazybo.study.trial import TrialView

_logger = optuna.logging.get_logger("optuna.samplers.lazybo")

# The remedy if the options of a study cannot be read.
OPTIONS_REMEDY = "continue the study with optimize() or LazySampler, which write it again"
# The options that the Gaussian process depends on. The others only matter for suggestions.
OF_PROCESS = ("lag", "kernel", "noise", "priors", "value_transform", "earlier", "local_after", "deterministic")

# The version of the format of studies, which 0.1.0 has begun with. Additions that older versions may ignore are no new
# version.
FORMAT = 1

Storage = str | Path | BaseStorage | None


@dataclass(frozen=True)
class Definition:
    """What a study optimises: directions, and the names of objectives and constraints if there are any.

    ``reports`` is the position of the objective that trials report.
    """

    directions: tuple[Direction, ...] = ("minimize",)
    names: tuple[str, ...] | None = None
    constraints: tuple[str, ...] = ()
    reports: int = 0

    DEFAULT_NAME: ClassVar[str] = "lazybo"
    REMEDY: ClassVar[str] = "use another study_name, or begin a new study and give this one as warm_start"

    def open(self, storage: BaseStorage, study_name: str | None, space: Space, seed: int | None) -> tuple[Study, int]:
        """The study with this name, created if there is none, and the seed to continue with."""
        return Store.retried(partial(_open_study, storage, study_name or self.DEFAULT_NAME, self, space, seed))

    def earlier(self, sources: Any, storage: Storage = None, study_name: str | None = None) -> tuple[EarlierStudy, ...]:
        """The results of earlier studies. A study that is named without a storage is in ``storage``.

        ``study_name`` is the new study, which cannot be an earlier one.
        """
        return EarlierStudy.read(
            sources, self.directions, self.names, lambda name: _read(name, self.directions, storage, study_name)
        )


# ----------------------------------------------------------------- open a study


@dataclass(frozen=True)
class FirstRun:
    """The space and the constraints of the first run, as strings, and its seed. Later runs must have the same."""

    space: Mapping[str, str]
    seed: int
    constraints: tuple[str, ...] = ()


def first_run(study_name: str, attributes: Mapping[str, Any]) -> FirstRun | None:
    """What the first run has stored with its study; None if there was none. Raises a ValueError if it is damaged."""
    with codec.readable(of_study(Key.RUN, study_name), Definition.REMEDY):
        written = object_of(attributes, Key.RUN)
        if not written:
            return None
        space, constraints = codec.as_object(written["space"]), written.get("constraints", [])
        if not isinstance(constraints, list) or not all(
            isinstance(each, str) for each in [*space.values(), *constraints]
        ):
            raise ValueError("its space and its constraints must be strings")
        return FirstRun(space, checks.check_seed(checks.whole("seed", written["seed"], 0)), tuple(constraints))


def check_format(study: Study) -> None:
    """Raise one sentence if a newer lazybo wrote this study in a way that this one would misread."""
    with codec.readable(of_study(Key.FORMAT, study.study_name)):
        codec.check_version(Store(study).attributes().get(Key.FORMAT, FORMAT), (FORMAT,))


def _open_study(
    storage: BaseStorage, name: str, definition: Definition, space: Space, seed: int | None
) -> tuple[Study, int]:
    if name in {study.study_name for study in storage.get_all_studies()}:
        study = optuna.load_study(study_name=name, storage=storage)
        check_format(study)
        _check_directions(study, definition)
    else:
        study = optuna.create_study(
            study_name=name, storage=storage, directions=list(definition.directions), load_if_exists=True
        )
    store = Store(study)
    attributes = store.attributes()
    first = first_run(name, attributes)
    if first is not None:
        _check_same(name, first, attributes.get(Key.REPORTS, 0), definition, space)
        return study, checks.check_seed(first.seed if seed is None else seed)
    if space.declared:
        _check_trials(study, space)
    seed = checks.check_seed(seed)
    written: dict[str, Any] = {}
    if definition.names:
        written[Key.METRIC_NAMES] = list(definition.names)
    if definition.reports:
        written[Key.REPORTS] = definition.reports
    constraints = {"constraints": list(definition.constraints)} if definition.constraints else {}
    run = json.dumps({"space": _described(space), "seed": seed, **constraints})
    store.keep_kinds(space.kinds)
    store.set_attributes({**written, **parts(Key.RUN, run)})
    return study, seed


def _check_same(name: str, first: FirstRun, reports: object, definition: Definition, space: Space) -> None:
    """Reject a run that differs from the first one."""
    here = _described(space)
    wrong = ""
    if first.space != here:
        wrong = f"has another space: {_difference(first.space, here)}"
    elif first.constraints != definition.constraints:
        theirs, ours = (", ".join(each) or "none" for each in (first.constraints, definition.constraints))
        wrong = f"has other constraints: there {theirs}, here {ours}"
    elif reports != definition.reports:
        wrong = f"reports objective {checks.shortened(reports)}, not {definition.reports} (from 0)"
    if wrong:
        raise ValueError(f"the study {name!r} {wrong}; {Definition.REMEDY}")


def _check_directions(study: Study, definition: Definition) -> None:
    theirs, count, wrong = directions_of(study), len(definition.directions), ""
    if len(theirs) != count:
        wrong = f"{len(theirs)} objective{'s' if len(theirs) > 1 else ''}, not {count}"
    elif study.metric_names and definition.names and list(definition.names) != study.metric_names:
        wrong = f"the objectives {', '.join(study.metric_names)}, not {', '.join(definition.names)}"
    elif theirs != definition.directions:
        there, here = (" and ".join(map(repr, each)) for each in (theirs, definition.directions))
        wrong = f"the direction {there}, not {here}"
    if wrong:
        raise ValueError(f"the study {study.study_name!r} has {wrong}; {Definition.REMEDY}")


def _check_trials(study: Study, space: Space) -> None:
    """Reject a study with trials of another program that have other parameters."""
    ours = space.distributions
    for trial in Store(study).trials():
        for name, distribution in trial.distributions.items():
            if ours.get(name) != distribution:
                there, here = {name: str(distribution)}, {name: str(ours[name])} if name in ours else {}
                difference = _difference(there, here)
                raise ValueError(f"the study {study.study_name!r} has another space: {difference}; {Definition.REMEDY}")


def _described(space: Space) -> dict[str, str]:
    """The space as strings, which can be compared."""
    conditions = {name: f" if {c.parent} in {list(c.values)}" for name, c in space.conditions.items()}
    return {name: f"{each}{conditions.get(name, '')}" for name, each in space.parameters.items()}


def _difference(theirs: Mapping[str, str], ours: Mapping[str, str]) -> str:
    """The first parameter that differs."""
    name = next(name for name in {**theirs, **ours} if theirs.get(name) != ours.get(name))
    if name not in ours:
        return f"its parameter {name!r} is not in this one"
    if name not in theirs:
        return f"it has no parameter {name!r}"
    return f"there {name!r} is {in_words(theirs[name])}, here {in_words(ours[name])}"


def directions_of(study: Study) -> tuple[Direction, ...]:
    """The directions of a study as `Optimizer` takes them."""
    return tuple("maximize" if each == StudyDirection.MAXIMIZE else "minimize" for each in study.directions)


def reporting_of(study: Study) -> int:
    """The position of the objective that the trials of a study report."""
    count = len(study.directions)
    if count == 1:
        return 0
    with codec.readable(
        of_study(Key.REPORTS, study.study_name), "set it to the position of the objective that is reported"
    ):
        return checks.whole("it", Store(study).attributes().get(Key.REPORTS, 0), 0, count - 1)


# ---------------------------------------------------------------- stored options


def keep_options(study: Study, options: Options, space: Space, trials: Sequence[FrozenTrial]) -> None:
    """Store the options of a run that begins when its study has these trials."""
    structure = None if not space.declared else _space_to_json(space)
    written = json.loads(json.dumps({**_to_stored(options), "structure": structure}))
    if {**_known_options(study, trials), "trials": 0} != {**written, "trials": 0}:
        text = json.dumps({**written, "trials": len(trials)})
        Store(study).set_attributes(rewritable_parts(Key.OPTIONS, text))


def options_digest(options: Options) -> str:
    """A short text that differs for other options."""
    return hashlib.sha256(json.dumps(_to_stored(options), sort_keys=True).encode()).hexdigest()[:8]


def stored_options(study: Study, trials: Sequence[FrozenTrial]) -> tuple[dict[str, Any], str]:
    """The latest options that were stored with a study or its trials, and where; empty if there are none.

    Raises a ValueError if they are damaged.
    """
    where = of_study(Key.OPTIONS, study.study_name)
    with codec.readable(where, OPTIONS_REMEDY):
        of_run = object_of(Store(study).attributes(), Key.OPTIONS)
        first = checks.whole("trials", of_run.get("trials", 0), 0)
    for trial in reversed(trials[first:]):
        options = TrialView(trial).handling.announcement.get("options")
        if options:
            where = of_trial(Key.SUGGESTION, trial.number)
            with codec.readable(where, OPTIONS_REMEDY):
                return codec.as_object(options), where
    return of_run, where


def _known_options(study: Study, trials: Sequence[FrozenTrial]) -> dict[str, Any]:
    """The same; empty if they are damaged, so that they are written again."""
    try:
        return stored_options(study, trials)[0]
    except ValueError:
        return {}


def unstored_options(study: Study, options: Options, trials: Sequence[FrozenTrial]) -> tuple[dict[str, Any], bool]:
    """The options that a sampler has to store with its next announcement, as a part of it; and whether it needs one.

    It does if reports would show another Gaussian process without them.
    """
    ours, stored = json.loads(json.dumps(_to_stored(options))), _known_options(study, trials)
    shown = stored or _to_stored(Options(seed=0))
    needed = any(shown.get(name) != ours.get(name) for name in OF_PROCESS)
    return ({} if stored == ours else {"options": ours}), needed


def options_of(study: Study, trials: Sequence[FrozenTrial], space: Space | None = None) -> tuple[Options, Space]:
    """The options of a study's last run or sampler, and its space unless that is known (``space``).

    A predicate is not stored, so the space has none.
    """
    check_format(study)
    stored, where = stored_options(study, trials)
    if not stored:
        return Options(seed=0), space or _seen_space(study, trials)
    with codec.readable(where, OPTIONS_REMEDY):
        if space is None:
            space = (
                _stored_space(stored["structure"], trials) if stored.get("structure") else _seen_space(study, trials)
            )
        missing = _to_stored(Options(seed=0)).keys() - stored.keys() - {"not kept"}
        if missing:
            raise KeyError(min(missing))
        options = Options.from_json(stored, space)
        EarlierStudy.read(options.earlier, directions_of(study))  # raises if they have other objectives
        lost = codec.as_object(stored.get("not kept", {})).get("kernel")
    if lost is not None:
        _logger.warning(f"This study has the kernel {lost}, which cannot be restored; its model has the default one.")
    return options, space


def _to_stored(options: Options) -> dict[str, Any]:
    """Options as plain data in the format of 0.1.0. Objects that JSON cannot hold are listed as "not kept"."""
    default, plain = Options(seed=0).to_json(), options.to_json()
    lost = {name: each["given"] for name, each in plain.items() if isinstance(each, dict) and "given" in each}
    plain.update({name: default[name] for name in lost})
    if plain["priors"] is not None:
        plain["priors"] = {name: float(each) for name, each in plain["priors"].items() if name != "like"}
    left_out = [name for name in Options.LATER if plain.get(name) == default.get(name)]
    return {**{name: each for name, each in plain.items() if name not in left_out}, "not kept": lost}


def _space_to_json(space: Space) -> dict[str, Any] | None:
    """A space as plain data; None if a choice cannot be written as JSON."""
    try:
        distributions = {name: distribution_to_json(d) for name, d in space.distributions.items()}
    except TypeError:
        return None
    conditions = {
        name: [c.parent, [space.distributions[c.parent].to_internal_repr(value) for value in c.values]]
        for name, c in space.conditions.items()
    }
    kinds = {"kinds": {name: kind.to_plain() for name, kind in space.kinds.items()}} if space.kinds else {}
    return {"space": distributions, "conditions": conditions, "optional": sorted(space.optional), **kinds}


def _stored_space(written: Mapping[str, Any], trials: Sequence[FrozenTrial]) -> Space:
    """The space of `_space_to_json`. JSON turns choices that are tuples into lists, so those of the trials are used."""
    seen = distributions_of(trials)
    space = {
        name: seen[name] if name in seen and distribution_to_json(seen[name]) == text else json_to_distribution(text)
        for name, text in written["space"].items()
    }
    conditions = {
        name: Condition(parent, tuple(space[parent].to_external_repr(value) for value in values))
        for name, (parent, values) in written["conditions"].items()
    }
    kinds = {name: Structured.of_plain(plain) for name, plain in codec.as_object(written.get("kinds", {})).items()}
    return Space(Space.grouped(space, kinds), conditions=conditions, optional=frozenset(written["optional"]))


# ------------------------------------------------------ the space that trials show


def _seen_space(study: Study, trials: Sequence[FrozenTrial]) -> Space:
    """The space that trials show, as in the sampler: only parameters that vary, unless there are none."""
    return infer_space(varying(distributions_of(trials)), trials, kinds=Store(study).kinds())


def distributions_of(trials: Iterable[FrozenTrial]) -> dict[str, BaseDistribution]:
    """All parameters of some trials, each as in its latest trial."""
    return {name: each for trial in trials for name, each in trial.distributions.items()}


def varying(distributions: Mapping[str, BaseDistribution]) -> dict[str, BaseDistribution]:
    """The parameters that vary; all of them if none does."""
    return {name: each for name, each in distributions.items() if not each.single()} or dict(distributions)


def infer_space(
    distributions: Mapping[str, BaseDistribution],
    trials: Sequence[FrozenTrial],
    feasible: Callable[[dict[str, Any]], bool] | None = None,
    kinds: Mapping[str, Structured] | None = None,
) -> Space:
    """The space of these parameters; when each is active is inferred from trials that completed or were stopped.

    Parameters that one of ``kinds`` is stored as are one.

    A parameter that some trials lack depends on the first categorical or integer parameter whose values separate the
    trials that have it from those that do not. If there is no such parameter, it is optional.
    """
    done = (TrialState.COMPLETE, TrialState.PRUNED)
    seen = [trial.params for trial in trials if trial.state in done and trial.params]
    parameters = Space.grouped(distributions, kinds or {})
    alone = {name: d for name, d in distributions.items() if name in parameters}
    conditions: dict[str, Condition] = {}
    optional: set[str] = set()
    for name, each in parameters.items():
        stored = {*each.stored(name)} if isinstance(each, Structured) else {name}
        have = [params for params in seen if stored <= params.keys()]
        lack = [params for params in seen if not stored <= params.keys()]
        if lack:
            parents = _possible_parents(name, alone, conditions)
            found = next(_separating(parents, have, lack), None)
            if found is None:
                optional.add(name)
            else:
                conditions[name] = found
    return Space(parameters, conditions=conditions, feasible=feasible, optional=optional)


def _separating(
    parents: Iterable[str], have: Sequence[Mapping[str, Any]], lack: Sequence[Mapping[str, Any]]
) -> Iterator[Condition]:
    """The conditions on one of these parents that all configurations in ``have`` satisfy, and none of the others."""
    for parent in parents:
        # Compared as strings: choices may be lists, which a set cannot hold.
        with_it = {repr(params[parent]): params[parent] for params in have if parent in params}
        without = {repr(params[parent]) for params in lack if parent in params}
        always = all(parent in params for params in have)
        if with_it and always and with_it.keys().isdisjoint(without):
            yield Condition(parent, tuple(with_it[text] for text in sorted(with_it)), outside=True)


def _possible_parents(
    name: str, space: Mapping[str, BaseDistribution], conditions: Mapping[str, Condition]
) -> Iterator[str]:
    """Discrete parameters that do not themselves depend on this one."""
    for parent, distribution in space.items():
        if parent != name and isinstance(distribution, CategoricalDistribution | IntDistribution):
            above = parent
            while above in conditions and above != name:
                above = conditions[above].parent
            if above != name:
                yield parent


# --------------------------------------------------------------- earlier studies


def _read(name: str, directions: Sequence[Direction], storage: Storage, study_name: str | None) -> EarlierStudy | Study:
    """A study, ``name@storage`` or ``name``, or a table."""
    if name.lower().endswith(Cells.FILES):
        return EarlierStudy.of_rows(Cells({}).read(name, f"the earlier table {name!r}").values(), name, directions)
    title, at, place = name.partition("@")
    if at:
        return _existing_study(title, place, texts.without_password(place))
    if storage is None:
        raise ValueError(f"the earlier study {name!r} needs a storage: give 'NAME@STORAGE', or the study itself")
    if name == study_name:
        raise ValueError(f"the study {name!r} is the one to run, not an earlier one; its own trials count anyway")
    shown = texts.without_password(str(storage)) if isinstance(storage, str | Path) else "the storage"
    return _existing_study(name, storage, shown)


def _existing_study(name: str, storage: str | Path | BaseStorage, shown: str) -> Study:
    is_file = not isinstance(storage, BaseStorage) and "://" not in str(storage)
    if is_file and not Path(str(storage)).expanduser().exists():
        raise ValueError(f"there is no earlier study {name!r}: there is no storage {shown!r}")
    opened = Store.open(storage)
    known = sorted(each.study_name for each in opened.get_all_studies())
    if name not in known:
        there = f"it has {', '.join(map(repr, known))}" if known else "it has no study"
        raise ValueError(f"there is no earlier study {name!r} in {shown!r}: {there}")
    return optuna.load_study(study_name=name, storage=opened)
