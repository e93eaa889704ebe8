"""Kill a run between any two of its writing system calls: ``python -m benchmarks.instants --instants 1000``.

A library of a few lines, compiled when this starts and preloaded, counts the calls of the driver process that write:
write, pwrite, fsync, rename, truncate and their relatives. The driver is killed just before the call with a given
number, in all its threads at once, and the run is started again with the same call. The numbers are drawn at random
(with a seed) from all of an uninterrupted run. Cases: SQLite and a journal; a function in the driver's own process, in
a worker process, and trainings that are paused and resumed from checkpoints. There is one worker, so that there is one
right sequence of suggestions.

Drivers are forked from this process, which has made such runs itself and so has imported all modules, and their files
are in memory where that is possible (a kill is not a power cut). So an instant costs half a second of CPU time. Each is
a row of a file as soon as it is known: a command that was stopped continues.

``--storages postgresql`` starts a server of its own (it needs the programs of PostgreSQL, and psycopg). What is sent to
it counts as a call that writes.

With ``--suspend`` the driver is stopped at that call instead, as by Ctrl-Z or a paused virtual machine. Another driver,
which takes it for one on another machine, works on the study until it has finished, or has given up, or waits. All time
limits are short meanwhile: those of locks, of databases and of heartbeats. Then the first one continues.

Laws, for each instant:

- lost: a value that was recorded, before the callbacks of the run were called, is in the study at the end.
- twice: the study has exactly the wanted trials, and what was recorded before the kill is not evaluated again.
- differ: all suggestions and values are those of the uninterrupted run, bit for bit.

And for a suspension:

- lost: the same, read by Optuna alone, and the driver that continues ends without an error.
- twice: the study has exactly the wanted trials, perhaps with one more that waits and that nobody evaluates, and no
  value was recorded twice.
- differ: replay makes every suggestion again.
"""

import argparse
import csv
import ctypes
import json
import logging
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

import lazybo
from benchmarks.drivers import databases
from lazybo.run import Trial
from lazybo.study import Definition, Store, TrialView, replay

LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;
static atomic_long last = -1; /* -1: not counted */

static atomic_int sent = SIGKILL;

void lazybo_arm(long number, int sign) {
    atomic_store(&sent, sign); atomic_store(&calls, 0); atomic_store(&last, number); }
long lazybo_calls(void) { return atomic_load(&calls); }

static void *before(const char *name) {
    if (atomic_load(&last) >= 0 && atomic_fetch_add(&calls, 1) + 1 == atomic_load(&last))
        kill(getpid(), atomic_load(&sent));
    return dlsym(RTLD_NEXT, name);
}
#define WRAP(type, name, arguments, given) \
    type name arguments { return ((type (*) arguments)before(#name)) given; }
WRAP(ssize_t, write, (int f, const void *b, size_t n), (f, b, n))
WRAP(ssize_t, pwrite, (int f, const void *b, size_t n, off_t o), (f, b, n, o))
WRAP(ssize_t, pwrite64, (int f, const void *b, size_t n, off64_t o), (f, b, n, o))
WRAP(ssize_t, send, (int f, const void *b, size_t n, int g), (f, b, n, g))
WRAP(ssize_t, writev, (int f, const struct iovec *v, int n), (f, v, n))
WRAP(ssize_t, pwritev, (int f, const struct iovec *v, int n, off_t o), (f, v, n, o))
WRAP(int, fsync, (int f), (f))
WRAP(int, fdatasync, (int f), (f))
WRAP(int, ftruncate, (int f, off_t n), (f, n))
WRAP(int, ftruncate64, (int f, off64_t n), (f, n))
WRAP(int, rename, (const char *a, const char *b), (a, b))
WRAP(int, renameat, (int d, const char *a, int e, const char *b), (d, a, e, b))
WRAP(int, link, (const char *a, const char *b), (a, b))
WRAP(int, linkat, (int d, const char *a, int e, const char *b, int g), (d, a, e, b, g))
WRAP(int, symlink, (const char *a, const char *b), (a, b))
WRAP(int, symlinkat, (const char *a, int d, const char *b), (a, d, b))
WRAP(int, unlink, (const char *a), (a))
WRAP(int, unlinkat, (int d, const char *a, int g), (d, a, g))
WRAP(int, mkdir, (const char *a, mode_t m), (a, m))
WRAP(int, mkdirat, (int d, const char *a, mode_t m), (d, a, m))
WRAP(int, rmdir, (const char *a), (a))
#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        va_list more; va_start(more, flags); int mode = flags & O_CREAT ? va_arg(more, int) : 0; va_end(more); \
        int (*real)(const char *, int, ...) = flags & (O_CREAT | O_TRUNC) ? before(#name) : dlsym(RTLD_NEXT, #name); \
        return real(path, flags, mode); }
OPEN(open)
OPEN(open64)
"""
# The variable with the path of the library, so that this program knows that it is preloaded.
PRELOADED = "LD_PRELOAD"
STORAGES = ("sqlite", "journal")
POSTGRESQL = "postgresql"
MODES = ("here", "process", "pauses")
SPACE = {"x": (-1.0, 1.0), "rate": (1e-4, 1.0, "log"), "kind": ["a", "b", "c"]}
TRIALS = {"here": 10, "process": 10, "pauses": 13}
STEPS = 9
SEED = 7
FORKS = multiprocessing.get_context("fork")
LAWS = ("lost", "twice", "differ")
COLUMNS = ("instant", "seed", "storage", "mode", "calls", "call", *LAWS)
RESULTS = {kind: Path(__file__).parent / "results" / f"{kind}.csv" for kind in ("instants", "suspensions")}
# A process that was killed while it wrote to a journal keeps its lock for so many seconds; Optuna's default is 30.
LOCKED = 1
# While a driver is suspended: seconds between heartbeats, until a driver counts as dead, and until a database is locked
# for too long, or ends the session of a client that is silent; and how long the other driver has.
HEARTBEAT, DEAD, BUSY, OTHERS = 0.3, 1.5, 1, 15.0
# Seconds that a driver may take afterwards: long, since only one that hangs should exceed it.
DEADLINE = 1200.0
# Where files are in memory.
IN_MEMORY = Path("/dev/shm")  # noqa: S108 (folders with random names)


@dataclass(frozen=True)
class Case:
    """What is run, and where."""

    storage: str
    mode: str
    folder: Path
    url: str = ""  # of an empty database

    def open(self) -> Any:
        """The storage, opened again."""
        if self.storage != "journal":
            return Store.open(self.url or self.folder / "study.db")
        path = str(self.folder / "study.journal")
        return JournalStorage(JournalFileBackend(path, JournalFileSymlinkLock(path, grace_period=LOCKED)))

    def note(self, *words: object) -> None:
        """Add a line to the log, which other processes read."""
        with (self.folder / "log").open("a") as log:
            log.write(json.dumps(words) + "\n")

    def log(self) -> list[list[Any]]:
        path = self.folder / "log"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def trials(self) -> list[FrozenTrial]:
        """The trials as they are in the study now; none if there is no study yet."""
        storage = self.open()
        known = {each.study_name for each in storage.get_all_studies()}
        if Definition.DEFAULT_NAME not in known:
            return []
        study = optuna.load_study(study_name=Definition.DEFAULT_NAME, storage=storage)
        found = study.trials
        drop_connections(study)
        return found


# ------------------------------------------------------------------ evaluations


@dataclass(frozen=True)
class Function:
    """A value that depends on the parameters alone; some evaluations fail."""

    case: Case

    def __call__(self, params: Mapping[str, Any], trial: Trial) -> float:
        self.case.note("evaluated", trial.number)
        if params["x"] > 0.8:
            raise RuntimeError("too far")
        return value_of(params)


@dataclass(frozen=True)
class Training:
    """The same, step by step, from a checkpoint."""

    case: Case

    def __call__(self, params: Mapping[str, Any], trial: Trial, checkpoint: Path) -> Iterator[float]:
        self.case.note("evaluated", trial.number)
        state = checkpoint / "step"
        for step in range(int(state.read_text()) + 1 if state.exists() else 1, STEPS + 1):
            state.write_text(str(step))
            yield value_of(params) + 1 / step


def value_of(params: Mapping[str, Any]) -> float:
    return float((params["x"] - 0.3) ** 2 + 10 * (params["rate"] - 0.05) ** 2 + 0.2 * (params["kind"] == "b"))


def hurry(name: str) -> None:
    """Make all time limits of this process short, and others take it for one on a machine with this name."""
    patch.multiple("lazybo.run.presence", INTERVAL=HEARTBEAT, TIMEOUT=DEAD, machine=lambda: name).start()
    session = f"SET idle_in_transaction_session_timeout = '{BUSY}s'"
    limits: dict[str, Any] = {"SQLITE_TIMEOUT": BUSY, "RETRY_WAITS": (BUSY,), "POSTGRESQL_SESSION": session}
    patch.multiple("lazybo.study.store", **limits).start()


def drive(
    case: Case, number: int, counted: Any = None, sent: signal.Signals = signal.SIGKILL, host: str | None = None
) -> None:
    """Run the study in this process, which gets a signal before the writing call with this number (0: never)."""
    if host is not None:
        hurry(host)
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123, SIM115 - a driver that gives up says so
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")  # about what the killed process has left, and about LOCKED
    logging.getLogger("lazybo").setLevel(logging.CRITICAL)  # failures are part of the case
    os.environ.pop(PRELOADED, None)  # of worker processes only the driver's own calls count

    def acknowledge(_: Study, trial: FrozenTrial) -> None:
        if trial.state.is_finished():
            case.note("recorded", trial.number, trial.values)

    library = ctypes.CDLL(None)
    library.lazybo_arm(ctypes.c_long(number), ctypes.c_int(sent))
    lazybo.optimize(
        Training(case) if case.mode == "pauses" else Function(case),
        SPACE,
        n_trials=TRIALS[case.mode],
        seed=SEED,
        storage=case.open(),
        executor="processes" if case.mode == "process" else None,
        n_parallel=1,
        max_steps=STEPS if case.mode == "pauses" else None,
        checkpoints=case.folder / "checkpoints" if case.mode == "pauses" else None,
        callbacks=[acknowledge],
        progress=False,
    )
    if counted is not None:
        counted.value = library.lazybo_calls()


def driven(case: Case, number: int = 0, counted: Any = None) -> bool:
    """Run the study in a process of its own; returns whether it was killed."""
    process = FORKS.Process(target=drive, args=(case, number, counted))
    process.start()
    process.join()
    if process.exitcode not in (0, -signal.SIGKILL):
        raise SystemExit(f"a run of {case} failed with exit code {process.exitcode}")
    return process.exitcode != 0


def drop_connections(study: Study) -> None:
    """Close the connections to a database: a server has few, and forked processes must not share them."""
    if (database := Store(study).database) is not None:
        database.engine.dispose()


# ------------------------------------------------------------------------- laws


def content(trials: Sequence[FrozenTrial]) -> list[Any]:
    """What has to be the same at the end, however the run was interrupted."""
    return [(each.number, each.params, each.values, each.state.name, each.intermediate_values) for each in trials]


def broken(case: Case, number: int, reference: Sequence[Any]) -> Counter[str] | None:
    """Kill a run at an instant and start it again; counts the laws that do not hold. None if it ended before."""
    if not driven(case, number):
        return None
    recorded = {each[1]: each[2] for each in case.log() if each[0] == "recorded"}
    before = {each.number: each for each in case.trials() if each.state.is_finished()}
    seen = len(case.log())
    driven(case)
    trials, later = case.trials(), case.log()[seen:]
    values = {each.number: each.values for each in trials}
    lost = any(values.get(each) != value for each, value in recorded.items())
    lost = lost or any(values.get(each) != trial.values for each, trial in before.items())
    again = {each[1] for each in later} & before.keys()
    twice = bool(again) or [each.number for each in trials] != list(range(TRIALS[case.mode]))
    return Counter(dict(zip(LAWS, (lost, twice, content(trials) != reference), strict=True)))


def broken_by_suspension(case: Case, number: int, _: Sequence[Any]) -> Counter[str] | None:
    """Suspend a run at an instant while another works; counts the laws that do not hold. None if it ended before."""
    first = FORKS.Process(target=drive, args=(case, number, None, signal.SIGSTOP, "first"))
    first.start()
    assert first.pid is not None, "it was started"
    status = os.waitid(os.P_PID, first.pid, os.WEXITED | os.WSTOPPED | os.WNOWAIT)
    if status is None or status.si_code != os.CLD_STOPPED:
        first.join()
        return None
    other = FORKS.Process(target=drive, args=(case, 0, None, signal.SIGSTOP, "other"))
    other.start()
    other.join(OTHERS)
    os.kill(first.pid, signal.SIGCONT)
    for process in (first, other):
        process.join(DEADLINE)
        if process.is_alive():
            raise SystemExit(f"a run of {case} hangs after a suspension at call {number}")
    driven(case)  # if the other one gave up, and the first one had a trial that it has put back
    recorded = [(each[1], each[2]) for each in case.log() if each[0] == "recorded"]
    trials = case.trials()
    values = {each.number: each.values for each in trials}
    queued = [each for each in trials if each.state == TrialState.WAITING and not TrialView(each).is_paused]
    counted = [each.number for each in trials if each not in queued and each.state != TrialState.RUNNING]
    lost = first.exitcode != 0 or any(values.get(number) != value for number, value in recorded)
    twice = len({number for number, _ in recorded}) < len(recorded)
    twice = twice or counted != list(range(TRIALS[case.mode])) or len(counted) + len(queued) < len(trials)
    study = optuna.load_study(study_name=Definition.DEFAULT_NAME, storage=case.open())
    differ = any(each.differs for each in replay(study))
    drop_connections(study)
    return Counter(dict(zip(LAWS, (lost, twice, differ), strict=True)))


class References:
    """Uninterrupted runs: the calls of each case, and what its study then contains."""

    def __init__(self, urls: Iterator[str]) -> None:
        self.urls = urls
        self._known: dict[tuple[str, str], tuple[int, list[Any]]] = {}

    def of(self, storage: str, mode: str) -> tuple[int, list[Any]]:
        """The number of calls and the content of the study."""
        if (storage, mode) not in self._known:
            with fresh(storage, mode, self.urls) as case:
                counted = FORKS.Value("l", 0)
                driven(case, counted=counted)
                self._known[storage, mode] = counted.value, content(case.trials())
        return self._known[storage, mode]


@contextmanager
def fresh(storage: str, mode: str, urls: Iterator[str]) -> Iterator[Case]:
    """A case with a folder and an empty storage of its own."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY if IN_MEMORY.is_dir() else None) as folder:
        yield Case(storage, mode, Path(folder), next(urls) if storage == POSTGRESQL else "")


def warm_up(storages: Iterable[str], modes: Iterable[str], urls: Iterator[str]) -> None:
    """Make runs in this process, so that those that are forked from it find all modules imported."""
    for storage in storages:
        for mode in {"here", *modes} - {"process"}:
            with fresh(storage, mode, urls) as case:
                drive(case, 0)


def measure(
    instant: int, seed: int, storage: str, mode: str, references: References, *, suspend: bool
) -> dict[str, Any]:
    """Kill or suspend a run of a case at a random instant: a row of the results."""
    attack = broken_by_suspension if suspend else broken
    calls, reference = references.of(storage, mode)
    numbers = random.Random(f"{seed} {instant} {storage} {mode}")  # noqa: S311 (instants of kills)
    laws = None
    while laws is None:  # a run with fewer calls ends before
        call = numbers.randint(1, calls)
        with fresh(storage, mode, references.urls) as case:
            laws = attack(case, call, reference)
    counts = {law: int(laws[law]) for law in LAWS}
    return {"instant": instant, "seed": seed, "storage": storage, "mode": mode, "calls": calls, "call": call, **counts}


def recorded_in(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of results; none if there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        words = {"storage", "mode"}
        return [
            {name: each if name in words else int(each) for name, each in row.items()} for row in csv.DictReader(file)
        ]


def record(path: Path, row: Mapping[str, Any]) -> None:
    """Add a row to a file of results."""
    is_new = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if is_new:
            writer.writeheader()
        writer.writerow(row)


def preload() -> None:
    """Compile the library and run this program again with it."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise SystemExit("this needs a C compiler: install gcc, or set PATH so that cc is found")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "count.c", Path(folder) / "count.so"
        source.write_text(LIBRARY)
        subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)  # noqa: S603
        command = [sys.executable, "-m", "benchmarks.instants", *sys.argv[1:]]
        raise SystemExit(subprocess.run(command, env={**os.environ, PRELOADED: str(library)}, check=False).returncode)  # noqa: S603


def main() -> None:
    """Print the counts of each case, and fail if a law is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instants", type=int, default=1000, help="of all cases together, which take turns")
    parser.add_argument("--storages", nargs="*", default=STORAGES, choices=(*STORAGES, POSTGRESQL))
    parser.add_argument("--modes", nargs="*", default=MODES, choices=MODES)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--suspend", action="store_true", help="suspend the driver instead of killing it")
    parser.add_argument("--results", type=Path, help="a CSV file; what it has is not run again")
    options = parser.parse_args()
    options.results = options.results or RESULTS["suspensions" if options.suspend else "instants"]
    if PRELOADED not in os.environ:
        preload()
    cases = [(storage, mode) for storage in options.storages for mode in options.modes]
    wanted = [(i, options.seed, *cases[i % len(cases)]) for i in range(options.instants)]
    known = {(row["instant"], row["seed"], row["storage"], row["mode"]): row for row in recorded_in(options.results)}
    server: AbstractContextManager[Iterator[str]] = (
        databases(POSTGRESQL) if POSTGRESQL in options.storages else nullcontext(iter(()))
    )
    with server as urls:
        references = References(urls)
        if any(each not in known for each in wanted):
            warm_up(options.storages, options.modes, urls)
        for each in wanted:
            if each not in known:
                known[each] = measure(*each, references, suspend=options.suspend)
                record(options.results, known[each])
                if any(known[each][law] for law in LAWS):
                    print(known[each], file=sys.stderr, flush=True)
    print(f"{'case':20} {'calls':>8} {'instants':>8}", *(f"{law:>8}" for law in LAWS))
    rows = [known[each] for each in wanted]
    for storage, mode in cases:
        of_case = [row for row in rows if (row["storage"], row["mode"]) == (storage, mode)]
        calls = max((row["calls"] for row in of_case), default=0)
        print(f"{storage + ', ' + mode:20} {calls:8,} {len(of_case):8,}", end="")
        print("", *(f"{sum(row[law] for row in of_case):8,}" for law in LAWS))
    failures = sum(row[law] for row in rows for law in LAWS)
    print(f"{len(rows):,} instants, {failures:,} broken laws")
    if failures:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
