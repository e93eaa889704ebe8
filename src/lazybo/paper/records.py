"""Read, append and summarise rows of CSV files."""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = dict[str, str]


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV file; empty if the file does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append_rows(path: Path, fields: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows in one write, so that a killed process never leaves part of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = [] if path.exists() else [",".join(fields)]
    lines = [",".join(_cell(row.get(name)) for name in fields) for row in rows]
    with path.open("a", newline="") as file:
        file.write("".join(f"{line}\n" for line in head + lines))


def write_rows(path: Path, fields: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace a file by new rows."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    append_rows(fresh, fields, rows)
    fresh.replace(path)


def _cell(value: Any) -> str:
    """A value as text; six digits are more than these numbers are accurate."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def improvements(values: Iterable[float], step: float = 0.0) -> list[tuple[int, float]]:
    """The iterations, from 1, at which the best value so far grew by more than ``step``, and the value."""
    found: list[tuple[int, float]] = []
    for iteration, value in enumerate(values, 1):
        if not found or value > found[-1][1] + step:
            found.append((iteration, float(value)))
    return found


def first_at(values: Sequence[float], target: float) -> float:
    """The first iteration, from 1, with at least this value; infinity if there is none."""
    return next((float(i) for i, value in enumerate(values, 1) if value >= target), math.inf)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile, each one of the values: some may be infinite."""
    low, middle, high = np.quantile(np.asarray(values, dtype=float), (0.25, 0.5, 0.75), method="inverted_cdf")
    return float(low), float(middle), float(high)
