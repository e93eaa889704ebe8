"""Use an installed lazybo as its first user would: `python tools/check_installed.py`, with the interpreter to test.

It runs in an empty folder: the first example of the README, then the command from a program to its best trial, and the
command for experiments by hand. `make test-package` calls it in an environment that has lazybo and nothing else.
"""

import csv
import json
import os
import re
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

import lazybo

README = Path(__file__).parents[1] / "README.md"
PROGRAM = "import sys; x = float(sys.argv[1]); print((x - 1) ** 2)"


def lazybo_says(*words: str) -> str:
    """What the installed command prints; it must succeed."""
    command = Path(sys.executable).with_name("lazybo")
    done = subprocess.run([str(command), *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"lazybo {' '.join(words)} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def check_library() -> None:
    """It is the installed one, it has types, and the first example of the README runs."""
    package = Path(lazybo.__file__).parent
    expect("site-packages" in package.parts, f"lazybo is imported from {package}, which is not installed")
    expect((package / "py.typed").exists(), "py.typed is missing")
    expect(version("lazybo") == lazybo.__version__, f"{version('lazybo')} is installed, {lazybo.__version__} imported")
    example = re.search(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.S)
    expect(example is not None, "the README has no example")
    exec(compile(example[1], "README.md", "exec"), {})  # noqa: S102 (our own README)


def check_command() -> None:
    """A program is tuned to its best trial, and an experiment is made by hand."""
    expect(lazybo_says("--version") == f"lazybo {lazybo.__version__}\n", "lazybo --version is another one")
    Path("train.py").write_text(PROGRAM, encoding="utf-8")
    study = ("--storage", "study.db", "--float", "x=-5:5", "--trials", "12", "--seed", "0", "--quiet")
    lazybo_says("tune", *study, "--", sys.executable, "train.py", "{x}")
    best = json.loads(lazybo_says("best", "study.db", "--json"))
    expect(best["value"] < 0.5, f"the best of 12 trials is {best['value']}")
    expect("12 complete" in lazybo_says("show", "study.db"), "lazybo show counts other trials")
    expect(len(list(csv.reader(lazybo_says("export", "study.db").splitlines()))) == 13, "lazybo export has other rows")
    lazybo_says("ask", "lab.db", "--float", "x=0:1", "--seed", "0")
    expect("best 0.5 (trial 0)" in lazybo_says("tell", "lab.db", "0", "0.5"), "lazybo tell says something else")


def expect(fulfilled: bool, problem: str) -> None:
    """End with a message unless a condition holds."""
    if not fulfilled:
        raise SystemExit(problem)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        check_library()
        check_command()
        os.chdir(Path(folder).parent)
    print(f"lazybo {lazybo.__version__} works with Python {sys.version.split()[0]}")
