"""Devices: every running evaluation owns an entry, whatever was killed before."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lazybo
from benchmarks import devices as benchmark
from lazybo.programs import Program
from lazybo.run.devices import VARIABLES, Claim, Devices, check_devices
from lazybo.run.trial import Trial

# Against hanging only: nothing here depends on how long something takes.
DEADLINE = 60.0
SPACE = {"x": (-1.0, 1.0)}


def fresh(count: int) -> list[str]:
    """Names of devices that no other test uses."""
    return [f"{uuid.uuid4().hex}-{i}" for i in range(count)]


def until_free(devices: Devices) -> Claim:
    found: list[Claim] = []

    def claim() -> None:
        with devices.claim() as claimed:
            found.append(claimed)

    thread = threading.Thread(target=claim, daemon=True)
    thread.start()
    thread.join(DEADLINE)
    assert found, "no device was free"
    return found[0]


# -------------------------------------------------------------------- ownership


@settings(max_examples=20, deadline=None)
@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=2, unique=True), min_size=1, max_size=4))
def test_a_device_has_at_most_as_many_owners_as_entries_name_it(entries: list[list[str]]) -> None:
    mark = uuid.uuid4().hex
    devices = Devices(tuple(tuple(f"{mark}{name}" for name in entry) for entry in entries))
    allowed = Counter(name for entry in devices.entries for name in entry)
    lock, now, worst = threading.Lock(), Counter[str](), Counter[str]()

    def evaluate() -> None:
        for _ in range(3):
            with devices.claim() as claim:
                names = claim.device.split(",")
                assert tuple(names) == devices.entries[claim.slot]
                with lock:
                    now.update(names)
                    worst.update({name: max(0, now[name] - worst[name]) for name in names})
                time.sleep(0)
                with lock:
                    now.subtract(names)

    threads = [threading.Thread(target=evaluate) for _ in range(len(entries) + 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    assert not any(thread.is_alive() for thread in threads)
    assert not worst - allowed
    assert sum(now.values()) == 0


@contextmanager
def owner(devices: list[str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A process that owns a device and has started a program with it; and the program's id."""
    code = f"""
import subprocess, time
from lazybo.run.devices import check_devices
with check_devices({devices!r}).claim() as claim:
    program = subprocess.Popen(["sleep", "3600"], pass_fds=claim.files, stdout=subprocess.DEVNULL)
    print(program.pid, flush=True)
    time.sleep(3600)
"""
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        program = int(process.stdout.readline())
        try:
            yield process, program
        finally:
            process.kill()
            with suppress(ProcessLookupError):
                os.kill(program, signal.SIGKILL)


def test_a_device_is_free_when_the_last_process_that_owns_it_is_dead() -> None:
    first, second = fresh(2)
    with owner([first]) as (process, program):
        process.kill()
        process.wait()
        # The program that the killed process has started still runs on the first device.
        assert until_free(Devices(((first,), (second,)))).device == second
        os.kill(program, signal.SIGKILL)
        assert until_free(Devices(((first,),))).device == first


@pytest.fixture
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the locks of this test, which is not there yet."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path / f"lazybo-devices-{os.getuid()}"


def test_a_device_keeps_its_owner_if_a_cleaner_removes_its_lock(locks: Path) -> None:
    first, second = Devices((("0",),)), Devices((("0",), ("1",)))
    with first.claim():
        for _ in range(2):
            shutil.rmtree(locks)
            assert until_free(second).device == "1"
    assert until_free(first).device == "0"


CLEANER = """
import fcntl, os, sys
while True:
    for name in os.listdir(sys.argv[1]):
        try:
            file = os.open(os.path.join(sys.argv[1], name), os.O_RDWR)
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(os.path.join(sys.argv[1], name))
        except OSError:
            pass
        os.close(file)
"""


def test_a_cleaner_that_removes_what_nobody_has_locked_gives_no_device_two_owners(locks: Path) -> None:
    """It removes files between the moments in which they are opened and locked."""
    devices, owners, most = Devices((("0",),)), 0, 0
    count = threading.Lock()

    def work() -> None:
        nonlocal owners, most
        for _ in range(150):
            with devices.claim():
                with count:
                    owners += 1
                    most = max(most, owners)
                time.sleep(0)
                with count:
                    owners -= 1

    locks.mkdir(mode=0o700)
    with subprocess.Popen([sys.executable, "-c", CLEANER, str(locks)], stderr=subprocess.DEVNULL) as cleaner:
        threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
        cleaner.kill()
    assert not any(thread.is_alive() for thread in threads)
    assert most == 1


@pytest.mark.parametrize("kind", ["a link", "a folder that others can write", "a file"])
def test_a_folder_of_locks_that_somebody_else_may_have_made_is_refused(kind: str, locks: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    if kind == "a link":
        locks.symlink_to(elsewhere)
    elif kind == "a file":
        locks.write_text("")
    else:
        locks.mkdir()
        locks.chmod(0o777)
    with pytest.raises(OSError, match="lazybo-devices"), Devices((("0",),)).claim():
        pass
    assert not [*elsewhere.iterdir()]


def test_a_link_in_the_place_of_a_lock_is_not_followed(locks: Path, tmp_path: Path) -> None:
    locks.mkdir(mode=0o700)
    (locks / "0 0").symlink_to(tmp_path / "made elsewhere")
    with pytest.raises(OSError, match="0 0"), Devices((("0",),)).claim():
        pass
    assert not (tmp_path / "made elsewhere").exists()


# -------------------------------------------------------------------- optimize()


def seen(params: dict[str, float], trial: Trial) -> dict[str, Any]:
    return {"value": params["x"] ** 2, "seen": [os.environ[name] for name in VARIABLES], "at": trial.slot}


def test_an_evaluation_sees_its_own_device_which_the_study_records(tmp_path: Path) -> None:
    first, second = fresh(2)
    study = lazybo.optimize(
        seen, SPACE, n_trials=6, devices=[first, second], storage=tmp_path / "s.db", seed=0, progress=False
    )
    for trial in study.trials:
        assert trial.user_attrs["seen"] == [trial.user_attrs["device"]] * len(VARIABLES)
        assert [first, second][trial.user_attrs["at"]] == trial.user_attrs["device"]
    assert os.environ.get(VARIABLES[1]) is None


def test_the_device_of_a_running_evaluation_is_in_the_study(tmp_path: Path) -> None:
    device, path = fresh(1)[0], tmp_path / "s.db"

    def look(params: dict[str, float]) -> float:
        study = optuna.load_study(study_name="lazybo", storage=f"sqlite:///{path}")
        assert study.trials[-1].user_attrs["device"] == device
        return params["x"]

    study = lazybo.optimize(look, SPACE, n_trials=2, devices=[(device,)], storage=path, progress=False)
    assert len(study.get_trials(states=(optuna.trial.TrialState.COMPLETE,))) == 2


@pytest.mark.parametrize("kind", ["processes", "pauses"])
def test_no_kill_gives_a_device_two_owners(kind: str, tmp_path: Path) -> None:
    setting = benchmark.Setting(str(tmp_path), kind, 8, 3, uuid.uuid4().hex)
    benchmark.drive(setting)
    words = Counter(setting.log.read_text().split())
    assert words["begun"] >= 8
    assert not words["collision"]
    assert not words["wrong"]


def test_a_program_gets_its_device(tmp_path: Path) -> None:
    device = fresh(1)[0]
    command = ("sh", "-c", "test $CUDA_VISIBLE_DEVICES = {device} && test {slot} = $LAZYBO_SLOT && echo 1")
    program = Program(command, tmp_path / "output", tmp_path, "study")
    study = lazybo.optimize(program, SPACE, n_trials=2, devices=[device], executor="threads", progress=False)
    assert [trial.value for trial in study.trials] == [1.0, 1.0]
    assert {trial.user_attrs["device"] for trial in study.trials} == {device}


# ----------------------------------------------------------------- bad arguments


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "list"),
        ("0,1", "list"),
        (3, "list"),
        ([True], "number"),
        ([-1], "number"),
        ([1.5], "number"),
        (["0,1"], "name"),
        ([""], "name"),
        ([()], "empty"),
        ([(0, 0)], "twice"),
    ],
)
def test_bad_devices_are_rejected(given: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_devices(given)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"devices": ["a"], "n_parallel": 2}, "name a device twice"),
        ({"devices": ["a"], "executor": "threads"}, "processes of their own"),
        ({"devices": ["a"], "executor": "serial"}, "processes of their own"),
    ],
)
def test_devices_that_cannot_be_assigned_are_rejected(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        lazybo.optimize(seen, SPACE, n_trials=1, **arguments)


def test_devices_that_this_process_may_not_use_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLES[0], "4,5")
    with pytest.raises(ValueError, match="CUDA_VISIBLE_DEVICES=4,5"):
        lazybo.optimize(seen, SPACE, n_trials=1, devices=[0])


# ------------------------------------------------------------------------ clusters


@pytest.mark.extra
def test_dask_places_evaluations_by_its_resources(tmp_path: Path) -> None:
    import distributed

    first, second = fresh(2)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, resources={"GPU": 1}
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        study = lazybo.optimize(
            seen, SPACE, n_trials=8, executor=client, devices=[first, second], storage=tmp_path / "s.db", progress=False
        )
    assert all(trial.user_attrs["seen"][0] == trial.user_attrs["device"] for trial in study.trials)
    assert {trial.user_attrs["device"] for trial in study.trials} == {first, second}


@pytest.mark.extra
def test_ray_assigns_devices() -> None:
    import ray

    ray.init(address="local", num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False)
    try:
        study = lazybo.optimize(seen_on_ray, SPACE, n_trials=6, executor="ray", devices=[0, 1], progress=False)
    finally:
        ray.shutdown()
    assert all(trial.user_attrs["seen"] == trial.user_attrs["device"] for trial in study.trials)
    assert {trial.user_attrs["device"] for trial in study.trials} <= {"0", "1"}


def seen_on_ray(params: dict[str, float]) -> dict[str, Any]:
    return {"value": params["x"], "seen": os.environ[VARIABLES[0]]}
