"""How a package shows its interface without importing all of itself."""

from collections.abc import Callable, Mapping
from importlib import import_module
from sys import modules
from typing import Any


def lazily(package: str, names: Mapping[str, str]) -> Callable[[str], Any]:
    """A package's ``__getattr__``: each name is imported from its module of the package when it is first used.

    A worker needs few of the names, and starts in a third of the time.
    """

    def found(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{names[name]}"), name)
        setattr(modules[package], name, value)
        return value

    return found
