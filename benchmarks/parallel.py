"""Speed-up with more workers: ``python -m benchmarks.parallel run``, then ``report``.

Tables of real trainings are replayed with their real training times on a virtual clock: nothing sleeps. We measure the
virtual time until a target regret is reached, compared with one worker of the same optimiser.

async: whenever a training ends, its worker gets the next suggestion. With many workers, our runner prepares the
suggestion while trainings run, so it does not use the value that has just arrived; the simulation does the same. For
comparison, mode "ahead" always prepares it and mode "fresh" never does. For Optuna's samplers (TPE with its constant
liar, GPSampler with q-log-EI over the running trials) it is never prepared.

sync: rounds of as many suggestions as there are workers; a round ends with its slowest training. "maxima" and "fantasy"
differ only here: in async mode the first suggestions are made without any value, and later ones one at a time.

The optimiser's own time is measured, but not added to the clock unless ``--with-optimiser`` is given. Runs are stored
in a CSV file; recorded runs are not run again.
"""

import argparse
import heapq
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

import numpy as np
import optuna

from benchmarks import problems
from benchmarks.optimizers import Contestant, Study, Task, gp_sampler, lazybo
from benchmarks.paper.tables import markdown
from benchmarks.problems import Problem
from benchmarks.runner import append, read

RESULTS = Path(__file__).parent / "results" / "parallel.csv"
WORKERS = (1, 5, 20, 100)
# The median regret of one worker of ours after 100 and after 200 evaluations (`benchmarks.run open`, seeds 0 to 9), to
# six decimals, rounded up. 0 means that half of the runs have found the best configuration of the table.
TARGETS: dict[str, dict[int, float]] = {
    "hpobench-australian": {100: 0.061310, 200: 0.059031},
    "hpobench-blood_transfusion": {100: 0.095901, 200: 0.086329},
    "hpobench-car": {100: 0.002005, 200: 0.0},
    "hpobench-credit_g": {100: 0.026070, 200: 0.026070},
    "hpolib-naval_propulsion": {100: 0.000016, 200: 0.0},
    "hpolib-parkinsons_telemonitoring": {100: 0.0, 200: 0.0},
    "nasbench201-cifar10": {100: 0.0, 200: 0.0},
}
# Seeds start here: the targets come from other seeds.
FIRST_SEED = 100
# Twenty workers can gain something if one worker needs at least so many evaluations.
HARD = 100
BOOTSTRAPS = 1000
SEQUENTIAL = "sequential"
MODES = ("async", "ahead", "fresh", "sync")
T = TypeVar("T")
FIELDS = (
    *("problem", "optimizer", "mode", "batch", "workers", "seed", "clock", "target", "regret"),
    *("reached", "time", "evaluations", "optimiser_seconds"),
)


# ------------------------------------------------------------------- contestants


def _tpe(seed: int) -> optuna.samplers.BaseSampler:
    return optuna.samplers.TPESampler(seed=seed, constant_liar=True)


OPTUNA: dict[str, Callable[[int], optuna.samplers.BaseSampler]] = {"optuna-tpe": _tpe, "optuna-gp": gp_sampler}
OPTIMIZERS = ("lazybo", *OPTUNA)


@dataclass(frozen=True)
class Arm:
    """An optimiser, and how its workers get their suggestions."""

    optimizer: str
    mode: str
    batch: str
    workers: int

    def contestant(self, problem: Problem, seed: int) -> Contestant:
        if self.optimizer in OPTUNA:
            return Study(problem.space, OPTUNA[self.optimizer](seed))
        return lazybo(batch=self.batch or "auto")(problem.space, seed, 0)

    @property
    def ahead(self) -> bool:
        """Whether a suggestion is prepared before it is needed."""
        if self.optimizer in OPTUNA or self.workers == 1:
            return False
        return self.mode == "ahead" or (self.mode == "async" and self.workers >= 8)  # as `lazybo.optimize` does


def arms(optimizer: str, modes: Iterable[str], workers: Iterable[int]) -> list[Arm]:
    """The arms of an optimiser. Kinds of batches differ only for our own rounds with several workers."""
    found = []
    for count in workers:
        for mode in modes if count > 1 else [SEQUENTIAL]:
            batches = ("maxima", "fantasy") if mode == "sync" and optimizer not in OPTUNA else ("",)
            found += [Arm(optimizer, mode, batch, count) for batch in batches]
    return found


# -------------------------------------------------------------------- simulation


@dataclass(frozen=True)
class Reached:
    """When a target was reached, or when the run ended without reaching it."""

    reached: bool
    time: float
    evaluations: int
    optimiser_seconds: float


@dataclass
class Simulation:
    """Workers and a driver on a virtual clock, until all targets are reached or the budget of evaluations is spent."""

    problem: Problem
    contestant: Contestant
    targets: dict[int, float]
    budget: int
    with_optimiser: bool = False
    now: float = 0.0
    spent: float = 0.0  # measured seconds of the optimiser
    told: int = 0
    best: float = float("inf")
    running: list[tuple[float, int, Task]] = field(default_factory=list)  # a heap by the time of their ends
    started: int = 0
    reached: dict[int, Reached] = field(default_factory=dict)

    def going_on(self) -> bool:
        return self.told < self.budget and len(self.reached) < len(self.targets)

    def ask(self, n: int) -> list[Task]:
        return self._timed(lambda: self.contestant.ask(n))

    def start(self, tasks: list[Task]) -> None:
        for task in tasks:
            self.started += 1
            heapq.heappush(self.running, (self.now + self.problem.seconds(task.params), self.started, task))

    def wait(self, *, for_all: bool) -> list[Task]:
        """Wait for the first task, or for all; returns the tasks that have ended."""
        end = max(self.running)[0] if for_all else self.running[0][0]
        self.now = max(self.now, end)
        ended = []
        while self.running and self.running[0][0] <= self.now:
            ended.append(heapq.heappop(self.running)[2])
        return ended

    def tell(self, tasks: list[Task]) -> None:
        at = self.now
        for task in tasks:
            value = self.problem.objective(task.params)
            self._timed(lambda task=task, value=value: self.contestant.tell(task, value))  # type: ignore[misc]
            self.told += 1
            self.best = min(self.best, value)
        for target, regret in self.targets.items():
            if target not in self.reached and self.problem.regret(self.best) <= regret:
                self.reached[target] = Reached(True, at, self.told, self.spent)

    def result(self, target: int) -> Reached:
        return self.reached.get(target) or Reached(False, self.now, self.told, self.spent)

    def _timed(self, call: Callable[[], T]) -> T:
        start = time.perf_counter()
        result = call()
        taken = time.perf_counter() - start
        self.spent += taken
        self.now += taken if self.with_optimiser else 0.0
        return result


def synchronous(run: Simulation, workers: int) -> None:
    """Rounds: ask for as many as there are workers, wait for the slowest, tell all."""
    while run.going_on():
        run.start(run.ask(workers))
        run.tell(run.wait(for_all=True))


def asynchronous(run: Simulation, workers: int, *, ahead: bool) -> None:
    """A free worker gets the next suggestion; with ``ahead`` it was prepared while all workers were busy."""
    run.start(run.ask(workers))
    while run.going_on():
        prepared = run.ask(1) if ahead else []
        ended = run.wait(for_all=False)
        run.start(prepared)
        run.tell(ended)
        while len(run.running) < workers:
            run.start(run.ask(1))


def simulate(problem: Problem, arm: Arm, seed: int, targets: dict[int, float], budget: int, clock: str) -> Simulation:
    """One run of an arm."""
    run = Simulation(problem, arm.contestant(problem, seed), targets, budget, with_optimiser=clock == "both")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # peers announce experimental features
        if arm.mode == "sync":
            synchronous(run, arm.workers)
        else:
            asynchronous(run, arm.workers, ahead=arm.ahead)
    return run


def run_all(
    path: Path, chosen: list[Arm], names: Iterable[str], seeds: Iterable[int], budget: int, clock: str, limit: float
) -> None:
    """Append a row for each run and target to ``path``; start no run after ``limit`` seconds."""
    start = time.perf_counter()
    done = {_key(row) for row in read(path)}
    names = list(names)
    for seed in seeds:
        for name in names:
            problem = problems.load(name, 1)
            for arm in chosen:
                if (name, arm, seed, clock) in done:
                    continue
                if time.perf_counter() - start > limit:
                    return
                _append(path, name, arm, seed, clock, simulate(problem, arm, seed, TARGETS[name], budget, clock))


def _key(row: dict[str, str]) -> tuple[str, Arm, int, str]:
    arm = Arm(row["optimizer"], row["mode"], row["batch"], int(row["workers"]))
    return row["problem"], arm, int(row["seed"]), row["clock"]


def _append(path: Path, name: str, arm: Arm, seed: int, clock: str, run: Simulation) -> None:
    for target, regret in run.targets.items():
        end = run.result(target)
        which = {"problem": name, **asdict(arm), "seed": seed, "clock": clock, "target": target, "regret": regret}
        reached = {"reached": int(end.reached), "time": f"{end.time:.3f}", "evaluations": end.evaluations}
        append(path, FIELDS, {**which, **reached, "optimiser_seconds": f"{end.optimiser_seconds:.3f}"})


# ------------------------------------------------------------------------ report

Runs = dict[tuple[str, Arm], list[Reached]]  # by problem and arm, one for each seed
Kind = tuple[str, str, str]  # optimizer, mode, batch


@dataclass(frozen=True)
class Median:
    """The medians of the runs of an arm; lower bounds if half of the runs or more did not reach the target."""

    time: float
    evaluations: float
    bound: bool
    missed: int
    runs: int


def median(runs: list[Reached]) -> Median:
    """Runs that did not reach the target count as later than all others."""
    missed = sum(not run.reached for run in runs)
    bound = 2 * missed >= len(runs)
    times = [run.time if run.reached or bound else np.inf for run in runs]
    counts = [run.evaluations if run.reached or bound else np.inf for run in runs]
    return Median(float(np.median(times)), float(np.median(counts)), bound, missed, len(runs))


@dataclass(frozen=True)
class SpeedUp:
    """The speed-up of many workers over one, by time and by evaluations (as if all trainings took equally long).

    ``sign`` is "<" or ">" for a bound, if half of the runs of many workers or of one did not reach the target, and "?"
    if neither did.
    """

    time: float
    rounds: float
    sign: str


def speed_up(one: list[Reached], many: list[Reached], workers: int) -> SpeedUp:
    a, b = median(one), median(many)
    sign = {(False, False): "", (False, True): "<", (True, False): ">", (True, True): "?"}[a.bound, b.bound]
    return SpeedUp(a.time / b.time, workers * a.evaluations / b.evaluations, sign)


def load(path: Path, target: int, clock: str) -> Runs:
    runs: Runs = defaultdict(list)
    for row in read(path):
        if int(row["target"]) == target and row["clock"] == clock:
            name, arm, _, _ = _key(row)
            if float(row["regret"]) != TARGETS[name][target]:
                raise SystemExit(f"{path} was recorded with another target of {name}: {row['regret']}; use a new file")
            numbers = float(row["time"]), int(row["evaluations"]), float(row["optimiser_seconds"])
            runs[name, arm].append(Reached(row["reached"] == "1", *numbers))
    return runs


def report(path: Path, clock: str) -> str:
    """Markdown tables for each target: first all speed-ups, then the times of each optimiser."""
    parts = []
    for target, runs in _by_target(path, clock):
        ours = {name: median(found) for (name, arm), found in runs.items() if arm == _one("lazybo")}
        hard = [name for name, middle in ours.items() if middle.bound or middle.evaluations >= HARD]
        even = [name for name in ours if not name.startswith("hpobench")]
        kinds = _kinds(runs)
        parts += [
            f"## Target: the median regret of one lazybo worker after {target} evaluations",
            "Geometric mean of the speed-ups: each at most the number of workers (90 % of the means if the seeds are\n"
            "drawn again); as they are; by evaluations alone, as if all trainings took equally long.\n"
            "< or >: for some problem half of the runs or more of many workers or of one did not get there.",
            _summary("all problems", runs, kinds, list(ours)),
            _summary(f"one worker of ours needs {HARD} evaluations or more", runs, kinds, hard),
            _summary("without HPOBench, whose times differ by 10⁴ and more", runs, kinds, even),
            *(_table(runs, target, kind) for kind in kinds),
        ]
    return "\n\n".join(parts)


def times_to_target(path: Path) -> str:
    """The simulated times of the asynchronous runs."""
    return "\n\n".join(
        _table(runs, target, kind)
        for target, runs in _by_target(path, "training")
        for kind in _kinds(runs)
        if kind[1] == "async"
    )


def _by_target(path: Path, clock: str) -> list[tuple[int, Runs]]:
    targets = sorted({int(row["target"]) for row in read(path) if row["clock"] == clock})
    return [(target, load(path, target, clock)) for target in targets]


def _kinds(runs: Runs) -> list[Kind]:
    return sorted(
        {(arm.optimizer, arm.mode, arm.batch) for _, arm in runs if arm.workers > 1},
        key=lambda kind: (OPTIMIZERS.index(kind[0]), MODES.index(kind[1]), kind[2]),
    )


def _summary(title: str, runs: Runs, kinds: list[Kind], names: list[str]) -> str:
    counts = sorted({arm.workers for _, arm in runs if arm.workers > 1})
    rows = [[_label(kind), *(_mean_cell(runs, names, Arm(*kind, count)) for count in counts)] for kind in kinds]
    return markdown([f"{title} ({len(names)}), workers", *map(str, counts)], rows)


def _mean_cell(runs: Runs, names: list[str], many: Arm) -> str:
    one = _one(many.optimizer)
    pairs = [(runs[name, one], runs[name, many]) for name in names if (name, one) in runs and (name, many) in runs]
    pairs = [(a, b) for a, b in pairs if speed_up(a, b, many.workers).sign != "?"]
    if not pairs:
        return ""
    found = [speed_up(a, b, many.workers) for a, b in pairs]
    signs = "".join(sorted({each.sign for each in found}))
    rng = np.random.default_rng(0)
    drawn = [
        _capped_mean([speed_up(_again(rng, a), _again(rng, b), many.workers) for a, b in pairs], many.workers)
        for _ in range(BOOTSTRAPS)
    ]
    low, high = np.quantile(drawn, (0.05, 0.95))
    raw, rounds = _mean([each.time for each in found]), _mean([each.rounds for each in found])
    fewer = f", {len(pairs)} of {len(names)} problems" if len(pairs) < len(names) else ""
    return f"{signs}{_capped_mean(found, many.workers):.1f} ({low:.1f} to {high:.1f}{fewer}); {raw:.1f}; {rounds:.1f}"


def _capped_mean(found: list[SpeedUp], workers: int) -> float:
    """Each problem is capped at the number of workers: that cheap trainings end first is not due to the optimiser."""
    return _mean([min(each.time, workers) for each in found])


def _mean(ratios: list[float]) -> float:
    return float(np.exp(np.mean(np.log(ratios))))


def _again(rng: np.random.Generator, runs: list[Reached]) -> list[Reached]:
    return [runs[i] for i in rng.integers(len(runs), size=len(runs))]


def _table(runs: Runs, target: int, kind: Kind) -> str:
    """Median times, evaluations until then, speed-ups, and how many runs did not reach the target."""
    many = sorted({arm for _, arm in runs if (arm.optimizer, arm.mode, arm.batch) == kind}, key=lambda a: a.workers)
    columns = [_one(kind[0]), *many]
    head = [f"{_label(kind)}, workers (seeds)", "regret", *(f"{arm.workers} ({_seeds(runs, arm)})" for arm in columns)]
    rows = [
        [name, f"{TARGETS[name][target]:.4g}", *(_cell(runs, name, arm) for arm in columns)]
        for name in TARGETS
        if (name, columns[0]) in runs
    ]
    rows.append(["optimiser, ms an evaluation", "", *(_cost(runs, arm) for arm in columns)])
    return markdown(head, rows)


def _cell(runs: Runs, name: str, arm: Arm) -> str:
    if (name, arm) not in runs:
        return ""
    middle = median(runs[name, arm])
    text = f"{'> ' if middle.bound else ''}{_clock(middle.time)}, {middle.evaluations:.0f}"
    if arm.workers > 1:
        found = speed_up(runs[name, _one(arm.optimizer)], runs[name, arm], arm.workers)
        text += ": ?" if found.sign == "?" else f": {found.sign}{found.time:.1f}×"
    return text + (f" ({middle.missed} of {middle.runs} not)" if middle.missed else "")


def _one(optimizer: str) -> Arm:
    return Arm(optimizer, SEQUENTIAL, "", 1)


def _label(kind: Kind) -> str:
    return " ".join(filter(None, kind))


def _seeds(runs: Runs, arm: Arm) -> str:
    counts = sorted({len(found) for (_, other), found in runs.items() if other == arm})
    return str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _cost(runs: Runs, arm: Arm) -> str:
    found = [run for (_, other), runs_of in runs.items() if other == arm for run in runs_of]
    return f"{1e3 * sum(run.optimiser_seconds for run in found) / sum(run.evaluations for run in found):.1f}"


def _clock(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("run", "report"), nargs="?", default="report")
    parser.add_argument("--csv", type=Path, default=RESULTS)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--budget", type=int, default=600, help="end a run after so many evaluations")
    parser.add_argument("--limit", type=float, default=np.inf, help="start no run after so many seconds")
    parser.add_argument("--optimizers", nargs="+", default=list(OPTIMIZERS), choices=OPTIMIZERS)
    parser.add_argument("--modes", nargs="+", default=["async", "sync"], choices=MODES)
    parser.add_argument("--workers", type=int, nargs="+", default=list(WORKERS))
    parser.add_argument("--problems", nargs="+", default=problems.table_names())
    parser.add_argument("--with-optimiser", action="store_true", help="add the optimiser's own time to the clock")
    options = parser.parse_args()
    clock = "both" if options.with_optimiser else "training"
    if options.what == "run":
        chosen = [arm for name in options.optimizers for arm in arms(name, options.modes, options.workers)]
        seeds = range(FIRST_SEED, FIRST_SEED + options.seeds)
        run_all(options.csv, chosen, options.problems, seeds, options.budget, clock, options.limit)
    else:
        print(report(options.csv, clock))


if __name__ == "__main__":
    main()
