"""Rows of tables: CSV files that we write and that users have, spreadsheets, and data frames.

A spreadsheet runs a cell that begins with =, +, - or @ as a formula. In the files that we write such text begins with
an apostrophe, which is removed when the file is read.
"""

import csv
import io
import itertools
import math
import re
import warnings
import zipfile
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from lazybo.core import codec

DECIMAL_COMMA = re.compile(r"^\s*([+-]?\d+),(\d+(?:[eE][+-]?\d+)?)\s*$")
LOAD = "open a study with optuna.load_study(study_name=..., storage=...), and give that"
# Larger tables are rejected. Studies of 100,000 trials have smaller ones.
MOST_BYTES = 2**26
# An .xlsx file is a ZIP archive, and has at most this many bytes when it is unpacked, and this many rows.
ZIPPED, MOST_UNZIPPED, MOST_ROWS = b"PK\x03\x04", 2**29, 2**20
# Text that a spreadsheet may run, perhaps after apostrophes, one of which is ours; and what is a number instead.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n]")
_NUMBER = re.compile(r"[+-]?(?:(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?|inf|infinity|nan)", re.IGNORECASE)


class Cells:
    """The cells of tables as values of some parameters. ``conditional`` ones are not always active."""

    MARK = "params_"
    """The prefix of the columns of parameters in Optuna's tables, and in those of `lazybo export`."""
    FILES = (".csv", ".xlsx")
    """How the names of files with tables end."""

    def __init__(self, parameters: Mapping[str, BaseDistribution], conditional: Collection[str] = ()) -> None:
        self._parameters, self._conditional = parameters, conditional

    def read(self, name: str | Path, what: str, first: int = 0) -> dict[int, dict[str, Any]]:
        """The rows of a file: cells separated by commas, semicolons or tabs, or the first sheet of an .xlsx.

        Between semicolons or tabs a number may have a decimal comma, as spreadsheets of many countries write it.
        ``what`` names the table in messages, which number its rows from ``first``; so does the result. Cells are
        numbers if they look like numbers, and choices if they are written like one. Columns without a heading and rows
        without a cell are left out.
        """
        delimiter, rows = _texts(name, what)
        if not rows:
            raise ValueError(f"{what}, {str(name)!r}, is empty; it needs a heading with 'value'")
        heading = [_unprotected(column.strip()) for column in rows[0]]
        twice = [column for column, count in Counter(filter(None, heading)).items() if count > 1]
        if twice:
            raise ValueError(f"{what}, {str(name)!r}, has two columns {twice[0]!r}; rename or remove one of them")
        parameters = {column: name for name, column in self.columns(heading).items()}
        table = {}
        for i, row in enumerate(rows[1:], first):
            if not any(row):
                continue
            if len(row) != len(heading):
                raise ValueError(f"row {i} of {what} has {len(row)} cells, its heading {len(heading)}")
            cells = row if delimiter == "," else [DECIMAL_COMMA.sub(r"\1.\2", cell) for cell in row]
            named = [(column, _unprotected(cell)) for column, cell in zip(heading, cells, strict=True) if column]
            table[i] = {column: self.parsed(parameters.get(column), cell) for column, cell in named}
        return table

    def parsed(self, name: str | None, text: str) -> Any:
        """The text of a cell as a value of a parameter, if it is one; an empty one is None."""
        if text == "":
            return None
        parameter = None if name is None else self._parameters[name]
        if isinstance(parameter, CategoricalDistribution):
            # A reader of CSV removes spaces at the beginning of a cell.
            exact = [choice for choice in parameter.choices if str(choice) == text]
            return next(iter(exact or [each for each in parameter.choices if str(each).lstrip(" ") == text]), text)
        for kind in (int, float):
            try:
                return kind(text)
            except ValueError:
                continue
        return text

    def columns(self, columns: Collection[str]) -> dict[str, str]:
        """The column of each parameter that has one: ``params_NAME`` as in Optuna's tables, or else NAME."""
        found, names = {}, self._parameters
        for name in names:
            marked = f"{self.MARK}{name}"
            # A parameter may itself be called params_x.
            if marked in columns and (marked not in names or f"{self.MARK}{marked}" in columns):
                found[name] = marked
            elif name in columns:
                found[name] = name
        return found

    def params(self, cells: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters in a row.

        An empty cell is an inactive parameter, or the choice None of one that is always active.
        """
        params = {}
        for name, distribution in self._parameters.items():
            if name in cells and not self.is_empty(cells[name]):
                params[name] = _plain(name, cells[name], distribution)
            elif name in cells and name not in self._conditional and None in getattr(distribution, "choices", ()):
                params[name] = None
        return params

    @staticmethod
    def is_empty(cell: Any) -> bool:
        """Whether a cell is missing: None or NaN."""
        return cell is None or (isinstance(cell, float) and math.isnan(cell))

    @staticmethod
    def is_frame(source: object) -> bool:
        """Whether this is a data frame of pandas or polars."""
        return hasattr(source, "to_dicts") or hasattr(source, "to_dict")

    @staticmethod
    def of_frame(frame: Any) -> list[Any]:
        """The rows of a data frame of polars or pandas, as dicts. Raises a TypeError for a single column."""
        return list(frame.to_dicts() if hasattr(frame, "to_dicts") else frame.to_dict("records"))

    @staticmethod
    def csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
        """A table as CSV with a heading; None and what a row lacks are empty cells."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(map(_protected, columns))
        writer.writerows([_protected(row.get(column)) for column in columns] for row in rows)
        return text.getvalue()


def _plain(name: str, cell: Any, distribution: BaseDistribution) -> Any:
    """A cell as a value of its parameter. Tables keep integers as 3.0 in a column with missing cells."""
    cell = cell.item() if isinstance(cell, np.generic) else cell
    if isinstance(distribution, CategoricalDistribution):
        return cell
    if isinstance(cell, str | bytes | bool):
        raise ValueError(f"{name} must be a number, not {cell!r}")
    if isinstance(distribution, IntDistribution) and isinstance(cell, float) and cell.is_integer():
        return int(cell)
    return cell


def _texts(name: str | Path, what: str) -> tuple[str, list[list[str]]]:
    """The delimiter of a file and its cells as texts, the heading first."""
    if "://" in str(name):
        raise ValueError(f"{what} must be a CSV file, not the URL of a storage; {LOAD}")
    try:
        content = codec.read_at_most(name, MOST_BYTES)
    except (OSError, ValueError) as error:
        raise ValueError(f"{what} cannot be read: {error}") from None
    if content.startswith(ZIPPED):
        return "\t", _sheet(content, f"{what}, {str(name)!r},")
    if b"\0" in content:
        raise ValueError(f"{what}, {str(name)!r}, is not a text file; save it as CSV with UTF-8, or {LOAD}")
    try:
        # Spreadsheet programs may write a byte order mark first.
        file = io.StringIO(content.decode("utf-8-sig"), newline="")
        delimiter = max(",;\t", key=file.readline().count)
        file.seek(0)
        return delimiter, list(csv.reader(file, delimiter=delimiter, skipinitialspace=True))
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{what}, {str(name)!r}, is not UTF-8 (byte {error.start}); save it as CSV with UTF-8"
        ) from None
    except csv.Error as error:
        raise ValueError(f"{what}, {str(name)!r}, is not a CSV file: {error}; {LOAD}") from None


def _sheet(content: bytes, what: str) -> list[list[str]]:
    """The cells of the first sheet of an .xlsx file as texts. Formulas have the values that were saved with them."""
    try:
        import openpyxl
    except ImportError:
        raise ValueError(f"{what} is a spreadsheet: save it as CSV, or pip install openpyxl to read it") from None
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as parts, warnings.catch_warnings(action="ignore"):
            if sum(part.file_size for part in parts.infolist()) > MOST_UNZIPPED:
                raise ValueError("it is too large")
            sheet = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True).worksheets[0]
            rows = [
                ["" if cell is None else str(cell) for cell in row]
                for row in itertools.islice(sheet.iter_rows(values_only=True), MOST_ROWS)
            ]
    except Exception as error:  # what a damaged file raises depends on where it is damaged
        raise ValueError(f"{what} is not a spreadsheet that can be read ({error}); save it as CSV") from None
    width = max((i for i, cell in enumerate(rows[0], 1) if cell), default=0) if rows else 0
    return [[*row[:width], *[""] * (width - len(row))] for row in rows]


def _unprotected(text: str) -> str:
    """A cell without the apostrophe that `Cells.csv` has put before it."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text


def _protected(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula. Numbers stay as they are."""
    if cell is None or isinstance(cell, int | float):
        return cell
    text = str(cell)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
