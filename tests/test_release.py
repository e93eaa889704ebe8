"""What a release says of itself, in several files, agrees."""

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lazybo
from lazybo.cli.app import app

ROOT = Path(__file__).parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOWEST = importlib.util.spec_from_file_location("lowest", ROOT / "tools" / "lowest.py")


def test_there_is_one_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", lazybo.__version__)
    assert "version" in PYPROJECT["project"]["dynamic"], "pyproject.toml reads it from the package"
    assert f"version: {lazybo.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    hub = (ROOT / "hub/package/samplers/lazybo/requirements.txt").read_text()
    assert hub == f"lazybo>={lazybo.__version__}\n"
    assert CliRunner().invoke(app, ["--version"]).stdout == f"lazybo {lazybo.__version__}\n"


def test_every_dependency_has_a_lower_bound_that_is_tested() -> None:
    assert LOWEST is not None
    assert LOWEST.loader is not None
    module = importlib.util.module_from_spec(LOWEST)
    LOWEST.loader.exec_module(module)
    found = module.lowest(list(PYPROJECT["project"]["optional-dependencies"]))
    names = {each.partition("==")[0] for each in found}
    assert names >= {re.split(r"[\[>=<]", each)[0] for each in PYPROJECT["project"]["dependencies"]}
    optuna = next(each for each in found if each.startswith("optuna=="))
    front = (ROOT / "hub/package/samplers/lazybo/README.md").read_text()
    assert f"optuna_versions: [{optuna.partition('==')[2]}.0]" in front
    with pytest.raises(KeyError):
        module.lowest(["no-such-extra"])


def test_the_classifiers_have_every_python_that_is_supported() -> None:
    minors = [
        int(each.rpartition(".")[2])
        for each in PYPROJECT["project"]["classifiers"]
        if re.fullmatch(r"Programming Language :: Python :: 3\.\d+", each)
    ]
    assert PYPROJECT["project"]["requires-python"] == f">=3.{minors[0]}"
    assert minors == list(range(minors[0], minors[-1] + 1))


def test_everything_in_the_source_distribution_exists() -> None:
    for each in PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]:
        assert (ROOT / each.lstrip("/")).exists(), each
