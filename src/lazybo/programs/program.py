"""A program in any language as an objective: run with the parameters of a trial, read as it goes, ended when it must.

Every run has a folder: ``stdout``, ``stderr``, ``command``, ``params.json``. A second run of the same trial has a
folder of its own beside the first.
"""

import json
import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from optuna.exceptions import TrialPruned

from lazybo.programs import groups, placeholders
from lazybo.programs.output import MAX_LINE, Lines, Step, Value, meaning, value_in
from lazybo.run.evaluate import Trial

CHUNK = 1 << 16
# Seconds between looks at a program that says nothing.
LOOK = 0.1
# What may still be in a pipe when its program has ended; more comes from a child that escaped its group.
LEFT_IN_PIPE = 1 << 20


@dataclass(frozen=True)
class Program:
    """The objective of a command with placeholders.

    ``folder`` and ``cwd`` must mean the same to every worker. ``value_file`` names the file that holds the value; the
    last value on standard output counts where it is None. ``timeout`` is in seconds.
    """

    command: tuple[str, ...]
    folder: Path
    cwd: Path
    study: str
    value_file: str | None = None
    timeout: float | None = None

    def __call__(self, trial: Trial) -> dict[str, Any]:
        """Run the program for a trial; gives its value and metrics."""
        folder = self._new_folder(trial.number)
        trial.set_user_attr("output", str(folder))
        values = {**trial.params, "trial": trial.number, "folder": str(folder)}
        argv = placeholders.fill(self.command, values)
        value_file = self.cwd / placeholders.fill_one(self.value_file, values) if self.value_file else folder / "value"
        (folder / "command").write_text(shlex.join(argv) + "\n")
        params = json.dumps(trial.params)
        (folder / "params.json").write_text(params + "\n")
        environment = {
            "PYTHONUNBUFFERED": "1",  # so that a Python program's lines come when they are printed
            **os.environ,
            "LAZYBO_TRIAL": str(trial.number),
            "LAZYBO_PARAMS": params,
            "LAZYBO_VALUE_FILE": str(value_file),
            "LAZYBO_STUDY": self.study,
            "LAZYBO_OUTPUT": str(folder),
        }
        before = _stamp(value_file)
        said = self._run(argv, folder, environment, trial)
        found = said if _stamp(value_file) == before else _read_value(value_file)
        if self.value_file and _stamp(value_file) == before:
            raise RuntimeError(f"it did not write its value to {value_file}")
        if found is None:
            raise RuntimeError(f"it printed no value: no line of {folder / 'stdout'} is a number or an object with it")
        return {**found.metrics, "value": found.value}

    def _new_folder(self, number: int) -> Path:
        """A folder that is not there yet. A program of an earlier run of this trial that still runs is ended."""
        for attempt in range(1_000_000):
            folder = self.folder / (f"{number:06}.{attempt}" if attempt else f"{number:06}")
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                groups.end_survivor(folder)
            else:
                return folder
        raise AssertionError("no trial is run a million times")

    def _run(self, argv: list[str], folder: Path, environment: dict[str, str], trial: Trial) -> Value | None:
        """Run to the end; gives the last value on standard output."""
        with (folder / "stdout").open("wb", buffering=0) as kept, (folder / "stderr").open("wb") as stderr:
            try:
                process = groups.start(argv, folder, cwd=self.cwd, environment=environment, stderr=stderr)
            except OSError as error:
                raise RuntimeError(f"it could not be started: {error.strerror}: {error.filename}") from None
            try:
                said = self._follow(process, kept, trial)
            except BaseException:
                groups.end(process)
                raise
            else:
                groups.release(process)
            finally:
                assert process.stdout is not None, "it is a pipe"
                process.stdout.close()
        if process.returncode != 0:
            raise RuntimeError(_death(process.returncode) + _last_words(folder / "stderr"))
        return said

    def _follow(self, process: "subprocess.Popen[bytes]", kept: IO[bytes], trial: Trial) -> Value | None:
        """Keep and read what a program prints until it ends, is too late, or is pruned."""
        said: Value | None = None
        lines = Lines()
        for data in self._chunks(process):
            kept.write(data)
            for line in lines.feed(data):
                said = _heed(line, trial) or said
        for line in lines.end():
            said = _heed(line, trial) or said
        return said

    def _chunks(self, process: "subprocess.Popen[bytes]") -> Iterator[bytes]:
        """What comes through the pipe; raises when the time is over."""
        deadline = time.monotonic() + (self.timeout or float("inf"))
        assert process.stdout is not None, "it is a pipe"
        pipe, left = process.stdout.fileno(), LEFT_IN_PIPE
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while left > 0:
                if time.monotonic() >= deadline:
                    raise RuntimeError(f"it ran longer than its timeout of {self.timeout:g} s")
                ended = process.poll() is not None
                if selector.select(0 if ended else LOOK):
                    data = os.read(pipe, CHUNK)
                    if not data:
                        break
                    left -= len(data) if ended else 0
                    yield data
                elif ended:
                    break  # a child that it left behind holds the pipe
        while process.poll() is None:  # it has closed its standard output and goes on
            if time.monotonic() >= deadline:
                raise RuntimeError(f"it ran longer than its timeout of {self.timeout:g} s")
            time.sleep(LOOK / 10)


def _heed(line: bytes, trial: Trial) -> Value | None:
    """A value, if the line is one; an intermediate value is reported, and may be the end of the trial."""
    said = meaning(line)
    if isinstance(said, Step):
        trial.report(said.value, said.step)
        if trial.should_prune():
            raise TrialPruned
        return None
    return said


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written, so that an old value is not taken for a new one."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _read_value(path: Path) -> Value:
    with path.open("rb") as file:
        found = value_in(file.read(MAX_LINE))
    if found is None:
        raise RuntimeError(f"{path} holds neither a number nor an object with 'value'")
    return found


def _death(status: int) -> str:
    if status > 0:
        return f"it ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"it was killed by {name}" + (" (out of memory?)" if -status == signal.SIGKILL else "")


def _last_words(path: Path) -> str:
    """The last line on standard error, and where the others are."""
    with path.open("rb") as file:
        file.seek(max(file.seek(0, os.SEEK_END) - 4096, 0))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return f": {lines[-1].strip()[:300]} (see {path})" if lines else f" (see {path.parent})"
