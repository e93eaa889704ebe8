"""Whether every suggestion can be made again from the study alone: ``python -m benchmarks.replay --schedules 200``.

A schedule is a run with 1 to 20 workers on SQLite or a journal whose evaluations take random times, so that results
arrive in an order of their own. Its driver is killed up to three times and started again; some have two drivers at the
same time. Kinds alternate: plain, failures, constraints, several objectives, conditions, partly given configurations,
folds, costs, pruned and paused trainings, a final check with noise, local models. Then `study.replaying` makes all
suggestions again in this process, and those that differ in any bit are counted.

``--cost`` measures what recording costs: bytes of each trial, and its share of the time of a step.
"""

import argparse
import json
import logging
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import optuna
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.study import Study

import lazybo
from lazybo.run import Trial
from lazybo.study import Definition, Store, replay

SPACE = {"x": (-1.0, 1.0), "rate": (1e-4, 1.0, "log"), "width": (1, 64), "kind": ["a", "b", "c"]}
STEPS = 9
MOST_WORKERS = 20
# The most seconds of an evaluation or step, and the most of them that a driver begins before it is killed.
LONGEST, MOST_BEGUN = 0.03, 30
# A process that was killed while it wrote to a journal keeps its lock for so many seconds; Optuna's default is 30.
LOCKED = 3
# The variable with the path of a file that grows by one byte with each of them.
BEGUN = "LAZYBO_REPLAY_BEGUN"
# Drivers are forked from this process, which has imported all modules: starting one takes no time.
FORKS = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Schedule:
    """One run, as its driver process gets it."""

    folder: str
    seed: int
    kind: str
    workers: int
    trials: int
    kills: int
    drivers: int
    executor: str
    storage: str
    synchronous: bool

    @staticmethod
    def draw(seed: int, folder: str) -> "Schedule":
        """The schedule with this number. Kinds alternate, the rest is random."""
        rng = random.Random(seed)  # noqa: S311 (no secret)
        kind, workers = list(KINDS)[seed % len(KINDS)], rng.randint(1, MOST_WORKERS)
        return Schedule(
            folder,
            seed,
            kind,
            workers,
            trials=rng.randint(15, 45),
            kills=rng.randint(0, 3),
            drivers=2 if rng.random() < 0.2 else 1,
            executor="processes" if rng.random() < 0.1 and workers < 5 else "threads",
            storage="study.db" if rng.random() < 0.7 else "study.journal",
            synchronous=rng.random() < 0.1,
        )

    def open(self) -> Any:
        path = Path(self.folder) / self.storage
        if path.suffix == ".db":
            return Store.open(path)
        lock = JournalFileSymlinkLock(str(path), grace_period=LOCKED)
        return optuna.storages.JournalStorage(JournalFileBackend(str(path), lock))


# -------------------------------------------------------------------- objectives


def value_of(params: Mapping[str, Any]) -> float:
    """A value that depends on the parameters alone, after a random time."""
    with Path(os.environ.get(BEGUN, os.devnull)).open("ab") as log:
        log.write(b".")
    time.sleep(random.random() * LONGEST)  # noqa: S311 (when results arrive is no secret)
    x, rate, width = params["x"], params.get("rate", 0.01), params.get("width", 8)
    return float((x - 0.3) ** 2 + 10 * (rate - 0.05) ** 2 + abs(width - 20) / 64 + 0.2 * (params.get("kind") == "b"))


def fails(params: Mapping[str, Any]) -> float:
    if params["x"] > 0.6:
        raise RuntimeError("too far")
    return value_of(params)


def several(params: Mapping[str, Any]) -> tuple[float, float]:
    return value_of(params), params["x"] ** 2


def bounded(params: Mapping[str, Any]) -> dict[str, float]:
    return {"value": value_of(params), "memory": params["width"] * params["rate"]}


def costly(params: Mapping[str, Any]) -> dict[str, float]:
    return {"value": value_of(params), "energy": params["width"]}


def noisy(params: Mapping[str, Any]) -> float:
    return value_of(params) + random.gauss(0, 0.1)


def fold_of(params: Mapping[str, Any], fold: int) -> float:
    return value_of(params) + fold / 100


def reporting(params: Mapping[str, Any], trial: Trial) -> float:
    value = 0.0
    for step in range(1, STEPS + 1):
        value = value_of(params) + 1 / step
        trial.report(value, step)
        if trial.should_prune():
            raise optuna.TrialPruned
    return value


def pausing(params: Mapping[str, Any], checkpoint: Path) -> Iterator[float]:
    state = checkpoint / "step"
    for step in range(int(state.read_text()) + 1 if state.exists() else 1, STEPS + 1):
        value = value_of(params) + 1 / step
        state.write_text(str(step))
        yield value


def conditional() -> lazybo.Space:
    conditions = {"rate": lazybo.Condition("kind", ("a", "b")), "width": lazybo.Condition("kind", ("b",))}
    return lazybo.Space(SPACE, conditions=conditions)


# The objective of each kind, and its further arguments of optimize().
KINDS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "plain": (value_of, {}),
    "failures": (fails, {}),
    "constraints": (bounded, {"constraints": {"memory": 4.0}}),
    "objectives": (several, {"direction": ["minimize", "maximize"]}),
    "conditions": (value_of, {"space": conditional()}),
    "given": (value_of, {"initial": [{"x": 0.1}, {"kind": "c", "rate": 0.5}, {"x": 0.7, "width": 3}]}),
    "folds": (lazybo.kfold(fold_of, 3), {}),
    "cost": (costly, {"sampler": {"cost": "energy"}}),
    "pruned": (reporting, {"max_steps": STEPS}),
    "paused": (pausing, {"max_steps": STEPS}),
    "confirmed": (noisy, {"limits": {"confirm": 6}}),
    "local": (value_of, {"sampler": {"local_after": 12}}),
}


def drive(schedule: Schedule) -> None:
    """Run the schedule to its end."""
    objective, more = KINDS[schedule.kind]
    more = {"space": SPACE, **more}
    lazybo.optimize(
        objective,
        more.pop("space"),
        n_trials=schedule.trials,
        n_parallel=schedule.workers,
        executor=schedule.executor if schedule.workers > 1 else None,
        synchronous=schedule.synchronous,
        storage=schedule.open(),
        seed=schedule.seed,
        limits=lazybo.Limits(retries=100, max_failures=1000, **more.pop("limits", {})),
        sampler=lazybo.LazySampler(**more.pop("sampler", {})),
        checkpoints=Path(schedule.folder) / "checkpoints" if schedule.kind == "paused" else None,
        progress=False,
        **more,
    )


# ------------------------------------------------------------------------ replay


def run(schedule: Schedule) -> tuple[Study, int]:
    """Run a schedule with its kills, and return the study, and how many drivers were killed before it was over."""
    moments, kills = random.Random(schedule.seed), 0  # noqa: S311 (moments of kills)
    begun = Path(schedule.folder) / "begun"
    begun.touch()
    drivers: list[Any] = []
    while True:
        while len(drivers) < schedule.drivers:
            drivers.append(FORKS.Process(target=work, args=(asdict(schedule),)))
            drivers[-1].start()
        end = begun.stat().st_size + moments.randint(0, MOST_BEGUN)
        while drivers[0].is_alive() and (kills == schedule.kills or begun.stat().st_size < end):
            time.sleep(moments.uniform(0.001, 0.05))
        if drivers[0].is_alive():
            drivers[0].kill()
            drivers[0].join()
            del drivers[0]
            kills += 1
            continue
        for each in drivers:
            each.join()
        break
    if any(each.exitcode for each in drivers):
        raise SystemExit(f"a driver of {schedule} failed:\n{(Path(schedule.folder) / 'errors').read_text()[-3000:]}")
    return optuna.load_study(study_name=Definition.DEFAULT_NAME, storage=schedule.open()), kills


def work(schedule: Mapping[str, Any]) -> None:
    """What a driver process does. Objectives are known by the name of this module, so that workers import it."""
    from benchmarks import replay as module

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    folder = Path(schedule["folder"])
    os.environ[BEGUN] = str(folder / "begun")
    with (folder / "errors").open("a") as errors:
        os.dup2(errors.fileno(), sys.stderr.fileno())
        try:
            module.drive(module.Schedule(**schedule))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)  # threads of evaluations may still sleep


def compare(seed: int) -> Counter[str]:
    """Run and replay one schedule; counts suggestions that are the same, differ, or cannot be made again."""
    with tempfile.TemporaryDirectory() as folder:
        schedule = Schedule.draw(seed, folder)
        study, kills = run(schedule)
        found = list(replay(study))
    counts = Counter(
        {
            "suggestions": len(found),
            "differ": sum(each.differs for each in found),
            "missing": sum(bool(each.missing) for each in found),
            "schedules": 1,
            "workers": schedule.workers * schedule.drivers,
            "kills": kills,
        }
    )
    for each in found:
        if each.differs or each.missing:
            print(f"schedule {seed} ({schedule.kind}, {schedule.workers} workers): {each}", flush=True)
    return counts


# -------------------------------------------------------------------------- cost


def cost(trials: int) -> None:
    """Print the bytes that a trial keeps."""
    bytes_of: dict[str, float] = {}
    for kind, workers in (("plain", 1), ("plain", 20), ("paused", 4), ("pruned", 20)):
        with tempfile.TemporaryDirectory() as folder:
            drive(schedule := Schedule(folder, 0, kind, workers, trials, 0, 1, "threads", "study.db", False))
            study = optuna.load_study(study_name=Definition.DEFAULT_NAME, storage=schedule.open())
            bytes_of[f"{kind}, {workers} workers"] = mean(_bytes(each.system_attrs) for each in study.trials)
    for name, count in bytes_of.items():
        print(f"{name:24} {count:6.1f} bytes a trial")


def _bytes(attributes: Mapping[str, Any]) -> int:
    kept = {key: each for key, each in attributes.items() if key.startswith(("lazybo:seen", "lazybo:pause"))}
    return sum(len(key) + len(json.dumps(each)) for key, each in kept.items())


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the counts, and fail if a suggestion differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=200)
    parser.add_argument("--first", type=int, default=0, help="the number of the first schedule")
    parser.add_argument("--cost", type=int, metavar="TRIALS", help="measure what recording costs instead")
    options = parser.parse_args(arguments)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    logging.getLogger("lazybo").setLevel(logging.ERROR)
    if options.cost:
        cost(options.cost)
        return
    counts: Counter[str] = Counter()
    for seed in range(options.first, options.first + options.schedules):
        counts += compare(seed)
        print(f"{seed}: {dict(counts)}", file=sys.stderr, flush=True)
    print(", ".join(f"{counts[name]:,} {name}" for name in ("schedules", "workers", "kills", "suggestions")))
    print(f"{counts['differ']:,} differ, {counts['missing']:,} cannot be made again")
    if counts["differ"]:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
