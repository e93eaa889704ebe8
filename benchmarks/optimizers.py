"""The contestants as thin adapters with the interface of `lazybo.Optimizer`: ask for tasks, tell their values."""

import json
import subprocess
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import optuna
import psutil
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

from lazybo import Optimizer as LazyOptimizer
from lazybo import Suggestion

ROOT = Path(__file__).parents[1]
Space = Mapping[str, BaseDistribution]
Params = Mapping[str, Any]


class Task(Protocol):
    """A configuration that was asked for."""

    @property
    def params(self) -> dict[str, Any]: ...


class Contestant(Protocol):
    """Minimises."""

    def ask(self, n: int) -> list[Any]: ...
    def tell(self, task: Any, value: float, /) -> None: ...
    def load(self, points: list[Params], values: list[float]) -> None:
        """Load results that were not asked for."""

    def seconds(self) -> float:
        """The CPU time so far. On a quiet machine it equals the wall-clock time."""


# Makes a contestant for a space, a seed, and a number of evaluations (which some use to plan).
Make = Callable[[Space, int, int], Contestant]


class Lazy:
    """Our optimiser, with its defaults unless ``options`` says otherwise."""

    def __init__(self, space: Space, seed: int, options: dict[str, Any]) -> None:
        self.optimizer = LazyOptimizer(space, seed=seed, **options)

    def ask(self, n: int) -> list[Suggestion]:
        return self.optimizer.ask(n)

    def tell(self, task: Suggestion, value: float, /) -> None:
        self.optimizer.tell(task, value)

    def load(self, points: list[Params], values: list[float]) -> None:
        for params, value in zip(points, values, strict=True):
            self.optimizer.observe(params, value)

    def recommended(self) -> dict[str, Any]:
        """What a user would take home."""
        return self.optimizer.model.recommend().params

    def seconds(self) -> float:
        return time.process_time()


def lazybo(**options: Any) -> Make:
    return lambda space, seed, _budget: Lazy(space, seed, options)


class Study:
    """An Optuna sampler with its defaults, in an in-memory study."""

    def __init__(self, space: Space, sampler: optuna.samplers.BaseSampler) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.space = dict(space)
        self.study = optuna.create_study(sampler=sampler)

    def ask(self, n: int) -> list[optuna.Trial]:
        return [self.study.ask(self.space) for _ in range(n)]

    def tell(self, task: optuna.Trial, value: float, /) -> None:
        self.study.tell(task, value)

    def load(self, points: list[Params], values: list[float]) -> None:
        self.study.add_trials(
            [
                optuna.create_trial(params=dict(params), distributions=self.space, value=value)
                for params, value in zip(points, values, strict=True)
            ]
        )

    def seconds(self) -> float:
        return time.process_time()


def optuna_sampler(make: Callable[[int], optuna.samplers.BaseSampler]) -> Make:
    return lambda space, seed, _budget: Study(space, make(seed))


def gp_sampler(seed: int) -> optuna.samplers.BaseSampler:
    """Optuna's Gaussian process; torch has one thread, like everything here."""
    import torch

    torch.set_num_threads(1)
    return optuna.samplers.GPSampler(seed=seed)


@dataclass(frozen=True)
class Asked:
    """A point of a peer, in the space's own values."""

    params: dict[str, Any]


class Program:
    """A program that says one JSON object in each line (`benchmarks.peers`)."""

    def __init__(self, command: list[str], space: Space, **hello: int) -> None:
        self.space = space
        self.process = subprocess.Popen(  # noqa: S603 - a module of ours
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        weakref.finalize(self, _end, self.process)
        self.version = self.say({"space": [_parameter(each) for each in space.values()], **hello})["version"]

    def say(self, message: dict[str, Any]) -> dict[str, Any]:
        """The answer to a message."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the peer ended with exit code {self.process.wait()}: {self.process.args!r}")
        return json.loads(answer)

    def point(self, params: Params) -> list[Any]:
        """A configuration as the program has it."""
        return [
            each.choices.index(params[name]) if isinstance(each, CategoricalDistribution) else params[name]
            for name, each in self.space.items()
        ]

    def params(self, point: list[Any]) -> dict[str, Any]:
        """A configuration of the program."""
        return {
            name: each.choices[cell] if isinstance(each, CategoricalDistribution) else cell
            for (name, each), cell in zip(self.space.items(), point, strict=True)
        }


class Peer:
    """A peer with ask and tell (`benchmarks.peers.protocol`)."""

    def __init__(self, command: list[str], space: Space, seed: int, budget: int, **more: int) -> None:
        self.program = Program(command, space, seed=seed, budget=budget, **more)
        self.version = self.program.version

    def ask(self, n: int) -> list[Asked]:
        return [Asked(self.program.params(self.program.say({"ask": True})["point"])) for _ in range(n)]

    def tell(self, task: Asked, value: float, /) -> None:
        self.load([task.params], [value])

    def load(self, points: list[Params], values: Sequence[float | list[float]]) -> None:
        self.program.say({"tell": [self.program.point(params) for params in points], "values": values})

    def seconds(self) -> float:
        times = psutil.Process(self.program.process.pid).cpu_times()
        return times.user + times.system


class CurvePeer:
    """A peer that decides how long a training runs (`benchmarks.peers.curve_protocol`); values are minimised."""

    def __init__(self, command: list[str], space: Space, seed: int, steps: int) -> None:
        self.program = Program(command, space, seed=seed, steps=steps)

    def ask(self) -> tuple[int, Params, int]:
        """The number of a training, its configuration, and the last epoch to train it to."""
        answer = self.program.say({"ask": True})
        return answer["id"], self.program.params(answer["point"]), answer["until"]

    def tell(self, values: list[float]) -> None:
        """The values of the new epochs."""
        self.program.say({"values": values})


def _end(process: subprocess.Popen[str]) -> None:
    """End the process and close its pipes."""
    process.kill()
    with process:  # closes its pipes and waits
        pass


def _parameter(distribution: BaseDistribution) -> list[Any]:
    """A parameter in the format of `benchmarks.peers.protocol`."""
    if isinstance(distribution, CategoricalDistribution):
        return ["choice", len(distribution.choices)]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    kind = "int" if isinstance(distribution, IntDistribution) else "float"
    return [kind, distribution.low, distribution.high, distribution.log]


def peer_command(environment: str, module: str) -> list[str]:
    """The command of a module of `benchmarks.peers`, in its environment."""
    python = ROOT / f".venv-peer-{environment}" / "bin" / "python"
    if not python.exists():
        raise SystemExit(f"{environment} is not installed: run `make peers` first")
    return [str(python), "-m", f"benchmarks.peers.{module}"]


def peer(name: str) -> Make:
    """A module of `benchmarks.peers`, in its environment."""

    def make(space: Space, seed: int, budget: int) -> Contestant:
        return Peer(peer_command(name, name), space, seed, budget)

    return make


OPTIMIZERS: dict[str, Make] = {
    "lazybo": lazybo(),
    "lazybo-matern52": lazybo(kernel="matern52"),
    "lazybo-one-model": lazybo(local_after=None),
    "optuna-gp": optuna_sampler(gp_sampler),
    "optuna-tpe": optuna_sampler(lambda seed: optuna.samplers.TPESampler(seed=seed)),
    "optuna-cmaes": optuna_sampler(lambda seed: optuna.samplers.CmaEsSampler(seed=seed)),
    "ax": peer("ax"),
    "botorch": peer("botorch"),
    "catcma": peer("cmaes"),
    "hebo": peer("hebo"),
    "nevergrad": peer("nevergrad"),
    "rustuna-tpe": peer("rustuna"),
    "smac": peer("smac"),
    "synetune": peer("synetune"),
    "vizier": peer("vizier"),
    "skopt": peer("skopt"),
    "bayesopt": peer("bayesopt"),
    "random": optuna_sampler(lambda seed: optuna.samplers.RandomSampler(seed=seed)),
}
