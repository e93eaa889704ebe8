"""Seconds if no thread variable is set: ``python -m benchmarks.threads``.

60 trials of LazySampler with 1, 2 and 4 threads (with the imports), `LazyGPRegressor.fit` on 300 rows, `lazybo show` on
a study of 300 trials. Each figure is the median of several processes without OMP_NUM_THREADS and similar variables.
``--versus FOLDER`` compares with the package in that folder, for example the ``src`` of an older checkout.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
SAMPLER = """
import time
start = time.perf_counter()
import optuna
from lazybo import LazySampler
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.create_study(sampler=LazySampler(seed=0))
def objective(trial):
    return sum((trial.suggest_float(f"x{i}", 0, 1) - 0.3) ** 2 for i in range(4))
study.optimize(objective, n_trials=60, n_jobs=JOBS)
print(time.perf_counter() - start)
"""
REGRESSOR = """
import time
import numpy as np
from lazybo.sklearn import LazyGPRegressor
x = np.random.default_rng(0).random((300, 5))
start = time.perf_counter()
LazyGPRegressor().fit(x, np.sin(6 * x).sum(axis=1))
print(time.perf_counter() - start)
"""
SHOW = """
import contextlib, io, sys, time
from lazybo.cli.app import main
sys.argv = ["lazybo", "show", STORAGE, "s"]
start = time.perf_counter()
try:
    with contextlib.redirect_stdout(io.StringIO()):
        main()
except SystemExit as end:
    assert not end.code, end.code
print(time.perf_counter() - start)
"""


def seconds(program: str, package: Path | None) -> float:
    """Run a program in its own process; returns the seconds that it prints."""
    environment = {name: value for name, value in os.environ.items() if name not in VARIABLES}
    if package is not None:
        environment["PYTHONPATH"] = str(package)
    done = subprocess.run(  # noqa: S603 - our own programs
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True, timeout=600
    )
    return float(done.stdout.split()[-1])


def make_study(file: Path) -> None:
    """A study of 300 random trials."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    source = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    source.optimize(lambda trial: sum((trial.suggest_float(f"x{i}", 0, 1) - 0.3) ** 2 for i in range(4)), n_trials=300)
    study = optuna.create_study(study_name="s", storage=f"sqlite:///{file}")
    study.add_trials(source.trials)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--versus", type=Path)
    options = parser.parse_args()
    packages = {"here": None} if options.versus is None else {str(options.versus): options.versus, "here": None}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "s.db"
        make_study(file)
        programs = {f"60 trials, n_jobs={n}": SAMPLER.replace("JOBS", str(n)) for n in (1, 2, 4)}
        programs["LazyGPRegressor.fit, 300 rows"] = REGRESSOR
        programs["lazybo show, 300 trials"] = SHOW.replace("STORAGE", repr(str(file)))
        print(f"| seconds, median of {options.repeats} | {' | '.join(packages)} |")
        print("|---|" + "---|" * len(packages))
        for label, program in programs.items():
            runs = [[seconds(program, package) for package in packages.values()] for _ in range(options.repeats)]
            medians = [statistics.median(column) for column in zip(*runs, strict=True)]
            print(f"| {label} | {' | '.join(f'{median:.2f}' for median in medians)} |", flush=True)


if __name__ == "__main__":
    main()
