"""Known results in all formats that users have."""

from pathlib import Path
from typing import Any

import optuna
import pandas as pd
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

from lazybo import Condition, Space
from lazybo.run.arguments import known_results

SPACE = Space(
    {
        "lr": FloatDistribution(1e-4, 1.0, log=True),
        "n": IntDistribution(1, 9),
        "kind": CategoricalDistribution(["a", "b", None]),
    },
    conditions={"n": Condition("kind", ("a",))},
)
RESULTS = [({"lr": 0.01, "n": 3, "kind": "a"}, 0.5), ({"lr": 0.1, "kind": "b"}, 0.7), ({"lr": 0.2, "kind": "b"}, None)]


class Frame:
    """A data frame as far as it matters: missing cells are NaN."""

    def to_dict(self, _: str) -> list[dict[str, Any]]:
        nan = float("nan")
        return [{"lr": p["lr"], "n": p.get("n", nan), "kind": p["kind"], "value": v or nan} for p, v in RESULTS]


def study() -> optuna.Study:
    made = optuna.create_study()
    for params, value in RESULTS:
        trial = optuna.trial.create_trial(
            params=params,
            distributions={name: SPACE.distributions[name] for name in params},
            value=value,
            state=optuna.trial.TrialState.COMPLETE if value else optuna.trial.TrialState.FAIL,
        )
        made.add_trial(trial)
    return made


def test_pairs_rows_frames_studies_and_files_say_the_same(tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text("lr,n,kind,value,other\n0.01,3,a,0.5,x\n0.1,,b,0.7,y\n0.2,,b,,z\n")
    rows = [{**params, "value": value} for params, value in RESULTS]
    prefixed = [{**{f"params_{k}": v for k, v in params.items()}, "value": value} for params, value in RESULTS]
    sources = [RESULTS, rows, prefixed, Frame(), study(), tmp_path / "r.csv", str(tmp_path / "r.csv"), [study()]]
    for source in sources:
        assert known_results(source, SPACE, "minimize") == RESULTS
    assert known_results([study(), Frame()], SPACE, "minimize") == RESULTS * 2
    assert known_results(None, SPACE, "minimize") == []


def test_tables_of_optuna_say_what_the_study_says(tmp_path: Path) -> None:
    made = study()
    plain = SPACE.distributions
    for state, params in [("PRUNED", {"lr": 0.3, "kind": "b"}), ("COMPLETE", {"lr": 0.4, "kind": None}), ("FAIL", {})]:
        made.add_trial(
            optuna.trial.create_trial(
                state=optuna.trial.TrialState[state],
                params=params,
                distributions={name: plain[name] for name in params},
                value=0.9 if state == "COMPLETE" else None,
            )
        )
    made.ask()  # runs
    frame = made.trials_dataframe()
    frame.to_csv(tmp_path / "r.csv")
    expected = [*RESULTS, ({"lr": 0.4, "kind": None}, 0.9)]
    for source in (made, frame, tmp_path / "r.csv"):
        found = known_results(source, SPACE, "minimize")
        assert found == expected
        assert all(type(params.get("n", 0)) is int for params, _ in found)


@pytest.mark.parametrize("text", ["lr;n;kind;value\n0.01;3.0;a;0.5\n\n", "\ufefflr,n, kind, value\n0.01, 3, a, 0.5\n"])
def test_files_of_spreadsheets_are_understood(text: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_text(text)
    assert known_results(tmp_path / "r.csv", SPACE, "minimize") == RESULTS[:1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"SQLite format 3\0\xfb\xff", "is not a text file.*open a study with optuna.load_study"),
        (b"lr,n,kind,value\n0.1,3,a\n", "row 0 .* has 3 cells, its heading 4"),
    ],
)
def test_files_that_are_no_tables_are_refused(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "r.csv").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        known_results(tmp_path / "r.csv", SPACE, "minimize")


def test_numbers_may_lie_outside_the_range() -> None:
    assert known_results([({"lr": 5.0, "kind": "b"}, 1.0)], SPACE, "minimize")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ([{"lr": 0.1, "kind": "b"}], "row 0.*no 'value'"),
        ([({"lr": 0.1}, 1.0)], "row 0.*'kind' is missing"),
        (
            [({"lr": 0.1, "kind": "b"}, 1.0), ({"lr": 0.1, "kind": "zz"}, 1.0)],
            "row 1.*kind must be one of .*, not 'zz'",
        ),
        ([({"lr": 0.1, "kind": "b"}, "good")], "row 0.*the value must be a number, not 'good'"),
        ([({"lr": 0.1, "kind": "b"}, 10**400)], "row 0"),
        ([({"lr": "0.1", "kind": "b"}, 1.0)], "row 0.*lr must be a number, not '0.1'"),
        ([{"LR": 0.1, "kind": "b", "value": 1.0}], r"row 0.*there is no 'lr', only \['LR', 'kind', 'value'\]"),
        ([(1, 2, 3)], "row 0.*a dict with the parameters and 'value', or a pair"),
        ("sqlite:///study.db", "must be a CSV file, not the URL of a storage; open a study with"),
        ("no-such-file.csv", "cannot be read"),
    ],
)
def test_rows_that_do_not_fit_are_named(source: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        known_results(source, SPACE, "minimize")


@pytest.mark.parametrize("source", [3, {"lr": 1}, b"r.csv", pd.Series([1, 2])])
def test_what_is_no_source_is_refused(source: Any) -> None:
    with pytest.raises(TypeError, match="warm_start"):
        known_results(source, SPACE, "minimize")


def test_a_study_with_another_direction_or_no_fitting_trial_is_refused() -> None:
    with pytest.raises(ValueError, match="says 'minimize', this run 'maximize'"):
        known_results(study(), SPACE, "maximize")
    with pytest.raises(ValueError, match="2 objectives"):
        known_results(optuna.create_study(directions=["minimize"] * 2), SPACE, "minimize")
    with pytest.raises(ValueError, match="no trial"):
        known_results(study(), Space({"q": FloatDistribution(0, 1)}), "minimize")


def test_parameters_may_have_the_names_of_other_columns(tmp_path: Path) -> None:
    space = Space({name: FloatDistribution(0, 9) for name in ("value", "number", "state")})
    known = [({"value": 1.0, "number": 2.0, "state": 3.0}, 4.0)]
    (tmp_path / "r.csv").write_text("number,value,params_value,params_number,params_state,state\n0,4,1,2,3,COMPLETE\n")
    assert known_results(tmp_path / "r.csv", space, "minimize") == known
    (tmp_path / "r.csv").write_text("value,params_value,number,state\n4,1,2,3\n")
    assert known_results(tmp_path / "r.csv", space, "minimize") == known
    (tmp_path / "r.csv").write_text("number,value,params_value,params_number,params_state,state\n0,4,1,2,3,PRUNED\n")
    assert known_results(tmp_path / "r.csv", space, "minimize") == []
    (tmp_path / "r.csv").write_text("value,number,state\n1,2,3\n")
    with pytest.raises(
        ValueError, match="the column 'value' is the result; call the parameter's column 'params_value'"
    ):
        known_results(tmp_path / "r.csv", space, "minimize")
