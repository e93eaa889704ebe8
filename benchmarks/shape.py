"""The shape of the package as one table: ``python -m benchmarks.shape``.

Modules, lines, the longest chain of imports, the classes with most methods, the longest parameter lists, the most
complex functions (if radon is installed), what packages import from each other, and how much code runs for one
suggestion. ``tests/test_architecture.py`` has limits for most of them.

A chain of imports counts modules: a, b and c if a imports b, which imports c. Imports inside functions count, those
under TYPE_CHECKING do not. A name that several modules of other packages import counts once. A module is visited if one
of its functions runs; all imports were made before. The three visits are ``ask()`` with ten results, a trial of
`LazySampler` after ten others, and a whole ``optimize()`` in memory with two trials, one of which the model suggests.

``--rooms`` prints the picture of docs/architecture.md instead: each package, the packages that it uses, and its *door*,
which is the names that its `__init__` offers.
``--since REV`` prints which files and packages of the source each commit since then touches, and all of them together:
a feature touches at most four files in two packages, besides its tests, its page and its line in CHANGELOG.md. REV may
be a range: ``--since v0.1..feature``.
"""

import argparse
import ast
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from textwrap import fill
from types import FrameType
from typing import Any

import optuna

import lazybo

Function = ast.FunctionDef | ast.AsyncFunctionDef
ROOT = Path(lazybo.__file__).parent
SPACE = {"x": (0.0, 1.0), "y": (0.0, 1.0)}
SHOWN = 4
DOOR = " " * 10  # indents the names of a door


class Shape:
    """A package as it is written."""

    def __init__(self, root: Path = ROOT) -> None:
        self.root, self.name = root, root.name
        self.files = {self._module(path): path for path in sorted(root.rglob("*.py"))}
        self.trees = {name: ast.parse(path.read_text()) for name, path in self.files.items()}

    def _module(self, path: Path) -> str:
        return ".".join((self.name, *path.relative_to(self.root).with_suffix("").parts)).removesuffix(".__init__")

    @property
    def lines(self) -> dict[str, int]:
        """The length of each module."""
        return {name: len(path.read_text().splitlines()) for name, path in self.files.items()}

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """The modules that each module imports. The package itself is left out: it only gives names to users."""
        return {name: self._imported_by(name) for name in self.files if name != self.name}

    def _imported_by(self, module: str) -> set[str]:
        found: set[str] = set()
        for node in running(self.trees[module]):
            if isinstance(node, ast.Import):
                found |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                # `from lazybo.run import ledger` imports the module `run.ledger`.
                names = {f"{node.module}.{alias.name}" for alias in node.names}
                found |= {name if name in self.files else node.module for name in names}
        return {name for name in found if name in self.files and name not in (module, self.name)}

    def longest_chain(self) -> list[str]:
        """The longest chain of modules, each of which imports the next. Raises a ValueError if there is a cycle."""
        chains: dict[str, list[str]] = {}

        def chain(module: str, above: tuple[str, ...]) -> list[str]:
            if module in above:
                raise ValueError(f"modules import each other: {' > '.join((*above, module))}")
            if module not in chains:
                below = [chain(each, (*above, module)) for each in sorted(self.imports[module])]
                chains[module] = [module, *max(below, key=len, default=[])]
            return chains[module]

        return max((chain(module, ()) for module in self.imports), key=len)

    def mutual_packages(self) -> list[tuple[str, str]]:
        """Pairs of packages that import each other."""
        pairs = {(_package(a), _package(b)) for a, found in self.imports.items() for b in found}
        return sorted((a, b) for a, b in pairs if a < b and (b, a) in pairs)

    def crossing(self) -> dict[str, set[str]]:
        """The names that the other packages import from each package, with the module where they look for them."""
        found: dict[str, set[str]] = {}
        for module, node in self._imports_of_names():
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                source = whole if whole in self.files else f"{node.module}"
                if source in self.files and source != self.name and _package(source) != _package(module):
                    found.setdefault(_package(source), set()).add(whole)
        return found

    def past_doors(self) -> set[str]:
        """The modules inside packages that other packages import, or import from."""
        names = {name for found in self.crossing().values() for name in found}
        sources = {name if name in self.files else name.rpartition(".")[0] for name in names}
        return {source for source in sources if source.count(".") > 1}

    def _imports_of_names(self) -> Iterator[tuple[str, ast.ImportFrom]]:
        for module in self.imports:
            for node in running(self.trees[module]):
                if isinstance(node, ast.ImportFrom) and node.module:
                    yield module, node

    def doors(self) -> dict[str, dict[str, str]]:
        """The names that each package offers to the others, with what they are for."""
        return {
            package: offered(path)
            for module, path in self.files.items()
            if path.name == "__init__.py" and module.count(".") == 1 and (package := _package(module))
        }

    def uses(self) -> dict[str, list[str]]:
        """The packages from which each package imports, those that need nothing first; a ValueError for cycles."""
        needs: dict[str, set[str]] = {}
        for module, imported in self.imports.items():
            needs.setdefault(_package(module), set()).update(map(_package, imported))
        found: dict[str, list[str]] = {}
        while left := needs.keys() - found.keys():
            free = sorted(each for each in left if needs[each] - {each} <= found.keys())
            if not free:
                raise ValueError(f"these import each other: {sorted(left)}")
            found |= {each: sorted(needs[each] - {each}, key=list(found).index) for each in free}
        return found

    def rooms(self) -> str:
        """The picture: each package, what it uses, and its door."""
        doors, lines = self.doors(), []
        for package, used in self.uses().items():
            lines.append(f"{package:<10}" + (f"uses {', '.join(used)}" if used else ""))
            lines += fill(
                ", ".join(doors.get(package, ())), 108, initial_indent=DOOR, subsequent_indent=DOOR
            ).splitlines()
        return "\n".join(map(str.rstrip, lines))

    def by_package(self) -> dict[str, int]:
        """The lines of each package, and of each module outside of packages."""
        found: dict[str, int] = {}
        for name, count in self.lines.items():
            package = _package(name) if "." in name else name
            found[package] = found.get(package, 0) + count
        return found

    def complexity(self) -> dict[str, int]:
        """Cyclomatic complexity of each function and class, as radon counts it; nothing without radon."""
        if find_spec("radon") is None:
            return {}
        from radon.complexity import cc_visit

        return {
            f"{module}.{block.fullname}": block.complexity
            for module, path in self.files.items()
            for block in cc_visit(path.read_text())
        }

    def methods(self) -> dict[str, int]:
        """How many methods each class has."""
        return {
            f"{module}.{node.name}": sum(isinstance(each, Function) for each in node.body)
            for module, tree in self.trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.ClassDef)
        }

    def functions(self) -> Iterator[tuple[str, Function]]:
        """All functions and methods, with the names of their modules."""
        for module, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, Function):
                    yield module, node

    def parameters(self) -> dict[str, int]:
        """How many parameters each function has; overloads and methods of the same name count once."""
        found: dict[str, int] = {}
        for module, node in self.functions():
            key, count = f"{module}.{node.name}", len(node.args.args) + len(node.args.kwonlyargs)
            found[key] = max(count, found.get(key, 0))
        return found


def running(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes that are not under TYPE_CHECKING."""
    if isinstance(tree, ast.If) and "TYPE_CHECKING" in ast.unparse(tree.test):
        return
    yield tree
    for child in ast.iter_child_nodes(tree):
        yield from running(child)


def offered(door: Path) -> dict[str, str]:
    """The names in the ``__init__`` of a package, each on a line of its own, with the comments behind them."""
    found = re.findall(r'^ +"(\w+)"(?:: "[\w.]+")?,(?:  # (.*))?$', door.read_text(), re.M)
    return dict(found)


def _package(module: str) -> str:
    return module.split(".")[1]


Visit = set[tuple[str, int]]  # the functions that run: file and first line


def visited(call: Callable[[], object]) -> Visit:
    """The functions of the package that run during a call, in any thread."""
    found: Visit = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            found.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return {(name, line) for name, line in found if Path(name).is_relative_to(ROOT)}


def modules_of(visit: Visit) -> set[str]:
    """The files in which these functions are."""
    return {name for name, _ in visit}


def ask() -> Visit:
    """What one suggestion visits."""
    optimizer = lazybo.Optimizer(SPACE, seed=0, n_startup=5)
    for _ in range(10):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, suggestion.params["x"])
    return visited(optimizer.ask)


def sampler_trial() -> Visit:
    """What one trial of the sampler visits."""
    study = optuna.create_study(sampler=lazybo.LazySampler(seed=0, n_startup_trials=5))

    def objective(trial: optuna.Trial) -> float:
        return trial.suggest_float("x", 0, 1) + trial.suggest_float("y", 0, 1)

    study.optimize(objective, n_trials=10)
    return visited(lambda: study.optimize(objective, n_trials=1))


def optimize_trial() -> Visit:
    """What `optimize` visits, from its arguments to the end."""

    def run() -> object:
        sampler = lazybo.LazySampler(n_startup_trials=1)
        return lazybo.optimize(lambda x, y: x + y, SPACE, n_trials=2, seed=0, sampler=sampler, progress=False)

    run()
    return visited(run)


def _largest(counts: Mapping[str, int], most: int = SHOWN) -> str:
    first = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:most]
    return ", ".join(f"{name.rpartition('.')[2]} {count:,}" for name, count in first)


def _spread(counts: list[int]) -> str:
    return f"{median(counts):.0f} / {sorted(counts)[int(0.9 * len(counts))]} / {max(counts)}"


def touched(since: str) -> Iterator[tuple[str, list[str], set[str]]]:
    """The commits since a revision that touch the source, oldest first: subject, files, packages."""
    commits = since if ".." in since else f"{since}.."
    log = ["git", "log", "--reverse", "--no-merges", "--format=\x1e%s", "--name-only", commits, "--", "."]
    found = subprocess.run(log, cwd=ROOT, capture_output=True, text=True, check=True)  # noqa: S603 - git
    for commit in found.stdout.split("\x1e")[1:]:
        subject, *names = [line for line in commit.splitlines() if line]
        files = [name.partition(f"{ROOT.name}/")[2] for name in names]
        yield subject, files, {name.partition("/")[0] for name in files}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rooms", action="store_true", help="print the picture of packages and their doors")
    parser.add_argument("--since", metavar="REV", help="print what each commit since then touches")
    options = parser.parse_args()
    if options.rooms:
        print(Shape().rooms())
        return
    if options.since:
        print("| commit | files | packages |\n|---|---|---|")
        all_files, all_packages = set[str](), set[str]()
        for subject, files, packages in touched(options.since):
            print(f"| {subject} | {len(files)} | {len(packages)}: {', '.join(sorted(packages))} |")
            all_files, all_packages = all_files.union(files), all_packages | packages
        print(f"| together | {len(all_files)} | {len(all_packages)}: {', '.join(sorted(all_packages))} |")
        return
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    shape = Shape()
    chain = shape.longest_chain()
    lengths = [(node.end_lineno or 0) - node.lineno + 1 for _, node in shape.functions()]
    visits = [count() for count in (ask, sampler_trial, optimize_trial)]
    crossing = shape.crossing()
    shown = ", ".join(
        f"{name} {len(names)}" for name, names in sorted(crossing.items(), key=lambda each: -len(each[1]))
    )
    edges = sum(map(len, shape.imports.values())) / len(shape.imports)
    rows = {
        "modules / lines": f"{len(shape.files)} / {sum(shape.lines.values()):,}",
        "lines by package": _largest(shape.by_package(), len(shape.files)),
        "largest modules": _largest(shape.lines),
        "module lines, median / p90 / max": _spread(list(shape.lines.values())),
        "function lines, median / p90 / max": _spread(lengths),
        "longest import chain": str(len(chain)),
        "methods in the largest classes": _largest(shape.methods()),
        "longest parameter lists": _largest(shape.parameters()),
        "most complex functions (radon)": _largest(shape.complexity(), 10) or "needs radon",
        "packages that import each other": ", ".join(" and ".join(pair) for pair in shape.mutual_packages()) or "none",
        "import edges per module": f"{edges:.1f}",
        "names that packages import from each other": f"{sum(map(len, crossing.values()))}: {shown}",
        "modules that other packages reach": str(len(shape.past_doors())),
        "modules visited by: ask; a sampler's trial; `optimize` with one trial": "; ".join(
            str(len(modules_of(visit))) for visit in visits
        ),
        "functions called by the same": "; ".join(str(len(visit)) for visit in visits),
    }
    print("| | lazybo |\n|---|---|")
    for name, value in rows.items():
        print(f"| {name} | {value} |")
    print("\n" + " > ".join(name.removeprefix(f"{shape.name}.") for name in chain))


if __name__ == "__main__":
    main()
