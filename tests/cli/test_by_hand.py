"""lazybo ask and lazybo tell: experiments that people make."""

import csv
import io
import json
import re
import shlex
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import openpyxl
import optuna
import pytest
from typer.testing import CliRunner, Result

from lazybo.cli.app import app

SPACE = ("--float", "t=0:10", "--choice", "flour=rye,wheat", "--seed", "3")


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def done(*arguments: str) -> str:
    result = call(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def refused(*arguments: str) -> str:
    """The one line with which a call is refused; the study is as it was before."""
    before = exported() if Path("lab.db").exists() else None
    result = call(*arguments)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    assert (exported() if Path("lab.db").exists() else None) == before, "nothing was changed"
    (line,) = result.stderr.splitlines()
    return line.removeprefix("lazybo: ")


def asked(*arguments: str) -> list[dict[str, Any]]:
    found = json.loads(done("ask", "lab.db", *arguments, "--json"))
    assert isinstance(found, list)
    return found


def tell_all(storage: str, values: Iterable[object]) -> None:
    """Tell the values of the first trials in one call."""
    Path("all.csv").write_text("\n".join(["number,value", *(f"{i},{value}" for i, value in enumerate(values))]))
    done("tell", storage, "--table", "all.csv")


def exported() -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(done("export", "lab.db"))))


@pytest.fixture(scope="module")
def asked_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with one experiment that waits for its value."""
    path = tmp_path_factory.mktemp("lab") / "lab.db"
    done("ask", str(path), *SPACE)
    return path


def test_from_the_first_question_to_the_best_answer() -> None:
    first = asked(*SPACE, "--maximize", "-n", "6")
    assert [each["number"] for each in first] == list(range(6))
    for _ in range(5):
        for each in json.loads(done("ask", "lab.db", "--pending", "--json")):
            value = -((each["params"]["t"] - 7.0) ** 2) - (each["params"]["flour"] == "rye")
            assert f"trial {each['number']} told" in done("tell", "lab.db", str(each["number"]), str(value))
        asked()
    best = json.loads(done("best", "lab.db", "--json"))
    assert best["params"]["flour"] == "wheat"
    assert best["params"]["t"] == pytest.approx(7.0, abs=0.3)


def test_asking_one_by_one_in_new_processes_continues_as_a_run_does() -> None:
    """The model that each call opens anew suggests what a run that never stopped would evaluate."""
    from lazybo import optimize

    def objective(params: dict[str, Any]) -> float:
        return float((params["t"] - 3.0) ** 2 + (params["flour"] == "rye"))

    space = {"t": optuna.distributions.FloatDistribution(0, 10), "flour": ["rye", "wheat"]}
    run = optimize(objective, space, n_trials=9, seed=3, progress=False)
    flags = SPACE
    for trial in run.trials:
        (mine,) = asked(*flags)
        assert mine == {"number": trial.number, "params": trial.params}
        done("tell", "lab.db", str(trial.number), repr(trial.value))
        flags = ()


def test_the_table_of_a_question_is_filled_in_and_told() -> None:
    text = done("ask", "lab.db", *SPACE, "-n", "3", "--constraint", "salt<=2", "--csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == ["number", "t", "flour", "value", "salt"]
    rows[0] |= {"value": "0.5", "salt": "1"}
    rows[1] |= {"value": "failed"}
    # A spreadsheet rounds what it shows, writes semicolons and decimal commas, and somebody adds a row.
    rows[0]["t"] = f"{float(rows[0]['t']):.2f}"
    rows.append({"number": "", "t": "4.5", "flour": "rye", "value": "0.25", "salt": "3"})
    lines = [";".join(row.values()).replace(".", ",") for row in rows]
    Path("plan.csv").write_text("\n".join(["number;t;flour;value;salt", *lines]), encoding="utf-8-sig")
    said = done("tell", "lab.db", "--table", "plan.csv")
    assert said == "2 told, 1 without a value (row 4), 1 added; best 0.5 (trial 0); pending: 2\n"
    assert done("tell", "lab.db", "--table", "plan.csv").startswith("3 unchanged, 1 without a value (row 4);")
    found = exported()
    assert [row["state"] for row in found] == ["COMPLETE", "FAIL", "RUNNING", "COMPLETE"]
    assert [row["constraints_salt<=2"] for row in found] == ["-1.0", "", "", "1.0"]
    assert float(found[0]["params_t"]) != float(rows[0]["t"]), "what was asked is kept with all digits"


def test_what_was_exported_can_be_told_again_with_corrections() -> None:
    asked(*SPACE, "-n", "2")
    done("tell", "lab.db", "0", "0.5", "salt=1")
    done("tell", "lab.db", "1", "0.25")
    done("export", "lab.db", "-o", "all.csv")
    assert done("tell", "lab.db", "--table", "all.csv").startswith("2 unchanged;")
    Path("all.csv").write_text(Path("all.csv").read_text().replace("0.25", "0.75"))
    assert refused("tell", "lab.db", "--table", "all.csv") == (
        "row 3 of all.csv: trial 1 was told already as [0.25]; give --correct to change it"
    )
    assert done("tell", "lab.db", "--table", "all.csv", "--correct").startswith("1 unchanged, 1 corrected;")
    assert [float(row["value"]) for row in exported()] == [0.5, 0.75]


def test_parameters_may_have_the_names_of_other_columns() -> None:
    names = ("number", "value", "state", "variance", "salt", "params_number")
    flags = [word for name in names for word in ("--float", f"{name}=0:1")]
    text = done("ask", "lab.db", *flags, "--seed", "3", "--constraint", "salt<=2", "-n", "2", "--csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert list(rows[0]) == [
        "number",
        *("params_number", "params_value", "state", "params_variance", "params_salt", "params_params_number"),
        *("value", "salt"),
    ]
    filled = [{**row, "value": f"{i}.5", "salt": "1"} for i, row in enumerate(rows)]
    Path("plan.csv").write_text("\n".join(",".join(row) for row in [rows[0], *(each.values() for each in filled)]))
    assert done("tell", "lab.db", "--table", "plan.csv").startswith("2 told; best 0.5 (trial 0)")
    told = exported()
    assert [row["value"] for row in told] == ["0.5", "1.5"]
    assert [row["params_value"] for row in told] == [row["params_value"] for row in rows]
    assert [row["user_attrs_salt"] for row in told] == ["1", "1"]
    done("export", "lab.db", "-o", "all.csv")
    assert done("tell", "lab.db", "--table", "all.csv").startswith("2 unchanged;")
    # What people write by hand has no number of a trial.
    line = "number,params_value,state,params_variance,params_salt,params_params_number,value,salt"
    Path("mine.csv").write_text(f"{line}\n0.1,0.2,0.3,0.4,0.5,0.6,7,1\n")
    assert done("tell", "lab.db", "--table", "mine.csv").startswith("trial 2 added;")
    assert exported()[2]["params_number"] == "0.1"
    Path("mine.csv").write_text("number,value,state,params_variance,params_salt,params_params_number\n1,1,1,1,1,1\n")
    assert refused("tell", "lab.db", "--table", "mine.csv") == (
        "row 2 of mine.csv: the column 'value' is a result; call the column of the parameter 'value' 'params_value'"
    )


def test_a_spreadsheet_runs_nothing_of_a_table_and_it_is_read_back() -> None:
    formulas = ["=1+1", "@SUM(A1)", "-x", "'=y", " spaced"]
    text = done("ask", "lab.db", "--choice", f"@kind={','.join(formulas)}", "--float", "-t=0:1", "-n", "8", "--csv")
    table = list(csv.reader(io.StringIO(text)))
    assert table[0] == ["number", "'-t", "'@kind", "value"]
    assert {row[2] for row in table[1:]} <= {"'=1+1", "'@SUM(A1)", "'-x", "''=y", " spaced"}
    heading, *lines = text.splitlines()
    Path("plan.csv").write_text("\n".join([heading, *(f"{line}0.5" for line in lines)]))
    assert done("tell", "lab.db", "--table", "plan.csv").startswith("8 told;")
    told = json.loads(done("export", "lab.db", "--format", "json"))
    assert {row["params_@kind"] for row in told} <= {*formulas}
    done("export", "lab.db", "-o", "all.csv")
    assert done("tell", "lab.db", "--table", "all.csv").startswith("8 unchanged;")


def test_a_correction_keeps_what_there_was_and_changes_the_model() -> None:
    asked(*SPACE, "-n", "6")
    for number in range(6):
        done("tell", "lab.db", str(number), str((number + 1) / 10), "salt=1", "--variance", "0.01")
    done("tell", "lab.db", "2", "-70", "salt=1.5", "--correct")
    assert json.loads(done("best", "lab.db", "--json"))["number"] == 2
    done("tell", "lab.db", "2", "--failed", "--correct")
    assert "best 0.07 (trial 2)" in done("tell", "lab.db", "2", "0.07", "--correct")
    trial = optuna.load_study(study_name="lazybo", storage="sqlite:///lab.db").trials[2]
    assert (trial.value, trial.user_attrs["salt"]) == (0.07, 1.5)
    assert trial.system_attrs["lazybo:variance"] == 0.01
    assert "fail_reason" not in trial.system_attrs
    history = trial.user_attrs["lazybo:corrections"]
    assert [(each["state"], each["values"]) for each in history] == [
        ("COMPLETE", [0.3]),
        ("COMPLETE", [-70.0]),
        ("FAIL", []),
    ]
    assert history[0]["user_attrs"] == {"salt": 1.0}


def test_after_a_correction_the_next_question_is_that_of_a_study_without_the_mistake() -> None:
    for storage, wrong in (("right.db", ""), ("lab.db", "40")):
        done("ask", storage, *SPACE, "-n", "8")
        tell_all(storage, [(wrong or 0.3) if number == 4 else abs(number - 3) / 10 for number in range(8)])
        if wrong:
            done("tell", storage, "4", "0.3", "--correct")
    assert done("ask", "right.db", "--json") == done("ask", "lab.db", "--json")


def test_a_skipped_experiment_teaches_nothing() -> None:
    done("ask", "lab.db", *SPACE, "-n", "6")
    tell_all("lab.db", range(5))
    done("tell", "lab.db", "5", "--skip")
    assert json.loads(done("ask", "lab.db", "--pending", "--json")) == []
    assert refused("tell", "lab.db", "5", "1") == "trial 5 was told already, as skipped; give --correct to change it"
    from lazybo.study import StudyView

    study = optuna.load_study(study_name="lazybo", storage="sqlite:///lab.db")
    rows = StudyView.of(study).model().optimizer.state()["rows"]
    assert [row["value"] for row in rows] == [0.0, 1.0, 2.0, 3.0, 4.0]


def test_an_experiment_that_nobody_asked_for() -> None:
    asked(*SPACE)
    (pending,) = asked("--pending")
    done("tell", "lab.db", "--param", "t=2.5", "--param", "flour=rye", "0.4", "note=too dark")
    same = [f"{name}={value}" for name, value in pending["params"].items()]
    said = done("tell", "lab.db", "--param", same[0], "--param", same[1], "0.3")
    assert said == "trial 0 told; best 0.3 (trial 0)\n", "it was asked for"
    found = exported()
    assert (found[1]["params_t"], found[1]["value"], found[1]["user_attrs_note"]) == ("2.5", "0.4", "too dark")


def test_a_second_measurement_of_an_experiment_is_kept_beside_the_first() -> None:
    (first,) = asked(*SPACE)
    assert refused("tell", "lab.db", "0", "6.5", "--repeat").startswith("trial 0 has no result")
    done("tell", "lab.db", "0", "6.5")
    refusal = "trial 0 was told already, with the value 6.5; give --correct to change it, or --repeat if it was"
    assert refused("tell", "lab.db", "0", "7.1").startswith(refusal)
    assert "trial 1 added" in done("tell", "lab.db", "0", "7.1", "--repeat")
    study = optuna.load_study(study_name=None, storage="sqlite:///lab.db")
    assert [trial.value for trial in study.trials] == [6.5, 7.1]
    assert all(trial.params == first["params"] for trial in study.trials), "to the last bit"


def test_several_objectives_have_the_order_of_the_flags_and_their_values_names() -> None:
    goals = ("--maximize", "yield", "--minimize", "cost", "--maximize", "purity")
    said = call("ask", "lab.db", *SPACE, "-n", "3", *goals)
    assert "then: lazybo tell lab.db 0 yield=NUMBER cost=NUMBER purity=NUMBER" in said.stderr
    done("tell", "lab.db", "0", "cost=20", "purity=5", "yield=3")
    expected = "the study has 3 objectives, so give each value by its name: yield=NUMBER cost=NUMBER purity=NUMBER"
    assert refused("tell", "lab.db", "1", "70", "15", "9") == expected
    assert refused("tell", "lab.db", "1", "70", "cost=15", "purity=9") == expected
    assert refused("tell", "lab.db", "1", "yield=1").startswith("the value of cost and of purity is missing")
    assert done("ask", "lab.db", "--csv").startswith("number,t,flour,yield,cost,purity\n")
    assert list(exported()[0])[1:4] == ["values_yield", "values_cost", "values_purity"]
    assert json.loads(done("show", "lab.db", "--json"))["objectives"] == ["yield", "cost", "purity"]
    front = json.loads(done("best", "lab.db", "--json"))
    assert [list(each["values"].items()) for each in front] == [[("yield", 3.0), ("cost", 20.0), ("purity", 5.0)]]
    done("report", "lab.db", "-o", "lab.html")
    assert "maximize yield, minimize cost, maximize purity" in Path("lab.html").read_text()


def test_a_file_gives_objectives_their_order() -> None:
    Path("rxn.toml").write_text(
        'storage = "lab.db"\ndirections = {yield = "maximize", cost = "minimize"}\n'
        '[parameters]\nt = {type = "float", low = 0, high = 10}\n'
    )
    assert done("ask", "rxn.toml", "--csv").startswith("number,t,yield,cost\n")


def test_the_objectives_of_an_earlier_study_are_matched_by_name() -> None:
    from lazybo import optimize
    from lazybo.study import StudyView

    earlier = optimize(
        lambda t: {"cost": t, "yield": 50.0},
        {"t": (0.0, 10.0)},
        direction={"cost": "minimize", "yield": "maximize"},
        storage="sqlite:///old.db",
        study_name="old",
        n_trials=6,
        progress=False,
    )
    goals = ("--maximize", "yield", "--minimize", "cost")
    done("ask", "lab.db", "--float", "t=0:10", *goals, "--earlier", "old@old.db")
    study = optuna.load_study(study_name="lazybo", storage="sqlite:///lab.db")
    (read,) = StudyView.of(study).options()[0].earlier
    assert [values[0] for values in read.values] == [-50.0] * 6
    assert [values[1] for values in read.values] == [trial.params["t"] for trial in earlier.trials]


def test_a_correction_of_several_objectives_changes_only_what_is_given() -> None:
    asked(*SPACE, "-n", "2", "--maximize", "yield", "--minimize", "cost")
    done("tell", "lab.db", "0", "yield=70", "cost=15", "note=dark", "--variance", "yield=1", "--variance", "cost=2")
    done("tell", "lab.db", "0", "yield=71", "--correct")
    done("tell", "lab.db", "0", "note=light", "--correct")
    Path("one.csv").write_text("number,cost\n0,16\n")
    done("tell", "lab.db", "--table", "one.csv", "--correct")
    Path("both.csv").write_text("number,yield,cost\n0,,16\n")
    assert done("tell", "lab.db", "--table", "both.csv").startswith("1 unchanged")
    trial = optuna.load_study(study_name=None, storage="sqlite:///lab.db").trials[0]
    assert (trial.values, trial.user_attrs["note"]) == ([71.0, 16.0], "light")
    assert trial.system_attrs["lazybo:variance"] == [1.0, 2.0]
    assert [each["values"] for each in trial.user_attrs["lazybo:corrections"]] == [[70, 15], [71, 15], [71, 15]]
    assert refused("tell", "lab.db", "0", "--correct").startswith("there is no value: give yield=NUMBER cost=NUMBER")
    line = refused("tell", "lab.db", "1", "yield=1", "cost=2", "--variance", "1")
    assert line == "give --variance yield=NUMBER --variance cost=NUMBER, not 1"


def test_what_a_failed_experiment_has_measured_is_kept() -> None:
    asked(*SPACE, "-n", "2", "--maximize", "yield", "--minimize", "cost")
    Path("plan.csv").write_text("number,yield,cost\n0,50,failed\n\n1,,\n")
    said = done("tell", "lab.db", "--table", "plan.csv")
    assert said == "1 told, 1 without a value (row 4); pending: 1\n"
    again = json.loads(done("tell", "lab.db", "--table", "plan.csv", "--json"))
    assert again["recorded"] == {"unchanged": 1, "without a value": 1}
    assert again["unused_rows"] == [4]
    assert exported()[0]["user_attrs_yield"] == "50.0"
    done("export", "lab.db", "-o", "all.csv")
    assert done("tell", "lab.db", "--table", "all.csv").startswith("1 unchanged, 1 without a value (row 3)")
    done("tell", "lab.db", "0", "cost=7", "--correct")
    done("tell", "lab.db", "0", "yield=51", "--correct")
    told = exported()[0]
    assert (told["values_yield"], told["values_cost"], told["user_attrs_yield"]) == ("51.0", "7.0", "51.0")


@pytest.mark.parametrize(
    ("heading", "message"),
    [
        ("number,Cost,Yield", "bad.csv has the column 'Cost'; rename it to 'cost'"),
        ("number,cost,yield (%)", "bad.csv has the column 'yield (%)'; rename it to 'yield'"),
        ("number,cost,% yield A", "bad.csv has no column 'yield', only number, cost, % yield A; rename the one that"),
        ("number,a,b", "bad.csv has no column 'yield' and no column 'cost', only number, a, b; rename"),
        ("Number,cost,yield", "bad.csv has the column 'Number'; rename it to 'number'"),
    ],
)
def test_a_table_without_the_columns_of_the_values_is_refused(heading: str, message: str) -> None:
    asked(*SPACE, "--maximize", "yield", "--minimize", "cost")
    Path("bad.csv").write_text(f"{heading}\n0,1,2\n")
    assert refused("tell", "lab.db", "--table", "bad.csv").startswith(message)


def workbook(rows: Iterable[Iterable[object]], name: str = "plan.xlsx") -> None:
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(list(row))
    book.create_sheet("notes").append(["another sheet"])
    book.save(name)


def test_a_spreadsheet_is_read_as_it_is() -> None:
    first = asked(*SPACE, "-n", "3")
    rows = [[each["number"], each["params"]["t"], each["params"]["flour"], 0.5 + each["number"]] for each in first]
    rows[1][3] = "failed"
    workbook([["number", "t", "flour", "value", "note"], *rows, [None] * 4, [None, 4.5, "rye", "0,25", "dark"]])
    assert done("tell", "lab.db", "--table", "plan.xlsx").startswith("3 told, 1 added; best 0.25 (trial 3)")
    assert done("tell", "lab.db", "--table", "plan.xlsx").startswith("4 unchanged;")
    workbook([["number", "value"], [0, "n/a"]])
    message = "row 2 of plan.xlsx: a value must be a finite number, not 'n/a'; write failed if there is none, or leave"
    assert refused("tell", "lab.db", "--table", "plan.xlsx").startswith(message)
    Path("plan.xlsx").write_bytes(Path("plan.xlsx").read_bytes()[:1000])
    assert "is not a spreadsheet that can be read" in refused("tell", "lab.db", "--table", "plan.xlsx")


def test_without_openpyxl_a_spreadsheet_is_to_be_saved_as_csv() -> None:
    asked(*SPACE)
    workbook([["number", "value"], [0, 1.5]])
    blocked = "import sys; sys.modules['openpyxl'] = None; from lazybo.cli.app import main; main()"
    words = [sys.executable, "-c", blocked, "tell", "lab.db", "--table", "plan.xlsx"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    assert "is a spreadsheet: save it as CSV, or pip install openpyxl to read it" in line


def test_a_toml_file_names_everything() -> None:
    Path("bread.toml").write_text(
        """
        storage = "lab.db"
        direction = "maximize"
        require = "t * salt <= 20"
        initial = [{t = 4.0, salt = 2.0}, {t = 1.0}]
        cost = "seconds"
        [parameters]
        t = {type = "float", low = 0, high = 10}
        salt = {type = "float", low = 1, high = 9}
        """
    )
    found = json.loads(done("ask", "bread.toml", "-n", "5", "--json"))
    assert found[0]["params"] == {"t": 4.0, "salt": 2.0}
    assert found[1]["params"]["t"] == 1.0
    assert [each["number"] for each in found] == [0, 1, 2, 3, 4]
    assert refused("tell", "bread.toml", "0", "1").endswith("give --seconds NUMBER")
    for each in found:
        done("tell", "bread.toml", str(each["number"]), str(each["params"]["t"]), "--seconds", "60")
    # By the storage alone: the requirement was kept with the study.
    for _ in range(4):
        (each,) = asked()
        assert each["params"]["t"] * each["params"]["salt"] <= 20
        done("tell", "lab.db", str(each["number"]), str(each["params"]["t"]), "--seconds", "60")
    assert json.loads(done("best", "bread.toml", "--json"))["study"] == "bread"


def test_people_who_ask_at_the_same_time_get_different_experiments() -> None:
    done("ask", "lab.db", *SPACE)
    ask = [sys.executable, "-m", "lazybo", "ask", "lab.db", "-n", "4", "--json"]
    people = [subprocess.Popen(ask, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [json.loads(person.communicate(timeout=120)[0]) for person in people]
    assert sorted(each["number"] for answer in answers for each in answer) == list(range(1, 13))
    assert len({json.dumps(each["params"]) for answer in answers for each in answer}) == 12


def test_a_run_leaves_the_experiments_of_people_alone() -> None:
    (mine,) = asked("--float", "t=0:10", "--seed", "1")
    done("tune", "--storage", "lab.db", "--trials", "4", "--float", "t=0:10", "-q", "--", "echo", "{t}")
    assert asked("--pending") == [mine]
    done("tell", "lab.db", "0", "0.5")
    assert [row["state"] for row in exported()] == ["COMPLETE"] * 5


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("tell lab.db 0", "there is no value: give VALUE after the number, or --failed, or --skip"),
        ("tell lab.db 0 high", "a value must be a number or NAME=NUMBER, not 'high'"),
        ("tell lab.db 0 0,71", "a value must be a number or NAME=NUMBER, not '0,71'; write 0.71"),
        ("tell lab.db 0 nan", "a value must be a finite number, not nan; tell a failure with --failed"),
        ("tell lab.db 0 1 2", "expected one value, not 2"),
        ("tell lab.db 7 1", "there is no trial 7 in the study 'lazybo'; it has 0 to 0"),
        ("tell lab.db 0.5 1", "the number of a trial must be a whole number such as 3, not '0.5'"),
        ("tell lab.db 0 1 --correct", "trial 0 has no value to correct: it is running"),
        ("tell lab.db 0 1 --variance -1", "a variance must be a number of at least 0, not -1.0"),
        ("tell lab.db 0 1 --variance 1 --variance 2", "give --variance NUMBER, not 1 2"),
        ("tell lab.db 0 1 --variance 0,1", "give --variance NUMBER, not 0,1"),
        ("tell lab.db 0 1 --seconds -3", "seconds must be a positive finite number, not -3.0"),
        ("tell lab.db 0 1 --failed", "--failed has no value, but 1 is given"),
        ("tell lab.db 0 --failed --skip", "--failed and --skip exclude each other"),
        ("tell lab.db 0 1 a=2 a=3", "a is given twice"),
        ("tell lab.db 0 1 =3", "'=3' has no name: write NAME=NUMBER, or the value alone"),
        ("tell lab.db --table /dev/zero", "the table cannot be read: '/dev/zero' is a device; give a file or a pipe"),
        ("tell lab.db 0 1 --correct --repeat", "give one of them"),
        ("tell lab.db --param t=1 --param flour=rye 1 --repeat", "--repeat needs the number of the trial"),
        ("tell lab.db 0 --skip --repeat", "--skip needs the number of a trial that was asked for, and nothing else"),
        ("tell lab.db 0 1 --corect", "a value must be a number or NAME=NUMBER, not '--corect'"),
        ("tell lab.db --tabel x.csv", "there is no option --tabel"),
        ("tell lab.db", "give the number of a trial and its value, for example: lazybo tell 3 0.71"),
        ("tell nowhere.db 0 1", "there is no storage 'nowhere.db'"),
        ("tell lab.db other 0 1", "there is no study 'other' in lab.db"),
        ("tell lab.db --param t=2 1", "parameter 'flour' is missing"),
        ("tell lab.db --param t=20 --param flour=rye 1", "t must be a number from 0.0 to 10.0, not 20"),
        ("tell lab.db --param temp=2 1", "there is no parameter 'temp'; this study has ['flour', 't']"),
        ("tell lab.db --param t 1", "write --param NAME=VALUE"),
        ("tell lab.db --param t=2 --param flour=rye 1 --correct", "--correct needs the number of the trial"),
        ("tell lab.db --table none.csv", "the table cannot be read"),
        ("tell lab.db --table none.csv 1", "--table has all results; give nothing else but --correct"),
        ("ask lab.db --maximize", "--direction is for the first call, together with the parameters"),
        ("ask lab.db -n 0", "--count must be a whole number of at least 1, not 0"),
        ("ask lab.db --csv --json", "--csv and --json exclude each other"),
        (
            "ask lab.db --float t=0:9",
            "another space: there 't' is a number from 0.0 to 10.0, here a number from 0.0 to 9.0",
        ),
        (
            "ask lab.db --int t=0:9:3",
            "there 't' is a number from 0.0 to 10.0, here a whole number from 0 to 9 in steps of 3",
        ),
        ("ask lab.db --float t=1:9:log", "here a number from 1.0 to 9.0 on a logarithmic scale"),
        (
            "ask lab.db --float t=0:10 --choice flour=rye,oat",
            "there 'flour' is one of ('rye', 'wheat'), here one of ('rye', 'oat')",
        ),
        ("tell lab.db --param t=2 --param flour=oat 1", "flour must be one of ['rye', 'wheat'], not 'oat'"),
        ("ask none.db", "there is no study in 'none.db' yet: give its parameters"),
        ("ask none.toml", "none.toml cannot be read"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(arguments: str, message: str, asked_once: Path) -> None:
    shutil.copy(asked_once, "lab.db")
    assert message in refused(*arguments.split())
    assert not Path("none.db").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("number,value\n0,1\n0,2\n", "row 3 of bad.csv: trial 0 is in the table twice"),
        ("number,value\n0,1\n9,2\n", "row 3 of bad.csv: there is no trial 9"),
        ("number,t,value\n0,9.99,1\n", "row 2 of bad.csv: trial 0 has the parameters"),
        ("number,t,flour,value\n0,2,spelt,1\n", "row 2 of bad.csv: trial 0 has the parameters"),
        ("number,value\n0.5,1\n", "row 2 of bad.csv: the number of a trial must be a whole number, not 0.5"),
        ("t,flour,value\n1,rye,1\n2,spelt,1\n", "row 3 of bad.csv: flour must be one of"),
        ("t,value\n1,1\n", "row 2 of bad.csv: parameter 'flour' is missing"),
        ("t,flour,value\n1,rye,high\n", "row 2 of bad.csv: a value must be a finite number, not 'high'"),
        ("t,flour,value\n1,rye\n", "row 2 of the table has 2 cells, its heading 3"),
        ("number,value,value\n0,1,2\n", "has two columns 'value'; rename or remove one of them"),
        ("", "is empty"),
    ],
)
def test_a_table_with_one_bad_row_changes_nothing(text: str, message: str, asked_once: Path) -> None:
    shutil.copy(asked_once, "lab.db")
    Path("bad.csv").write_text(text)
    assert message in refused("tell", "lab.db", "--table", "bad.csv")


def test_a_journal_can_be_asked_and_told_but_not_corrected() -> None:
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend("lab.log"))
    optuna.create_study(study_name="lab", storage=storage)
    found = json.loads(done("ask", "lab.log", "lab", *SPACE, "-n", "2", "--json"))
    assert [each["number"] for each in found] == [0, 1]
    done("tell", "lab.log", "0", "0.5")
    result = call("tell", "lab.log", "0", "0.6", "--correct")
    assert result.exit_code == 2
    assert "in a database only" in result.stderr


def test_the_calls_in_the_table_of_the_page_run() -> None:
    page = (Path(__file__).parents[2] / "docs" / "lab.md").read_text()
    done("ask", "bread.db", *SPACE)
    calls = re.findall(r"^\| `lazybo (tell bread.db 3 [^`]*)`", page, re.M)
    assert len(calls) == 8
    for each in calls:
        words = shlex.split(each)
        if "taste" not in each:
            if not {"--correct", "--repeat"} & set(words):
                done("ask", "bread.db")
                words[2] = str(json.loads(done("ask", "bread.db", "--pending", "--json"))[-1]["number"])
            done(*words)


# ------------------------------------------------------------- edited attributes


def edit(key: str, value: Any) -> None:
    study = optuna.load_study(study_name=None, storage="sqlite:///lab.db")
    study._storage.set_study_system_attr(study._study_id, key, value)


@pytest.mark.parametrize("value", [7, ["t +"], [7]])
def test_an_edited_requirement_is_one_error_that_names_it(value: Any, asked_once: Path) -> None:
    shutil.copy(asked_once, "lab.db")
    edit("lazybo:require", value)
    line = refused("ask", "lab.db")
    assert "the attribute 'lazybo:require' of the study 'lazybo' cannot be read: " in line
    assert "; set it to a list of strings" in line


def test_show_works_without_a_model_and_says_why(asked_once: Path) -> None:
    shutil.copy(asked_once, "lab.db")
    done("tell", "lab.db", "0", "1.0")
    edit("lazybo:options:0", "{")
    edit("lazybo:stopped", ["?"])
    shown = call("show", "lab.db")
    assert shown.exit_code == 0
    assert "there is no model: the attribute 'lazybo:options' of the study 'lazybo' cannot be read: " in shown.stderr


@pytest.mark.parametrize("value", [7, "x", {}])
def test_edited_corrections_are_one_error_that_names_them(value: Any, asked_once: Path) -> None:
    shutil.copy(asked_once, "lab.db")
    done("tell", "lab.db", "0", "1.0")
    with closing(sqlite3.connect("lab.db")) as connection, connection:
        connection.execute(
            "INSERT INTO trial_user_attributes (trial_id, key, value_json) VALUES (1, 'lazybo:corrections', ?)",
            (json.dumps(value),),
        )
    line = refused("tell", "lab.db", "0", "2.0", "--correct")
    assert "the attribute 'lazybo:corrections' of trial 0 must be a list, not" in line
