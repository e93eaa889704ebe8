"""The shape of the package: its size, its doors, the picture in docs/architecture.md, and what a bare import costs."""

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import lazybo
from benchmarks import shape

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "lazybo"

# These numbers may go down. To raise one, explain why in docs/architecture.md, in the same commit.
LIMITS = {
    "modules": 147,
    "lines": 36_000,
    "lines of a module": 500,
    "modules in an import chain": 12,
    "methods of a class": 25,
    "parameters of a function": 21,
    "modules visited by ask": 26,
    "modules visited by a sampler's trial": 38,
    "modules visited by optimize": 67,
}
# Names at a door, and at all doors together.
MOST_NAMES, ALL_NAMES = 12, 80
# Imports past a door, by tests of other packages and benchmarks.
PAST_DOORS_INSIDE, PAST_DOORS = 2, 0
# How often a name may be used for a module or a class. Files of these names are in every package.
SAME_MODULE, SAME_CLASS = 2, 2
EVERYWHERE = ("__init__", "__main__", "base")


@cache
def written() -> shape.Shape:
    return shape.Shape(PACKAGE)


def sizes() -> dict[str, dict[str, int]]:
    """What LIMITS are about: for each of them what is counted, by name."""
    return {
        "modules": {"all": len(written().files)},
        "lines": {"all": sum(written().lines.values())},
        "lines of a module": written().lines,
        "modules in an import chain": {" > ".join(chain := written().longest_chain()): len(chain)},
        "methods of a class": written().methods(),
        "parameters of a function": written().parameters(),
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


def test_the_picture_has_the_rooms_and_doors_of_the_code() -> None:
    """The rooms are in an order in which each uses only those above it."""
    picture = re.search(r"```rooms\n(.*?)\n```", (ROOT / "docs" / "architecture.md").read_text(), re.S)
    assert picture
    assert picture[1] == written().rooms(), "see python -m benchmarks.shape --rooms"


@pytest.mark.parametrize("package", written().doors())
def test_a_door_offers_few_names_and_says_what_each_is_for(package: str) -> None:
    door = written().doors()[package]
    module = import_module(f"lazybo.{package}")
    assert all(getattr(module, name) is not None for name in door)
    assert not [name for name, purpose in door.items() if not purpose]
    assert len(door) <= MOST_NAMES


def test_all_doors_together_offer_few_names() -> None:
    assert sum(map(len, written().crossing().values())) <= ALL_NAMES


def test_nobody_reaches_past_a_door() -> None:
    assert len(written().past_doors()) <= PAST_DOORS_INSIDE
    outside = [
        *(ROOT / "benchmarks").rglob("*.py"),
        *(ROOT / "examples").rglob("*.py"),
        *(ROOT / "tests").rglob("*.py"),
    ]
    found = Counter(
        str(path.relative_to(ROOT))
        for path in outside
        for module in past_doors_of(path)
        if path.relative_to(ROOT).parts[:2] != ("tests", module.split(".")[1])
    )
    assert sum(found.values()) <= PAST_DOORS, found


INSIDE = re.compile(r"lazybo\.(?!track\.)\w+\.")


def past_doors_of(path: Path) -> list[str]:
    """The modules inside packages that a file imports, or imports from. Each tracker has a module of its own."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = [f"{node.module}.{each.name}" for each in node.names]
            found += [name for name in inner if name in written().files] or [node.module]
    return [name for name in found if INSIDE.match(name)]


# What is not the optimiser, the study or a run, and its modules.
PLUG_INS = {
    "scikit-learn": ("lazybo/sklearn",),
    "Ray Tune": ("lazybo/ray.py",),
    "Hydra": ("lazybo/hydra.py", "hydra_plugins"),
    "trackers": ("lazybo/track",),
    "cluster engines": (*(f"lazybo/run/engines/{name}.py" for name in ("base", "dask", "ray", "mpi")),),
    "programs": ("lazybo/programs",),
    "report": ("lazybo/report",),
    "demonstration": ("lazybo/demo.py",),
}


@pytest.mark.parametrize("plug_in", PLUG_INS)
def test_a_plug_in_uses_what_outsiders_may_use(plug_in: str) -> None:
    """Names of lazybo, of doors and of itself."""
    roots = [ROOT / "src" / path for path in PLUG_INS[plug_in]]
    files = [file for root in roots for file in (root.rglob("*.py") if root.is_dir() else [root])]
    own = tuple(path.removesuffix(".py").replace("/", ".") for path in PLUG_INS[plug_in])
    doors = {f"lazybo.{package}": set(door) for package, door in written().doors().items()}
    doors["lazybo"] = {*lazybo.__all__, *written().doors()}
    found = [
        f"{file.name}: from {node.module} import {each.name}"
        for file in files
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "lazybo"
        for each in node.names
        if not f"{node.module}.{each.name}".startswith(own) and each.name not in doors.get(node.module, ())
    ]
    assert files
    assert not found


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
