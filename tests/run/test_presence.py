"""Who works on a study: real processes, alive and dead."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import optuna
import pytest

from lazybo.run.presence import HEARTBEAT_KEY, TIMEOUT, Drivers, born, heartbeat, machine, present
from lazybo.run.reports import StudyReporter
from lazybo.study import Store
from tests.run.running import open_trial

PROGRAM = """
import sys, time, optuna
from lazybo.run.reports import StudyReporter
from lazybo.run.presence import present
from lazybo.study import Store
study = optuna.load_study(study_name="s", storage=Store.open(sys.argv[1]))
with present(study) as name:
    print(name, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def study(tmp_path: Path) -> optuna.Study:
    return optuna.create_study(storage=Store.open(tmp_path / "s.db"), study_name="s")


def test_a_driver_is_there_until_it_leaves(study: optuna.Study) -> None:
    with present(study) as one, present(study) as two:
        assert Drivers(study).living() == {one, two}
    assert Drivers(study).living() == set()


@pytest.mark.parametrize("end", ["leaves", "is killed"])
def test_a_driver_in_another_process_is_seen_to_end(study: optuna.Study, tmp_path: Path, end: str) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, tmp_path / "s.db"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdin is not None
    with other:
        name = other.stdout.readline().strip()
        assert Drivers(study).living() == {name}
        if end == "leaves":
            other.stdin.close()
            other.wait()
        else:
            other.send_signal(signal.SIGKILL)
            os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # a zombie now, and not alive
        assert Drivers(study).living() == set()


def write(study: optuna.Study, name: str, **note: Any) -> None:
    """A note as a driver of another process or host would leave it."""
    Store(study).set_attributes({f"{HEARTBEAT_KEY}:{name}": {**heartbeat(0), **note}})


def test_a_number_that_another_process_has_now_is_not_the_driver(study: optuna.Study) -> None:
    write(study, "parent", pid=os.getppid(), born=born(os.getppid()))
    write(study, "earlier", pid=os.getppid(), born=1)
    assert Drivers(study).living() == {"parent"}


@pytest.mark.parametrize(
    "note",
    [{"pid": None}, {"pid": "../../etc"}, {"pid": 10**39}, {"pid": True}, {"born": "?"}, {"born": []}, {"machine": 7}],
)
def test_a_heartbeat_that_was_edited_counts_as_one_of_another_machine(
    study: optuna.Study, note: dict[str, Any]
) -> None:
    """Its process cannot be looked up. It is dead if it does not change for a while."""
    write(study, "edited", **note)
    write(study, "incomplete")
    Store(study).set_attributes({f"{HEARTBEAT_KEY}:incomplete": {"machine": machine()}})
    assert Drivers(study).living() == {"edited", "incomplete"}


def test_a_process_is_known_by_ticks_since_boot_which_no_clock_changes() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        before = born(process.pid)
        assert before == int(fields[19])
        assert born(os.getpid()) != before
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert born(process.pid) is None, "a zombie has ended"
    assert born(process.pid) is None


@pytest.mark.parametrize("skew", [-130.0, 0.0, 130.0, 1e9])
def test_a_driver_elsewhere_counts_as_dead_when_it_is_silent_whatever_its_clock_says(
    study: optuna.Study, skew: float
) -> None:
    now = 1000.0

    def clock() -> float:
        return now

    old = {"machine": "another", "pid": 1, "born": 1.5, "seen": time.time() + skew}
    Store(study).set_attributes({f"{HEARTBEAT_KEY}:old": old})  # as earlier versions left it
    write(study, "new", machine="another")
    drivers = Drivers(study, clock=clock)
    assert drivers.living() == {"old", "new"}
    now += TIMEOUT - 1
    assert drivers.living() == {"old", "new"}
    write(study, "new", machine="another", beat=1)
    assert drivers.living() == {"old", "new"}
    now += 2
    assert drivers.living() == {"new"}, "the other has not been heard of"
    assert Drivers(study, clock=clock).living() == {"old", "new"}, "who has just come has to listen for a while"
    Store(study).set_attributes({f"{HEARTBEAT_KEY}:old": {**old, "seen": old["seen"] + 20}})
    assert drivers.living() == {"old", "new"}
    now += TIMEOUT + 1
    assert drivers.living() == set()


def test_nobody_is_dead_while_the_storage_does_not_answer(study: optuna.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an outage of the database, each driver took the others for dead, and ran their trials again."""
    interval, limit = 0.02, 0.2
    monkeypatch.setattr("lazybo.run.presence.TIMEOUT", limit)
    write(study, "other", machine="another")
    with present(study, interval=interval) as name:
        drivers = Drivers(study, name)
        assert "other" in drivers.living()
        with monkeypatch.context() as outage:
            outage.setattr(type(study._storage), "set_study_system_attr", unreachable)
            time.sleep(2 * limit)
        assert "other" in drivers.living(), "it could not give a sign of life either"
        deadline = time.monotonic() + 20
        while "other" in drivers.living() and time.monotonic() < deadline:
            time.sleep(0.01)
        assert "other" not in drivers.living()


def unreachable(*_: object) -> None:
    raise OSError("no route to host")


@pytest.mark.parametrize("action", ["report", "be present", "see who is present"])
def test_a_database_that_is_locked_for_a_moment_is_waited_for(
    action: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    storage = optuna.storages.RDBStorage(url, engine_kwargs={"connect_args": {"timeout": 0.01}})
    study = optuna.create_study(storage=storage)
    reporter, trial = StudyReporter(study, lambda *_: None), study.ask()
    reporter.open(open_trial(trial))
    act = {
        "report": lambda: reporter.report(0, 3, 1.0),
        "be present": lambda: present(study).__enter__(),
        "see who is present": lambda: Drivers(study).living(),
    }[action]
    other = sqlite3.connect(tmp_path / "s.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(time, "sleep", lambda _: other.close())
    act()
    assert "trying again" in caplog.text
