"""Parameters of the protocol as a ConfigSpace, and its configurations as points: for SMAC and DEHB."""

from collections.abc import Mapping, Sequence
from typing import Any

from ConfigSpace import Categorical, ConfigurationSpace, Float, Integer

from benchmarks.peers.protocol import Parameter, Point, names


def config_space(space: Sequence[Parameter], seed: int) -> ConfigurationSpace:
    """The space, with the names of `names`."""
    found = ConfigurationSpace(seed=seed)
    found.add([_dimension(name, parameter) for name, parameter in zip(names(space), space, strict=True)])
    return found


def point_of(config: Mapping[str, Any], space: Sequence[Parameter]) -> Point:
    """The cells of a configuration."""
    return [
        float(config[name]) if parameter[0] == "float" else int(config[name])
        for name, parameter in zip(names(space), space, strict=True)
    ]


def _dimension(name: str, parameter: Parameter) -> Any:
    kind, *rest = parameter
    if kind == "choice":
        return Categorical(name, list(range(rest[0])))
    return (Float if kind == "float" else Integer)(name, (rest[0], rest[1]), log=rest[2])
