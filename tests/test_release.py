"""What a release says of itself, in several files, agrees."""

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

import lazybo
from tests.cli.command import app

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


def test_the_conda_recipe_says_what_pyproject_says() -> None:
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    project = PYPROJECT["project"]
    assert recipe["context"]["version"] == lazybo.__version__
    wanted = [
        f"python {project['requires-python']}",
        *(re.sub(r"(?=[<>=])", " ", d, count=1) for d in project["dependencies"]),
    ]
    assert recipe["requirements"]["run"] == wanted
    built_with = PYPROJECT["build-system"]["requires"]
    assert recipe["requirements"]["host"][2:] == [each.replace(">=", " >=") for each in built_with]
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["about"]["license"] == project["license"]
    (command,) = recipe["build"]["python"]["entry_points"]
    assert command == f"lazybo = {project['scripts']['lazybo']}"


def test_a_tag_publishes_what_ci_has_checked() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    commands = [step["run"] for step in jobs["build"]["steps"] if "run" in step]
    assert commands[-2:] == [".ci/run", "make package"]
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}, "trusted publishing, and nothing else"


@pytest.mark.extra
def test_the_wheel_is_the_same_whenever_it_is_built(tmp_path: Path) -> None:
    hashes = set()
    for i in range(2):
        tree, out = tmp_path / f"tree{i}", tmp_path / f"out{i}"
        tree.mkdir()
        for name in ("src", "README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "pyproject.toml"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(
                    source, tree / name, ignore=shutil.ignore_patterns("__pycache__"), copy_function=shutil.copy
                )
            else:
                shutil.copy(source, tree / name)
        subprocess.run(
            [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(out), str(tree)],
            check=True,
        )
        (wheel,) = out.glob("*.whl")
        hashes.add(hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert len(hashes) == 1
    with zipfile.ZipFile(wheel) as files:
        description = files.read(f"lazybo-{lazybo.__version__}.dist-info/METADATA").decode()
    assert "pip install 'lazybo[sklearn,plot]'    # Python 3.11 or newer" in description
    assert not re.findall(r"\]\((?!https?:)", description), "on a package index there are no files to lead to"
