"""An optimiser as plain data and as a JSON file: its space, its options, its observations, and what it has learned.

Nothing is pickled. Choices are written as plain data, and parameters that are choices by their position. Functions (a
predicate, an acquisition function, a kernel of one's own) cannot be written: they are given again when it is read.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    distribution_to_json,
    json_to_distribution,
)

from lazybo.core.checks import shortened, whole
from lazybo.core.codec import Advised, from_json, readable
from lazybo.gp.fit import Priors
from lazybo.gp.kernels import KERNELS, Kernel, kernel_for
from lazybo.search.earlier import EarlierStudy
from lazybo.search.observations import Observations
from lazybo.search.results import Result
from lazybo.space.space import Condition, Space

FORMAT = "lazybo optimizer"
VERSION = 1
STATE_VERSION = 3
# States of version 2 have one objective and no constraints.
READABLE_VERSIONS = (2, STATE_VERSION)
# The options that may be functions or objects of the user, and are then given again.
GIVEN_AGAIN = ("feasible", "acquisition", "kernel")
PLAIN = str | int | float | bool | None


def to_text(space: Space, options: Mapping[str, Any], state: Mapping[str, Any]) -> str:
    """The text of the file. ``options`` are those of the optimiser by their names, ``state`` its `Optimizer.state`."""
    return json.dumps(
        {
            "format": FORMAT,
            "version": VERSION,
            "space": {name: _distribution_to_plain(name, d) for name, d in space.distributions.items()},
            "conditions": {
                name: [each.parent, [_internal(space.distributions[each.parent], value) for value in each.values]]
                for name, each in space.conditions.items()
            },
            "optional": sorted(space.optional),
            "options": {name: _option_to_plain(name, value) for name, value in options.items()},
            "state": {**state, "rows": [{**row, "params": _numbered(space, row["params"])} for row in state["rows"]]},
        },
        indent=1,
    )


def from_text(text: str, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The arguments of an optimiser and its state. ``given`` are the functions that the file cannot hold, or None."""
    written = from_json(text)
    if not isinstance(written, dict) or written.get("format") != FORMAT:
        raise ValueError("it was not written by Optimizer.save()")
    if written.get("version") != VERSION:
        found = shortened(written.get("version"))
        raise Advised(f"it has version {found} of the format, and this is {VERSION}; use the lazybo that wrote it")
    distributions = {name: _distribution_from_plain(plain) for name, plain in written["space"].items()}
    conditions = {
        name: Condition(parent, tuple(distributions[parent].to_external_repr(value) for value in values))
        for name, (parent, values) in written["conditions"].items()
    }
    space = Space(distributions, conditions, written["optional"])
    arguments = {
        "space": distributions,
        "conditions": conditions,
        "optional": written["optional"],
        **{name: _option_from_plain(name, plain, space, given) for name, plain in written["options"].items()},
    }
    state = dict(written["state"])
    state["rows"] = [{**row, "params": _named(space, row["params"])} for row in state["rows"]]
    return arguments, state


def read(path: str | Path) -> str:
    """The text of a file."""
    return Path(path).expanduser().read_text(encoding="utf-8")


# ------------------------------------------------------------------------ state


@dataclass(frozen=True, slots=True)
class Parsed:
    """A state that was read. ``rows`` are arguments of `Observations.add`; ``model`` is still plain data."""

    seed: int
    next_number: int
    rows: list[tuple[dict[str, Any], Result, int | None]]
    model: Any
    budget_left: Any


def to_state(
    seed: int, next_number: int, rows: Sequence[Mapping[str, Any]], model: Mapping[str, Any]
) -> dict[str, Any]:
    """The state of an optimiser as plain data for JSON."""
    return {"version": STATE_VERSION, "seed": seed, "next_number": next_number, "rows": rows, "model": model}


def from_state(state: Any, observations: Observations) -> Parsed:
    """Read a state. ``observations`` are those of the optimiser that it is for; they are not changed."""
    if not isinstance(state, Mapping) or state.get("version") not in READABLE_VERSIONS:
        found = state.get("version") if isinstance(state, Mapping) else state
        raise ValueError(f"the state must be of version {STATE_VERSION}, not {shortened(found)}")
    with readable("this state"):
        seed, next_number = whole("seed", state["seed"], 0), whole("next_number", state["next_number"], 0)
        rows = [observations.parse(row) for row in state["rows"]]
        numbers = [number for *_, number in rows if number is not None]
        if len(set(numbers)) < len(numbers) or max(numbers, default=-1) >= next_number:
            raise ValueError(f"the numbers of its rows must be different and below {next_number}")
        return Parsed(seed, next_number, rows, state["model"], state.get("budget_left"))


# ------------------------------------------------------------------------ space


def _distribution_to_plain(name: str, distribution: BaseDistribution) -> Any:
    if not isinstance(distribution, CategoricalDistribution):
        return json.loads(distribution_to_json(distribution))
    return {"choices": [_choice_to_plain(name, choice) for choice in distribution.choices]}


def _distribution_from_plain(plain: Any) -> BaseDistribution:
    if "choices" in plain:
        return CategoricalDistribution([_choice_from_plain(choice) for choice in plain["choices"]])
    return json_to_distribution(json.dumps(plain))


def _choice_to_plain(name: str, choice: Any) -> Any:
    """A choice for JSON, which has no tuples: they are written as {"tuple": [...]}."""
    choice = choice.item() if isinstance(choice, np.generic) else choice
    if isinstance(choice, tuple | list):
        return {type(choice).__name__: [_choice_to_plain(name, part) for part in choice]}
    if not isinstance(choice, PLAIN):
        raise ValueError(
            f"the choice {shortened(choice)} of {name!r} cannot be saved; use texts, numbers, or tuples of them as "
            "choices, and look the objects up in a dict"
        )
    return choice


def _choice_from_plain(plain: Any) -> Any:
    if not isinstance(plain, dict):
        return plain
    ((kind, parts),) = plain.items()
    return (tuple if kind == "tuple" else list)(map(_choice_from_plain, parts))


def _internal(distribution: BaseDistribution, value: Any) -> float:
    return float(distribution.to_internal_repr(value))


def _numbered(space: Space, params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters with the positions of choices instead of the choices."""
    return {
        name: int(d.to_internal_repr(value)) if isinstance(d, CategoricalDistribution) else value
        for name, value, d in ((name, value, space.distributions[name]) for name, value in params.items())
    }


def _named(space: Space, params: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: d.to_external_repr(value) if isinstance(d, CategoricalDistribution) else value
        for name, value, d in ((name, value, space.distributions[name]) for name, value in params.items())
    }


# ---------------------------------------------------------------------- options


def _option_to_plain(name: str, value: Any) -> Any:
    """An option for JSON; {"given": text} for one that must be given again."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Priors):
        return {field.name: _option_to_plain("kernel", getattr(value, field.name)) for field in fields(value)}
    if name == "earlier":
        return [_earlier_to_plain(each) for each in value]
    if isinstance(value, tuple | list):
        return list(value)
    if isinstance(value, Kernel) and KERNELS.get(value.name) is type(value):
        return {"name": value.name, "values": value.values.tolist()}
    assert name in GIVEN_AGAIN, f"{name} is plain data"
    return {"given": shortened(value)}


def _option_from_plain(name: str, plain: Any, space: Space, given: Mapping[str, Any]) -> Any:
    is_given = isinstance(plain, dict) and "given" in plain
    if given.get(name) is not None and not is_given:
        raise Advised(f"it was saved with {name}={shortened(plain)}, so {name} cannot be given here; leave it out")
    if is_given:
        if given.get(name) is None:
            raise Advised(
                f"it was saved with {name}={plain['given']}, which no file can hold; give the same one again: "
                f"Optimizer.load(path, {name}=...)"
            )
        return given[name]
    if name == "priors" and plain is not None:
        return Priors(**{**plain, "like": _option_from_plain("kernel", plain.get("like"), space, {})})
    if name == "kernel" and isinstance(plain, dict):
        return kernel_for(plain["name"], space.columns).with_values(plain["values"])
    if name == "earlier":
        return [_earlier_from_plain(each) for each in plain]
    return plain


def _earlier_to_plain(study: EarlierStudy) -> dict[str, Any]:
    params = [{name: _choice_to_plain(name, value) for name, value in each.items()} for each in study.configurations]
    return {"name": study.name, "configurations": params, "values": [list(each) for each in study.values]}


def _earlier_from_plain(plain: Mapping[str, Any]) -> EarlierStudy:
    params = ({name: _choice_from_plain(value) for name, value in each.items()} for each in plain["configurations"])
    return EarlierStudy(plain["name"], tuple(params), tuple(map(tuple, plain["values"])))
