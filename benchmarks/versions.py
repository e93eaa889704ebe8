"""Time and memory of two versions of lazybo: ``python -m benchmarks.versions BEFORE/src AFTER/src``.

Both run the same steps in processes of their own, which take turns, step by step. The CPU seconds of each step are
summed over a run, and the median over the rounds counts. Memory is the peak of the process, libraries included.

- ``ask``: suggestions and results from 200 to 500 observations of Levy's function in 5-D.
- ``sampler``: trials of a study with `LazySampler`, up to 100.
- ``optimize``: `optimize()` in memory with 60 trials, as one step.
- ``import``: a new process that imports everything that `optimize()` needs, as one step.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

import numpy as np

ROOT = Path(__file__).parents[1]
KINDS = ("ask", "sampler", "optimize", "import")
LOADED, ASKS, TRIALS, RUN_TRIALS = 200, 300, 100, 60
SPACE = {f"x{j}": (-10.0, 10.0) for j in range(5)}


def value(params: dict[str, float]) -> float:
    """Levy's function; it belongs to neither version."""
    w = 1.0 + (np.array(list(params.values())) - 1.0) / 4.0
    middle = (w[:-1] - 1.0) ** 2 * (1.0 + 10.0 * np.sin(np.pi * w[:-1] + 1.0) ** 2)
    last = (w[-1] - 1.0) ** 2 * (1.0 + np.sin(2.0 * np.pi * w[-1]) ** 2)
    return float(np.sin(np.pi * w[0]) ** 2 + middle.sum() + last)


def ask() -> Iterator[None]:
    from lazybo import Optimizer

    optimizer, rng = Optimizer(SPACE, seed=0), np.random.default_rng(0)
    for _ in range(LOADED):
        params = {name: float(rng.uniform(-10.0, 10.0)) for name in SPACE}
        optimizer.observe(params, value(params))
    yield
    for _ in range(ASKS):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, value(suggestion.params))
        yield


def sampler() -> Iterator[None]:
    import optuna

    from lazybo import LazySampler

    study = optuna.create_study(sampler=LazySampler(seed=0))
    yield
    for _ in range(TRIALS):
        study.optimize(lambda trial: value({name: trial.suggest_float(name, -10, 10) for name in SPACE}), n_trials=1)
        yield


def optimize() -> Iterator[None]:
    import lazybo

    lazybo.optimize(value, SPACE, n_trials=2, seed=0, progress=False)
    yield
    lazybo.optimize(value, SPACE, n_trials=RUN_TRIALS, seed=0, progress=False)
    yield


def imports() -> Iterator[None]:
    yield
    import lazybo

    lazybo.optimize  # noqa: B018 - it is imported when it is first used
    yield


STEPS: dict[str, Callable[[], Iterator[None]]] = dict(zip(KINDS, (ask, sampler, optimize, imports), strict=True))


def serve(kind: str) -> None:
    """Prepare, then make a step for each line of input and print its CPU seconds; at the end print the peak in MB."""
    if kind != "import":
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
    steps = STEPS[kind]()
    next(steps)
    print("ready", flush=True)
    for _ in sys.stdin:
        start = time.process_time()
        done = next(steps, "end")
        print(done or time.process_time() - start, flush=True)
    status = Path("/proc/self/status").read_text().splitlines()
    print(next(float(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024)


class Version:
    """A process that runs the steps with one version."""

    def __init__(self, source: Path, kind: str) -> None:
        command = [sys.executable, "-m", "benchmarks.versions", "--serve", kind]
        environment = {**os.environ, "PYTHONPATH": str(source.resolve()), "OPENBLAS_NUM_THREADS": "1"}
        self._process = subprocess.Popen(  # noqa: S603 - this module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=ROOT
        )
        self.seconds = 0.0
        self._answer()

    def step(self) -> bool:
        """Make a step; False if there are no more."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        answer = self._answer()
        self.seconds += 0.0 if answer == "end" else float(answer)
        return answer != "end"

    def end(self) -> float:
        """Its peak memory in MB."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline().strip()
        if not answer:
            raise SystemExit("a version ended, see above")
        return answer


def measured(sources: list[Path], kind: str, rounds: int) -> list[tuple[float, float]]:
    """The median CPU seconds and the median peak of each version."""
    seconds: list[list[float]] = [[] for _ in sources]
    peaks: list[list[float]] = [[] for _ in sources]
    for _ in range(rounds):
        versions = [Version(source, kind) for source in sources]
        while {version.step() for version in versions} == {True}:
            pass
        for i, version in enumerate(versions):
            seconds[i].append(version.seconds)
            peaks[i].append(version.end())
    return [(median(s), median(p)) for s, p in zip(seconds, peaks, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sources", nargs="*", type=Path, help="folders that contain lazybo, such as ../before/src")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--kinds", nargs="+", default=KINDS, choices=KINDS)
    parser.add_argument("--serve", choices=KINDS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve)
        return
    if not options.sources:
        parser.error("give at least one folder that contains lazybo")
    print(f"{'steps':>10} {'CPU s':>9} {'ratio':>6} {'peak MB':>8}  source")
    for kind in options.kinds:
        rows = measured(options.sources, kind, options.rounds)
        for source, (seconds, peak) in zip(options.sources, rows, strict=True):
            print(f"{kind:>10} {seconds:9.2f} {seconds / rows[0][0]:6.2f} {peak:8.0f}  {source}", flush=True)


if __name__ == "__main__":
    main()
