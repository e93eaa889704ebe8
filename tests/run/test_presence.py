"""Who works on a study: real processes, alive and dead."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest

from lazybo.run import presence
from lazybo.run.presence import is_alive, living_drivers, present
from lazybo.study.storage import open_storage

PROGRAM = """
import sys, time, optuna
from lazybo.run.presence import present
from lazybo.study.storage import open_storage
study = optuna.load_study(study_name="s", storage=open_storage(sys.argv[1]))
with present(study) as name:
    print(name, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def study(tmp_path: Path) -> optuna.Study:
    return optuna.create_study(storage=open_storage(tmp_path / "s.db"), study_name="s")


def test_a_driver_is_there_until_it_leaves(study: optuna.Study) -> None:
    with present(study) as one, present(study) as two:
        assert living_drivers(study) == {one, two}
    assert living_drivers(study) == set()


@pytest.mark.parametrize("end", ["leaves", "is killed"])
def test_a_driver_in_another_process_is_seen_to_end(study: optuna.Study, tmp_path: Path, end: str) -> None:
    other = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, tmp_path / "s.db"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert other.stdout is not None
    assert other.stdin is not None
    with other:
        name = other.stdout.readline().strip()
        assert living_drivers(study) == {name}
        if end == "leaves":
            other.stdin.close()
            other.wait()
        else:
            other.send_signal(signal.SIGKILL)
            os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)  # a zombie now, and not alive
        assert living_drivers(study) == set()


def test_a_number_that_another_process_has_now_is_not_the_driver() -> None:
    note = presence._note()
    assert is_alive(note)
    assert not is_alive({**note, "born": note["born"] + 60.0})


def test_a_driver_elsewhere_counts_as_dead_after_a_silence() -> None:
    note = {**presence._note(), "machine": "another"}
    assert is_alive(note)
    assert not is_alive({**note, "seen": time.time() - presence.SILENCE - 1})


def test_a_driver_gives_signs_of_life(study: optuna.Study, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "BEAT", 0.02)

    def seen(name: str) -> float:
        note = study._storage.get_study_system_attrs(study._study_id)[f"{presence.NOTE_KEY}:{name}"]
        return float(note["seen"])

    with present(study) as name:
        first = seen(name)
        deadline = time.monotonic() + 20
        while seen(name) == first and time.monotonic() < deadline:
            time.sleep(0.01)
        assert seen(name) > first
