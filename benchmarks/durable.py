"""The cost of a durable trial in milliseconds and commits, optimize() and Optuna: ``python -m benchmarks.durable``.

Five float parameters and an objective that costs nothing, on SQLite with its default durability, in one folder. First
only the recording: the two writes of `optimize()`, compared with ``study.ask(space)`` and ``study.tell`` with
RandomSampler, alternating trial by trial. Then whole runs in alternating blocks: `optimize()`, plain Optuna with
RandomSampler, and plain Optuna with LazySampler, which uses the same optimiser. All numbers are medians over trials.
Last the reported values of a training, each with the answer of the pruner: medians over values.

Only commits of transactions that wrote something are counted, since only these wait for the disk.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import mean, median
from typing import Any
from unittest.mock import patch

import optuna
import sqlalchemy
from optuna.distributions import BaseDistribution, FloatDistribution
from optuna.pruners import BasePruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, RandomSampler
from optuna.storages import BaseStorage, RDBStorage
from optuna.storages._cached_storage import _CachedStorage
from optuna.study import Study
from optuna.trial import TrialState

import lazybo
from benchmarks.timing import alternate
from lazybo import LazySampler, Optimizer
from lazybo.study import Ledger, Result, ledger, open_storage

SPACE: dict[str, BaseDistribution] = {f"x{i}": FloatDistribution(0.0, 1.0) for i in range(5)}
OPTIMISER = ("propose", "propose_batch", "announce", "tell", "observe", "model_state")
SYNCHRONOUS = {0: "OFF", 1: "NORMAL", 2: "FULL", 3: "EXTRA"}


@dataclass
class Counts:
    """The measurements of one contestant."""

    milliseconds: list[float] = field(default_factory=list)  # of each trial
    commits: int = 0
    trials: int = 0
    inside: dict[str, float] = field(default_factory=dict)  # milliseconds in parts of it, in all trials

    def __str__(self) -> str:
        return f"{median(self.milliseconds):8.2f} ms {self.commits / self.trials:8.1f} commits"


def database_of(study: Study) -> sqlalchemy.Engine:
    storage = study._storage
    if isinstance(storage, _CachedStorage):
        storage = storage._backend
    assert isinstance(storage, RDBStorage)
    return storage.engine


@contextmanager
def counted(study: Study, counts: Counts) -> Iterator[None]:
    """Count the transactions that write to the study's database."""

    def commit(connection: sqlalchemy.Connection) -> None:
        # The driver opens a transaction with the first statement that writes, not for those that read.
        counts.commits += bool(connection.connection.dbapi_connection.in_transaction)  # type: ignore[union-attr]

    engine = database_of(study)
    sqlalchemy.event.listen(engine, "commit", commit)
    try:
        yield
    finally:
        sqlalchemy.event.remove(engine, "commit", commit)


# ------------------------------------------------------------- recording alone


def recording(folder: Path, trials: int) -> dict[str, Counts]:
    """Measure the two writes of a trial, alternating between the contestants."""
    ours, plain = Counts(), Counts()
    storage = open_storage(folder / "recording.db")
    study = optuna.create_study(storage=storage)
    book = ledger.open_ledger(study, SPACE, "benchmark")
    assert isinstance(book, Ledger)
    optunas = optuna.create_study(storage=open_storage(folder / "recording-optuna.db"), sampler=RandomSampler(seed=0))
    numbers = iter(range(trials + 1))

    def write() -> None:
        number = next(numbers)
        params = dict.fromkeys(SPACE, number / (trials + 1))
        entry = book.begin(number, params, lambda _: params)
        assert entry is not None
        book.finish(entry, Result(TrialState.COMPLETE, 0.5, {}, {}))

    def ask_and_tell() -> None:
        optunas.tell(optunas.ask(SPACE), 0.5)

    with counted(study, ours), counted(optunas, plain):
        seconds = alternate({"ours": write, "plain": ask_and_tell}, trials)
    for counts, name in ((ours, "ours"), (plain, "plain")):
        counts.milliseconds, counts.trials = [1e3 * seconds[name]], trials + 1
    assert len(study.trials) == len(optunas.trials) == trials + 1
    return {"ledger.begin, ledger.finish": ours, "ask, tell, RandomSampler": plain}


# ------------------------------------------------------------------ whole runs


def whole(folder: Path, blocks: int, trials: int) -> dict[str, Counts]:
    """Measure whole runs in alternating blocks of trials."""
    ours, contestants = Counts(), {"ask, tell, RandomSampler": Counts(), "ask, tell, LazySampler": Counts()}
    samplers: list[BaseSampler] = [RandomSampler(seed=0), LazySampler(seed=0)]
    studies = [
        optuna.create_study(storage=open_storage(folder / f"{i}.db"), sampler=sampler)
        for i, sampler in enumerate(samplers)
    ]
    for block in range(1, blocks + 1):
        optimize_block(folder / "optimize.db", block * trials, ours)
        for study, counts in zip(studies, contestants.values(), strict=True):
            with counted(study, counts):
                counts.milliseconds += [1e3 * seconds for seconds in _timed(study, trials)]
            counts.trials += trials
    return {"optimize()": ours, **contestants}


def _timed(study: Study, trials: int) -> Iterator[float]:
    for _ in range(trials):
        start = time.perf_counter()
        trial = study.ask(SPACE)
        study.tell(trial, sphere(trial.params))
        yield time.perf_counter() - start


def optimize_block(database: Path, n_trials: int, counts: Counts) -> None:
    """One call of optimize() that continues to so many trials. A step is from one evaluation to the next."""
    moments: list[float] = []
    before: list[tuple[float, int, dict[str, float]]] = []
    study: list[Study] = []
    stack = ExitStack()

    def objective(params: dict[str, float]) -> float:
        now = time.perf_counter()
        moments.append(now)
        before.append((now, counts.commits, dict(counts.inside)))
        return sphere(params)

    def opened(of: Study, *arguments: Any, **options: Any) -> ledger.Ledger:
        if not study:
            study.append(of)
            stack.enter_context(counted(of, counts))
        return original(of, *arguments, **options)

    original = ledger.open_ledger
    counts_at_start = counts.commits, dict(counts.inside)
    with stack, patch.object(ledger, "open_ledger", opened):
        for name in OPTIMISER:
            stack.enter_context(patch.object(Optimizer, name, _watched(Optimizer, name, "optimiser", counts)))
        for name in ("begin", "finish"):
            stack.enter_context(patch.object(Ledger, name, _watched(Ledger, name, "ledger", counts)))
        lazybo.optimize(objective, SPACE, n_trials=n_trials, storage=database, seed=0, progress=False)
    counts.milliseconds += [1e3 * (later - earlier) for earlier, later in pairwise(moments)]
    counts.trials += len(moments) - 1
    # The work before the first evaluation and after the last one belongs to the call, not to its trials.
    counts.commits = counts_at_start[0] + before[-1][1] - before[0][1]
    counts.inside = {
        name: counts_at_start[1].get(name, 0.0) + total - before[0][2].get(name, 0.0)
        for name, total in before[-1][2].items()
    }


def _watched(owner: type, name: str, part: str, counts: Counts) -> Callable[..., Any]:
    """Wrap a method to add up its time. A measured method that is called by another one is not counted twice."""
    method = getattr(owner, name)

    def run(*arguments: Any, **options: Any) -> Any:
        if _watching:
            return method(*arguments, **options)
        _watching.append(name)
        start = time.perf_counter()
        try:
            return method(*arguments, **options)
        finally:
            _watching.pop()
            counts.inside[part] = counts.inside.get(part, 0.0) + 1e3 * (time.perf_counter() - start)

    return run


_watching: list[str] = []


def sphere(params: dict[str, float]) -> float:
    return sum((x - 0.3) ** 2 for x in params.values())


# ------------------------------------------------------------------------ reports


def reporting(folder: Path, values: int, pruner: Callable[[], BasePruner]) -> dict[str, Counts]:
    """Measure the reported values of four trainings, of `optimize()` and of plain Optuna."""
    contestants = {"optimize(), trial.report": Counts(), "Optuna, trial.report": Counts()}
    for (name, counts), run in zip(contestants.items(), (_reporting_run, _reporting_study), strict=True):

        def train(trial: Any, counts: Counts = counts) -> float:
            for step in range(values):
                start = time.perf_counter()
                trial.report(1.0 / (step + 1), step)
                trial.should_prune()
                counts.milliseconds.append(1e3 * (time.perf_counter() - start))
            return 0.0

        storage = open_storage(folder / f"{name[:4]}-{pruner().__class__.__name__}.db")
        with counted(optuna.create_study(study_name="only to count", storage=storage), counts):
            run(train, storage, pruner())
        counts.trials = len(counts.milliseconds)
    return contestants


def _reporting_run(train: Callable[[Any], float], storage: BaseStorage, pruner: BasePruner) -> None:
    lazybo.optimize(
        lambda params, trial: train(trial) + 0.0 * len(params),
        SPACE,
        n_trials=4,
        storage=storage,
        pruner=pruner,
        executor="serial",
        progress=False,
        seed=0,
    )


def _reporting_study(train: Callable[[Any], float], storage: BaseStorage, pruner: BasePruner) -> None:
    study = optuna.create_study(study_name="reports", storage=storage, pruner=pruner, sampler=RandomSampler(seed=0))
    study.optimize(lambda trial: 0.0 * trial.suggest_float("x", 0, 1) + train(trial), n_trials=4)


# --------------------------------------------------------------------- durability


def durability(folder: Path) -> dict[str, str]:
    """The SQLite settings in the connections of a study that `optimize()` opened."""
    study = lazybo.optimize(sphere, SPACE, n_trials=1, storage=folder / "durability.db", progress=False)
    with database_of(study).connect() as connection:
        ask = {name: connection.execute(sqlalchemy.text(f"PRAGMA {name}")).scalar_one() for name in PRAGMAS}
    return {name: SYNCHRONOUS[value] if name == "synchronous" else str(value) for name, value in ask.items()}


PRAGMAS = ("synchronous", "journal_mode")


def disk(folder: Path) -> float:
    """Milliseconds to write a page to a file and wait until the disk has it."""
    file = os.open(folder / "page", os.O_CREAT | os.O_WRONLY)

    def write() -> None:
        os.pwrite(file, b"x" * 4096, 0)
        os.fsync(file)

    try:
        return 1e3 * alternate({"fsync": write}, 50)["fsync"]
    finally:
        os.close(file)


def show(results: dict[str, Counts]) -> None:
    first, *others = results.values()
    for name, counts in results.items():
        times = median(counts.milliseconds) / median(first.milliseconds)
        print(f"  {name:<30}{counts}" + (f"   {times:.1f}× ours" if counts in others else ""))
    rest = mean(first.milliseconds)
    for part, total in first.inside.items():
        print(f"    {'in the ' + part:<28}{total / first.trials:8.2f} ms (mean)")
        rest -= total / first.trials
    if first.inside:
        print(f"    {'elsewhere':<28}{rest:8.2f} ms (mean)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--blocks", type=int, default=5, help="number of alternating blocks of the whole runs")
    parser.add_argument("--values", type=int, default=50, help="reported values of a training")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="durable-", dir=Path.cwd()) as name:
        folder = Path(name)
        print("SQLite:", ", ".join(f"{name} {value}" for name, value in durability(folder).items()), end="; ")
        print(f"a page to the disk: {disk(folder):.2f} ms")
        print(f"\nrecording alone, {options.trials} trials each")
        show(recording(folder, options.trials))
        print(f"\nwhole runs, {options.trials} trials each in {options.blocks} blocks")
        show(whole(folder, options.blocks, options.trials // options.blocks))
        for pruner in (NopPruner, MedianPruner, lazybo.LazyPruner):
            print(f"\nreported values with {pruner.__name__}, {4 * options.values} each")
            show(reporting(folder, options.values, pruner))


if __name__ == "__main__":
    main()
