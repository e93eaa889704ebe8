"""Whether two evaluations ever own one device: ``python -m benchmarks.devices --evaluations 1000``.

Four fake devices. A fake device is a socket address that the kernel gives to one process at a time and takes back when
that process is dead; it has nothing to do with the locks of `lazybo.run.devices`. An evaluation takes the addresses of
the devices that its environment names, and a second owner is a collision. One evaluation in ten kills its own worker,
one in a hundred hangs until its timeout ends it, and the driver is killed at random moments and started again. The runs
evaluate a Python function in processes, trainings that are paused and resumed, two evaluations on each device, two
devices for each evaluation, and a program.

The module reads the environment when it is imported, as libraries of GPUs do. A wrong device there is counted too.
"""

import argparse
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import lazybo
from lazybo.programs import Program
from lazybo.run import Trial

# What a library would see when it is imported with the objective.
SEEN = os.environ.get("CUDA_VISIBLE_DEVICES", "")
SPACE = {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}
KILLED, HANGS = 0.1, 0.01
# Seconds of an evaluation or step, and of a timeout; and how many evaluations a driver begins before it is killed.
SHORT, TIMEOUT, DRIVER_LIVES = 0.01, 3.0, (5, 150)
STEPS = 6
KINDS: dict[str, list[Any]] = {
    "processes": [0, 1, 2, 3],
    "pauses": [0, 1, 2, 3],
    "shared": [0, 0, 1, 1],
    "pairs": [[0, 1], [2, 3]],
    "program": [0, 1, 2, 3],
}


@dataclass(frozen=True)
class Setting:
    """One study, as its driver process gets it."""

    folder: str
    kind: str
    trials: int
    seed: int
    mark: str  # in the addresses of this study's devices

    @property
    def log(self) -> Path:
        return Path(self.folder) / "log"

    def note(self, what: str) -> None:
        """Append a word to the log; short appends are never mixed."""
        with self.log.open("a") as file:
            file.write(f"{what}\n")

    def begun(self) -> int:
        """How many evaluations have begun."""
        return self.log.read_text().count("begun") if self.log.exists() else 0

    def use(self, stack: ExitStack, devices: str) -> None:
        """Take all of these devices until the stack closes, or the process dies."""
        copies = max(Counter(map(str, KINDS[self.kind])).values())
        for device in devices.split(","):
            addresses = [f"\0{self.mark}-{device}-{copy}" for copy in range(copies)]
            if not any(_bound(stack, address) for address in addresses):
                self.note("collision")


def _bound(stack: ExitStack, address: str) -> bool:
    """Whether this process has the address now."""
    taken = stack.enter_context(socket.socket(socket.AF_UNIX))
    try:
        taken.bind(address)
    except OSError:
        return False
    return True


# ------------------------------------------------------------------ evaluations


def evaluate(setting: Setting, params: dict[str, float], device: str) -> float:
    """Own the device for a moment; sometimes die or hang."""
    with ExitStack() as stack:
        setting.use(stack, device)
        setting.note("begun")
        time.sleep(SHORT)
        chance = random.random()  # noqa: S311 (which evaluations die is no secret)
        if chance < KILLED:
            setting.note("killed")
            os.kill(os.getpid(), signal.SIGKILL)
        if chance > 1 - HANGS:
            setting.note("hung")
            time.sleep(60)
    return params["x"] ** 2 + params["y"] ** 2


@dataclass(frozen=True)
class Function:
    """A function in a worker process."""

    setting: Setting

    def __call__(self, params: dict[str, float], trial: Trial) -> float:
        if trial.device != SEEN or os.environ["HIP_VISIBLE_DEVICES"] != SEEN:
            self.setting.note("wrong")
        return evaluate(self.setting, params, SEEN)


@dataclass(frozen=True)
class Training:
    """The same, step by step."""

    setting: Setting

    def __call__(self, params: dict[str, float], trial: Trial, checkpoint: Path) -> Iterator[float]:
        if trial.device != SEEN:
            self.setting.note("wrong")
        state = checkpoint / "step"
        for step in range(int(state.read_text()) if state.exists() else 0, STEPS):
            value = evaluate(self.setting, params, SEEN) + 1 / (step + 1)
            state.write_text(str(step + 1))
            yield value


def drive(setting: Setting) -> None:
    """Run the study to its end."""
    function: Any = {"pauses": Training, "program": program}.get(setting.kind, Function)(setting)
    lazybo.optimize(
        function,
        SPACE,
        n_trials=setting.trials,
        seed=setting.seed,
        devices=KINDS[setting.kind],
        executor="threads" if setting.kind == "program" else None,
        storage=Path(setting.folder) / "study.db",
        limits=lazybo.Limits(
            retries=1000, max_failures=1000, trial_timeout=None if setting.kind == "program" else TIMEOUT
        ),
        max_steps=STEPS if setting.kind == "pauses" else None,
        sampler=lazybo.LazySampler(local_after=None),
        progress=False,
    )


def program(setting: Setting) -> Any:
    """A program that does the same as the function."""
    code = (
        "import json, os, sys; from benchmarks import devices as d; s = d.Setting(**json.loads(sys.argv[1]));"
        "sys.argv[2] == d.SEEN == os.environ['LAZYBO_DEVICE'] or s.note('wrong');"
        "print(d.evaluate(s, json.loads(os.environ['LAZYBO_PARAMS']), d.SEEN))"
    )
    text = json.dumps(asdict(setting)).replace("{", "{{").replace("}", "}}")
    command = (sys.executable, "-c", code, text, "{device}")
    folder = Path(setting.folder)
    return Program(command, folder / "output", Path.cwd(), "devices", timeout=TIMEOUT + 7)


# ------------------------------------------------------------------------ kills


def run(setting: Setting) -> Counter[str]:
    """Run a study whose driver is killed now and then; counts the words of its log, and kills of drivers."""
    moments, drivers = random.Random(setting.seed), 0  # noqa: S311 (moments of kills)
    command = [sys.executable, "-m", "benchmarks.devices", "--drive", json.dumps(asdict(setting))]
    while True:
        # Every death of a worker is a line of its log.
        with subprocess.Popen(command, stderr=subprocess.DEVNULL) as driver:  # noqa: S603 (this module)
            end = setting.begun() + moments.randint(*DRIVER_LIVES)
            while driver.poll() is None and setting.begun() < end:
                time.sleep(moments.uniform(0.001, 0.2))
            if driver.poll() is None:
                driver.kill()
                drivers += 1
            elif driver.returncode != 0:
                raise SystemExit(f"the driver failed with exit status {driver.returncode}")
            else:
                break
    words = Counter(setting.log.read_text().split())
    return words + Counter({"drivers": drivers})


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the counts of each kind of study, and fail if there was a collision."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--evaluations", type=int, default=1000, help="evaluations of each kind, at least")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--drive", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.drive:
        # As users' objectives: by the name of this module, so that workers import it.
        from benchmarks import devices

        devices.drive(devices.Setting(**json.loads(options.drive)))
        return
    columns = {"begun": "evaluations", "killed": "killed", "hung": "hung", "drivers": "drivers killed"}
    print(f"{'kind':12}", *(f"{title:>15}" for title in [*columns.values(), "wrong devices", "collisions"]))
    failed = False
    for kind in options.kinds:
        found: Counter[str] = Counter()
        while found["begun"] < options.evaluations:
            with tempfile.TemporaryDirectory() as folder:
                seed = options.seed + found["begun"]
                trials = min(options.evaluations, 300)
                found += run(Setting(folder, kind, trials, seed, uuid.uuid4().hex))
        counts = [*(found[word] for word in columns), found["wrong"], found["collision"]]
        print(f"{kind:12}", *(f"{count:15,}" for count in counts), flush=True)
        failed = failed or found["wrong"] > 0 or found["collision"] > 0
    if failed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
