"""The picture in docs/architecture.md, held: who may import whom, and what a bare import costs."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "lazybo"


def layers() -> list[set[str]]:
    """The lines of the import picture, top first."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    picture = re.search(r"```layers\n(.*?)```", text, re.S)
    assert picture, "docs/architecture.md must hold the import picture"
    return [{name.strip() for name in line.split("|")} for line in picture[1].splitlines() if line.strip()]


def imports(path: Path) -> set[str]:
    """The lazybo modules that a file imports."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, f"{path}: relative import"
            names = [node.module] if node.module != "lazybo" else [f"lazybo.{alias.name}" for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("lazybo.")}
    return found


def test_a_module_imports_only_from_lines_below_its_own() -> None:
    picture = layers()
    level = {name: i for i, line in enumerate(picture) for name in line}
    files = [path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py"]
    modules = {path: path.with_suffix("").parts[0] for path in files}  # a package counts as one
    assert set(modules.values()) == set(level), "the picture and the package name the same modules"
    for path, name in modules.items():
        for imported in imports(PACKAGE / path) - {name}:
            assert level[imported] > level[name], f"{path} must not import {imported}"


def test_only_its_own_package_imports_scikit_learn() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.parent != PACKAGE / "sklearn":
            found = re.search(r"^\s*(import|from) sklearn\b", path.read_text(), re.M)
            assert not found, f"{path} must not import scikit-learn"


def test_a_bare_import_needs_only_the_core_and_touches_nothing() -> None:
    program = """
import sys, random, warnings
import numpy, scipy.linalg, scipy.optimize, scipy.spatial.distance, scipy.special, scipy.stats, optuna
before = (numpy.random.get_state()[1].tolist(), random.getstate(), numpy.geterr(), list(warnings.filters))
import lazybo
assert before == (numpy.random.get_state()[1].tolist(), random.getstate(), numpy.geterr(), list(warnings.filters))
optional = {"torch", "sklearn", "matplotlib", "dask", "distributed", "ray", "mpi4py", "loky", "sqlalchemy"}
heavy = (optional | {"typer", "rich"}) & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True)
