"""A cluster of hosts with real faults: ``python -m benchmarks.hosts --repeat 5`` (as root).

Eight hosts, each with its own network, address and processes (`benchmarks.namespaces`): PostgreSQL, a Dask scheduler,
four workers and two drivers, which call `lazybo.optimize()` on one study. In the middle of a run a fault happens:

- ``cut``: a worker, a driver or the scheduler is cut off for 30 s, without a sign, and comes back;
- ``gone``: a worker or a driver is gone for good;
- ``database``: the database is cut off for 30 s;
- ``slow``: 200 ms between any two hosts and back, and 5 % of all frames are lost;
- ``restart``: the scheduler is killed, and a new one started at its address;
- ``clock``: one host's clock is a day ahead, by a small library that all its programs load; the file server's is right;
- ``disk``: the file system of all checkpoints is full for 10 s.

Trainings have steps and checkpoints. Every evaluation writes to a log, whose file no fault reaches, when it begins and
before it returns; drivers write what the study has acknowledged. Values have a random part, which identifies the
evaluation that they are from. Then the study is compared with the log. Laws, counted as violations:

- twice: trials beside those wanted, acknowledged twice, with a value that none of their evaluations has returned, or
  with an epoch that was counted twice;
- lost: trials that the study has acknowledged, and that have another value, or none, in the end;
- dead: trials that failed, and trials that were begun again although the outage was shorter than its limit: nothing
  was killed;
- hung: drivers on living hosts that failed, or did not end.

Heartbeats are more frequent here than by default, and their limit is 60 s instead of 120; Dask's limit for connections
is 60 s. A supervisor restarts Dask workers that exit, as on clusters. ``--engine ray`` uses Ray instead of Dask; a
round with it has not ended yet.
"""

import argparse
import json
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import optuna
import psutil
from optuna.storages import RDBStorage
from optuna.trial import FrozenTrial, TrialState

import lazybo
from benchmarks.namespaces import Host, Switch, not_permitted, private_mounts
from lazybo.run import Trial

ROOT = Path(__file__).parents[1]
STUDY = "hosts"
SPACE = {"x": (-1.0, 1.0), "rate": (1e-4, 1.0, "log"), "width": (1, 64), "kind": ["a", "b", "c"]}
WORKERS, DRIVERS = ("worker1", "worker2", "worker3", "worker4"), ("driver1", "driver2")
NUMBERS = {name: i for i, name in enumerate(("database", "scheduler", *WORKERS, *DRIVERS), 1)}
# The epochs of a training; seconds of each; seconds that a host is cut off, and that the disk is full.
EPOCHS, EPOCH, OUTAGE, FULL = 4, 0.5, 30.0, 10.0
INTERVAL, TIMEOUT = 5.0, 60.0  # of heartbeats
# Seconds that a round may take: long, since only one that hangs should exceed it.
DEADLINE = 400.0
# A library that sets the time of day a day ahead. Time namespaces have no clock of that kind, and under libfaketime
# (0.9.10) Python's time.sleep fails with "Invalid argument".
CLOCK = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>
enum { DAY = 24 * 3600 };
int clock_gettime(clockid_t which, struct timespec *now) {
    int (*real)(clockid_t, struct timespec *) = dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(which, now);
    if (result == 0 && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE)) now->tv_sec += DAY;
    return result;
}
int gettimeofday(struct timeval *now, void *zone) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    now->tv_sec = exact.tv_sec;
    now->tv_usec = exact.tv_nsec / 1000;
    return 0;
}
time_t time(time_t *result) {
    struct timespec exact;
    clock_gettime(CLOCK_REALTIME, &exact);
    if (result) *result = exact.tv_sec;
    return exact.tv_sec;
}
"""
PORTS = {"dask": 8786, "ray": 6379}
CHECKPOINTS = "size=8m,nr_inodes=4k"  # the file system of all checkpoints


# ---------------------------------------------------------------- what drivers and workers do


@dataclass(frozen=True)
class Setting:
    """What a driver gets."""

    url: str
    executor: str
    folder: str
    checkpoints: str
    driver: str
    trials: int
    epochs: int = EPOCHS


def drive(setting: Setting) -> None:
    """The program of a driver."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    patch.multiple("lazybo.run.presence", INTERVAL=INTERVAL, TIMEOUT=TIMEOUT).start()
    executor: Any = setting.executor
    if executor == "ray":
        import ray

        ray.init(address="auto", log_to_driver=False)

    def acknowledged(_: optuna.Study, trial: FrozenTrial) -> None:
        write(setting.folder, "recorded", number=trial.number, value=trial.value, driver=setting.driver)

    lazybo.optimize(
        training(setting),
        SPACE,
        n_trials=setting.trials,
        n_parallel=len(WORKERS) // len(DRIVERS),
        executor=executor,
        storage=setting.url,
        study_name=STUDY,
        seed=0,
        checkpoints=setting.checkpoints,
        pruner=optuna.pruners.NopPruner(),
        callbacks=[acknowledged],
        progress=False,
    )


def training(setting: Setting) -> Callable[..., Generator[float, None, dict[str, Any]]]:
    """A training that counts its epochs in its checkpoint."""

    def train(params: dict[str, Any], trial: Trial, checkpoint: Path) -> Generator[float, None, dict[str, Any]]:
        file, chance = checkpoint / "epochs.json", random.SystemRandom()
        epochs: list[int] = json.loads(file.read_text()) if file.exists() else []
        who = {"id": uuid.uuid4().hex, "number": trial.number, "driver": setting.driver, "host": socket.gethostname()}
        write(setting.folder, "begin", params=params, epochs=epochs, **who)
        value = 0.0
        while len(epochs) < setting.epochs:
            time.sleep(EPOCH)
            epochs.append(len(epochs) + 1)
            with suppress(OSError):  # a full disk need not end a training
                part = file.with_suffix(".part")
                part.write_text(json.dumps(epochs))
                part.replace(file)
            value = params["x"] ** 2 + abs(params["rate"] - 0.03) + params["width"] / 64 + chance.uniform(0, 1e-3)
            yield value
        write(setting.folder, "return", params=params, value=value, **who)
        return {"value": value, "epochs": epochs}

    return train


def write(folder: str, event: str, **what: Any) -> None:
    """Append a line to the log in one write, so that lines stay complete."""
    line = json.dumps({"event": event, "time": time.monotonic(), **what}) + "\n"
    file = os.open(Path(folder, "log"), os.O_APPEND | os.O_CREAT | os.O_WRONLY, 0o666)
    try:
        os.write(file, line.encode())
    finally:
        os.close(file)


def logged(folder: Path, event: str) -> list[dict[str, Any]]:
    try:
        lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    except FileNotFoundError:
        return []
    return [line for line in lines if line["event"] == event]


# ------------------------------------------------------------------------------ the cluster


class Cluster:
    """All hosts and what runs on them. Hosts that are gone are started again by `repair`."""

    def __init__(self, folder: Path, switch: Switch, engine: str) -> None:
        self.folder, self.engine, self._switch = folder, engine, switch
        self.hosts: dict[str, Host] = {}
        self.checkpoints = folder / "checkpoints"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ahead: set[str] = set()  # hosts whose clock is a day ahead
        self._databases = 0
        self.checkpoints.mkdir()
        options = f"{CHECKPOINTS},mode=1777"
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.checkpoints)], check=True)  # noqa: S603, S607

    def close(self) -> None:
        for host in self.hosts.values():
            host.stop()
        subprocess.run(["umount", "--lazy", str(self.checkpoints)], check=False)  # noqa: S603, S607

    def repair(self, ahead: set[str]) -> None:
        """Start the hosts that are missing, with the clocks of these a day ahead, and heal the network."""
        for name in {name for name in self.hosts if (name in self._ahead) != (name in ahead)}:
            self.hosts[name].stop()
        self._ahead = ahead
        for name, number in NUMBERS.items():
            if name not in self.hosts or self.hosts[name].is_gone:
                self.hosts[name] = Host(self._switch, name, number)
                self._boot(name)
            port = self.hosts[name].port
            port.is_cut, port.delay, port.loss = False, 0.0, 0.0

    def _boot(self, name: str) -> None:
        if name == "database":
            self._start_database()
        elif name == "scheduler":
            self.start_scheduler()
        elif self.engine == "ray":
            size = "1" if name in WORKERS else "0"  # a driver needs a node of its own, without processors
            self._supervise(name, "ray", "start", "--block", f"--address={self._scheduler}", f"--num-cpus={size}")
        elif name in WORKERS:
            where = ["--host", self.hosts[name].address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
            self._supervise(name, "dask", "worker", f"tcp://{self._scheduler}", *where, "--local-directory", "/tmp")  # noqa: S108

    @property
    def _scheduler(self) -> str:
        return f"{self.hosts['scheduler'].address}:{PORTS[self.engine]}"

    def start_scheduler(self) -> None:
        host = self.hosts["scheduler"]
        if self.engine == "ray":
            where = [f"--node-ip-address={host.address}", "--num-cpus=0", "--include-dashboard=false"]
            self._start("scheduler", "ray", "start", "--head", "--block", *where)
        else:
            self._start("scheduler", "dask", "scheduler", "--host", host.address, "--no-dashboard")

    def kill_scheduler(self) -> None:
        """Kill its process, which leaves its connections open: its host still answers, with resets."""
        for process in psutil.Process(self._running["scheduler"].pid).children(recursive=True):
            process.send_signal(signal.SIGKILL)
        self._running["scheduler"].wait()

    def _supervise(self, name: str, program: str, *arguments: str) -> None:
        """Start a program again whenever it exits."""
        again = 'while true; do "$@"; sleep 1; done'
        self._start(name, "sh", "-c", again, "supervisor", str(Path(sys.executable).parent / program), *arguments)

    def _start(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        beside = Path(sys.executable).parent / program
        environment = {
            "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}",
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "60s",
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_TMPDIR": f"/tmp/ray-{os.getpid()}-{name}",  # noqa: S108
        }
        if name in self._ahead:
            environment["LD_PRELOAD"] = str(self._clock())
        with (self.folder / f"{name}.txt").open("ab") as output:
            self._running[name] = self.hosts[name].start(
                str(beside) if beside.exists() else program,
                *arguments,
                folder=ROOT,
                output=output,
                environment=environment,
            )
        return self._running[name]

    def _clock(self) -> Path:
        """The library that sets clocks ahead."""
        library = self.folder / "clock.so"
        if not library.exists():
            source = library.with_suffix(".c")
            source.write_text(CLOCK)
            subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)  # noqa: S603, S607
        return library

    def drive(self, name: str, url: str, folder: Path, trials: int) -> subprocess.Popen[bytes]:
        """Start a driver."""
        executor = "ray" if self.engine == "ray" else f"dask://{self._scheduler}"
        setting = Setting(url, executor, str(folder), str(self.checkpoints / folder.name), name, trials)
        return self._start(name, "python", "-m", "benchmarks.hosts", "--drive", json.dumps(asdict(setting)))

    # ------------------------------------------------------------------------- database

    def _start_database(self) -> None:
        from tests import postgres

        binaries, user, host = postgres.binaries(), postgres.servant(), self.hosts["database"]
        assert binaries is not None, "PostgreSQL is not installed"
        assert user is not None, "only root gets here"
        home, data = self.folder / "database", self.folder / "database" / "data"
        if not data.exists():
            home.mkdir()
            shutil.chown(home, user)
            arguments = ("--auth=trust", "--username=lazybo", "--encoding=UTF8", "-D", str(data))
            postgres.run(binaries / "initdb", *arguments, user=user)
            with (data / "pg_hba.conf").open("a") as rules:
                rules.write("host all all samenet trust\n")
        entry = pwd.getpwnam(user)
        options = ("-c", f"listen_addresses={host.address}", "-c", f"unix_socket_directories={home}")
        with (self.folder / "database.txt").open("ab") as output:
            who = (entry.pw_uid, entry.pw_gid)
            program = str(binaries / "postgres")
            host.start(program, "-D", str(data), *options, folder=home, output=output, user=who)
        until(lambda: _accepts(home / ".s.PGSQL.5432"), 60.0, "PostgreSQL starts")

    def new_database(self) -> tuple[str, str]:
        """An empty database: its URL on the network, and one for this program, which is not on the network."""
        import psycopg

        self._databases += 1
        home, name = self.folder / "database", f"round{self._databases}"
        with psycopg.connect(f"host={home} user=lazybo dbname=postgres", autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"'.encode())
        by_socket = f"postgresql+psycopg://lazybo@/{name}?host={home}"
        return f"postgresql+psycopg://lazybo@{self.hosts['database'].address}/{name}", by_socket


def _accepts(path: Path) -> bool:
    """Whether a server listens at this socket and accepts sessions."""
    import psycopg

    try:
        psycopg.connect(f"host={path.parent} user=lazybo dbname=postgres", connect_timeout=5).close()
    except psycopg.OperationalError:
        return False
    return True


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"after {seconds:g} s it did not happen that {what}")
        time.sleep(0.05)


# ---------------------------------------------------------------------------------- faults


@dataclass(frozen=True)
class Fault:
    """What happens in the middle of a run, to which host in each round."""

    happen: Callable[[Cluster, str], None]
    victims: tuple[str, ...]
    kills: bool = False  # evaluations die, so trials are begun again
    clock: bool = False  # the victim's clock is ahead from the start


def cut_off(cluster: Cluster, name: str, seconds: float = OUTAGE) -> None:
    cluster.hosts[name].port.is_cut = True
    time.sleep(seconds)
    cluster.hosts[name].port.is_cut = False


def gone(cluster: Cluster, name: str) -> None:
    cluster.hosts[name].stop()


def slow(cluster: Cluster, _: str) -> None:
    for host in cluster.hosts.values():
        host.port.delay, host.port.loss = 0.1, 0.05


def restart(cluster: Cluster, _: str) -> None:
    cluster.kill_scheduler()
    time.sleep(2.0)
    cluster.start_scheduler()


def nothing(_: Cluster, __: str) -> None:
    """The clock is ahead all the time."""


def fill_disk(cluster: Cluster, _: str) -> None:
    """Use up all space and all inodes, and what is freed meanwhile."""
    folder = cluster.checkpoints / "filler"
    folder.mkdir()
    deadline, count = time.monotonic() + FULL, 0
    while time.monotonic() < deadline:
        for size in (65536, 0):
            with suppress(OSError):
                while True:
                    count += 1
                    (folder / str(count)).write_bytes(b"x" * size)
        time.sleep(0.02)
    shutil.rmtree(folder)


FAULTS = {
    "none": Fault(nothing, ("",)),
    "cut": Fault(cut_off, ("worker1", "driver1", "scheduler", "worker2", "driver2")),
    "gone": Fault(gone, ("worker1", "driver1", "worker2", "driver2", "worker3"), kills=True),
    "database": Fault(cut_off, ("database",)),
    "slow": Fault(slow, ("",)),
    "restart": Fault(restart, ("scheduler",), kills=True),
    "clock": Fault(nothing, ("driver1", "worker1", "driver2", "scheduler", "worker2"), clock=True),
    "disk": Fault(fill_disk, ("",)),
}


# ---------------------------------------------------------------------------------- rounds

LAWS = ("twice", "lost", "dead", "hung")


@dataclass
class Round:
    """What happened in one round; ``broken`` has the violations of each law."""

    counts: Counter[str] = field(default_factory=Counter)
    broken: dict[str, list[str]] = field(default_factory=lambda: {law: [] for law in LAWS})
    seconds: float = 0.0


def run_round(cluster: Cluster, fault: Fault, number: int, trials: int) -> Round:
    """One run of both drivers, with the fault in the middle."""
    victim = fault.victims[number % len(fault.victims)]
    cluster.repair({victim} if fault.clock else set())
    url, local = cluster.new_database()
    folder, result = Path(tempfile.mkdtemp(prefix="round-", dir=cluster.folder)), Round()
    folder.chmod(0o777)
    start = time.monotonic()
    drivers = {name: cluster.drive(name, url, folder, trials) for name in DRIVERS}
    until(lambda: len(logged(folder, "recorded")) >= trials // 6, DEADLINE, f"trials end; see {cluster.folder}")
    fault.happen(cluster, victim)
    for name, process in drivers.items():
        left = start + DEADLINE - time.monotonic()
        try:
            outcome = str(process.wait(max(left, 0.1)))
        except subprocess.TimeoutExpired:
            outcome = "still runs"
        if outcome != "0" and not cluster.hosts[name].is_gone:
            result.broken["hung"].append(f"{name}: {outcome}; it said:\n{said(cluster, name)}")
            cluster.hosts[name].stop()  # the next round begins with a new one
    result.seconds = time.monotonic() - start
    _examine(local, folder, trials, fault, result)
    return result


def said(cluster: Cluster, name: str) -> str:
    return (cluster.folder / f"{name}.txt").read_text()[-1500:]


def _examine(url: str, folder: Path, trials: int, fault: Fault, result: Round) -> None:
    """Compare the study with the log."""
    storage = RDBStorage(url)
    try:
        found = optuna.load_study(study_name=STUDY, storage=storage).trials
    finally:
        storage.engine.dispose()
    begun, recorded = logged(folder, "begin"), logged(folder, "recorded")
    returned = {(line["number"], line["value"]): line["params"] for line in logged(folder, "return")}
    complete = [trial for trial in found if trial.state == TrialState.COMPLETE]
    twice, lost, dead = (result.broken[law] for law in LAWS[:3])
    ended = [trial for trial in found if trial.state.is_finished()]
    if not result.broken["hung"]:
        twice += [f"{len(ended)} trials ended, not {trials}"] * (len(ended) != trials)
    twice += [
        f"trial {n} acknowledged {c} times" for n, c in Counter(line["number"] for line in recorded).items() if c > 1
    ]
    twice += [
        f"nothing has returned {t.value} of trial {t.number}"
        for t in complete
        if returned.get((t.number, t.value)) != t.params
    ]
    wanted = list(range(1, EPOCHS + 1))
    twice += [
        f"epochs of trial {t.number}: {t.user_attrs['epochs']}" for t in complete if t.user_attrs["epochs"] != wanted
    ]
    values = {trial.number: trial.value for trial in ended}
    lost += [
        f"{line}, not {values.get(line['number'])}" for line in recorded if values.get(line["number"]) != line["value"]
    ]
    dead += [f"trial {t.number}: {t.system_attrs.get('fail_reason')}" for t in found if t.state == TrialState.FAIL]
    again = [number for number, times in Counter(line["number"] for line in begun).items() if times > 1]
    if not fault.kills:
        dead += [f"trial {n} was begun again: {[line for line in begun if line['number'] == n]}" for n in again]
    result.counts["trials"] = len(ended)
    result.counts["acknowledged"] = len(recorded)
    result.counts["begun"] = len(begun)
    result.counts["again"] = len(again)


# --------------------------------------------------------------------------------- command


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--faults", nargs="+", choices=list(FAULTS), default=[name for name in FAULTS if name != "none"]
    )
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first round, which decides which host fails")
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--engine", choices=list(PORTS), default="dask")
    parser.add_argument("--keep", action="store_true", help="keep what drivers and workers have said")
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.drive:
        drive(Setting(**json.loads(options.drive)))
        return 0
    reason = not_permitted()
    if reason is not None:
        print(reason)
        return 2
    if "clock" in options.faults and shutil.which("cc") is None:
        print("the fault clock needs a C compiler (on Debian: apt install gcc libc6-dev)")
        return 2
    return run(options)


@contextmanager
def cluster_of(engine: str, keep: bool) -> Iterator[Cluster]:
    private_mounts()
    folder = Path(tempfile.mkdtemp(prefix="lazybo-hosts-"))
    folder.chmod(0o755)
    with ExitStack() as stack:
        if keep:
            print(f"what hosts say is in {folder}")
        else:
            stack.callback(shutil.rmtree, folder, ignore_errors=True)
        switch = stack.enter_context(Switch())
        cluster = Cluster(folder, switch, engine)
        stack.callback(cluster.close)
        yield cluster


def run(options: argparse.Namespace) -> int:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    columns = ("rounds", "trials", "acknowledged", "begun", "again", *LAWS, "seconds")
    print(
        f"{options.engine}: 8 hosts, 2 drivers, {options.trials} trials a round, {options.repeat} rounds of each fault"
    )
    print(f"{'fault':<12}" + "".join(f"{column:>13}" for column in columns), flush=True)
    good = True
    with cluster_of(options.engine, options.keep) as cluster:
        for name in options.faults:
            rounds = []
            for number in range(options.first, options.first + options.repeat):
                rounds.append(run_round(cluster, FAULTS[name], number, options.trials))
                for law, violations in rounds[-1].broken.items():
                    for violation in violations:
                        print(f"  {name}, round {number}, {law}: {violation}", file=sys.stderr, flush=True)
            total = sum((each.counts for each in rounds), Counter[str]())
            cells = [len(rounds), *(total[column] for column in columns[1:5])]
            cells += [sum(len(each.broken[law]) for each in rounds) for law in LAWS]
            cells.append(round(sum(each.seconds for each in rounds) / len(rounds)))
            print(f"{name:<12}" + "".join(f"{cell:>13}" for cell in cells), flush=True)
            good = good and not any(any(each.broken.values()) for each in rounds)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
