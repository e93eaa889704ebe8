"""The shape of the package: its size, the picture in docs/architecture.md, and what a bare import costs."""

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import pytest

import lazybo
from benchmarks import shape

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "lazybo"

# These numbers may go down. To raise one, explain why in docs/architecture.md, in the same commit.
LIMITS = {
    "modules": 146,
    "lines": 36_300,
    "lines of a module": 500,
    "modules in an import chain": 18,
    "methods of a class": 25,
    "parameters of a function": 22,
    "lines of the picture": 18,
    "modules visited by ask": 27,
    "modules visited by a sampler's trial": 39,
    "modules visited by optimize": 69,
}
# Pairs of packages that import each other.
MUTUAL: set[tuple[str, str]] = set()
# How often a name may be used for a module or a class. Files of these names are in every package.
SAME_MODULE, SAME_CLASS = 2, 2
EVERYWHERE = ("__init__", "__main__", "base")


@cache
def written() -> shape.Shape:
    return shape.Shape(PACKAGE)


def layers() -> list[set[str]]:
    """The lines of the import picture, top first."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    picture = re.search(r"```layers\n(.*?)```", text, re.S)
    assert picture, "docs/architecture.md must hold the import picture"
    return [{name.strip() for name in line.split("|")} for line in picture[1].splitlines() if line.strip()]


def imports_of(path: Path, rooms: Iterable[str]) -> set[str]:
    """The entries of the picture that a file imports from. Imports for type checkers only do not count."""
    found = set()
    for node in shape.running(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            # `from lazybo.study import ledger` imports the module `study.ledger`.
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.startswith("lazybo."):
                room = room_of(name.removeprefix("lazybo."), rooms)
                assert room is not None, f"{path} imports {name}, which the picture does not have"
                found.add(room)
    return found


def is_code(path: Path) -> bool:
    """Whether a file is more than the docstring of its package."""
    return len(ast.parse(path.read_text()).body) > 1


def room_of(module: str, rooms: Iterable[str]) -> str | None:
    """The entry of the picture that a module belongs to: itself, or the package that counts as one."""
    parts = module.split(".")
    names = [".".join(parts[: i + 1]) for i in range(len(parts))]
    return next((name for name in reversed(names) if name in rooms), None)


def test_a_module_imports_only_from_lines_below_its_own() -> None:
    picture = layers()
    level = {name: i for i, line in enumerate(picture) for name in line}
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]
    modules = {path: room_of(".".join(path.with_suffix("").parts), level) for path in files if is_code(PACKAGE / path)}
    assert set(modules.values()) == set(level), "see python -m benchmarks.shape --layers"
    for path, name in modules.items():
        assert name is not None
        for imported in imports_of(PACKAGE / path, level) - {name}:
            assert level[imported] > level[name], f"{path} must not import {imported}"


def sizes() -> dict[str, dict[str, int]]:
    """What LIMITS are about: for each of them what is counted, by name."""
    return {
        "modules": {"all": len(written().files)},
        "lines": {"all": sum(written().lines.values())},
        "lines of a module": written().lines,
        "modules in an import chain": {" > ".join(chain := written().longest_chain()): len(chain)},
        "methods of a class": written().methods(),
        "parameters of a function": written().parameters(),
        "lines of the picture": {"all": len(layers())},
    }


def test_nothing_is_larger_than_its_limit() -> None:
    too_large = {
        f"{what}: {name}": count
        for what, counts in sizes().items()
        for name, count in counts.items()
        if count > LIMITS[what]
    }
    assert not too_large


@pytest.mark.parametrize(
    ("what", "visit"),
    [
        ("modules visited by ask", shape.ask),
        ("modules visited by a sampler's trial", shape.sampler_trial),
        ("modules visited by optimize", shape.optimize_trial),
    ],
)
def test_a_suggestion_visits_few_modules(what: str, visit: Callable[[], shape.Visit]) -> None:
    assert len(shape.modules_of(visit())) <= LIMITS[what]


def test_packages_import_in_one_direction() -> None:
    assert set(written().mutual_packages()) <= MUTUAL


def test_a_name_means_one_thing() -> None:
    modules = Counter(path.stem for path in written().files.values() if path.stem not in EVERYWHERE)
    classes = Counter(name.rpartition(".")[2] for name in written().methods())
    assert not {name: count for name, count in modules.items() if count > SAME_MODULE}
    assert not {name: count for name, count in classes.items() if count > SAME_CLASS}


def test_only_its_own_package_imports_scikit_learn() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.parent != PACKAGE / "sklearn":
            found = re.search(r"^\s*(import|from) sklearn\b", path.read_text(), re.M)
            assert not found, f"{path} must not import scikit-learn"


def test_a_bare_import_needs_only_the_core_and_touches_nothing() -> None:
    program = """
import sys, random, warnings
import numpy, scipy.linalg, scipy.optimize, scipy.spatial.distance, scipy.special, optuna
before = (numpy.random.get_state()[1].tolist(), random.getstate(), numpy.geterr(), list(warnings.filters))
from lazybo import *
assert before == (numpy.random.get_state()[1].tolist(), random.getstate(), numpy.geterr(), list(warnings.filters))
optional = {"torch", "sklearn", "matplotlib", "dask", "distributed", "ray", "mpi4py", "loky", "sqlalchemy"}
heavy = (optional | {"typer", "rich", "scipy.stats"}) & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)


def test_every_public_name_is_found_and_no_other() -> None:
    assert {*lazybo._MODULES, "__version__"} == set(lazybo.__all__) <= set(dir(lazybo))
    for name in lazybo.__all__:
        assert getattr(lazybo, name) is not None
    with pytest.raises(AttributeError, match="'lazybo' has no attribute 'optimise'"):
        _ = lazybo.optimise


def test_a_worker_imports_no_model() -> None:
    """A worker process starts in a third of the time that the driver takes."""
    program = "import sys, lazybo.run.worker; assert not {'scipy', 'lazybo.gp'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("package", "extra", "program"),
    [
        ("sklearn", "sklearn", "import lazybo.sklearn"),
        ("matplotlib", "plot", "import lazybo.report.plots"),
        ("distributed", "dask", "from lazybo.run.engines import make_engine; make_engine('dask', 1)"),
        ("ray", "ray", "from lazybo.run.engines import make_engine; make_engine('ray', 1)"),
        ("ray", "tune", "import lazybo.ray"),
        ("mpi4py", "mpi", "from lazybo.run.engines import make_engine; make_engine('mpi', 1)"),
        ("mlflow", "mlflow", "import lazybo.track.mlflow"),
        ("tensorboardX", "tensorboard", "import lazybo.track.tensorboard"),
        ("wandb", "wandb", "import lazybo.track.wandb"),
    ],
)
def test_what_needs_a_package_names_it_as_pip_does(package: str, extra: str, program: str) -> None:
    """Not the extra, which a package index may not have: this line works from a clone as well."""
    blocked = f"import sys; sys.modules[{package!r}] = None\n{program}"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)
    (last,) = done.stderr.splitlines()[-1:]
    assert last.startswith(("ImportError: ", "ValueError: "))
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = shlex.split(last.partition("pip install ")[2])
    assert named, last
    assert {*named} <= {each.partition(">")[0] for each in extras[extra]}
