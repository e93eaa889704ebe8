"""Programs as objectives: placeholders, output as it comes, and the end of everything that was started."""

import json
import os
import pickle
import re
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from optuna.exceptions import TrialPruned

from lazybo.programs import placeholders
from lazybo.programs.output import MAX_LINE, MAX_SEARCHED, Reading, Step, Value
from lazybo.programs.program import Program, end_survivor, running
from lazybo.run import EvaluationFailed, Process, Trial

# Against hanging only.
DEADLINE = 60.0


@pytest.fixture(autouse=True)
def _no_program_is_left() -> Iterator[None]:
    yield
    assert not running(), "no program is left behind"


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def program(tmp_path: Path, *command: str, **options: Any) -> Program:
    return Program(tuple(command), tmp_path / "output", tmp_path, "study", **options)


class Reporter:
    def __init__(self, prune_at: int | None = None) -> None:
        self.said: list[tuple[int, float]] = []
        self._prune_at = prune_at

    def report(self, number: int, step: int, value: float) -> bool:  # noqa: ARG002 (the protocol)
        self.said.append((step, value))
        return step == self._prune_at


# ----------------------------------------------------------------- placeholders


# What Linux takes as an argument: all but the null byte, and no half characters.
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


@given(st.lists(TEXT, min_size=1), TEXT)
def test_doubled_braces_are_braces_and_a_value_is_one_argument_as_it_stands(words: list[str], value: str) -> None:
    doubled = [word.replace("{", "{{").replace("}", "}}") for word in words]
    assert placeholders.fill([*doubled, "{x}", "--x={x}"], {"x": value}) == [*words, value, f"--x={value}"]


def test_values_are_written_for_programs() -> None:
    values = {"lr": 1e-05, "n": 3, "flag": True, "name": "a b"}
    assert placeholders.fill(["{lr}", "{lr:.3f}", "{n}", "{flag}", "{name}"], values) == [
        *("1e-05", "0.000", "3", "true", "a b")
    ]


@pytest.mark.parametrize(
    ("command", "left"),
    [
        (["--opt", "x", "--momentum", "{momentum}"], ["--opt", "x"]),
        (["--nesterov", "--momentum={momentum}"], ["--nesterov"]),
        (["train", "{momentum}", "-v"], ["train", "-v"]),
        (["--lr", "{lr}", "{momentum}"], ["--lr", "0.1"]),
        (["-5", "{momentum}"], ["-5"]),
        (["--both", "{lr}:{momentum}"], []),
    ],
)
def test_an_inactive_parameter_takes_its_argument_and_its_flag_with_it(command: list[str], left: list[str]) -> None:
    assert placeholders.fill(command, {"lr": 0.1}) == left


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["{momentun}", "{momentum}"], "{momentun} has no parameter (did you mean 'momentum'?)"),
        (["train"], "'momentum' has no placeholder in the command; add {momentum}"),
        (["{momentum:.2d}"], "cannot format momentum=0.5"),
        (["{momentum"], "write {{ or }} for a literal brace"),
        (['{"a": {momentum}}'], "for a literal brace"),
        (["{momentum!r}"], "that is not a plain name"),
        (["{}"], "that is not a plain name"),
        (["{momentum.__class__}", "{momentum}"], "{momentum.__class__} has no parameter"),
    ],
)
def test_a_command_that_cannot_be_filled_is_refused(command: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        placeholders.check(command, {"momentum": [0.5]})


# ----------------------------------------------------------------------- output


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"0.5", Value(0.5)),
        (b"  -1e-3\r", Value(-1e-3)),
        (b'{"value": 2, "loss": [1, 2]}', Value(2.0, {"loss": [1, 2]})),
        (b'{"step": 3, "value": 0.7}', Step(3, 0.7)),
        (b'{"step": 3.0, "value": 0.7}', Step(3, 0.7)),
        (b'{"step": -1, "value": 0.7}', None),
        (b'{"step": "a", "value": 0.7}', None),
        (b'{"step": 1e999, "value": 0.7}', None),
        (b'{"value": "0.5"}', None),
        (b'{"value": true}', None),
        (b'{"value": 1' + b"0" * 400 + b"}", None),
        (b'{"loss": 1}', None),
        (b"{" * 100_000, None),
        (b"epoch 3", None),
        (b"no", None),
        (b"", None),
        (b"\xff\xfe", None),
    ],
)
def test_what_a_line_says(line: bytes, said: object) -> None:
    assert Reading().parse(line) == said


ACCURACY = Reading(regex=r"Accuracy: (\S+)")
EPOCHS = Reading(regex=r"epoch (?P<step>\d+).*acc=(?P<value>[-\d.]+)")
EITHER = Reading(regex=r"(?:epoch (?P<step>\d+) )?acc=(?P<value>\S+)")


@pytest.mark.parametrize(
    ("reading", "line", "said"),
    [
        (Reading(key="accuracy"), b'{"accuracy": 0.5, "value": 3, "loss": 1}', Value(0.5, {"loss": 1})),
        (Reading(key="accuracy"), b'{"step": 2, "accuracy": 0.5}', Step(2, 0.5)),
        (Reading(key="accuracy"), b'{"value": 0.5}', None),
        (Reading(key="accuracy"), b'{"accuracy": "0.5"}', None),
        (Reading(key="accuracy"), b"0.5", None),
        (Reading(key="test.acc"), b'{"test": {"acc": 1}}', Value(1.0, {"test": {"acc": 1}})),
        (Reading(key="test.acc"), b'{"test.acc": 2, "test": {"acc": 1}}', Value(2.0, {"test": {"acc": 1}})),
        (Reading(key="test.acc"), b'{"test": [1]}', None),
        (ACCURACY, b"Test Accuracy: 0.95", Value(0.95)),
        (ACCURACY, b"Accuracy: 0.1  Accuracy: 0.2", Value(0.2)),
        (ACCURACY, b"Accuracy: \x1b[1;32m0.95\x1b[0m", Value(0.95)),
        (ACCURACY, b"Accuracy: high", None),
        (ACCURACY, b"0.95", None),
        (ACCURACY, b"\xff Accuracy: 1e-3", Value(1e-3)),
        (ACCURACY, b"x" * MAX_SEARCHED + b"Accuracy: 1", None),
        (EPOCHS, b"epoch 3: loss 1 acc=0.7, done", Step(3, 0.7)),
        (EPOCHS, b"acc=0.7", None),
        (EITHER, b"epoch 3 acc=0.7", Step(3, 0.7)),
        (EITHER, b"acc=0.7", Value(0.7)),
        (Reading(regex=r"(?P<step>\S+) acc=(?P<value>\S+)"), "³ acc=1".encode(), None),
    ],
)
def test_a_key_or_a_regular_expression_finds_the_value(reading: Reading, line: bytes, said: object) -> None:
    assert reading.parse(line) == said


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"regex": "acc=(", "key": None}, "'acc=(' is not a regular expression: missing )"),
        ({"regex": r"acc=\d+"}, "must have one group around the number"),
        ({"regex": r"(a)(b)"}, "must have one group around the number"),
        ({"regex": r"(?P<step>\d+) (\d+)"}, "must have one group around the number"),
        ({"regex": r"(?P<val>\d+)"}, "has a group 'val'; call it value or step"),
        ({"key": ""}, "value_key must be a key"),
        ({"key": "a", "regex": "(b)"}, "give one of them"),
    ],
)
def test_a_reading_that_can_find_nothing_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        Reading(**options)


# ---------------------------------------------------------------------- program


def test_a_program_gets_its_parameters_in_four_ways_and_keeps_its_output(tmp_path: Path) -> None:
    script = 'echo "$0 $1"; env | grep ^LAZYBO_ >&2; echo "{\\"value\\": 2, \\"note\\": \\"$1\\"}"; echo done'
    run = program(tmp_path, "sh", "-c", script.replace("{", "{{").replace("}", "}}"), "{trial}", "{x}")
    trial = Trial(7, {"x": "a 'b' \"c\"; $(touch pwned) `touch pwned`"})
    with pytest.raises(RuntimeError, match="gave no value"):
        run(trial)  # the quotes make the line no JSON
    trial = Trial(7, {"x": "a b; $(touch pwned) `touch pwned` *"})
    assert run(trial) == {"value": 2.0, "note": trial.params["x"]}
    folder = tmp_path / "output" / "000007.1"
    assert trial.user_attrs == {"output": str(folder)}
    assert (folder / "stdout").read_text().startswith(f"7 {trial.params['x']}\n")
    environment = dict(line.split("=", 1) for line in (folder / "stderr").read_text().splitlines())
    assert environment["LAZYBO_TRIAL"] == "7"
    assert environment["LAZYBO_STUDY"] == "study"
    assert json.loads(environment["LAZYBO_PARAMS"]) == trial.params == json.loads((folder / "params.json").read_text())
    assert environment["LAZYBO_VALUE_FILE"] == str(folder / "value")
    assert (tmp_path / "output" / "000007" / "stdout").exists(), "the first run's output is kept"
    assert not list(tmp_path.rglob("pwned"))


def test_a_program_is_sent_by_pickle(tmp_path: Path) -> None:
    run = program(tmp_path, "echo", "{x}", timeout=3.0)
    assert pickle.loads(pickle.dumps(run)) == run


def test_the_value_file_wins_over_what_is_printed(tmp_path: Path) -> None:
    run = program(tmp_path, "sh", "-c", 'echo 1; echo "{x}" > "$LAZYBO_VALUE_FILE"')
    assert run(Trial(0, {"x": 5})) == {"value": 5.0}


def test_a_named_value_file_must_be_written_anew(tmp_path: Path) -> None:
    (tmp_path / "result-3").write_text("0.5")
    run = program(tmp_path, "echo", "7", value_file="result-{x}")
    with pytest.raises(RuntimeError, match=r"did not write .*result-3"):
        run(Trial(0, {"x": 3}))
    run = program(tmp_path, "sh", "-c", "echo nothing > result-{x}", value_file="result-{x}")
    with pytest.raises(RuntimeError, match="result-3 does not hold a number"):
        run(Trial(1, {"x": 3}))
    run = program(tmp_path, "sh", "-c", "echo 0.25 > result-{x}", value_file="result-{x}")
    assert run(Trial(2, {"x": 3})) == {"value": 0.25}


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (["sh", "-c", "echo 1; echo no paint >&2; exit 3"], "ended with exit status 3: no paint .see .*stderr"),
        (["sh", "-c", "kill -9 $$"], "killed by SIGKILL .out of memory"),
        (["sh", "-c", "echo value: 3"], "gave no value: no line of its output is a number or a JSON object"),
        (["sh", "-c", ":"], "gave no value: it printed nothing"),
        (["./not-there"], "could not be started: No such file"),
        (["sh", "-c", "exec >&-; sleep 600"], "longer than its timeout of 0.5 s"),
        (["sh", "-c", "sleep 600"], "longer than its timeout of 0.5 s"),
        (["sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"], "longer than its timeout of 0.5 s"),
    ],
)
def test_failures_say_what_happened(command: list[str], reason: str, tmp_path: Path) -> None:
    timeout = 0.5 if "timeout" in reason else None
    with pytest.raises(RuntimeError, match=reason):
        program(tmp_path, *command, timeout=timeout, grace=0.3)(Trial(0, {}))


def test_the_value_of_a_program_that_prints_for_people(tmp_path: Path) -> None:
    lines = "for epoch in range(3):\n    print(f'epoch {{epoch}} acc=0.{{epoch}}')\nprint('done')"
    reporter = Reporter()
    run = program(tmp_path, sys.executable, "-c", lines, reading=EPOCHS)
    assert run(Trial(0, {}, reporter)) == {"value": 0.2}, "the last intermediate value is the value"
    assert reporter.said == [(0, 0.0), (1, 0.1), (2, 0.2)]
    awk = 'BEGIN {{ printf "10%% Accuracy: 0.1\\r100%% Accuracy: 0.75\\r\\n" }}'
    assert program(tmp_path, "awk", awk, reading=ACCURACY)(Trial(1, {})) == {"value": 0.75}
    bar = 'BEGIN {{ for (i = 0; i < 60000; i++) printf "\\r%d of 60000 steps, Accuracy: %d", i, i }}'
    assert program(tmp_path, "awk", bar, reading=ACCURACY)(Trial(2, {})) == {"value": 59999.0}, "a line of 2 MB"
    with pytest.raises(RuntimeError, match="value_regex matched 'Accuracy: 0,5', but its group is not a number"):
        program(tmp_path, "echo", "Accuracy: 0,5", reading=ACCURACY)(Trial(3, {}))
    with pytest.raises(RuntimeError, match="is a line that matches value_regex"):
        program(tmp_path, "echo", "accuracy: 0.5", reading=ACCURACY)(Trial(4, {}))
    run = program(tmp_path, "sh", "-c", "echo 'Accuracy: 3' > log", value_file="log", reading=ACCURACY)
    assert run(Trial(5, {})) == {"value": 3.0}


@pytest.mark.parametrize("kind", ["a FIFO", "a folder", "a device"])
def test_a_value_file_that_is_no_file_is_a_clear_failure(kind: str, tmp_path: Path) -> None:
    path = "/dev/null" if kind == "a device" else "value"
    make = {"a FIFO": "mkfifo value", "a folder": "mkdir value", "a device": ":"}[kind]
    run = program(tmp_path, "sh", "-c", f"{make}; touch ran", value_file=path, timeout=DEADLINE)
    with pytest.raises(RuntimeError, match=f"the value file .* is {kind}; give the path of a regular file"):
        run(Trial(0, {}))
    (tmp_path / "ran").unlink(missing_ok=True)
    with pytest.raises(RuntimeError, match=f"the value file .* is {kind}; give the path of a regular file"):
        run(Trial(1, {}))
    assert not (tmp_path / "ran").exists(), "a program that would wait for the other side is not begun"


def test_of_a_huge_value_file_the_end_counts_and_one_that_cannot_be_read_is_a_clear_failure(tmp_path: Path) -> None:
    huge = f"head -c {2 * MAX_LINE} /dev/zero | tr '\\0' 7 > value; printf '\\n0.5\\n' >> value"
    assert program(tmp_path, "sh", "-c", huge, value_file="value")(Trial(0, {})) == {"value": 0.5}
    run = program(tmp_path, "sh", "-c", "echo 1 > secret; chmod 0 secret", value_file="secret")
    if os.geteuid():
        with pytest.raises(RuntimeError, match="secret cannot be read: Permission denied"):
            run(Trial(1, {}))


def test_megabytes_of_output_go_to_the_file_and_not_into_memory(tmp_path: Path) -> None:
    script = "yes 'a line of a log as it is written by a program that says much more than anybody reads' | "
    run = program(tmp_path, "sh", "-c", script + "head -c 20000000; echo; echo 0.5")
    tracemalloc.start()
    try:
        assert run(Trial(0, {})) == {"value": 0.5}
        assert tracemalloc.get_traced_memory()[1] < 5e6
    finally:
        tracemalloc.stop()
    assert (tmp_path / "output" / "000000" / "stdout").stat().st_size == 20_000_005


CHILD = "sleep 600 & echo $! > child; "


def _child(tmp_path: Path) -> int:
    until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text().strip())
    return int((tmp_path / "child").read_text())


def test_a_pruned_program_ends_with_all_its_children(tmp_path: Path) -> None:
    steps = "".join(f'echo \'{{"step": {i}, "value": 0.{i}}}\'; ' for i in range(1, 4))
    script = (CHILD + steps + "wait; echo 9").replace("{", "{{").replace("}", "}}")
    reporter = Reporter(prune_at=2)
    with pytest.raises(TrialPruned):
        program(tmp_path, "sh", "-c", script)(Trial(0, {}, reporter))
    assert reporter.said == [(1, 0.1), (2, 0.2)]
    until(lambda: Process.of(_child(tmp_path)).born is None)


def test_what_a_program_leaves_running_holds_nobody_up_and_is_ended(tmp_path: Path) -> None:
    assert program(tmp_path, "sh", "-c", CHILD + "echo 4")(Trial(0, {})) == {"value": 4.0}
    until(lambda: Process.of(_child(tmp_path)).born is None)


def test_a_survivor_of_a_driver_that_was_killed_is_ended_before_its_trial_runs_again(tmp_path: Path) -> None:
    run = program(tmp_path, "sh", "-c", "echo $$ >> pids; [ -e second ] || sleep 600; echo 1")
    code = "import pickle, sys\nfrom lazybo.run.trial import Trial\npickle.load(sys.stdin.buffer)(Trial(0, {}))"
    driver = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
    assert driver.stdin is not None
    with driver.stdin as pipe:
        pipe.write(pickle.dumps(run))
    until(lambda: (tmp_path / "output" / "000000" / "process.json").exists() and (tmp_path / "pids").exists())
    survivor = int((tmp_path / "pids").read_text().split()[0])
    assert not end_survivor(tmp_path / "output" / "000000"), "its driver lives"
    driver.kill()
    driver.wait()
    assert Process.of(survivor).born is not None
    (tmp_path / "second").touch()
    assert run(Trial(0, {})) == {"value": 1.0}
    until(lambda: Process.of(survivor).born is None)


@pytest.mark.parametrize("old", [True, False])
def test_a_survivor_is_only_ended_if_the_note_says_for_certain_which_process_it_is(old: bool, tmp_path: Path) -> None:
    """Earlier versions noted starts in seconds, which move when the clock is set."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as survivor:
        note: dict[str, Any] = {
            "machine": Process.of(os.getpid()).machine,
            "pid": survivor.pid,
            "born": Process.of(survivor.pid).born,
            "parent": 2**22 + 1,
        }
        note["parent_born"] = 1
        if old:
            note |= {"machine": note["machine"].split()[0], "born": psutil.Process(survivor.pid).create_time()}
        (tmp_path / "process.json").write_text(json.dumps(note))
        assert end_survivor(tmp_path) is not old
        assert (survivor.poll() is None) is old
        survivor.kill()


@pytest.mark.parametrize(
    "change", [{"pid": 0}, {"pid": -1}, {"pid": 10**39}, {"parent": "../.."}, {"born": "1"}, "[" * 10**5]
)
def test_a_note_that_was_edited_ends_nothing(change: dict[str, Any] | str, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as survivor:
        note: dict[str, Any] = asdict(Process.of(survivor.pid))
        note |= {"parent": 2**22 + 1, "parent_born": 1}
        text = change if isinstance(change, str) else json.dumps({**note, **change})
        (tmp_path / "process.json").write_text(text)
        try:
            assert not end_survivor(tmp_path)
            assert survivor.poll() is None
        finally:
            survivor.kill()


def test_all_programs_end_with_their_run_and_none_begins_after(tmp_path: Path) -> None:
    failed: list[str] = []
    command = CHILD + "trap '' TERM; while :; do sleep 0.05; done"
    ended = program(tmp_path, "sh", "-c", command, grace=0.2)
    other = program(tmp_path, "sh", "-c", "until test -e go; do sleep 0.05; done; echo 1")

    def work() -> None:
        try:
            ended(Trial(0, {}))
        except RuntimeError as error:
            failed.append(str(error))

    found: list[dict[str, Any]] = []
    threads = [threading.Thread(target=work), threading.Thread(target=lambda: found.append(other(Trial(1, {}))))]
    for thread in threads:
        thread.start()
    child = _child(tmp_path)
    until(lambda: len(running()) == len(threads))
    ended.end()
    (tmp_path / "go").touch()
    for thread in threads:
        thread.join(DEADLINE)
    assert failed
    assert "SIGKILL" in failed[0]
    until(lambda: Process.of(child).born is None)
    for late in (ended, pickle.loads(pickle.dumps(ended))):
        with pytest.raises(RuntimeError, match="no more programs"):
            late(Trial(2, {}))
    assert found == [{"value": 1.0}], "other runs in this process are not affected"


def test_the_terminals_interrupt_does_not_reach_a_program(tmp_path: Path) -> None:
    script = "import os; print(int(os.getsid(0) == os.getpid() and os.getpgrp() == os.getpid()))"
    assert program(tmp_path, sys.executable, "-c", script)(Trial(0, {})) == {"value": 1.0}


# -------------------------------------------------------------------- checkpoints

# Prints a value, then saves; it is asked to stop at a step, and prints and saves one more.
TRAINING = """
import json, os, signal, sys, time
state, asked = sys.argv[1] + "/epoch", []
signal.signal(signal.SIGTERM, lambda *_: asked.append(1))
first = int(open(state).read()) + 1 if os.path.exists(state) else 1
for epoch in range(first, 6):
    print(json.dumps({"step": epoch, "value": epoch / 10}))
    open(state, "w").write(str(epoch))
    while epoch == 2 and not asked:
        time.sleep(0.01)
    if epoch == 3 and asked:
        sys.exit(1)
"""


def test_a_program_is_asked_to_stop_saves_and_continues_later(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(TRAINING)
    training = program(tmp_path, sys.executable, str(script), "{checkpoint}", steps=5)
    assert training.takes_checkpoint
    (tmp_path / "checkpoint").mkdir()
    first, second = Reporter(prune_at=2), Reporter(prune_at=5)
    with pytest.raises(type(Trial.stopped(continues=True))):
        training(Trial(0, {}, first), tmp_path / "checkpoint")
    assert first.said == [(1, 0.1), (2, 0.2), (3, 0.3)], "also what it prints in its grace period"
    assert training(Trial(0, {}, second), tmp_path / "checkpoint") == {"value": 0.5}, "its last step: not stopped"
    assert second.said == [(4, 0.4), (5, 0.5)]
    third = Trial(0, {}, Reporter())
    with pytest.raises(EvaluationFailed, match="it printed nothing"):
        training(third, tmp_path / "checkpoint")
    third.reported = (5, 0.5)
    assert training(third, tmp_path / "checkpoint") == {"value": 0.5}, "killed after its last step, it has its value"


def test_a_program_that_does_not_stop_is_killed_after_its_grace_period(tmp_path: Path) -> None:
    script = "import json, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    script += "print(json.dumps({{'step': 1, 'value': 2}}))\ntime.sleep(600)"
    (tmp_path / "checkpoint").mkdir()
    training = program(tmp_path, sys.executable, "-c", script, "{checkpoint}", steps=5, grace=0.2)
    with pytest.raises(type(Trial.stopped(continues=True))):
        training(Trial(0, {}, Reporter(prune_at=1)), tmp_path / "checkpoint")


def test_a_step_after_the_last_one_is_a_clear_failure(tmp_path: Path) -> None:
    script = """echo '{{"step": 7, "value": 2}}'"""
    with pytest.raises(EvaluationFailed, match="a value for step 7, but --steps is 5"):
        program(tmp_path, "sh", "-c", script, steps=5)(Trial(0, {}, Reporter()))
