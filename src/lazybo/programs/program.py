"""A program in any language as an objective: run with the parameters of a trial, read as it goes, ended when it must.

Every run has a folder: ``stdout``, ``stderr``, ``command``, ``params.json``. A second run of the same trial has a
folder of its own beside the first.
"""

import json
import os
import selectors
import shlex
import signal
import stat
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from optuna.exceptions import TrialPruned

from lazybo.programs import groups, placeholders
from lazybo.programs.output import MAX_LINE, Last, Reading, Step, Value
from lazybo.run.evaluate import EvaluationFailed, Trial
from lazybo.text import shortened

CHUNK = 1 << 16
# Seconds between looks at a program that says nothing.
LOOK = 0.1
# What may still be in a pipe when its program has ended; more comes from a child that escaped its group.
LEFT_IN_PIPE = 1 << 20
# Bytes at the end of an output in which its last lines are looked for.
LAST_WORDS = 4096
# The kind of failure of a program that succeeded but gave no value.
NO_VALUE = "no_value"


@dataclass(frozen=True)
class Program:
    """The objective of a command with placeholders.

    ``folder`` and ``cwd`` must mean the same to every worker. ``value_file`` names the file that holds the value; the
    last value on standard output counts where it is None. ``reading`` says what a value is. ``timeout`` is in seconds.
    """

    command: tuple[str, ...]
    folder: Path
    cwd: Path
    study: str
    value_file: str | None = None
    reading: Reading = field(default_factory=Reading)
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
        if _stamp(value_file) != before:
            said = self._read(value_file)
        elif self.value_file:
            raise _no_value(f"it did not write {value_file}")
        if said is None:
            raise self._what_it_said(folder / "stdout")
        return {**said.metrics, "value": said.value}

    def _read(self, path: Path) -> Value:
        """The value in a file. Of one that is very long the end is read: the last value counts."""
        try:
            found = self.reading.value_in(_tail(path, MAX_LINE))
        except OSError as error:
            raise _no_value(f"{path} cannot be read: {error.strerror}") from None
        if found is None:
            raise _no_value(f"{path} does not hold {self.reading}")
        return found

    def _what_it_said(self, stdout: Path) -> EvaluationFailed:
        """Why its output has no value."""
        lines = _tail(stdout, MAX_LINE).splitlines()
        if not lines:
            return _no_value("it printed nothing to standard output", stdout.parent)
        for line in reversed(lines):
            found = self.reading.unreadable(line)
            if found is not None:
                reason = f"value_regex matched {shortened(found, 100)!r}, but its group holds no number"
                return _no_value(reason, stdout)
        return _no_value(f"no line of its output is {self.reading}", stdout)

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
                raise EvaluationFailed(f"it could not be started: {error.strerror}: {error.filename}") from None
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
            last, where = _last_words(folder / "stderr")
            raise EvaluationFailed(_death(process.returncode) + last, where=where)
        return said

    def _follow(self, process: "subprocess.Popen[bytes]", kept: IO[bytes], trial: Trial) -> Value | None:
        """Keep and read what a program prints until it ends, is too late, or is pruned."""
        last, lines = Last(), self.reading.lines()
        for data in self._chunks(process):
            kept.write(data)
            for line in lines.feed(data):
                last.note(self._heed(line, trial))
        for line in lines.end():
            last.note(self._heed(line, trial))
        return last.value

    def _heed(self, line: bytes, trial: Trial) -> Value | Step | None:
        """What a line says; an intermediate value is reported, and may be the end of the trial."""
        said = self.reading.meaning(line)
        if isinstance(said, Step):
            trial.report(said.value, said.step)
            if trial.should_prune():
                raise TrialPruned
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
                    raise EvaluationFailed(f"it ran longer than its timeout of {self.timeout:g} s")
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
                raise EvaluationFailed(f"it ran longer than its timeout of {self.timeout:g} s")
            time.sleep(LOOK / 10)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written, so that an old value is not taken for a new one."""
    try:
        found = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        # Whoever opens a FIFO waits for the other side, perhaps for ever.
        raise EvaluationFailed(f"the value file {path} is {kind_of(found.st_mode)}; name a file")
    return found.st_mtime_ns, found.st_size, found.st_ino


def kind_of(mode: int) -> str:
    """What there is under a path that is no file."""
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    return next((name for is_kind, name in kinds if is_kind(mode)), "a device")


def _tail(path: Path, size: int) -> bytes:
    """The end of a file, from the beginning of a line if there is one."""
    with path.open("rb") as file:
        skipped = file.seek(0, os.SEEK_END) - size
        file.seek(max(skipped, 0))
        content = file.read(size)
    _, end, rest = content.partition(b"\n")
    return rest if skipped > 0 and end else content


def _death(status: int) -> str:
    if status > 0:
        return f"it ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"it was killed by {name}" + (" (out of memory?)" if -status == signal.SIGKILL else "")


def _no_value(reason: str, where: object = "") -> EvaluationFailed:
    return EvaluationFailed(f"it gave no value: {reason}", kind=NO_VALUE, where=where)


def _last_words(path: Path) -> tuple[str, Path]:
    """The last line on standard error, and where the others are."""
    lines = _tail(path, LAST_WORDS).decode(errors="replace").strip().splitlines()
    return (f": {lines[-1].strip()[:300]}", path) if lines else ("", path.parent)


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of an output that are not empty."""
    try:
        lines = _tail(path, LAST_WORDS).decode(errors="replace").splitlines()
    except OSError:
        return []
    return [line for line in lines if line.strip()][-count:]
