"""Rows of tables that users have: CSV files and data frames."""

import csv
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optuna.distributions import BaseDistribution, CategoricalDistribution

DECIMAL_COMMA = re.compile(r"^\s*([+-]?\d+),(\d+(?:[eE][+-]?\d+)?)\s*$")
LOAD = "open a study with optuna.load_study(study_name=..., storage=...), and give that"


def is_frame(source: object) -> bool:
    """Whether this is a data frame of pandas or polars."""
    return hasattr(source, "to_dicts") or hasattr(source, "to_dict")


def frame_rows(frame: Any) -> list[Any]:
    """The rows of a data frame of polars or pandas, as dicts. Raises a TypeError for a single column."""
    return list(frame.to_dicts() if hasattr(frame, "to_dicts") else frame.to_dict("records"))


def csv_rows(
    name: str | Path, what: str, space: Mapping[str, BaseDistribution], first: int = 0
) -> list[dict[str, Any]]:
    """The rows of a file whose cells are separated by commas, semicolons or tabs.

    Between semicolons or tabs a number may have a decimal comma, as spreadsheets of many countries write it. ``what``
    names the table in messages, which number its rows from ``first``. Cells are numbers if they look like numbers, and
    choices of the space if they are written like one.
    """
    if "://" in str(name):
        raise ValueError(f"{what} must be a CSV file, not the URL of a storage; {LOAD}")
    try:
        # Spreadsheet programs may write a byte order mark first.
        with Path(name).open(newline="", encoding="utf-8-sig") as file:
            heading = file.readline()
            file.seek(0)
            delimiter = max(",;\t", key=heading.count)
            rows = list(csv.reader(file, delimiter=delimiter, skipinitialspace=True))
    except OSError as error:
        raise ValueError(f"{what} cannot be read: {error}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{what}, {str(name)!r}, is not a CSV file: {error}; {LOAD}") from None
    if not rows:
        raise ValueError(f"{what}, {str(name)!r}, is empty; it needs a heading with 'value'")
    columns = [column.strip() for column in rows[0]]
    table = []
    for i, row in enumerate(filter(None, rows[1:]), first):
        if len(row) != len(columns):
            raise ValueError(f"row {i} of {what} has {len(row)} cells, its heading {len(columns)}")
        cells = row if delimiter == "," else [DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in row]
        table.append({column: parsed(column, cell, space) for column, cell in zip(columns, cells, strict=True)})
    return table


def parsed(name: str, text: str, space: Mapping[str, BaseDistribution]) -> Any:
    """A cell of a CSV file as a value of its column; an empty one is None."""
    distribution = space.get(name.removeprefix("params_"))
    if text == "":
        return None
    if isinstance(distribution, CategoricalDistribution):
        return next((choice for choice in distribution.choices if str(choice) == text), text)
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
