"""The folders of checkpoints: what a training that is started again finds there."""

import gc
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import optuna
import pytest

from lazybo.run.checkpoints import OWNER, SAVED, Checkpoint, TakenOver, checkpoint_root, opened, place_of, tidy
from lazybo.study.storage import open_storage


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


def test_before_a_copy_is_made_and_only_then_its_owner_is_asked(tmp_path: Path) -> None:
    """The values up to this step are written first: a checkpoint must not be ahead of its study."""
    asked: list[int] = []
    with opened(tmp_path, 0, copies=True) as checkpoint:
        checkpoint.before_copy = lambda: asked.append(len(list(place_of(tmp_path, 0).glob(f"{SAVED}-*"))))
        checkpoint.save(1, 9.0)
        assert asked == []
        (checkpoint.folder / "state").write_text("2")
        checkpoint.save(2, 8.0)
        assert asked == [0]


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


def test_a_program_gets_its_folder_as_it_is(tmp_path: Path) -> None:
    with opened(tmp_path, 0, copies=False) as first:
        (first.folder / "state").write_text("1")
    with opened(tmp_path, 0, copies=False) as second:
        assert files(second.folder) == {"state": "1"}


def test_where_checkpoints_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored = optuna.create_study(storage=open_storage(tmp_path / "a.db"), study_name="net 1")
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
