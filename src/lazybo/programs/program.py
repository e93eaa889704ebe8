"""A program in any language as an objective.

The program runs with the parameters of a trial. Its output is parsed while it runs, and it is stopped when it is pruned
or times out. Every run has a folder with ``stdout``, ``stderr``, ``command`` and ``params.json``. A second run of the
same trial gets a second folder.

A program runs in its own session: Ctrl-C reaches only the driver, and one signal reaches the program and all its
children. This module keeps a list of running programs, so that none is left when their run ends; other runs in the
same process are not affected. If the driver is killed, a file in the folder of each trial identifies its program, so
that a later run can stop it.
"""

import contextlib
import json
import math
import os
import selectors
import shlex
import shutil
import signal
import stat
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, ClassVar

from optuna.exceptions import TrialPruned
from optuna.trial import FrozenTrial

from lazybo.core import codec, texts
from lazybo.programs import placeholders
from lazybo.programs.output import MAX_LINE, Last, Reading, Step, Value
from lazybo.run import EvaluationFailed, Process, Trial
from lazybo.study import TrialView

# Seconds between SIGTERM and SIGKILL; a program with a checkpoint needs time to write it.
GRACE, CHECKPOINT_GRACE = 5.0, 30.0
# Seconds between checks of a program that prints nothing.
POLL = 0.1
CHUNK = 1 << 16
# Bytes to read from the pipe after the program has ended; a child that left its process group may write on.
LEFT_IN_PIPE = 1 << 20
# Bytes at the end of an output that are read for its last lines.
LAST_BYTES = 4096
# The kind of failure of a program that succeeded but gave no value, and how many lines of its output are shown.
NO_VALUE, LINES_SHOWN = "no_value", 5
ON_STDERR = "the value is on standard error, which is not read: print it to standard output, or redirect with 2>&1"
_PROCESS_FILE = "process.json"


@dataclass(frozen=True)
class Program:
    """The objective of a command with placeholders.

    ``folder`` and ``cwd`` must be the same folders for every worker. ``value_file`` is the path of the file with the
    value; if it is None, the last value on standard output counts. ``reading`` parses values. ``timeout`` in seconds.
    ``grace`` are the seconds between SIGTERM and SIGKILL when the program is stopped; by default 5, with a checkpoint
    30. ``steps`` is its last step: a program that has a checkpoint folder is then paused where one without is pruned.
    """

    command: tuple[str, ...]
    folder: Path
    cwd: Path
    study: str
    value_file: str | None = None
    reading: Reading = field(default_factory=Reading)
    timeout: float | None = None
    grace: float | None = None
    steps: int | None = None
    # For `lazybo.optimize`: a program owns its device as long as it runs.
    claims_device: ClassVar[bool] = True
    # The identity of the run, which copies in threads and workers share.
    run: str = field(default_factory=lambda: uuid.uuid4().hex, compare=False)

    @property
    def takes_checkpoint(self) -> bool:
        """Whether the command has a placeholder for the folder of the checkpoint."""
        return any(placeholders.CHECKPOINT in placeholders.names(word) for word in self.command)

    @property
    def _grace(self) -> float:
        return self.grace if self.grace is not None else CHECKPOINT_GRACE if self.takes_checkpoint else GRACE

    def check(
        self, examples: Mapping[str, Sequence[Any]], *, all_used: bool, devices: bool, several: bool, here: bool
    ) -> None:
        """Raise a ValueError if this can't run. ``examples`` has some values of every parameter.

        With ``all_used`` every parameter needs a placeholder. ``several`` programs run at the same time, on
        ``devices``, ``here`` or on other machines.
        """
        without = [name for word in self.command for name in placeholders.names(word) if name in placeholders.PLACES]
        if without and not devices:
            raise ValueError(f"the placeholder {{{without[0]}}} needs --devices, for example --devices 0,1")
        placeholders.check(self.command, examples, all_used=all_used)
        if self.folder.exists() and not self.folder.is_dir():
            raise ValueError(f"output {str(self.folder)!r} is not a folder; give another one with --output")
        if self.value_file is not None:
            self._check_value_file(self.value_file, examples, several=several)
        program = self.command[0]
        if os.name != "posix":
            raise ValueError("programs can only be run on POSIX systems (Linux, macOS); tune a module:function instead")
        if here and not placeholders.names(program) and shutil.which(program) is None:
            where = "is not an executable file" if os.sep in program else "was not found in PATH; give its full path"
            raise ValueError(f"the program {program!r} {where}")

    def _check_value_file(self, path: str, examples: Mapping[str, Sequence[Any]], *, several: bool) -> None:
        """Reject an existing path that is not a regular file. Opening a FIFO would block until a writer opens it."""
        placeholders.check([path], examples, all_used=False)
        with contextlib.suppress(OSError):
            mode = Path(path).stat().st_mode
            if not stat.S_ISREG(mode):
                raise ValueError(
                    f"value_file {path!r} is {_kind_of(mode)}; give the path of a file that the program will write"
                )
        if several and not placeholders.names(path):
            raise ValueError(f"trials that run at the same time need a value file each, for example {path}.{{trial}}")

    def end(self) -> None:
        """Stop all programs of this run in this process. No more are started, not even by threads that are left."""
        with _lock:
            _ended.add(self.run)
            mine = [process for process, run in _live.items() if run == self.run]
        end(mine, self._grace)

    def __call__(self, trial: Trial, checkpoint: Path | None = None) -> dict[str, Any]:
        """Run the program for a trial and return its value and metrics."""
        # First the folder: a program of an earlier run that still runs is stopped, and its device is free.
        folder = self._new_folder(trial.number)
        trial.set_user_attr("output", str(folder))
        with trial.owning() as claim:
            values = {**trial.params, "trial": trial.number, "folder": str(folder)}
            if trial.device is not None:
                values.update(device=trial.device, slot=trial.slot)
            if checkpoint is not None:
                values[placeholders.CHECKPOINT] = str(checkpoint)
            argv, value_file = placeholders.fill(self.command, values), folder / "value"
            if self.value_file:
                value_file = self.cwd / placeholders.fill_one(self.value_file, values)
            (folder / "command").write_text(shlex.join(argv) + "\n")
            environment = self._environment(trial, folder, value_file, checkpoint) | claim.environment
            before = _stamp(value_file)
            last = self._run(argv, folder, environment, trial, claim.files)
            return self._result(last, trial, folder, value_file, written=_stamp(value_file) != before)

    def _environment(self, trial: Trial, folder: Path, value_file: Path, checkpoint: Path | None) -> dict[str, str]:
        """What a program finds in its environment; the parameters are in a file, too."""
        params = json.dumps(trial.params, default=lambda value: value.to_plain())  # a graph is no type of JSON
        (folder / "params.json").write_text(params + "\n")
        environment = {
            "PYTHONUNBUFFERED": "1",  # so that the lines of a Python program arrive at once
            **os.environ,
            "LAZYBO_TRIAL": str(trial.number),
            "LAZYBO_PARAMS": params,
            "LAZYBO_VALUE_FILE": str(value_file),
            "LAZYBO_STUDY": self.study,
            "LAZYBO_OUTPUT": str(folder),
        }
        if trial.device is not None:
            environment |= {"LAZYBO_DEVICE": trial.device, "LAZYBO_SLOT": str(trial.slot)}
        if checkpoint is not None:
            environment["LAZYBO_CHECKPOINT"] = str(checkpoint)
        return environment

    def _result(
        self, result: Value | None, trial: Trial, folder: Path, value_file: Path, *, written: bool
    ) -> dict[str, Any]:
        """The value and the metrics: from the file if it was written, or else the last on standard output."""
        if written:
            result = self._read(value_file)
        elif self.value_file:
            raise _no_value(f"it did not write {value_file}")
        known = None if self.reading.names else trial.reported
        if result is None and known is not None and known[0] == self.steps:
            result = Value(known[1])  # it was killed after its last step, and had nothing left to do
        if result is None:
            raise self._why_no_value(folder / "stdout")
        # The metrics of several objectives have their values.
        return result.metrics if self.reading.names else {**result.metrics, "value": result.value}

    def _read(self, path: Path) -> Value:
        """The value in a file. Only the end of a very long file is read: the last value counts."""
        try:
            found = self.reading.value_in(_tail(path, MAX_LINE))
        except OSError as error:
            raise _no_value(f"{path} cannot be read: {error.strerror}") from None
        if found is None:
            raise _no_value(f"{path} does not hold {self.reading}")
        return found

    def _why_no_value(self, stdout: Path) -> EvaluationFailed:
        lines, stderr = _tail(stdout, MAX_LINE).splitlines(), stdout.with_name("stderr")
        if self.reading.value_in(_tail(stderr, MAX_LINE)) is not None:
            return _no_value(ON_STDERR, stderr)
        if not lines:
            return _no_value("it printed nothing to standard output", stdout.parent)
        for line in reversed(lines):
            found = self.reading.unreadable(line)
            if found is not None:
                reason = f"value_regex matched {texts.shortened(found, 100)!r}, but its group is not a number"
                return _no_value(reason, stdout)
        return _no_value(f"no line of its output is {self.reading}", stdout)

    def _new_folder(self, number: int) -> Path:
        """Make a new folder. If a program of an earlier run of this trial is still running, stop it."""
        for attempt in range(1_000_000):
            folder = self.folder / (f"{number:06}.{attempt}" if attempt else f"{number:06}")
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                end_survivor(folder, self._grace)
            else:
                return folder
        raise AssertionError("no trial is run a million times")

    def _run(
        self, argv: list[str], folder: Path, environment: dict[str, str], trial: Trial, files: Collection[int]
    ) -> Value | None:
        with (folder / "stdout").open("wb", buffering=0) as kept, (folder / "stderr").open("wb") as stderr:
            try:
                process = start(
                    argv, folder, cwd=self.cwd, environment=environment, stderr=stderr, files=files, run=self.run
                )
            except OSError as error:
                raise EvaluationFailed(f"it could not be started: {error.strerror}: {error.filename}") from None
            try:
                result = self._follow(process, kept, trial)
            except TrialPruned:
                release(process)  # it had its grace period
                raise
            except BaseException:
                end([process], self._grace)
                raise
            else:
                release(process)
            finally:
                assert process.stdout is not None, "it is a pipe"
                process.stdout.close()
        if process.returncode != 0:
            said = _tail(folder / "stderr", LAST_BYTES).decode(errors="replace").strip().splitlines()
            last, where = (f": {said[-1].strip()[:300]}", folder / "stderr") if said else ("", folder)
            raise EvaluationFailed(_exit_reason(process.returncode) + last, where=where)
        return result

    def _follow(self, process: subprocess.Popen[bytes], kept: IO[bytes], trial: Trial) -> Value | None:
        """Save and parse the output of a program until it ends, times out or is stopped.

        A program that is stopped gets SIGTERM. If it can be continued, what it prints before it ends still counts: its
        checkpoint may know of it.
        """
        last, lines, watch = Last(), self.reading.lines(), _Watch(self.timeout)

        def read(line: bytes) -> None:
            if watch.stopping and not self._continues:
                return
            last.add(self._parse(line, trial))
            if trial.should_prune() and not watch.stopping and not self._is_last(last):
                watch.stop(self._grace)
                _signal(process.pid, signal.SIGTERM)

        for data in self._chunks(process, watch):
            kept.write(data)
            for line in lines.feed(data):
                read(line)
        for line in lines.end():
            read(line)
        if watch.stopping and not (process.poll() == 0 and self._is_last(last)):
            finite = last.step is not None and math.isfinite(last.step.value)
            raise trial.stopped(continues=self._continues and finite)
        return last.value

    def _is_last(self, last: Last) -> bool:
        return self.steps is not None and last.step is not None and last.step.step >= self.steps

    @property
    def _continues(self) -> bool:
        """Whether a program that was stopped can be continued later."""
        return self.takes_checkpoint and self.steps is not None

    def _parse(self, line: bytes, trial: Trial) -> Value | Step | None:
        """Parse a line. An intermediate value is reported."""
        parsed = self.reading.parse(line)
        if isinstance(parsed, Step):
            if self.steps is not None and parsed.step > self.steps:
                raise EvaluationFailed(f"it reported a value for step {parsed.step}, but --steps is {self.steps}")
            trial.report(parsed.value, parsed.step)
        return parsed

    def _chunks(self, process: subprocess.Popen[bytes], watch: "_Watch") -> Iterator[bytes]:
        """Yield the output of the program, until it ends or its grace period is over; raises at the timeout."""
        assert process.stdout is not None, "it is a pipe"
        pipe, left = process.stdout.fileno(), LEFT_IN_PIPE
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while left > 0:
                if watch.is_over():
                    return
                ended = process.poll() is not None
                if selector.select(0 if ended else POLL):
                    data = os.read(pipe, CHUNK)
                    if not data:
                        break
                    left -= len(data) if ended else 0
                    yield data
                elif ended:
                    break  # a child that is still running keeps the pipe open
        while process.poll() is None:  # it has closed its standard output and still runs
            if watch.is_over():
                return
            time.sleep(POLL / 10)


class _Watch:
    """When to wait no longer for a program: at its timeout, or if it was told to stop, after its grace period."""

    def __init__(self, timeout: float | None) -> None:
        self.stopping = False
        self._timeout = timeout
        self._deadline = time.monotonic() + (timeout or math.inf)

    def stop(self, grace: float) -> None:
        """The program was told to stop."""
        self.stopping, self._deadline = True, time.monotonic() + grace

    def is_over(self) -> bool:
        """Whether the grace period is over; raises EvaluationFailed at the timeout."""
        if time.monotonic() < self._deadline:
            return False
        if not self.stopping:
            raise EvaluationFailed(f"it ran longer than its timeout of {self._timeout:g} s")
        return True


def _stamp(path: Path) -> tuple[int, int, int] | None:
    """Time, size and inode of a file: they change when it is written. So an old value is never read."""
    try:
        found = path.stat()
    except OSError:
        return None
    if not stat.S_ISREG(found.st_mode):
        # Opening a FIFO blocks until the other side opens it, perhaps for ever.
        raise EvaluationFailed(f"the value file {path} is {_kind_of(found.st_mode)}; give the path of a regular file")
    return found.st_mtime_ns, found.st_size, found.st_ino


def _kind_of(mode: int) -> str:
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a FIFO"), (stat.S_ISSOCK, "a socket"))
    return next((name for is_kind, name in kinds if is_kind(mode)), "a device")


def _tail(path: Path, size: int) -> bytes:
    """The end of a file, from the start of a line if possible."""
    with path.open("rb") as file:
        skipped = file.seek(0, os.SEEK_END) - size
        file.seek(max(skipped, 0))
        content = file.read(size)
    _, end, rest = content.partition(b"\n")
    return rest if skipped > 0 and end else content


def _exit_reason(status: int) -> str:
    if status > 0:
        return f"it ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"it was killed by {name}" + (" (out of memory?)" if -status == signal.SIGKILL else "")


def _no_value(reason: str, where: object = "") -> EvaluationFailed:
    return EvaluationFailed(f"it gave no value: {reason}", kind=NO_VALUE, where=where)


def why_no_value(trial: FrozenTrial) -> list[str]:
    """If the program of a trial succeeded but gave no value: the last lines of its output, and what to do."""
    failure, said = TrialView(trial).failure, []
    if failure.get("kind") != NO_VALUE:
        return []
    for path in (Path(str(trial.user_attrs.get("output", ""))) / name for name in ("stdout", "stderr")):
        with contextlib.suppress(OSError):
            lines = _tail(path, LAST_BYTES).decode(errors="replace").splitlines()
            last = [f"  | {line}" for line in lines if line.strip()][-LINES_SHOWN:]
            said += [f"the last lines of {os.path.relpath(path)}:", *last] if last else []
    reason = texts.one_line(str(failure.get("summary", "")))
    advice = (
        "Print the value last on standard output (standard error is not read), as a number or as JSON with "
        "\"value\", or tell lazybo where it is: --value-regex 'accuracy: (\\S+)', --value-key accuracy for JSON, or "
        "--value-file PATH"
    )
    return [*said, reason if ON_STDERR in reason else advice]


def command_line(command: Sequence[str], trial: FrozenTrial) -> list[str]:
    """The command that a trial ran."""
    kept = {name: trial.user_attrs.get(name, "") for name in (placeholders.CHECKPOINT, *placeholders.PLACES)}
    number, folder = trial.number, trial.user_attrs.get("output", "")
    return placeholders.fill(command, {**trial.params, "trial": number, "folder": folder, **kept})


# ------------------------------------------------------------------------------ process groups

_lock = threading.Lock()
_live: dict[subprocess.Popen[bytes], str] = {}  # and their runs
_ended: set[str] = set()  # the runs that have ended


def start(
    argv: Sequence[str],
    folder: Path,
    *,
    cwd: Path,
    environment: Mapping[str, str],
    stderr: Any,
    files: Collection[int] = (),
    run: str = "",
) -> subprocess.Popen[bytes]:
    """Start a program in its own session with a pipe as standard output, and identify it in ``folder``."""
    with _lock:
        if run in _ended:
            raise RuntimeError("the run has ended, so no more programs are started")
        process = subprocess.Popen(  # noqa: S603 (the user's own command, without a shell)
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
            pass_fds=files,
            bufsize=0,
        )
        _live[process] = run
    try:
        parent = Process.of(os.getpid())
        record = asdict(Process.of(process.pid)) | {"parent": parent.pid, "parent_born": parent.born}
        (folder / _PROCESS_FILE).write_text(json.dumps(record))
    except BaseException:  # for example, the disk is full: nobody would follow the program
        assert process.stdout is not None, "it is a pipe"
        process.stdout.close()
        end([process])
        raise
    return process


def release(process: subprocess.Popen[bytes]) -> None:
    """Kill what is left of a program's process group, and remove the program from the list."""
    _signal(process.pid, signal.SIGKILL)
    process.wait()
    with _lock:
        _live.pop(process, None)


def end(processes: Sequence[subprocess.Popen[bytes]], grace: float = GRACE) -> None:
    """Send SIGTERM to programs and their children, and SIGKILL after ``grace`` seconds."""
    try:
        for process in processes:
            _signal(process.pid, signal.SIGTERM)
        _wait(grace, lambda: any(process.poll() is None for process in processes))
    finally:
        for process in processes:
            release(process)


def running() -> list[subprocess.Popen[bytes]]:
    """The programs that were started and have not been released."""
    with _lock:
        return list(_live)


def end_survivor(folder: Path, grace: float = GRACE) -> bool:
    """Stop the program of this folder if it still runs and the process that started it is dead."""
    try:
        record = codec.object_from_json((folder / _PROCESS_FILE).read_bytes())
        program = Process.parse(record)
        parent = Process.parse({**record, "pid": record["parent"], "born": record["parent_born"]})
    except (OSError, ValueError, KeyError):
        return False  # the file is missing or damaged
    if not program.is_here or program.born is None or parent.may_run or not program.may_run:
        return False
    _signal(program.pid, signal.SIGTERM)
    _wait(grace, lambda: program.may_run)
    _signal(program.pid, signal.SIGKILL)
    return True


def _wait(grace: float, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + grace
    while time.monotonic() < deadline and condition():
        time.sleep(POLL / 10)


def _signal(group: int, number: int) -> None:
    # The group is gone, or belongs to another user (setuid): nothing can be done.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
