"""Tables as files: what is written is read back, runs in no spreadsheet, and has a limited size."""

import csv
import io
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution

from lazybo import Optimizer
from lazybo.space import Cells

FORMULAS = ["=1+1", "+x", "-x", "@SUM(A1)", "\t=1", "\r=1", "'=1", "''-x", '=cmd|"/c calc"!A1', "-2+3"]
TEXTS = st.sampled_from([*FORMULAS, "'a", "plain", " spaced", "it's", "a,b;c"]) | st.text(
    st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1
)


def is_run(cell: str) -> bool:
    """Whether a spreadsheet may run a cell."""
    try:
        float(cell)
    except ValueError:
        return cell.startswith(("=", "+", "-", "@", "\t", "\r"))
    return False


@given(choices=st.lists(TEXTS, min_size=1, unique_by=lambda text: text.lstrip(" ")))
def test_texts_are_read_back_and_no_spreadsheet_runs_them(choices: list[str], tmp_path_factory: Any) -> None:
    path = tmp_path_factory.mktemp("table") / "t.csv"
    distribution: BaseDistribution = CategoricalDistribution(choices)
    text = Cells.csv(["=name", "value"], [{"=name": choice, "value": -0.5} for choice in choices])
    path.write_bytes(text.encode())
    assert not any(is_run(cell) for row in csv.reader(io.StringIO(text, newline="")) for cell in row)
    known = [choice for choice in choices if choice.strip(" ")]  # a cell of spaces is empty
    rows = list(Cells({"=name": distribution}).read(path, "the table").values())
    assert [row["=name"] for row in rows if row["=name"] is not None] == known
    assert all(row["value"] == -0.5 for row in rows)


def test_numbers_are_written_as_they_are() -> None:
    cells = [-1, -0.5, "-5", "+1e-3", float("-inf"), True, None, "-.5", "-1e5", "2"]
    written = Cells.csv(["x"], [{"x": cell} for cell in cells]).splitlines()[1:]
    assert written == ["-1", "-0.5", "-5", "+1e-3", "-inf", "True", '""', "-.5", "-1e5", "2"]


def test_a_column_is_that_of_the_parameter_with_its_name_unless_one_is_marked() -> None:
    one, two = ({name: FloatDistribution(0, 1) for name in names} for names in (["x"], ["x", "params_x"]))
    assert Cells(one).columns(["number", "x", "value"]) == {"x": "x"}
    assert Cells({"number": one["x"]}).columns(["number", "params_number"]) == {"number": "params_number"}
    assert Cells(two).columns(["x", "params_x"]) == {"x": "x", "params_x": "params_x"}
    marked = {"x": "params_x", "params_x": "params_params_x"}
    assert Cells(two).columns(list(marked.values())) == marked


def test_columns_without_a_heading_are_left_out_and_two_of_the_same_name_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(",x,value,,\n0,1,2,,\n")
    assert list(Cells({}).read(path, "the table").values()) == [{"x": 1, "value": 2}]
    path.write_text("x,value,x\n0,1,2\n")
    with pytest.raises(ValueError, match="has two columns 'x'; rename or remove one of them"):
        Cells({}).read(path, "the table")


def test_what_is_too_large_or_a_device_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "large.csv"
    with path.open("wb") as file:
        file.truncate(2**26 + 1)
    with pytest.raises(ValueError, match=r"large.csv' has more than 64 MB; give a smaller file"):
        Cells({}).read(path, "the table")
    with pytest.raises(ValueError, match="'/dev/zero' is a device; give a file or a pipe"):
        Cells({}).read("/dev/zero", "the table")


def test_a_pipe_can_be_read(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("x;value\n0,5;2\n",))
    writer.start()
    assert list(Cells({}).read(pipe, "the table").values()) == [{"x": 0.5, "value": 2}]
    writer.join()


def test_the_table_of_an_optimiser_runs_nothing_and_is_read_back(tmp_path: Path) -> None:
    space: dict[str, BaseDistribution] = {
        "=kind": CategoricalDistribution(FORMULAS[:6]),
        "value": FloatDistribution(-1, 1),
        "number": FloatDistribution(-1, 1),
    }
    optimizer = Optimizer(space, seed=0)
    for _ in range(6):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, suggestion.params["value"])
    optimizer.records().to_csv(tmp_path / "t.csv")
    rows = list(Cells(space).read(tmp_path / "t.csv", "the table").values())
    written = (tmp_path / "t.csv").read_bytes().decode()
    assert not any(is_run(cell) for row in csv.reader(io.StringIO(written, newline="")) for cell in row)
    assert [{name: row[f"params_{name}"] for name in space} for row in rows] == [
        {name: row[f"params_{name}"] for name in space} for row in optimizer.records()
    ]
