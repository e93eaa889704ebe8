"""Variants of our optimiser, and the processes that run them: options, another source tree, or both.

A variant is written as words with commas between them: a name of VARIANTS or of `benchmarks.optimizers.OPTIMIZERS`, an
option of `lazybo.Optimizer` (``n_startup=10``, ``priors.length_scale=0.3``), or ``src=PATH``, a folder that contains
another version of the package ``lazybo``. Values are JSON, or text.
"""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.distributions import FloatDistribution

from benchmarks.optimizers import OPTIMIZERS, Make, lazybo
from benchmarks.peers.protocol import Message, converse

ROOT = Path(__file__).parents[1]
OURS = ROOT / "src"

# Options that belong together, by name.
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "strict noise": {"priors": {"noisy_odds": 0.0}, "acquisition": "logei"},
    "Matérn with strict noise": {"priors": {"noisy_odds": 0.0}, "acquisition": "logei", "kernel": "matern52"},
}


@dataclass(frozen=True)
class Variant:
    """What is run. ``source`` and ``code`` say which version: its revision, and a hash of its files."""

    label: str
    options: dict[str, Any] = field(default_factory=dict)
    optimizer: str = ""  # a name of OPTIMIZERS instead of options
    source: str = ""
    code: str = ""
    folder: Path = field(default=OURS, compare=False)

    def record(self) -> dict[str, Any]:
        """What the ledger keeps: no folders, which mean nothing elsewhere."""
        found = {"label": self.label, "options": self.options, "optimizer": self.optimizer}
        return {**found, "source": self.source, "code": self.code}


def parse(text: str) -> Variant:
    """The variant that a text describes."""
    folder, optimizer, options = OURS, "", dict[str, Any]()
    labels = []
    for word in filter(None, map(str.strip, text.split(","))):
        name, equals, value = word.partition("=")
        if name == "src" and equals:
            folder = Path(value).expanduser().resolve()
            continue
        labels.append(word)
        if equals:
            _set(options, name, value)
        elif word in VARIANTS:
            for key, given in VARIANTS[word].items():
                options[key] = {**options.get(key, {}), **given} if isinstance(given, dict) else given
        elif word in OPTIMIZERS:
            optimizer = word
        else:
            names = ", ".join(map(repr, (*VARIANTS, *OPTIMIZERS)))
            raise SystemExit(f"{word!r} is no variant: expected option=value, src=FOLDER, or one of {names}")
    if optimizer and (options or folder != OURS):
        raise SystemExit(f"{text!r}: {optimizer} takes no options and no source")
    if not (folder / "lazybo" / "__init__.py").exists():
        raise SystemExit(f"{text!r}: the folder after src= must contain the package lazybo, such as ../other/src")
    source, code = ("", "") if optimizer else (revision(folder), fingerprint(folder))
    if folder != OURS:
        labels.append(f"source {source or code}")
    return Variant(", ".join(labels) or "default", options, optimizer, source, code, folder)


def _set(options: dict[str, Any], name: str, value: str) -> None:
    """Set an option; a dot leads into an option that has parts."""
    first, dot, rest = name.partition(".")
    if dot:
        _set(options.setdefault(first, {}), rest, value)
        return
    try:
        options[name] = json.loads(value)
    except json.JSONDecodeError:
        options[name] = value


def fingerprint(folder: Path) -> str:
    """A hash of all modules of the package."""
    found = hashlib.sha256()
    for path in sorted((folder / "lazybo").rglob("*.py")):
        found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes() + b"\0")
    return found.hexdigest()[:12]


def revision(folder: Path) -> str:
    """The revision of a folder, with a "+" if the package was changed since; empty outside of a repository."""
    changed = _git(folder, "status", "--porcelain", "--", "lazybo")
    return _git(folder, "rev-parse", "--short", "HEAD") + ("+" if changed else "")


def _git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - git reads
    return done.stdout.strip() if done.returncode == 0 else ""


# ----------------------------------------------------------------------- processes


class Server:
    """A process with one version of lazybo and the problems of these benchmarks."""

    def __init__(self, folder: Path) -> None:
        one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.variants"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **one, "PYTHONPATH": str(folder)},
            start_new_session=True,  # an interrupt ends this command, which then ends the process
        )
        self.say({})

    def run(self, variant: Variant, problem: str, seed: int, budget: int) -> dict[str, Any]:
        """A run as a row of `benchmarks.runner`."""
        job = {"run": problem, "seed": seed, "budget": budget}
        return self.say({**job, "options": variant.options, "optimizer": variant.optimizer})

    def check(self, variant: Variant) -> None:
        """Exit if the optimiser cannot be made."""
        answer = self.say({"check": True, "options": variant.options, "optimizer": variant.optimizer})
        if answer:
            raise SystemExit(f"{variant.label!r} cannot be run: {answer['error']}")

    def families(self, problems: list[str]) -> dict[str, str]:
        """The family of each problem; exit if one cannot be loaded."""
        found = {name: self.say({"family": name}) for name in problems}
        for name, answer in found.items():
            if "error" in answer:
                raise SystemExit(f"problem {name!r} cannot be loaded: {answer['error']}")
        return {name: answer["family"] for name, answer in found.items()}

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with self._process:  # closes its pipes and waits
            pass

    def say(self, message: Message) -> Message:
        """The answer to a message."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(message) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except OSError:
            answer = ""
        if not answer:
            raise SystemExit(f"a run failed (see above): {json.dumps(message)}")
        return json.loads(answer)


def make(options: dict[str, Any], optimizer: str) -> Make:
    """What makes the optimiser of a variant."""
    if optimizer:
        return OPTIMIZERS[optimizer]
    from lazybo import Priors

    priors = {"priors": Priors(**options["priors"])} if "priors" in options else {}
    return lazybo(**{**options, **priors})


def answer(message: Message) -> Message:
    """The answer of a server. An error of a run ends it; its traceback is on standard error."""
    from benchmarks import problems, runner

    try:
        if "family" in message:
            return {"family": problems.load(message["family"], 1).family}
        made = make(message["options"], message["optimizer"])
        if "check" in message:
            made({"x": FloatDistribution(0.0, 1.0)}, 0, 10)
            return {}
    except (Exception, SystemExit) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return runner.run_one(message["run"], "", made, message["seed"], message["budget"])


def main() -> None:
    def begin(_hello: Message) -> Callable[[Message], Message]:
        return answer

    converse(begin, "1")


if __name__ == "__main__":
    main()
