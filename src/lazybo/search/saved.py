"""An optimiser as plain data and as a JSON file: its space, its options, its observations, and what it has learned.

Nothing is pickled. Choices are written as plain data, and parameters that are choices by their position. Functions (a
predicate, an acquisition function, a kernel of one's own) cannot be written: they are given again when it is read.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
    json_to_distribution,
)

from lazybo.core import Direction, checks, codec
from lazybo.search.options import Options, given_again
from lazybo.search.records import Records
from lazybo.search.results import Result
from lazybo.search.results import from_plain as result_from_plain
from lazybo.search.results import to_plain as result_to_plain
from lazybo.space import Condition, Space, Structured

FORMAT = "lazybo optimizer"
VERSION = 1
# What a space may know that no file can hold.
FUNCTIONS = ("feasible", "features", "canonical")
STATE_VERSION = 3
# States of version 2 have one objective and no constraints.
READABLE_VERSIONS = (2, STATE_VERSION)


def to_text(space: Space, directions: Sequence[str], options: Options, state: Mapping[str, Any]) -> str:
    """The text of the file, with the ``state`` that `Optimizer.state` returns."""
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
            **({"instead_of": list(space.instead_of)} if space.instead_of else {}),
            **({"kinds": {name: kind.to_plain() for name, kind in space.kinds.items()}} if space.kinds else {}),
            "options": {
                **options.to_json(),
                "directions": list(directions),
                **{name: _given(getattr(space, name)) for name in FUNCTIONS},
            },
            "state": {**state, "rows": [{**row, "params": _numbered(space, row["params"])} for row in state["rows"]]},
        },
        indent=1,
    )


def _given(function: Any) -> dict[str, str] | None:
    """What stands for a function in the file."""
    return None if function is None else {"given": checks.shortened(function)}


class Saved(NamedTuple):
    """What a file holds: the arguments of `Optimizer.with_options`, and the state to restore."""

    space: Space
    directions: tuple[Direction, ...]
    options: Options
    state: dict[str, Any]


def from_text(text: str, given: Mapping[str, Any]) -> Saved:
    """What `to_text` wrote. ``given`` are the functions that the file cannot hold, or None."""
    written = codec.from_json(text)
    if not isinstance(written, dict) or written.get("format") != FORMAT:
        raise ValueError("it was not written by Optimizer.save()")
    codec.check_version(written.get("version"), (VERSION,))
    distributions = {name: _distribution_from_plain(plain) for name, plain in written["space"].items()}
    conditions = {
        name: Condition(parent, tuple(distributions[parent].to_external_repr(value) for value in values))
        for name, (parent, values) in written["conditions"].items()
    }
    options = written["options"]
    functions = {name: given_again(name, options.get(name), given) for name in FUNCTIONS}
    kinds = {name: Structured.of_plain(plain) for name, plain in written.get("kinds", {}).items()}
    parameters = Space.grouped(distributions, kinds)
    instead_of = written.get("instead_of", ())
    space = Space(parameters, conditions=conditions, optional=written["optional"], instead_of=instead_of, **functions)
    state = dict(written["state"])
    state["rows"] = [{**row, "params": _named(space, row["params"])} for row in state["rows"]]
    directions = checks.check_directions(options["directions"])
    return Saved(space, directions, Options.from_json(options, space, given), state)


def read(path: str | Path) -> str:
    """The text of a file."""
    return Path(path).expanduser().read_text(encoding="utf-8")


# ------------------------------------------------------------------------ state


@dataclass(frozen=True, slots=True)
class Parsed:
    """A state that was read. ``rows`` are arguments of `Records.add`; ``model`` is still plain data."""

    seed: int
    next_number: int
    rows: list[tuple[dict[str, Any], Result, int | None]]
    model: Any
    budget_left: Any


def to_state(seed: int, next_number: int, records: Records, model: Mapping[str, Any]) -> dict[str, Any]:
    """The state of an optimiser as plain data for JSON."""
    rows = [{"params": dict(each.params), **result_to_plain(each.result, each.number)} for each in records]
    return {"version": STATE_VERSION, "seed": seed, "next_number": next_number, "rows": rows, "model": model}


def from_state(state: Any, space: Space, objectives: int) -> Parsed:
    """Read a state of an optimiser of this space."""
    with codec.readable("this state"):
        codec.check_version(codec.as_object(state).get("version"), READABLE_VERSIONS)
        seed, next_number = checks.whole("seed", state["seed"], 0), checks.whole("next_number", state["next_number"], 0)
        rows = [
            (space.plain(row["params"], outside=True), *result_from_plain(row, objectives)) for row in state["rows"]
        ]
        numbers = [number for *_, number in rows if number is not None]
        if len(set(numbers)) < len(numbers) or max(numbers, default=-1) >= next_number:
            raise ValueError(f"the numbers of its rows must be different and below {next_number}")
        return Parsed(seed, next_number, rows, state["model"], state.get("budget_left"))


# ------------------------------------------------------------------------ space


def _distribution_to_plain(name: str, distribution: BaseDistribution) -> Any:
    if not isinstance(distribution, CategoricalDistribution):
        return json.loads(distribution_to_json(distribution))
    return {"choices": [codec.to_plain(choice, _unsaved(name)) for choice in distribution.choices]}


def _distribution_from_plain(plain: Any) -> BaseDistribution:
    if "choices" in plain:
        return CategoricalDistribution([codec.from_plain(choice) for choice in plain["choices"]])
    for kind in (CategoricalDistribution, FloatDistribution, IntDistribution):
        if plain.get("name") == kind.__name__:
            return kind(**plain["attributes"])
    return json_to_distribution(json.dumps(plain))  # Optuna's older kinds


def _unsaved(name: str) -> Callable[[Any], Any]:
    def fail(choice: Any) -> Any:
        raise ValueError(
            f"the choice {checks.shortened(choice)} of {name!r} cannot be saved; use strings, numbers, or "
            "tuples of them as "
            "choices, and look the objects up in a dict"
        )

    return fail


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
