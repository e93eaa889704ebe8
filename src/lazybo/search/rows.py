"""Observations as a table: rows of plain data, a data frame, CSV. The columns are those of `lazybo export`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lazybo.core.codec import write_whole
from lazybo.search.observations import Observation
from lazybo.search.results import State
from lazybo.space.tables import csv_text

# Optuna's names of the states of trials.
STATES = {State.COMPLETE: "COMPLETE", State.FAILED: "FAIL", State.PENDING: "RUNNING", State.STOPPED: "PRUNED"}


def rows_of(observations: Sequence[Observation], signs: Sequence[float], cost: str | None) -> list[dict[str, Any]]:
    """One row for each observation, all with the same columns; None where an observation has no such entry."""
    values = ["value"] if len(signs) == 1 else [f"values_{i}" for i in range(len(signs))]
    params = dict.fromkeys(f"params_{name}" for each in observations for name in each.params)
    measured = sorted({name for each in observations for name in each.result.constraints})
    known = any(any(each.result.variances) for each in observations if each.result.state is State.COMPLETE)
    variances = [name.replace("value", "variance", 1) for name in values] if known else []
    costs = ["cost" if cost != "seconds" else "seconds"] if cost is not None else []
    columns = ["number", *values, *params, *(f"constraints_{name}" for name in measured), *variances, *costs, "state"]
    return [
        {column: row.get(column) for column in columns}
        for row in (_row(each, signs, values, variances, costs) for each in observations)
    ]


def _row(
    each: Observation, signs: Sequence[float], values: Sequence[str], variances: Sequence[str], costs: Sequence[str]
) -> dict[str, Any]:
    result = each.result
    row: dict[str, Any] = {"number": each.number, "state": STATES[result.state]}
    if result.state is State.COMPLETE:
        row |= {name: sign * value for name, sign, value in zip(values, signs, result.values, strict=True)}
        row |= dict(zip(variances, result.variances, strict=False))
    row |= {f"params_{name}": value for name, value in each.params.items()}
    row |= {f"constraints_{name}": value for name, value in result.constraints.items()}
    return row | dict.fromkeys(costs, result.cost)


def to_frame(rows: Sequence[dict[str, Any]]) -> Any:
    """A pandas data frame of the rows."""
    try:
        import pandas
    except ImportError:
        raise ImportError("a data frame needs pandas, which is not installed: pip install pandas") from None
    return pandas.DataFrame.from_records(rows)


def write_csv(rows: Sequence[dict[str, Any]], path: str | Path) -> None:
    """A CSV file with a header; None is an empty cell."""
    columns = list(rows[0]) if rows else ["number", "value", "state"]
    write_whole(path, csv_text(columns, rows).encode(errors="backslashreplace"))
