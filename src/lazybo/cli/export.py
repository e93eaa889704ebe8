"""Trials as a table: CSV, JSON or Parquet, with the column names of Optuna's ``trials_dataframe()``."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from optuna.study import Study
from optuna.trial import TrialState

from lazybo.cli import console
from lazybo.space.tables import csv_text
from lazybo.study import ledger
from lazybo.study.attributes import REPEAT_KEY
from lazybo.study.feasible import constraints_of, feasible_trials, measured_constraints, names_of

Row = dict[str, Any]


def rows_of(study: Study) -> list[Row]:
    """One row for each trial, all with the same columns; None where a trial has no such entry.

    If the study had a final check, ``repeat_of`` is the first trial with the configuration that a trial repeats.
    """
    rows: list[Row] = []
    trials = ledger.read(study)
    names = names_of(study)
    values = ["value"] if len(names) == 1 else [f"values_{name}" for name in study.metric_names or range(len(names))]
    counted = {trial.number for trial in feasible_trials(trials)}
    constrained = bool(constraints_of(trials))
    for trial in trials:
        start, end = trial.datetime_start, trial.datetime_complete
        row: Row = {
            "number": trial.number,
            **dict(zip(values, trial.values or [None] * len(values), strict=True)),
            "datetime_start": start.isoformat() if start else None,
            "datetime_complete": end.isoformat() if end else None,
            "duration": (end - start).total_seconds() if start and end else None,
        }
        row |= {f"params_{name}": value for name, value in trial.params.items()}
        row |= {f"user_attrs_{name}": value for name, value in trial.user_attrs.items() if name != "traceback"}
        row |= {f"constraints_{name}": value for name, value in measured_constraints(trial).items()}
        if constrained:
            row["feasible"] = trial.number in counted if trial.state == TrialState.COMPLETE else None
        if REPEAT_KEY in trial.system_attrs:
            row["repeat_of"] = trial.system_attrs[REPEAT_KEY]
        rows.append(row | {"state": trial.state.name, "reason": trial.system_attrs.get("fail_reason")})
    found: list[str] = []
    for prefix in ("params_", "user_attrs_", "constraints_"):
        found += sorted({name for row in rows for name in row if name.startswith(prefix)})
    found += ["feasible"] if constrained else []
    columns = ["number", *values, "datetime_start", "datetime_complete", "duration", *found, "state", "reason"]
    columns += ["repeat_of"] if any("repeat_of" in row for row in rows) else []
    return [{column: row.get(column) for column in columns} for row in rows]


def as_csv(rows: list[Row]) -> bytes:
    """CSV with a header; None is an empty cell."""
    columns = list(rows[0]) if rows else ["number", "value", "state"]
    return csv_text(columns, rows).encode(errors="backslashreplace")


def as_json(rows: list[Row]) -> bytes:
    """A list of objects."""
    return (console.as_json(rows, 1) + "\n").encode()


def as_parquet(rows: list[Row]) -> bytes:
    """A Parquet file; a column of several types becomes text."""
    console.needs("pyarrow", "export")
    import pyarrow
    import pyarrow.parquet

    columns = {}
    for name in rows[0] if rows else ():
        cells = [row[name] for row in rows]
        kinds = {type(cell) for cell in cells if cell is not None} - ({int} if float in map(type, cells) else set())
        plain = kinds <= {str} or kinds <= {bool} or kinds <= {int} or kinds <= {float}
        columns[name] = cells if plain and kinds != {str} else [None if cell is None else _text(cell) for cell in cells]
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def _text(cell: object) -> str:
    """A cell as text. Lone surrogates, which JSON allows and UTF-8 files do not, become escapes."""
    return str(cell).encode(errors="backslashreplace").decode()


FORMATS: dict[str, Callable[[list[Row]], bytes]] = {"csv": as_csv, "json": as_json, "parquet": as_parquet}


def format_of(path: Path | None, given: str | None) -> str:
    """The format that was given, or the one of the file's suffix."""
    name = given or (path.suffix.removeprefix(".").lower() if path else "csv")
    if name not in FORMATS:
        raise ValueError(f"the format must be one of {', '.join(FORMATS)}, not {name!r}; choose it with --format")
    return name
