"""The command with real programs: in this process, in a pipe and in a terminal."""

import json
import os
import pty
import select
import signal
import stat
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from typer.testing import CliRunner, Result

from lazybo.cli.app import app
from lazybo.cli.tune import ending_on_signals
from lazybo.run import Process

# As the installed command does it.
LAZYBO = (sys.executable, "-c", "import sys; sys.argv[0] = 'lazybo'; from lazybo.cli.app import main; main()")
# Against hanging only: nothing here depends on how long something takes.
DEADLINE = 120.0
SPACES_AND_WORSE = ["a b", "it's", 'say "hi"', ";touch pwned", "$(touch pwned)", "`touch pwned`", "*", "{x}", ""]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    optuna.logging.set_verbosity(optuna.logging.ERROR)


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.02)


def script(name: str, text: str) -> str:
    path = Path(name)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"./{name}"


def call(*arguments: str, code: int = 0) -> Result:
    """The command in this process."""
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == code, done.output
    return done


def run(*arguments: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    done = subprocess.run([*LAZYBO, *arguments], capture_output=True, text=True, timeout=DEADLINE)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def trials(path: str = "lazybo.db", name: str = "lazybo") -> list[optuna.trial.FrozenTrial]:
    return optuna.load_study(study_name=name, storage=f"sqlite:///{path}").trials


class Terminal:
    """The command in a pseudo-terminal of its own."""

    def __init__(self, *arguments: str) -> None:
        self.pid, self._side = pty.fork()
        if self.pid == 0:
            os.environ["TERM"] = "xterm-256color"
            termios.tcsetwinsize(0, (30, 100))
            os.execv(LAZYBO[0], [*LAZYBO, *arguments])
        self.shown = ""
        self.status: int | None = None

    def read(self) -> None:
        """What was printed in the last moment."""
        if select.select([self._side], [], [], 0.02)[0]:
            try:
                self.shown += os.read(self._side, 65536).decode(errors="replace")
            except OSError:  # the other side is closed: it has ended
                time.sleep(0.02)

    def until(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < deadline, self.shown
            self.read()

    def press_ctrl_c(self) -> None:
        os.write(self._side, b"\x03")

    def _ended(self) -> bool:
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.status = os.waitstatus_to_exitcode(status)
        return pid != 0

    def wait(self) -> int:
        if self.status is None:
            self.until(self._ended)
        assert self.status is not None
        for _ in range(10):
            self.read()
        return self.status

    def close(self) -> None:
        if self.status is None and not self._ended():
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._side)


@pytest.fixture
def terminal() -> Iterator[Callable[..., Terminal]]:
    opened: list[Terminal] = []

    def start(*arguments: str) -> Terminal:
        opened.append(Terminal(*arguments))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


# ----------------------------------------------------------------------- a pipe


def test_a_shell_script_with_choices_that_no_shell_must_read() -> None:
    program = script("measure.sh", '#!/bin/sh\nprintf "%s" "$2" > "seen-$LAZYBO_TRIAL"\necho "log: $2"\necho "$1"\n')
    choices = ", ".join(json.dumps(choice) for choice in SPACES_AND_WORSE)
    table = f'x = {{type = "float", low = 0, high = 1}}\ntext = {{type = "choice", choices = [{choices}]}}'
    initial = ", ".join(f"{{x = 0.5, text = {json.dumps(choice)}}}" for choice in SPACES_AND_WORSE)
    Path("nasty.toml").write_text(
        f'command = ["{program}", "{{x}}", "{{text}}"]\ntrials = 12\nparallel = 3\ninitial = [{initial}]\n'
        f"[parameters]\n{table}\n"
    )
    done = call("tune", "nasty.toml", "--json")
    found = trials(name="nasty")
    assert len(found) == 12
    for trial in found:
        assert trial.state.name == "COMPLETE", trial.system_attrs
        assert Path(f"seen-{trial.number}").read_text() == trial.params["text"]
    assert {trial.params["text"] for trial in found} >= set(SPACES_AND_WORSE)
    assert not list(Path().rglob("pwned"))
    best = json.loads(done.stdout)["best"]
    assert best["value"] == min(trial.value for trial in found)
    # The line that `best` prints is run by a shell, and means the same program with the same arguments.
    line = call("best", "lazybo.db", "--command").stdout
    printed = subprocess.run(line, shell=True, capture_output=True, text=True, check=True).stdout
    assert printed.splitlines()[-1] == str(best["params"]["x"])
    assert "\x1b" not in done.stdout + done.stderr, "no colours in a pipe"
    assert done.stderr.count("trial ") >= 12


def test_a_python_program_reports_is_pruned_and_resumed() -> None:
    Path("train.py").write_text(
        "import json, os, sys, time\n"
        "x = float(sys.argv[1])\n"
        "for step in range(3):\n"
        "    print(json.dumps({'step': step, 'value': x}))\n"
        "    time.sleep(0.05)\n"
        "print(json.dumps({'value': x, 'params': json.loads(os.environ['LAZYBO_PARAMS'])}))\n"
    )
    arguments = ["--maximize", "--pruner", "median", "--float", "x=0:1", "--", sys.executable, "train.py", "{x}"]
    call("tune", "--trials", "5", *arguments)
    first = trials()
    assert [trial.state.name for trial in first] == ["COMPLETE"] * 5
    assert all(trial.intermediate_values == dict.fromkeys(range(3), trial.params["x"]) for trial in first)
    assert all(trial.user_attrs["params"] == trial.params for trial in first)
    Path("poor.toml").write_text("initial = [{x = 0.0}]\n[parameters]\n" + 'x = {type="float", low=0.0, high=1.0}\n')
    call("tune", "poor.toml", "--study", "lazybo", "--trials", "8", *arguments)
    found = trials()
    assert [trial.params for trial in found[:5]] == [trial.params for trial in first]
    assert len(found) == 8
    assert found[5].params == {"x": 0.0}
    assert found[5].state.name == "PRUNED"
    assert found[5].last_step == 0, "it was ended at its first report"


def test_programs_that_hang_flood_fail_or_say_nothing_do_not_stop_the_run() -> None:
    program = script(
        "moody.sh",
        """#!/bin/sh
case "$1" in
    hang*) sleep 600 & echo $! > child; wait;;
    flood) yes 'a line of a log as it is written by a program that says much' | head -c 5000000; echo; echo 1;;
    silent) echo 'value: 3';;
    fail) echo no paint >&2; exit 3;;
    *) echo 2;;
esac
""",
    )
    moods = ["good", "flood", "silent", "fail"]
    Path("moody.toml").write_text(
        f'command = "{program} {{mood}}"\ntrials = 4\nparallel = 2\nstorage = "m.db"\n'
        f"initial = [{', '.join(f'{{mood = {json.dumps(mood)}}}' for mood in moods)}]\n"
        f'[parameters]\nmood = {{type = "choice", choices = {json.dumps(moods)}}}\n'
    )
    done = call("tune", "moody.toml")
    found = {trial.params["mood"]: trial for trial in trials("m.db", "moody")}
    reasons = {mood: trial.system_attrs.get("fail_reason", "") for mood, trial in found.items()}
    assert "gave no value" in reasons["silent"]
    assert "exit status 3: no paint" in reasons["fail"]
    assert found["flood"].value == 1.0
    assert found["good"].value == 2.0
    assert Path("m-moody-output/000001/stdout").stat().st_size > 5_000_000
    assert "2 complete, 2 failed" in done.stdout
    options = ["--trials", "2", "--trial-timeout", "1", "--choice", "mood=hang-1,hang-2"]
    done = call("tune", "--storage", "m.db", "--study", "hang", *options, "--", program, "{mood}", code=1)
    assert "failed: it ran longer than its timeout of 1 s  1 failed" in done.stderr
    assert "failed: it ran longer than its timeout of 1 s again (2 times)  2 failed" in done.stderr
    assert Process.of(int(Path("child").read_text())).born is None, "the child of the program that hung has ended"
    assert "no trial has completed" in done.stdout


def test_a_trial_that_failed_is_one_short_line_and_a_reason_is_told_once() -> None:
    code = "echo 'Traceback of a program' >&2; echo \"ImportError: $(printf 'x%.0s' $(seq 400))\" >&2; exit 1"
    done = call("tune", "--trials", "5", "--float", "x=0:1", "--", "sh", "-c", code, "{x}", code=1)
    lines = done.stderr.splitlines()
    assert [line.split("  ")[0] for line in lines] == [f"trial {i}" for i in range(5)]
    assert all(len(line) < 200 for line in lines)
    assert all(len(line) < 100 for line in lines[1:])
    assert "failed: it ended with exit status 1: ImportError: xxx" in lines[0]
    assert "again (5 times)" in lines[4]


def test_the_output_of_a_program_is_not_obeyed_by_the_terminal(terminal: "Callable[..., Terminal]") -> None:
    evil = "import sys\nprint('\\x1b]0;owned\\x07Accuracy \\x9b31m \\u202e')\nsys.stderr.write('\\x1b[2J')\n"
    Path("evil.py").write_text(evil)
    command = ["tune", "--trials", "3", "--float", "x=0:1", "--", sys.executable, "evil.py", "{x}"]
    shown = terminal(*command)
    assert shown.wait() == 1
    assert r"\x1b]0;owned\x07Accuracy \x9b31m \u202e" in shown.shown
    assert r"\x1b[2J" in shown.shown
    assert not any(bad in shown.shown for bad in ("\x1b]", "\x07", "\x1b[2J", "\x9b", "\u202e"))
    Path("evil.py").write_text(evil + "sys.exit('\\x1b]0;owned\\x07 no')\n")
    shown = terminal(*command)
    assert shown.wait() == 1
    assert "exit status 1" in shown.shown
    assert "\x1b]" not in shown.shown


def test_a_driver_that_was_killed_is_resumed_and_its_programs_are_not_left_behind() -> None:
    program = script(
        "slow.sh",
        "#!/bin/sh\necho $$ > pid-$LAZYBO_TRIAL\n[ $LAZYBO_TRIAL = 2 ] && [ ! -e go ] && sleep 600\necho $1\n",
    )
    command = [*LAZYBO, "tune", "--trials", "5", "--float", "x=0:1", "--", program, "{x}"]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: Path("pid-2").exists() and Path("pid-2").read_text())
    # Without this file nobody can know of the program; the driver writes it right after the start.
    until(lambda: any(path.read_text() for path in Path().glob("*-output/000002*/process.json")))
    driver.kill()
    driver.wait()
    survivor = int(Path("pid-2").read_text())
    before = trials()
    assert [trial.state.name for trial in before] == ["COMPLETE", "COMPLETE", "RUNNING"]
    assert Process.of(survivor).born is not None
    Path("go").touch()
    call(*command[len(LAZYBO) :])
    found = trials()
    assert [trial.state.name for trial in found] == ["COMPLETE"] * 5
    assert [trial.params for trial in found[:3]] == [trial.params for trial in before]
    assert Process.of(survivor).born is None
    assert Path("lazybo-lazybo-output/000002.1/stdout").exists()


def test_a_polite_end_leaves_no_program_behind() -> None:
    program = script("wait.sh", "#!/bin/sh\nsleep 600 & echo $! > child\nwait\n")
    command = [*LAZYBO, "tune", "--trials", "5", "--float", "x=0:1", "--", program, "{x}"]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: Path("child").exists() and Path("child").read_text())
    driver.terminate()
    assert driver.wait(DEADLINE) == 128 + signal.SIGTERM
    until(lambda: Process.of(int(Path("child").read_text())).born is None)
    assert [trial.state.name for trial in trials()] == ["WAITING"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_polite_end_is_not_lost_in_a_finaliser() -> None:
    class Finalised:
        def __del__(self) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)  # the handler's exception ends here, and Python ignores it

    def run() -> None:
        finalised = Finalised()
        with ending_on_signals(lost_after=0.05):
            del finalised
            time.sleep(DEADLINE)

    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 128 + signal.SIGTERM


def test_the_shell_completes_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_LAZYBO_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_WORDS", "lazybo plot h")
    monkeypatch.setenv("COMP_CWORD", "2")
    assert run().stdout.split() == ["history"]


# -------------------------------------------------------------------- a terminal


def test_a_terminal_shows_a_bar_and_colours(terminal: Callable[..., Terminal]) -> None:
    shown = terminal("tune", "--trials", "6", "--float", "x=0:1", "--", "echo", "{x}")
    assert shown.wait() == 0
    assert "6/6" in shown.shown
    assert "\x1b[" in shown.shown
    assert "6 complete" in shown.shown
    assert "trial 0  value" not in shown.shown, "no lines of a log"


def test_ctrl_c_once_waits_and_twice_stops_now(terminal: Callable[..., Terminal]) -> None:
    program = script(
        "wait.sh",
        "#!/bin/sh\nsleep 600 & echo $! > child-$LAZYBO_TRIAL\n"
        "while [ ! -e go-$LAZYBO_TRIAL ]; do sleep 0.02; done\necho $1\n",
    )
    command = ["tune", "--trials", "9", "--float", "x=0:1", "--", program, "{x}"]
    once = terminal(*command)
    once.until(lambda: Path("child-0").exists())
    once.press_ctrl_c()
    once.until(lambda: "waiting for 1 running evaluations" in once.shown)
    Path("go-0").touch()
    assert once.wait() == 130
    assert "run the same command again" in once.shown
    assert [trial.state.name for trial in trials()] == ["COMPLETE"]

    twice = terminal(*command)
    twice.until(lambda: Path("child-1").exists() and Path("child-1").read_text())
    twice.press_ctrl_c()
    twice.until(lambda: "waiting for 1 running evaluations" in twice.shown)
    twice.press_ctrl_c()
    assert twice.wait() == 130
    assert "Traceback" not in twice.shown
    until(lambda: Process.of(int(Path("child-1").read_text())).born is None)
    assert [trial.state.name for trial in trials()] == ["COMPLETE", "WAITING"]


# --------------------------------------------------------------------- a cluster


# --------------------------------------------------------- known constraints


def test_only_configurations_that_fulfil_the_requirements_are_run() -> None:
    program = script("train.py", f"#!{sys.executable}\nimport sys\nprint(float(sys.argv[1]) * -float(sys.argv[2]))\n")
    flags = ("--float", "a=0:1", "--float", "b=0:1", "--require", "a + b <= 0.5", "--require", "a >= b", "--seed", "1")
    call("tune", "--trials", "12", *flags, "-q", "--", program, "{a}", "{b}")
    found = [trial.params for trial in trials()]
    assert len(found) == 12
    assert all(params["a"] + params["b"] <= 0.5 and params["a"] >= params["b"] for params in found)


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("__import__('os').system('touch pwned') == 0", "cannot be used in it"),
        ("a > 2", "no feasible configuration was found"),
        ("c < 1", "there is no parameter 'c'"),
    ],
)
def test_a_wrong_requirement_is_one_line_and_makes_nothing(expression: str, message: str) -> None:
    done = call("tune", "--trials", "3", "--float", "a=0:1", "--require", expression, "--", "echo", "{a}", code=2)
    assert message in " ".join(done.stderr.split())
    assert not list(Path().iterdir())


TRAINING = """
import json, math, os, sys, time
x, place = float(sys.argv[1]), sys.argv[2] + "/epoch"
first = int(open(place).read()) + 1 if os.path.exists(place) else 1
for epoch in range(first, 11):
    print(json.dumps({"step": epoch, "value": (x - 1) ** 2 + 3 * math.exp(-epoch / 3)}))
    with open(place + ".new", "w") as file:
        file.write(str(epoch))
    os.replace(place + ".new", place)
    if epoch == 3 and abs(x - 1) > 2 and int(os.environ["LAZYBO_TRIAL"]) > 1:
        time.sleep(1.5)  # until it is stopped
"""


def test_programs_are_paused_and_resumed_by_hand() -> None:
    Path("train.py").write_text(TRAINING)
    program = ["--", sys.executable, "train.py", "{x}", "{checkpoint}"]
    command = ["tune", "--float", "x=-3:3", "--steps", "10", "--trials", "10", "--seed", "0", *program]
    call(*command)
    shown = json.loads(call("show", "--json").stdout)["trials"]
    paused = [trial for trial in trials() if trial.state == optuna.trial.TrialState.WAITING]
    assert shown["paused"] == len(paused) > 0
    assert shown["complete"] == 10 - len(paused)
    numbers = ", ".join(str(trial.number) for trial in paused)
    assert f"give --trial NUMBER or --all; paused trials: {numbers}" in call("resume", code=2).stderr
    assert "is not paused" in call("resume", "--trial", "0", code=2).stderr
    call("resume", "--trial", str(paused[0].number))
    call(*command)
    assert trials()[paused[0].number].state == optuna.trial.TrialState.COMPLETE
    call("resume", "--all")
    call(*command)
    found = trials()
    assert [trial.state for trial in found] == [optuna.trial.TrialState.COMPLETE] * 10
    assert all(list(trial.intermediate_values) == list(range(1, 11)) for trial in found)
    assert Path("lazybo-lazybo-output", "checkpoints", "000000", "files", "epoch").read_text() == "10"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--steps", "0", "--", "train", "{x}"], "steps must be"),
        (["--grace", "-1", "--", "train", "{x}"], "grace must be"),
        (["--grace", "5", "math:sqrt"], "grace is for programs"),
        (["--steps", "5", "math:sqrt"], "steps is for objectives that report"),
        (["--checkpoints", "there", "--", "train", "{x}"], "add this placeholder"),
        (["--float", "checkpoint=0:1", "--", "train", "{x}", "{checkpoint}"], "rename it"),
    ],
)
def test_steps_and_checkpoints_that_do_not_fit_are_refused(flags: list[str], message: str) -> None:
    script("train", "echo 1")
    flags = ["./train" if flag == "train" else flag for flag in flags]
    assert message in call("tune", "--trials", "2", "--float", "x=0:1", *flags, code=2).stderr
    assert not Path("lazybo.db").exists() or optuna.get_all_study_names("sqlite:///lazybo.db") == []


def test_steps_without_a_checkpoint_tell_the_pruner_where_trainings_end() -> None:
    steps = "; ".join(f'echo "{{{{\\"step\\": {i}, \\"value\\": {i}}}}}"' for i in (1, 2))
    call("tune", "--trials", "2", "--float", "x=0:1", "--steps", "2", "--", "sh", "-c", steps, "{x}")
    assert [trial.intermediate_values for trial in trials()] == [{1: 1.0, 2: 2.0}] * 2
