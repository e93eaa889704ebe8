"""The code in the documentation runs as it stands, and prints what the pages show."""

import contextlib
import re
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import typer

import lazybo
from tests import postgres
from tests.cli.command import app
from tests.documents import PAGES, ROOT, RUN, SHOWN, Block, blocks_of, differences, run, same

ALL = {str(path.relative_to(ROOT)): blocks_of(path) for path in PAGES}
# Each page runs once: where all that its blocks need is installed.
ELSEWHERE = [name for name, blocks in ALL.items() if any(b.needs for b in blocks)]
HERE = [name for name in ALL if name not in ELSEWHERE and any(b.language in RUN and not b.not_run for b in ALL[name])]
# Lines that are commands: in a block that is only shown, nobody would notice that they do not work.
COMMAND = re.compile(r"^(?:\$ )?(?:lazybo|python|pip|make|mpiexec|gcc|sbatch) ", re.M)


def check(name: str, *, everything: bool) -> None:
    wrong = differences(ALL[name], everything=everything)
    assert not wrong, "\n".join(wrong) + f"\npython -m tests.documents {name} writes it"


@pytest.mark.parametrize("name", HERE)
def test_the_code_of_a_page_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    check(name, everything=False)


@pytest.mark.extra
@pytest.mark.parametrize("name", ELSEWHERE)
def test_the_code_of_a_page_runs_with_its_engines(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of a PostgreSQL server is in the environment."""
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as stack:
        if any("STUDY_URL" in block.text for block in ALL[name]):
            monkeypatch.setenv("STUDY_URL", stack.enter_context(postgres.server()))
        check(name, everything=True)


@pytest.mark.parametrize("block", [block for blocks in ALL.values() for block in blocks], ids=lambda block: block.place)
def test_every_block_is_run_or_says_why_not(block: Block) -> None:
    assert block.language in (*RUN, *SHOWN, "output") or block.title or block.not_run, "write it to a file: title="
    assert block.not_run is None or len(block.not_run) > 5
    if block.language in SHOWN:
        assert not COMMAND.search(block.text), "commands are sh blocks"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_lines_wrap(path: Path) -> None:
    text = re.sub(r"```rooms.*?```", "", path.read_text(), flags=re.S)
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("|") and "](" not in line]
    assert [line for line in lines if len(line) > 120] == []


def test_the_tests_that_the_makefile_names_exist() -> None:
    """pytest runs none of them if one is missing."""
    named = re.findall(r"tests/[\w/]+(?:\.py)?", (ROOT / "Makefile").read_text())
    assert len(named) > 20
    assert not [path for path in named if not (ROOT / path).exists()]


# Bars by tqdm and files with such a name have their own style.
UNSPACED = re.compile(r'(?<!["\d])\d+%(?![|\w.;])|:[\d.]*%\}')


def test_percentages_have_one_style() -> None:
    """A space before the sign: on pages, and in what is printed by `lazybo.core._text.percent`."""
    code = [path for folder in ("src", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
    pages = [*PAGES, *(ROOT / "hub").rglob("*.md"), ROOT / "CHANGELOG.md"]
    found = {path: UNSPACED.findall(path.read_text(encoding="utf-8")) for path in (*pages, *code)}
    assert {path.name: each for path, each in found.items() if each} == {}


PACKAGES = "core|space|gp|search|study|run|report|sklearn|programs|cli"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_files_and_names_of_a_page_exist(path: Path) -> None:
    text = path.read_text()
    files = {f"src/lazybo/{name}" for name in re.findall(rf"`((?:{PACKAGES})/[\w/]*(?:\.\w+)?)`", text)}
    files |= set(re.findall(r"`((?:tests|benchmarks|tools)/[\w/]+\.py)", text))
    assert {name for name in files if not (ROOT / name).exists()} == set()
    programs = re.findall(r"python -m\s+(benchmarks\.\w+)", text)
    assert {name for name in programs if find_spec(name) is None} == set()
    names = set(re.findall(r"`lazybo\.((?:[a-z]\w*\.)*\w+)\b(?!\.\w|@)", text)) - {"db", "toml"}
    assert {name for name in names if not is_importable(f"lazybo.{name}")} == set()


def is_importable(name: str) -> bool:
    """Whether this is a module, or a name in one."""
    module, _, last = name.rpartition(".")
    try:
        return hasattr(import_module(module), last) or bool(import_module(name))
    except ImportError:
        return False


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_the_commands_and_flags_of_a_page_exist(path: Path) -> None:
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    wrong = []
    for line in re.findall(r"(?:^|[`$ (])lazybo ((?:[a-z]+\b|[^`\n]*\\\n)[^`\n]*)", path.read_text(), re.M):
        name, *words = line.split(" -- ")[0].split()
        if name in commands and not hasattr(commands[name], "commands"):
            known = {flag for each in commands[name].params for flag in (*each.opts, *each.secondary_opts)} | {"--help"}
            wrong += [
                f"{name} {flag}" for flag in re.findall(r"(?<!\S)--[a-z-]+", " ".join(words)) if flag not in known
            ]
    assert wrong == []


def test_the_reference_has_every_public_name() -> None:
    pages = "".join(path.read_text() for path in (ROOT / "docs").glob("api*.md"))
    assert {name for name in lazybo.__all__ if not re.search(rf"\b{name}\b", pages)} - {"__version__"} == set()


def test_the_reference_has_every_attribute() -> None:
    page = (ROOT / "docs" / "formats.md").read_text()
    source = "".join(path.read_text() for path in (ROOT / "src").rglob("*.py"))
    attributes = (ROOT / "src" / "lazybo" / "study" / "attributes.py").read_text()
    keys = re.findall(r'^\w+_KEY = "([\w:]+)"', source, re.M)
    keys += re.findall(r'^    [A-Z_]+ = "([\w:]+)"', attributes, re.M)
    assert len(keys) > 30
    assert [key for key in keys if f"`{key}" not in page] == []


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) < 150


def test_a_console_is_run_line_by_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text("```console\n$ echo a \\\n    b > file\n$ cat file >&2\na b\n```\n")
    ((shown, printed),) = run(blocks_of(page))
    assert (shown.text, printed) == ("a b\n", "a b\n")


def test_a_page_is_compared_with_what_is_printed() -> None:
    assert same("best 0.25 (trial 3)\n", "best  0.3 (trial 14)\n")
    assert same("a\n…\nz\n", "a\nb\nc\nz\n")
    assert same("a\nz\n", "z\na\n")
    assert same("rate 0.1  40%\nprobability of being the best (ties count for both): trial 3 95%\n", "rate 5e-3 2%\n")
    assert not same("rate 0.1  40%\n", "units 0.1  40%\n")
    assert not same("best 0.25\n", "worst 0.25\n")
    assert not same("a\na\n", "a\n")
