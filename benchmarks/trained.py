from typing import Any

Condition = tuple[str, tuple[Any, ...]]
MODELS: tuple[str, ...] = ()


def names() -> list[str]:
    return []


def table(name: str) -> Any:
    raise KeyError(name)
