"""Optimisers as files and tables, corrected values, and what notebooks show."""

import csv
import json
import math
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lazybo import Condition, Matern52, Optimizer, Priors, Space, optimize
from lazybo.search import saved
from lazybo.search.acquisition import log_confidence_bound
from tests.damaged import DAMAGE, damaged, places

SPACE: dict[str, Any] = {
    "x": (0.0, 1.0),
    "lr": (1e-5, 1e-1, "log"),
    "n": (1, 9),
    "opt": ["sgd", "adam", None, True],
    "momentum": (0.0, 0.99),
    "constant": [3],
}
CONDITIONS = {"momentum": Condition("opt", ("sgd", None))}


def value_of(params: dict[str, Any]) -> float:
    return float((params["x"] - 0.3) ** 2 + (math.log10(params["lr"]) + 3) ** 2 / 9 + 0.1 * params.get("momentum", 0.5))


def used(n: int = 9, **options: Any) -> Optimizer:
    """An optimiser with values, a failure, pending suggestions, a result that was not asked for, and a repeat."""
    optimizer = Optimizer(Space(SPACE, conditions=CONDITIONS), seed=2**100, **options)
    for i in range(n):
        suggestion = optimizer.ask()
        values = [value_of(suggestion.params)] * len(optimizer.directions)
        value = None if i == 4 else values[0] if len(values) == 1 else values
        constraints = {"memory": suggestion.params["n"] - 7.0} if i % 3 else None
        optimizer.tell(suggestion, value, constraints=constraints)
    optimizer.ask(2)
    return optimizer


def continued(optimizer: Optimizer, steps: int = 3) -> list[Any]:
    for _ in range(steps):
        suggestion = optimizer.ask()
        value = value_of(suggestion.params)
        optimizer.tell(suggestion, value if len(optimizer.directions) == 1 else [value] * len(optimizer.directions))
    return [optimizer.state(), optimizer.ask()]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"direction": "maximize", "lag": 3, "n_startup": 3, "acquisition": "ei", "batch": "maxima"},
        {"direction": ["minimize", "maximize"]},
        {"lag": None, "kernel": "matern52", "noise": 1e-4, "value_transform": "scaled"},
        {"priors": Priors(noise=1e-3)},
        {"cost": "seconds"},
        {"earlier": [[({"x": i / 9, "lr": 1e-3, "n": 2, "opt": "adam"}, (i / 9 - 0.3) ** 2) for i in range(10)]]},
    ],
)
def test_a_loaded_optimiser_continues_to_the_last_bit(options: dict[str, Any], tmp_path: Path) -> None:
    optimizer = used(**options)
    optimizer.save(tmp_path / "saved.json")
    loaded = Optimizer.load(tmp_path / "saved.json")
    assert loaded.state() == optimizer.state()
    assert loaded.pending == optimizer.pending
    assert continued(loaded) == continued(optimizer)


def test_a_kernel_of_ours_is_in_the_file(tmp_path: Path) -> None:
    kernel = Matern52(np.array([0.3, 2.0]))
    optimizer = Optimizer({"a": (0.0, 1.0), "b": (0.0, 1.0)}, kernel=kernel, lag=None, seed=1)
    for _ in range(7):
        optimizer.tell(suggestion := optimizer.ask(), suggestion.params["a"])
    optimizer.save(tmp_path / "saved.json")
    assert Optimizer.load(tmp_path / "saved.json").ask() == optimizer.ask()


def test_functions_must_be_given_again(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"

    def inside(params: dict[str, Any]) -> bool:
        return bool(params["x"] <= 0.5)

    def more(*arguments: Any) -> Any:
        return log_confidence_bound(*arguments)

    optimizer = Optimizer(Space({"x": (0.0, 1.0)}, feasible=inside), acquisition=more, seed=0)
    optimizer.tell(optimizer.ask(), 1.0)
    optimizer.save(path)
    with pytest.raises(ValueError, match=r"feasible=<function .*which no file can hold; give the same one again"):
        Optimizer.load(path, acquisition=more)
    with pytest.raises(ValueError, match=r"Optimizer.load\(path, acquisition=...\)"):
        Optimizer.load(path, feasible=inside)
    assert Optimizer.load(path, feasible=inside, acquisition=more).ask() == optimizer.ask()
    Optimizer({"x": (0.0, 1.0)}).save(path)
    with pytest.raises(ValueError, match="feasible cannot be given here; leave it out"):
        Optimizer.load(path, feasible=inside)


@pytest.mark.filterwarnings("ignore:Choices for a categorical")
def test_choices_may_be_tuples_but_not_objects(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    optimizer = Optimizer({"layers": [(64,), (64, (32, "x")), [1, 2]], "x": (0.0, 1.0)}, seed=0)
    for i in range(6):
        optimizer.tell(optimizer.ask(), float(i))
    optimizer.save(path)
    loaded = Optimizer.load(path)
    assert loaded.space.distributions == optimizer.space.distributions
    assert loaded.best == optimizer.best
    path.unlink()
    with pytest.raises(ValueError, match=r"the choice <object .* of 'c' cannot be saved"):
        Optimizer({"c": [object(), 1]}).save(path)
    assert not path.exists()


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Optimizer.load(tmp_path / "none.json")
    with pytest.raises(FileNotFoundError):
        used(1).save(tmp_path / "none" / "saved.json")


@settings(max_examples=30)
@given(st.dictionaries(st.text(), st.text() | st.integers() | st.booleans() | st.none(), max_size=3))
def test_no_text_in_place_of_a_file_raises_anything_but_a_value_error(written: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        for content in (written, {"format": saved.FORMAT, "version": 1, **written}):
            (Path(folder) / "f.json").write_text(json.dumps(content))
            with pytest.raises(ValueError, match=r"f\.json' cannot be read: "):
                Optimizer.load(Path(folder) / "f.json")


def full(kind: str) -> Optimizer:
    """A small optimiser whose file has everything that a file may have."""
    options: dict[str, Any] = {"regions": {"local_after": 8}, "several": {"direction": ["minimize", "maximize"]}}.get(
        kind,
        {
            "cost": "seconds",
            "priors": Priors(noise=1e-3),
            "earlier": [[({"x": i / 9, "n": 2, "c": "a"}, (i / 9 - 0.3) ** 2) for i in range(10)]],
        },
    )
    conditions = {"n": Condition("c", ("a",))}
    optimizer = Optimizer(
        Space({"x": (0.0, 1.0), "n": (1, 9), "c": ["a", "b"]}, conditions=conditions), seed=0, **options
    )
    for i in range(11):
        suggestion = optimizer.ask()
        values = [suggestion.params["x"] ** 2, float(i)][: len(optimizer.directions)]
        told = None if i == 3 else values if len(values) > 1 else values[0]
        constraints = None if kind == "regions" else {"m": suggestion.params["x"] - 0.5}
        optimizer.tell(suggestion, told, constraints=constraints, seconds=1.0 + i)
    optimizer.forecast(optimizer.ask(), 1.0, 0.1)
    optimizer.ask()
    return optimizer


@cache
def text_of(kind: str) -> str:
    with TemporaryDirectory() as folder:
        full(kind).save(Path(folder) / "saved.json")
        return (Path(folder) / "saved.json").read_text()


def all_places() -> st.SearchStrategy[tuple[str, Any]]:
    kinds = ["all", "several", "regions"]
    return st.sampled_from([(kind, path) for kind in kinds for path in places(json.loads(text_of(kind)))])


@pytest.mark.filterwarnings("ignore:The distribution is specified by", "ignore:Choices for a categorical")
@settings(max_examples=80)
@given(where=st.deferred(all_places), damage=st.sampled_from(DAMAGE))
@example(where=("all", ("state", "model", "warped_at")), damage=10**400)
@example(where=("all", ("state", "model", "cost", "warping", 0)), damage=10**39)
@example(where=("all", ("state", "model", "constraints", "m", "warping", 3)), damage=1e39)
@example(where=("all", ("state", "model", "cost", "parameters", 3)), damage=1e308)
@example(where=("all", ("space", "x", "attributes", "step")), damage=True)
@example(where=("all", ("state", "rows", 0, "params", "x")), damage=1e308)
def test_a_file_that_was_edited_works_or_is_one_error_that_names_it(where: tuple[str, Any], damage: Any) -> None:
    kind, path = where
    with TemporaryDirectory() as folder:
        file = Path(folder) / "edited.json"
        file.write_text(damaged(text_of(kind), path, damage))
        loaded, complaint = None, ""
        try:
            loaded = Optimizer.load(file)
        except ValueError as error:
            complaint = str(error)
    if loaded is None:
        assert re.search("edited.json' cannot be read: .*; ", complaint), "which file, why, and what to do"
    else:
        loaded.ask()


# ------------------------------------------------------------------- corrections


def test_a_corrected_value_leaves_no_trace_in_the_model() -> None:
    wrong, right = (Optimizer({"x": (0.0, 1.0), "y": (0.0, 1.0)}, seed=4) for _ in range(2))
    for i in range(15):
        params = {"x": (i * 0.37) % 1, "y": (i * 0.61) % 1}
        value = (params["x"] - 0.4) ** 2 + params["y"]
        wrong.observe(params, 700.0 if i == 6 else value, variance=0.01)
        right.observe(params, value, variance=0.01)
    wrong.predict({"x": 0.5, "y": 0.5})
    wrong.planner.propose(3)  # the kernel is learned from the wrong value
    wrong.correct({"x": (6 * 0.37) % 1, "y": (6 * 0.61) % 1}, ((6 * 0.37) % 1 - 0.4) ** 2 + (6 * 0.61) % 1)
    assert wrong.ask() == right.ask()
    assert wrong.state() == right.state()


def test_what_is_not_given_stays() -> None:
    optimizer = Optimizer({"x": (0.0, 1.0)}, direction="maximize", cost="price", seed=0)
    suggestion = optimizer.ask()
    with pytest.raises(ValueError, match="no suggestion with the number 0 was told; tell"):
        optimizer.correct(suggestion, 1.0)
    optimizer.tell(suggestion, 1.0, constraints={"a": -1.0, "b": 2.0}, variance=0.5, cost=3.0)
    with pytest.raises(ValueError, match=r"number 0 was told already; use correct\(\) to change it"):
        optimizer.tell(suggestion, 2.0)
    optimizer.correct(suggestion, 2.0, constraints={"b": -2.0})
    (row,) = optimizer.records()
    assert (row["value"], row["constraints_a"], row["constraints_b"]) == (2.0, -1.0, -2.0)
    assert (row["variance"], row["cost"], optimizer.best.value) == (0.5, 3.0, 2.0)
    optimizer.correct(0, None)
    assert optimizer.records()[0]["state"] == "FAIL"
    assert optimizer.planner.records.n_complete == 0
    optimizer.correct(suggestion.params, 4.0, variance=0.0, cost=1.0)
    assert optimizer.best.value == 4.0


def test_a_wrong_correction_changes_nothing() -> None:
    optimizer = used()
    before = optimizer.state()
    repeated = {**optimizer.best.params}
    optimizer.observe(repeated, 1.0)
    after = optimizer.state()
    for which, value, message in (
        (99, 1.0, "no suggestion with the number 99"),
        (True, 1.0, "no suggestion with the number True"),
        ({"x": 0.5}, 1.0, "'lr' is missing"),
        (repeated, 1.0, "has 2 results: give the number"),
        (0, "high", "must be a number"),
        (optimizer.pending[0], 1.0, "was told; tell"),
    ):
        with pytest.raises(ValueError, match=message):
            optimizer.correct(which, value)  # type: ignore[arg-type]
    assert optimizer.state() == after != before


# ------------------------------------------------------------------------ tables


def test_the_table_has_the_columns_of_export_and_can_be_read_back(tmp_path: Path) -> None:
    optimizer = used(9)
    records = optimizer.records()
    assert [row["state"] for row in records].count("RUNNING") == 2
    frame = optimizer.records().to_dataframe()
    assert list(frame.columns) == list(records[0])
    assert frame["value"].notna().sum() == optimizer.planner.records.n_complete
    assert (
        frame["value"].min() == optimizer.best.value
        or optimizer.planner.n_feasible < optimizer.planner.records.n_complete
    )
    optimizer.records().to_csv(tmp_path / "all.csv")
    with (tmp_path / "all.csv").open(newline="") as file:
        assert [row["number"] for row in csv.DictReader(file)] == [str(i) for i in range(11)]
    space = {name: SPACE[name] for name in ("x", "n")}
    small = Optimizer(space, seed=0)
    for i in range(4):
        small.tell(small.ask(), float(i))
    small.records().to_csv(tmp_path / "small.csv")
    study = optimize(lambda x, n: x + n, space, n_trials=1, warm_start=tmp_path / "small.csv", progress=False)
    assert len(study.trials) == 1


def test_several_objectives_have_a_column_each() -> None:
    optimizer = used(direction=["minimize", "maximize"])
    first = optimizer.records()[0]
    assert (
        first["values_0"]
        == first["values_1"]
        == value_of({k[7:]: v for k, v in first.items() if k[:7] == "params_" and v is not None})
    )


def test_an_empty_optimiser_has_an_empty_table(tmp_path: Path) -> None:
    optimizer = Optimizer({"x": (0.0, 1.0)})
    assert optimizer.records() == []
    assert optimizer.records().to_dataframe().empty
    optimizer.records().to_csv(tmp_path / "none.csv")
    assert (tmp_path / "none.csv").read_text().splitlines() == ["number,value,state"]


# --------------------------------------------------------------------- notebooks


def test_what_a_notebook_shows_is_escaped() -> None:
    evil = "<script>alert(1)</script>\x1b[31m"
    optimizer = Optimizer({evil: (0.0, 1.0), "c": [evil, "&amp;"]}, seed=0)
    assert repr(optimizer) == "<Optimizer of 2 parameters: minimize, 0 values>"
    for i in range(12):
        optimizer.tell(optimizer.ask(), float(i), constraints={evil: -1.0})
    suggestion = optimizer.ask()
    assert repr(optimizer) == "<Optimizer of 2 parameters: minimize, 12 values, 1 pending, best 0>"
    shown: list[Any] = [
        optimizer,
        suggestion,
        optimizer.best,
        optimizer.recommend(),
        optimizer.predict(suggestion.params),
    ]
    for each in shown:
        html = each._repr_html_()
        assert "<script" not in html
        assert "\x1b" not in html
        assert not re.findall(r"<(?!/?(?:div|p|b|table|thead|tbody|tr|th|td)>)", html), "only our own tags"
    assert "3 earlier observations are not shown" in optimizer._repr_html_()
    assert "&amp;amp;" in "".join(each._repr_html_() for each in (optimizer, suggestion))
