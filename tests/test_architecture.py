"""The picture in docs/architecture.md, held: who may import whom, and what a bare import costs."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

import lazybo

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "lazybo"


def layers() -> list[set[str]]:
    """The lines of the import picture, top first."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    picture = re.search(r"```layers\n(.*?)```", text, re.S)
    assert picture, "docs/architecture.md must hold the import picture"
    return [{name.strip() for name in line.split("|")} for line in picture[1].splitlines() if line.strip()]


def imports_of(path: Path, rooms: Iterable[str]) -> set[str]:
    """The entries of the picture that a file imports from. Imports for type checkers only do not count."""
    tree, found = ast.parse(path.read_text()), set()
    guarded = (
        node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    for_types = {id(node) for guard in guarded for node in ast.walk(guard)}
    for node in (node for node in ast.walk(tree) if id(node) not in for_types):
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
    assert set(modules.values()) == set(level), "the picture and the package name the same modules"
    for path, name in modules.items():
        assert name is not None
        for imported in imports_of(PACKAGE / path, level) - {name}:
            assert level[imported] > level[name], f"{path} must not import {imported}"


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
    program = "import sys, lazybo.run.evaluate; assert not {'scipy', 'lazybo.gp'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


@pytest.mark.parametrize(
    ("package", "extra", "program"),
    [
        ("sklearn", "sklearn", "import lazybo.sklearn"),
        ("matplotlib", "plot", "import lazybo.report.plots"),
        ("distributed", "dask", "from lazybo.run.engines import make_engine; make_engine('dask', 1)"),
        ("ray", "ray", "from lazybo.run.engines import make_engine; make_engine('ray', 1)"),
        ("mpi4py", "mpi", "from lazybo.run.engines import make_engine; make_engine('mpi', 1)"),
    ],
)
def test_what_needs_an_extra_names_it(package: str, extra: str, program: str) -> None:
    blocked = f"import sys; sys.modules[{package!r}] = None\n{program}"
    done = subprocess.run([sys.executable, "-c", blocked], capture_output=True, text=True, check=False)
    (last,) = done.stderr.splitlines()[-1:]
    assert last.startswith("ImportError: ")
    assert f"pip install 'lazybo[{extra}]'" in last
