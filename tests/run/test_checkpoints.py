"""The folders of checkpoints: what a training that is started again finds there."""

import gc
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import optuna
import pytest

from lazybo.run.checkpoints import (
    CHECKPOINTS_KEY,
    OWNER,
    SAVED,
    STATE,
    Checkpoint,
    TakenOver,
    checkpoint_root,
    opened,
    place_of,
    tidy,
)
from lazybo.study import Store


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_a_training_finds_what_was_there_at_the_last_step(tmp_path: Path) -> None:
    with opened(tmp_path, 3, copies=True) as first:
        assert (first.step, first.value, files(first.folder)) == (0, None, {})
        (first.folder / "deep").mkdir()
        (first.folder / "deep" / "state").write_text("after 1")
        first.save(1, 0.5)
        (first.folder / "deep" / "state").write_text("torn, and never yie")
        (first.folder / "more").write_text("?")
    with opened(tmp_path, 3, copies=True) as second:
        assert second.folder == first.folder
        assert (second.step, second.value, files(second.folder)) == (1, 0.5, {"deep/state": "after 1"})


def test_a_step_without_a_change_is_no_checkpoint(tmp_path: Path) -> None:
    with opened(tmp_path, 0, copies=True) as first:
        first.save(1, 9.0)
        (first.folder / "state").write_text("2")
        first.save(2, 8.0)
        first.save(3, 7.0)
    assert len(list(place_of(tmp_path, 0).glob(f"{SAVED}-*"))) == 1
    with opened(tmp_path, 0, copies=True) as second:
        assert (second.step, second.value) == (2, 8.0)
        second.save(3, 7.0)
        assert second.step == 2, "what was restored is no change either"


def test_a_file_that_is_written_again_at_once_is_a_change(tmp_path: Path) -> None:
    with opened(tmp_path, 0, copies=True) as first:
        state, now = first.folder / "state", time.time_ns() + 10**9
        for step in (1, 2):
            state.write_text(str(step))
            os.utime(state, ns=(now, now))  # as on a file system with a coarse clock
            first.save(step, 1.0)
            assert first.step == step
        first.save(3, 1.0)
        assert first.step == 2, "it was not written again"


def test_a_process_that_counts_as_dead_but_runs_changes_nothing(tmp_path: Path) -> None:
    first = Checkpoint(tmp_path, 0, copies=True)
    (first.folder / "state").write_text("1")
    first.save(1, 1.0)
    second = Checkpoint(tmp_path, 0, copies=True)  # the process of the first, this one, is alive
    assert second.folder != first.folder
    assert files(second.folder) == {"state": "1"}
    (first.folder / "state").write_text("2 of the first")
    with pytest.raises(TakenOver, match="another process"):
        first.save(2, 1.0)
    first.release()
    assert files(second.folder) == {"state": "1"}
    (second.folder / "state").write_text("2")
    second.save(2, 0.5)
    second.release()
    assert not (place_of(tmp_path, 0) / OWNER).exists()
    with opened(tmp_path, 0, copies=True) as third:
        assert third.folder == first.folder, "nobody uses it any more"
        assert (third.step, files(third.folder)) == (2, {"state": "2"})


def test_the_folder_of_a_process_that_died_is_used_again(tmp_path: Path) -> None:
    program = "import os, pathlib, sys\nfrom lazybo.run.checkpoints import Checkpoint\n"
    program += "Checkpoint(pathlib.Path(sys.argv[1]), 0, copies=True)\nos._exit(1)"
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert json.loads((place_of(tmp_path, 0) / OWNER).read_text())["pid"] != os.getpid()
    with opened(tmp_path, 0, copies=True) as checkpoint:
        assert checkpoint.folder.name == "files"


def test_a_copy_that_is_gone_is_a_start_from_zero(tmp_path: Path) -> None:
    with opened(tmp_path, 0, copies=True) as first:
        (first.folder / "state").write_text("1")
        first.save(1, 1.0)
    for folder in place_of(tmp_path, 0).glob(f"{SAVED}-*"):
        (folder / "state").unlink()
        folder.rmdir()
    with opened(tmp_path, 0, copies=True) as second:
        assert (second.step, files(second.folder)) == (0, {})


def test_a_trial_that_ended_keeps_what_it_wrote(tmp_path: Path) -> None:
    with opened(tmp_path, 0, copies=True) as checkpoint:
        (checkpoint.folder / "model").write_text("weights")
        checkpoint.save(1, 1.0)
    tidy(tmp_path, 0)
    tidy(tmp_path, 1)  # a trial that never began
    assert files(place_of(tmp_path, 0)) == {"files/model": "weights"}


def test_where_checkpoints_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored = optuna.create_study(storage=Store.open(tmp_path / "a.db"), study_name="net 1")
    assert checkpoint_root(stored, None) == tmp_path / "a-net_1-checkpoints"
    assert checkpoint_root(stored, "other") == tmp_path / "other"
    assert checkpoint_root(stored, None) == tmp_path / "other", "the study remembers it"
    memory = optuna.create_study()
    folder = checkpoint_root(memory, None)
    assert folder.is_dir()
    assert checkpoint_root(memory, None) == folder
    del memory
    gc.collect()
    assert not folder.exists()
    (tmp_path / "file").touch()
    with pytest.raises(ValueError, match="cannot be made"):
        checkpoint_root(stored, tmp_path / "file" / "below")


# -------------------------------------------------------- files that were edited


def saved_twice(root: Path) -> Path:
    """The folder of trial 0, which has saved two steps."""
    with opened(root, 0, copies=True) as checkpoint:
        for step in (1, 2):
            (checkpoint.folder / "state").write_text(f"after {step}")
            checkpoint.save(step, float(step))
    return place_of(root, 0)


@pytest.mark.parametrize(
    "name", ["{outside}", "../../outside", "..", ".", "", "files", "saved-1-0123abcd", "saved-of-mine"]
)
def test_no_edited_file_makes_us_read_or_remove_anything_outside_the_folder(name: str, tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("!")
    place = saved_twice(root)
    written = {"copy": name.format(outside=outside), "step": 2, "value": 1.0}
    (place / STATE).write_text(json.dumps(written))
    (place / "saved-1-0123abcd").symlink_to(outside)
    (place / "saved-of-mine").symlink_to(outside)
    with opened(root, 0, copies=True) as checkpoint:
        assert (checkpoint.step, files(checkpoint.folder)) == (0, {})
        (checkpoint.folder / "state").write_text("1")
        checkpoint.save(1, 1.0)
        (checkpoint.folder / "state").write_text("2")
        checkpoint.save(2, 1.0)
    tidy(root, 0)
    assert files(outside) == {"precious": "!"}
    assert files(place) == {"files/state": "2"}


@pytest.mark.parametrize("link", ["files", "000000", "saved.json"])
def test_links_in_place_of_our_own_files_are_not_followed(link: str, tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    theirs = saved_twice(outside)
    before = files(outside)
    place_of(root, 0).mkdir(parents=True)
    if link == "000000":
        place_of(root, 0).rmdir()
        place_of(root, 0).symlink_to(theirs)
    else:
        (place_of(root, 0) / link).symlink_to(theirs / link)
    with opened(root, 0, copies=True) as checkpoint:
        assert (checkpoint.step, files(checkpoint.folder)) == (0, {})
        (checkpoint.folder / "state").write_text("1")
        checkpoint.save(1, 1.0)
    with opened(root, 0, copies=True) as checkpoint:
        assert (checkpoint.step, files(checkpoint.folder)) == (1, {"state": "1"})
    tidy(root, 0)
    assert files(outside) == before


NESTED = "[" * 100_000


@pytest.mark.parametrize(
    "change",
    [
        {"step": None},
        {"step": "seven"},
        {"step": 10**39},
        {"step": 2**31},
        {"step": 0},
        {"step": -1},
        {"step": 1.5},
        {"step": True},
        {"step": [1]},
        {"value": None},
        {"value": "low"},
        {"value": True},
        {"copy": None},
        {"copy": 7},
        {"copy": {}},
        "",
        "{",
        "[]",
        "[1, 2]",
        "null",
        "\xff",
        NESTED,
        '{"copy": ' + NESTED,
    ],
)
def test_a_damaged_state_is_no_checkpoint_and_one_warning(
    change: dict[str, object] | str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = saved_twice(tmp_path) / STATE
    damaged = change if isinstance(change, str) else json.dumps({**json.loads(state.read_text()), **change})
    state.write_bytes(damaged.encode("latin-1"))
    with opened(tmp_path, 0, copies=True) as checkpoint:
        assert (checkpoint.step, checkpoint.value, files(checkpoint.folder)) == (0, None, {})
    (said,) = caplog.messages
    assert str(state) in said
    assert "starts from its first step" in said


def test_what_0_1_0_wrote_is_read(tmp_path: Path) -> None:
    copy = place_of(tmp_path, 0) / "saved-7-1f2e3d4c"
    copy.mkdir(parents=True)
    (copy / "state").write_text("after 7")
    written = {"copy": "saved-7-1f2e3d4c", "step": 7, "value": {"value": 0.5, "epoch": 7, "lr": None}}
    (place_of(tmp_path, 0) / STATE).write_text(json.dumps(written))
    owner = {"machine": "another", "pid": 12, "born": 1234567, "token": "0123abcd"}
    (place_of(tmp_path, 0) / OWNER).write_text(json.dumps(owner))
    with opened(tmp_path, 0, copies=True) as checkpoint:
        assert checkpoint.folder.name != "files", "the other process may still run"
        assert (checkpoint.step, checkpoint.value) == (7, written["value"])
        assert files(checkpoint.folder) == {"state": "after 7"}


# ------------------------------------------------------------ copies that fail


def test_files_that_come_and_go_during_a_copy_do_not_end_a_training(tmp_path: Path) -> None:
    stop = threading.Event()

    def churn(folder: Path) -> None:
        while not stop.is_set():
            for i in range(40):
                (folder / f"{i}.part").write_text("x")
                (folder / f"{i}.part").rename(folder / f"{i}")
                (folder / f"deep-{i}").mkdir()
                (folder / f"deep-{i}" / "inner").write_text("x")
            for i in range(40):
                (folder / f"{i}").unlink()
                (folder / f"deep-{i}" / "inner").unlink()
                (folder / f"deep-{i}").rmdir()

    with opened(tmp_path, 0, copies=True) as first:
        writer = threading.Thread(target=churn, args=(first.folder,))
        writer.start()
        try:
            for step in range(1, 13):
                (first.folder / "state").write_text(str(step))
                first.save(step, float(step))
                assert first.step == step
        finally:
            stop.set()
            writer.join()
    with opened(tmp_path, 0, copies=True) as second:
        assert second.step == 12
        assert (second.folder / "state").read_text() == "12"


FULL_DISK = """
import logging, resource, sys
import lazybo, optuna

HARD = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

def room(size):
    # No file can grow beyond this: a write beyond it fails, as on a full disk.
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, HARD))

def train(trial, checkpoint):
    saved = checkpoint / "weights"
    assert not saved.exists(), "nothing was killed"
    for epoch in range(1, 7):
        room(HARD)
        saved.write_bytes(bytes([epoch]) * 300_000)
        full = trial.number % 2 and 2 <= epoch <= 4
        room(100_000 if full else HARD)
        yield trial.params["x"] + epoch
        kept = sorted(path.name.split("-")[1] for path in checkpoint.parent.glob("saved-*"))
        assert kept == ["1" if full else str(epoch)], kept
    room(HARD)

logging.basicConfig(stream=sys.stdout, format="%(message)s")
options = {"n_trials": 4, "seed": 0, "pruner": optuna.pruners.NopPruner(), "progress": False}
study = lazybo.optimize(train, {"x": (0.0, 1.0)}, checkpoints=sys.argv[1], **options)
print([trial.state.name for trial in study.trials])
"""


def test_a_full_disk_keeps_the_last_good_copy_and_the_training_goes_on(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", FULL_DISK, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *said, states = done.stdout.splitlines()
    assert states == str(["COMPLETE"] * 4)
    assert len(said) == 2, "once for each of two trainings, not once for each of their steps"
    for number, line in zip((1, 3), said, strict=True):
        assert line.startswith(f"trial {number}: ")
        assert "step 2 was not saved: File too large" in line
        assert "the last good copy is from step 1" in line


def test_a_checkpoint_that_cannot_be_restored_is_a_start_from_zero(tmp_path: Path) -> None:
    with opened(tmp_path, 0, copies=True) as first:
        (first.folder / "weights").write_bytes(b"1" * 300_000)
        first.save(1, 1.0)
    program = """
import pathlib, resource, sys
from lazybo.run.checkpoints import opened
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
with opened(pathlib.Path(sys.argv[1]), 0, copies=True) as checkpoint:
    print(checkpoint.step, list(checkpoint.folder.iterdir()))
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "0 []", done.stderr
    assert "cannot be restored: File too large" in done.stderr
    with opened(tmp_path, 0, copies=True) as second:
        assert second.step == 1, "the copy is still there"


def test_what_a_kill_left_of_a_copy_is_removed_with_the_next_one(tmp_path: Path) -> None:
    with opened(tmp_path, 0, copies=True) as first:
        (place_of(tmp_path, 0) / f"{SAVED}-1-deadbeef").mkdir()
        (first.folder / "state").write_text("1")
        first.save(1, 1.0)
    assert len(list(place_of(tmp_path, 0).glob(f"{SAVED}-*"))) == 1


@pytest.mark.parametrize("kept", [7, ["a"], {}])
def test_an_edited_folder_of_a_study_is_one_error_that_names_it(kept: object, tmp_path: Path) -> None:
    study = optuna.create_study(storage=Store.open(tmp_path / "a.db"), study_name="net")
    study._storage.set_study_system_attr(study._study_id, CHECKPOINTS_KEY, kept)
    with pytest.raises(ValueError, match=r"the attribute 'lazybo:checkpoints' of the study 'net' must be .*; give"):
        checkpoint_root(study, None)
    assert checkpoint_root(study, tmp_path / "b") == tmp_path / "b"


@pytest.mark.extra
def test_a_read_only_folder_is_one_error_before_the_first_trial(tmp_path: Path) -> None:
    """Every trial failed for itself, and counted."""
    (tmp_path / "checkpoints").mkdir()
    program = "import lazybo\ndef train(x, checkpoint):\n    yield x\n"
    program += "lazybo.optimize(train, {'x': (0.0, 1.0)}, n_trials=3, storage='s.db', checkpoints='checkpoints')"
    script = 'mount --bind checkpoints checkpoints && mount -o remount,ro,bind checkpoints && exec "$@"'
    inside = ["unshare", "--mount", "sh", "-ec", script, "sh", sys.executable, "-c", program]
    done = subprocess.run(inside, cwd=tmp_path, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip(f"mounts are not permitted here: {done.stderr}")
    assert "cannot be written to: it is read-only; give another: checkpoints=" in done.stderr
    storage = Store.open(tmp_path / "s.db")
    assert not [trial for study in storage.get_all_studies() for trial in storage.get_all_trials(study._study_id)]
