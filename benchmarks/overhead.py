"""Milliseconds of ask + tell with n observations, and memory: ``python -m benchmarks.overhead``.

Each contestant runs in its own process and gets the same n random points of a problem. They alternate step by step.
With 5 and 20 parameters it is Levy's function; with 7 the parameters are those of a neural network, three of them whole
numbers, and with 13 those of gradient boosting, three of them choices. The median is the usual step. The mean is over
consecutive steps, so many that our optimiser learns its kernel at least once on the way. Both are also given as a share
of TPE's. A contestant whose step takes longer than --patience seconds is not measured with more observations. Memory is
the peak of the process, libraries included. The last line is a whole run of ours. ``--record`` stores the numbers in
results/overhead.csv for `benchmarks.report`. ``--cpu`` counts CPU time instead of time, for a machine that does other
work.

``--choices 10 1000 3000`` measures instead the CPU time of a step with one choice among so many, and two floats, over
40 evaluations.
"""

import argparse
import resource
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from statistics import mean, median

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from benchmarks.optimizers import OPTIMIZERS, Peer, lazybo
from benchmarks.problems import Params, Problem, levy
from benchmarks.runner import append, play
from benchmarks.trainings import LCBENCH
from lazybo import Space
from lazybo.gp import Learner

RESULTS = Path(__file__).parent / "results" / "overhead.csv"
FIELDS = ("n", "parameters", "optimizer", "ms", "mean_ms", "steps", "peak_mb")
SIZES = (
    *((n, dim) for n in (10, 30, 100, 300, 1000) for dim in (5, 7, 13)),
    (1000, 20),
    *((n, dim) for n in (3000, 10_000) for dim in (5, 7, 13)),
)
BOOSTING: dict[str, BaseDistribution] = {
    "booster": CategoricalDistribution(["gbtree", "gblinear", "dart"]),
    "sample_type": CategoricalDistribution(["uniform", "weighted"]),
    "normalize_type": CategoricalDistribution(["tree", "forest"]),
    "rounds": IntDistribution(3, 2000, log=True),
    "max_depth": IntDistribution(3, 13),
    **{name: FloatDistribution(1e-4, 1000.0, log=True) for name in ("alpha", "lambda", "eta", "gamma")},
    **{
        name: FloatDistribution(0.1, 1.0)
        for name in ("subsample", "colsample_bytree", "colsample_bylevel", "skip_drop")
    },
}
# At least so many steps.
STEPS = 21
# Steps that are longer than this are measured only so many times.
LONG, LONG_STEPS = 1.0, 3
# Evaluations with many choices.
CHOICE_STEPS = 40
COMMAND = [sys.executable, "-m", "benchmarks.overhead"]


def steps_from(n: int) -> int:
    """How many steps to measure: at least as many as from one learning with n observations to the next."""
    return max(STEPS, next(k for k in range(1, sys.maxsize) if Learner().is_due(n, n + k)))


def problem_with(dim: int) -> Problem:
    """A problem with so many parameters."""
    if dim not in (len(LCBENCH), len(BOOSTING)):
        return levy(dim)
    space: dict[str, BaseDistribution] = {**(BOOSTING if dim == len(BOOSTING) else LCBENCH)}
    points = Space(space).points

    def objective(params: Params) -> float:
        u = points.encode(params)
        return float(np.sum((u - 0.3) ** 2) + u[0] * u[-1] + np.sin(5.0 * u[1]))

    return Problem(f"mixed-{dim}d", "mixed", space, objective, 0.0, 1.0)


def serve(name: str, n: int, dim: int, *, cpu: bool) -> None:
    """Serve a contestant with n observations: make a step for each line of input, print its seconds; then the peak."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    problem, rng = problem_with(dim), np.random.default_rng(n)
    encoded = Space(problem.space).points
    points = encoded.decode_all(encoded.sample(rng, n))
    contestant = OPTIMIZERS[name](problem.space, 0, steps_from(n) + 1)
    contestant.load(list(points), [problem.objective(params) for params in points])
    clock = contestant.seconds if cpu else time.perf_counter
    steps = play(problem, contestant, budget=sys.maxsize)
    next(steps)  # the first step factors all observations and learns the kernel, so it is not timed
    print("ready", flush=True)
    for _ in sys.stdin:
        start = clock()
        next(steps)
        print(clock() - start, flush=True)
    print(_peak_mb(contestant))


def _peak_mb(contestant: object) -> float:
    """Peak resident memory in MB; of the peer's own process if it has one."""
    if not isinstance(contestant, Peer):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = Path(f"/proc/{contestant.program.process.pid}/status").read_text().splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


class Serving:
    """A client of `serve`."""

    def __init__(self, name: str, n: int, dim: int, *, cpu: bool) -> None:
        command = [*COMMAND, "--serve", name, str(n), str(dim), *(["--cpu"] if cpu else [])]
        self.process = subprocess.Popen(  # noqa: S603 - this module
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.seconds: list[float] = []
        self._answer()

    def step(self) -> None:
        if len(self.seconds) < LONG_STEPS or median(self.seconds) < LONG:
            assert self.process.stdin is not None
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            self.seconds.append(float(self._answer()))

    def end(self) -> float:
        """Its peak memory in MB."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return float(self._answer())

    def _answer(self) -> str:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"a contestant ended, see above: {self.process.args!r}")
        return answer


def at_size(names: Iterable[str], n: int, dim: int, *, cpu: bool) -> list[dict[str, object]]:
    """A row for each contestant with n observations; they take turns."""
    serving = {name: Serving(name, n, dim, cpu=cpu) for name in names}
    for _ in range(steps_from(n)):
        for each in serving.values():
            each.step()
    rows: list[dict[str, object]] = []
    for name, each in serving.items():
        ms, mean_ms = 1e3 * median(each.seconds), 1e3 * mean(each.seconds)
        row = {"n": n, "parameters": dim, "optimizer": name, "ms": f"{ms:.1f}", "mean_ms": f"{mean_ms:.1f}"}
        rows.append({**row, "steps": len(each.seconds), "peak_mb": f"{each.end():.0f}"})
    return rows


def _shares(row: dict[str, object], other: dict[str, object] | None) -> str:
    """The median and the mean of a row as shares of those of another one."""
    if other is None:
        return ""
    return " ".join(f"{float(str(row[key])) / float(str(other[key])):5.2f}" for key in ("ms", "mean_ms"))


def with_choices(name: str, count: int) -> float:
    """The median CPU seconds of ask + tell with one choice among so many."""
    effects = np.random.default_rng(0).random(count)
    space: dict[str, BaseDistribution] = {
        "choice": CategoricalDistribution(range(count)),
        "x": FloatDistribution(0, 1),
        "y": FloatDistribution(0, 1),
    }
    contestant, seconds = OPTIMIZERS[name](space, 0, CHOICE_STEPS), []
    for _ in range(CHOICE_STEPS):
        start = contestant.seconds()
        (task,) = contestant.ask(1)
        choice, x, y = (task.params[name] for name in space)
        contestant.tell(task, float(effects[choice]) + (x - 0.3) ** 2 + (y - 0.6) ** 2)
        seconds.append(contestant.seconds() - start)
    return median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--optimizers", nargs="+", default=["lazybo", "optuna-tpe", "optuna-gp", "rustuna-tpe"], choices=OPTIMIZERS
    )
    parser.add_argument("--least", type=int, default=0, help="leave out sizes below this")
    parser.add_argument("--most", type=int, default=10_000, help="leave out sizes above this")
    parser.add_argument(
        "--patience", type=float, default=2.0, help="stop measuring a contestant after a step of so many seconds"
    )
    parser.add_argument("--parameters", type=int, nargs="+", help="only these numbers of parameters")
    parser.add_argument("--record", action="store_true", help="store the numbers")
    parser.add_argument("--cpu", action="store_true", help="CPU time instead of time")
    parser.add_argument("--choices", nargs="+", type=int, default=[], help="measure with so many choices")
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        name, n, dim = options.serve
        serve(name, int(n), int(dim), cpu=options.cpu)
        return
    names = list(options.optimizers)
    if options.choices:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        for count in options.choices:
            for name in names:
                print(f"{count:6} choices {name:>16} {1e3 * with_choices(name, count):8.1f} ms", flush=True)
        return
    print(f"{'n':>6} {'parameters':>10} {'optimizer':>16} {'median':>11} {'mean':>11} {'of TPE':>11} {'peak':>9}")
    for n, dim in SIZES:
        if not options.least <= n <= options.most or dim not in (options.parameters or (dim,)):
            continue
        rows = at_size(names, n, dim, cpu=options.cpu)
        tpe = next((row for row in rows if row["optimizer"] == "optuna-tpe"), None)
        for row in rows:
            step = f"{row['ms']:>8} ms {row['mean_ms']:>8} ms {_shares(row, tpe):>11}"
            print(f"{n:6} {dim:10} {row['optimizer']:>16} {step} {row['peak_mb']:>6} MB", flush=True)
            if options.record:
                append(RESULTS, FIELDS, row)
        names = [str(row["optimizer"]) for row in rows if float(str(row["ms"])) <= 1e3 * options.patience or dim != 5]
    problem = levy(5)
    *_, last = play(problem, lazybo()(problem.space, 0, 1000), 1000)
    ms, best = 1e3 * last.seconds / last.n, problem.scale * last.regret
    print(f"\n{last.n} sequential evaluations of Levy-5D by lazybo: {ms:.1f} ms a step, best {best:.2g}")


if __name__ == "__main__":
    main()
