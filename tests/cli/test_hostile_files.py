"""Tables and TOML files that are damaged, huge or of another kind: one clear line, and nothing is changed."""

import gzip
import io
import os
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import openpyxl
import optuna
import pytest
from typer.testing import CliRunner

from lazybo.cli.app import app

HEADING = "number,yield,cost\n"
SPACE = '[parameters]\nx = {type = "float", low = 0, high = 1}\n'
Content = str | bytes | Callable[[Path], object]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    optuna.logging.set_verbosity(optuna.logging.ERROR)


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study with two experiments that wait for their values."""
    path = tmp_path_factory.mktemp("lab") / "lab.db"
    goals = ("--maximize", "yield", "--minimize", "cost")
    asked = ("ask", str(path), "--float", "t=0:10", "--choice", "flour=rye,wheat", *goals, "-n", "2")
    assert CliRunner().invoke(app, [*asked, "--seed", "3"]).exit_code == 0
    return path


def written(path: Path, content: Content) -> None:
    if callable(content):
        content(path)
    else:
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def refused(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert "Traceback" not in line
    return line.removeprefix("lazybo: ")


def looped(path: Path) -> None:
    path.symlink_to(path.name)


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("a.csv", HEADING)


def bomb(path: Path) -> None:
    """A spreadsheet that is a thousand times larger when it is unpacked."""
    openpyxl.Workbook().save(path)
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as file,
        file.open("xl/large.xml", "w", force_zip64=True) as part,
    ):
        for _ in range(513):
            part.write(bytes(2**20))


TABLES: dict[str, tuple[Content, str]] = {
    "1e400": (f"{HEADING}0,1e400,2\n", "row 2 of a.csv: a value must be a finite number, not inf; write failed if"),
    "nan": (f"{HEADING}0,nan,2\n", "a value must be a finite number, not nan"),
    "n/a": (f"{HEADING}0,n/a,2\n", "a value must be a finite number, not 'n/a'; write failed if there is none"),
    "number 1e400": (f"{HEADING}1e400,1,2\n", "the number of a trial must be a whole number, not inf"),
    "number nan": (f"{HEADING}nan,1,2\n", "the number of a trial must be a whole number, not nan"),
    "number too large": (f"{HEADING}{'9' * 20},1,2\n", "there is no trial 99999999999999999999"),
    "number negative": (f"{HEADING}-1,1,2\n", "there is no trial -1 in the study"),
    "variance": ("number,yield,cost,variance\n0,1,2,high\n", "row 2 of a.csv: a variance must be a number"),
    "variance nan": ("number,yield,cost,variance\n0,1,2,nan\n", "a variance must be a number of at least 0, not nan"),
    "decimal comma": (f'{HEADING}0,"1,5",2\n', "a value must be a finite number, not '1,5'; write 1.5"),
    "decimal comma unquoted": (f"{HEADING}0,1,5,2\n", "row 2 of the table has 4 cells, its heading 3"),
    "formula": (f"{HEADING}0,=1+1,2\n", "a value must be a finite number, not '=1+1'"),
    "error of a spreadsheet": (f"{HEADING}0,#DIV/0!,2\n", "not '#DIV/0!'"),
    "parameter 1e400": ("t,flour,yield,cost\n1e400,rye,1,2\n", "t must be a number from 0.0 to 10.0, not inf"),
    "choice": ("t,flour,yield,cost\n5,rye,1,2\n5,oat,1,2\n", "row 3 of a.csv: flour must be one of ['rye', 'wheat']"),
    "digits": (f"{HEADING}0,{'9' * 5000},2\n", "a value must be a finite number, not inf"),
    "long cell": (f"{HEADING}0,{'9' * 200_000},2\n", "is not a CSV file: field larger than field limit"),
    "NUL": (f"{HEADING}0,1\0,2\n", "is not a text file; save it as CSV with UTF-8"),
    "UTF-16": (f"{HEADING}0,1,2\n".encode("utf-16"), "is not a text file; save it as CSV with UTF-8"),
    "cp1252": (b"number,yield,cost,L\xf6sung\n0,1,2,x\n", "is not UTF-8 (byte 19); save it as CSV with UTF-8"),
    "gzip": (gzip.compress(HEADING.encode()), "save it as CSV with UTF-8"),
    "old spreadsheet": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1\0\0", "is not a text file; save it as CSV with UTF-8"),
    "broken spreadsheet": (b"PK\x03\x04garbage", "is not a spreadsheet that can be read"),
    "another archive": (zipped, "is not a spreadsheet that can be read"),
    "zip bomb": (bomb, "is not a spreadsheet that can be read (it is too large)"),
    "empty": ("", "is empty"),
    "only a heading": (HEADING, "a.csv has no row below its heading; nothing is recorded"),
    "blank lines": ("\n\n\n", "a.csv has no row below its heading"),
    "only commas": (",,\n,,\n", "a.csv has no row below its heading"),
    "open quote": ('"number,yield,cost\n0,1,2\n', "a.csv has no row below its heading"),
    "two of a name": ("number,yield,cost,yield\n0,1,2,3\n", "has two columns 'yield'"),
    "two names of one": ("number,yield,values_yield,cost\n0,1,5,2\n", "has two columns for 'yield'"),
    "10,000 columns": (
        f"{','.join(['number', 'yield', 'cost', *(f'c{i}' for i in range(10_000))])}\n0,x,2{',1' * 10_000}\n",
        "row 2 of a.csv: a value must be a finite number, not 'x'",
    ),
    "too large": (lambda path: (path.touch(), os.truncate(path, 2**26 + 1)), "has more than 64 MB"),
    "folder": (Path.mkdir, "the table cannot be read: [Errno 21] Is a directory: 'a.csv'"),
    "link to nothing": (lambda path: path.symlink_to("nothing"), "the table cannot be read: [Errno 2]"),
    "link to itself": (looped, "the table cannot be read: [Errno 40]"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "'a.csv' is a device; give a file or a pipe"),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_hostile_table_is_one_line_and_changes_nothing(name: str, study: Path) -> None:
    content, message = TABLES[name]
    shutil.copy(study, "lab.db")
    written(Path("a.csv"), content)
    before = CliRunner().invoke(app, ["export", "lab.db"]).stdout
    assert message in refused("tell", "lab.db", "--table", "a.csv")
    assert CliRunner().invoke(app, ["export", "lab.db"]).stdout == before


def test_marks_line_ends_and_digits_of_other_systems_are_read(study: Path) -> None:
    shutil.copy(study, "lab.db")
    Path("a.csv").write_bytes(b"\xef\xbb\xbfnumber;yield;cost\r\n0;1,5;2\r\n\xd9\xa1;\xd9\xa1\xd9\xa2;3\r\n;;\r\n")
    assert CliRunner().invoke(app, ["tell", "lab.db", "--table", "a.csv"]).stdout.startswith("2 told; front of 2")
    rows = list(io.StringIO(CliRunner().invoke(app, ["export", "lab.db"]).stdout))
    assert [row.split(",")[1:3] for row in rows[1:]] == [["1.5", "2.0"], ["12.0", "3.0"]]


FILES: dict[str, tuple[Content, str]] = {
    "NUL": (f"\0{SPACE}", "a.toml is not TOML: "),
    "UTF-16": (SPACE.encode("utf-16"), "a.toml is not TOML: 'utf-8' codec can't decode byte 0xff"),
    "latin 1": (b'study = "L\xf6"\n', "a.toml is not TOML: 'utf-8' codec can't decode byte 0xf6"),
    "key twice": (f"seed = 1\nseed = 2\n{SPACE}", "a.toml is not TOML: Cannot overwrite a value"),
    "key twice inline": (f'directions = {{a = "maximize", a = "minimize"}}\n{SPACE}', "a.toml is not TOML: Duplicate"),
    "1e400": (SPACE.replace("high = 1", "high = 1e400"), "high must be a finite number, not inf"),
    "nan": (SPACE.replace("low = 0", "low = nan"), "low must be a finite number, not nan"),
    "too large for a database": (
        SPACE.replace("float", "int").replace("= 1}", f"= {'9' * 30}}}"),
        "high must be a whole number within",
    ),
    "nested": (SPACE.replace("high = 1", "high = {a = {b = 1}}"), "high must be a finite number, not {'a'"),
    "dotted": ('parameters.x.y.z.type = "float"\n', "parameter 'x': "),
    "array of tables": ("[[parameters]]\nx = 1\n", "a.toml: parameters must be a table, not [{'x': 1}]"),
    "deep": (f"initial = {'[' * 5000}{']' * 5000}", "a.toml is not TOML: "),
    "a list of directions": (f'directions = {{a = ["maximize"]}}\n{SPACE}', "the direction of 'a' must be one of"),
    "no directions": (f"directions = {{}}\n{SPACE}", "direction"),
    "too large": (
        lambda path: (path.touch(), os.truncate(path, 2**31)),
        "a.toml cannot be read: 'a.toml' has more than",
    ),
    "folder": (Path.mkdir, "a.toml cannot be read: "),
    "link to itself": (looped, "a.toml cannot be read: "),
    "device": (lambda path: path.symlink_to("/dev/zero"), "a.toml cannot be read: 'a.toml' is a device"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_hostile_toml_file_is_one_line_and_makes_nothing(name: str) -> None:
    content, message = FILES[name]
    written(Path("a.toml"), content)
    assert message in refused("ask", "a.toml")
    assert [each.name for each in Path().iterdir()] == ["a.toml"]


def test_a_toml_file_may_begin_with_a_byte_order_mark() -> None:
    Path("a.toml").write_bytes(b'\xef\xbb\xbfstorage = "new.db"\r\n' + SPACE.replace("\n", "\r\n").encode())
    assert CliRunner().invoke(app, ["ask", "a.toml"]).exit_code == 0
