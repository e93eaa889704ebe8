"""Compare the working tree with the last release: ``python -m benchmarks.release lazybo-0.1.0-py3-none-any.whl``.

Both are used only by their public names (`lazybo.Optimizer`), each in a process of its own, on the same quick problems
with the same seeds. The command fails if the tree is worse in one of three ways:

- **Work**, counted per step at 50, 300 and 1000 observations: multiply-adds of the factors, and of all LAPACK calls.
  It may not be more than `MOST_WORK` times that of the release. Counts do not depend on the machine's load, so there
  are no false alarms.
- **Quality**: the mean of log10 regrets at several numbers of evaluations, in units of the problem and not below
  `SMALLEST`: digits beyond that help nobody.
- **Coverage**: by how much the share of 95 % intervals that contain the truth falls short of 95 %.

Quality and coverage are compared in pairs, with the same problem and seed. If a run of the tree and one of the release
have the same distribution, a difference of a pair is as likely as its negative. So among all ways to choose the signs
of the differences, the observed one is a random draw, and the probability that its mean is among the α largest is at
most α, whatever the distribution is (Fisher's randomisation test; ``tests/test_release_guard.py`` counts all signs).
Each of the two tests has half of `FALSE_ALARMS`, so both together raise a false alarm in at most 1 of 1,000 releases.

A figure that became worse for a reason that CHANGELOG.md gives is named with ``--accept``.
"""

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.protocol import Message, converse

ROOT = Path(__file__).parents[1]
FALSE_ALARMS = 1 / 1000
# Random signs that p-values are estimated from, and more: with the observed ones among them the test is still exact.
DRAWS = 200_000
# The work of a step may grow by this factor.
MOST_WORK = 1.25
WORK_AT, WORK_STEPS = (50, 300, 1000), 10
CHECKPOINTS = (15, 25, 40)
COVERED_AT, POINTS = 25, 64
SMALLEST = 1e-3
SEEDS = 10

Params = Mapping[str, Any]
Quick = tuple[dict[str, Any], Callable[[Params], float], float, float]


# ---------------------------------------------------------------------- problems


def branin(p: Params) -> float:
    x, y = p["x"], p["y"]
    curve = (y - 5.1 / (4 * math.pi**2) * x**2 + 5 / math.pi * x - 6) ** 2
    return curve + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x) + 10


def rosenbrock(p: Params) -> float:
    x = [p[f"x{j}"] for j in range(4)]
    return math.log1p(sum(100 * (b - a * a) ** 2 + (1 - a) ** 2 for a, b in itertools.pairwise(x)))


def training(p: Params) -> float:
    """As a training depends on its learning rate, regularisation, size and optimiser."""
    rate, decay, layers = math.log10(p["rate"]), math.log10(p["decay"]), p["layers"]
    best = {"sgd": -1.0, "adam": -3.0, "lamb": -2.2}[p["kind"]]
    loss = (rate - best + 0.1 * layers) ** 2 / 2 + (decay + 4) ** 2 / 20 + (layers - 3) ** 2 / 15
    return loss + {"sgd": 0.1, "adam": 0.0, "lamb": 0.05}[p["kind"]]


def whole(p: Params) -> float:
    centre = {"a": 2, "b": 4, "c": 6, "d": 8}[p["c"]]
    squares = sum((p[f"i{j}"] - centre - j + 1) ** 2 for j in range(3)) / 20
    return squares + {"a": 1.0, "b": 0.3, "c": 0.0, "d": 0.6}[p["c"]] + (math.log10(p["x"]) + 2) ** 2 / 2


def valley(p: Params) -> float:
    """Two of six parameters matter, and they interact."""
    return 1 - math.exp(-8 * (p["x0"] - 0.6 * p["x1"] - 0.2) ** 2 - 3 * (p["x1"] - 0.4) ** 2) + 0.02 * p["x2"]


def rugged(p: Params) -> float:
    return sum((p[name] - 0.3) ** 2 + 0.05 * (1 - math.cos(9 * (p[name] - 0.3))) for name in p)


# Space, objective, optimum, and the unit of regret: about what a random configuration has.
PROBLEMS: dict[str, Quick] = {
    "branin": ({"x": (-5.0, 10.0), "y": (0.0, 15.0)}, branin, 0.397887, 50.0),
    "rosenbrock": ({f"x{j}": (-2.0, 2.0) for j in range(4)}, rosenbrock, 0.0, 6.0),
    "training": (
        {"rate": (1e-5, 1.0, "log"), "decay": (1e-7, 1e-1, "log"), "layers": (1, 6), "kind": ["sgd", "adam", "lamb"]},
        training,
        0.0,
        2.0,
    ),
    "whole": ({**{f"i{j}": (0, 9) for j in range(3)}, "c": [*"abcd"], "x": (1e-4, 1.0, "log")}, whole, 0.0, 2.0),
    "valley": ({f"x{j}": (0.0, 1.0) for j in range(6)}, valley, 0.0, 0.5),
    "rugged": ({f"x{j}": (-1.0, 1.0) for j in range(3)}, rugged, 0.0, 1.5),
}


# ------------------------------------------------------------ what a version does


def quality(name: str, seed: int) -> float:
    """The mean log10 regret of a run; small is good."""
    from lazybo import Optimizer

    space, objective, optimum, unit = PROBLEMS[name]
    optimizer, best, found = Optimizer(space, seed=seed), math.inf, []
    for n in range(1, CHECKPOINTS[-1] + 1):
        suggestion = optimizer.ask()
        value = objective(suggestion.params)
        optimizer.tell(suggestion, value)
        best = min(best, value)
        if n in CHECKPOINTS:
            found.append(math.log10(max((best - optimum) / unit, SMALLEST)))
    return sum(found) / len(found)


def shortfall(name: str, seed: int) -> float:
    """By how much the coverage of 95 % intervals at random configurations falls short after a few evaluations."""
    from lazybo import Optimizer

    space, objective, _, _ = PROBLEMS[name]
    optimizer, rng = Optimizer(space, seed=seed), np.random.default_rng(seed)
    for _ in range(COVERED_AT):
        suggestion = optimizer.ask()
        optimizer.tell(suggestion, objective(suggestion.params))
    configurations = [{key: drawn(given, rng) for key, given in space.items()} for _ in range(POINTS)]
    predictions = optimizer.predict(configurations)
    pairs = zip(predictions, map(objective, configurations), strict=True)
    return max(0.95 - sum(each.low <= truth <= each.high for each, truth in pairs) / POINTS, 0.0)


def drawn(given: Any, rng: np.random.Generator) -> Any:
    """A random value of a parameter."""
    if isinstance(given, list):
        return given[int(rng.integers(len(given)))]
    low, high = given[:2]
    if isinstance(low, int):
        return int(rng.integers(low, high + 1))
    return float(math.exp(rng.uniform(math.log(low), math.log(high))) if given[2:] else rng.uniform(low, high))


def work(n: int) -> dict[str, float]:
    """Multiply-adds of a step from n observations on, the mean over a few steps."""
    with counted() as counts:
        from lazybo import Optimizer

        space, objective, _, _ = PROBLEMS["valley"]
        optimizer, rng = Optimizer(space, seed=0, deterministic=True), np.random.default_rng(0)
        for _ in range(n):
            params = {key: drawn(given, rng) for key, given in space.items()}
            optimizer.observe(params, objective(params))
        optimizer.tell(optimizer.ask(), 1.0)
        before = counts()
        for _ in range(WORK_STEPS):
            suggestion = optimizer.ask()
            optimizer.tell(suggestion, objective(suggestion.params))
        return {name: (count - before[name]) / WORK_STEPS for name, count in counts().items()}


# Multiply-adds of the LAPACK calls that solve and factor, by the shapes of their first two arguments.
LAPACK: dict[str, Callable[[np.ndarray, np.ndarray], float]] = {
    "dpotrf": lambda a, _: a.shape[0] ** 3 / 6,
    "dpotri": lambda a, _: a.shape[0] ** 3 / 3,
    "dpotrs": lambda a, b: a.shape[0] * b.size,
    "dtrtrs": lambda a, b: a.shape[0] * b.size / 2,
}


@contextmanager
def counted() -> Iterator[Callable[[], dict[str, float]]]:
    """Count LAPACK calls, and the work of all factors, of whatever version is imported."""
    from scipy.linalg import lapack

    from lazybo import GrowingCholesky

    total, factors = [0.0], list[Any]()
    make, originals = GrowingCholesky.__init__, {name: getattr(lapack, name) for name in LAPACK}

    def keep(self: Any, *arguments: Any, **options: Any) -> None:
        factors.append(self)
        make(self, *arguments, **options)

    def counting(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            total[0] += LAPACK[name](arguments[0], arguments[-1])
            return originals[name](*arguments, **options)

        return call

    GrowingCholesky.__init__ = keep  # type: ignore[method-assign]
    for name in LAPACK:
        setattr(lapack, name, counting(name))
    try:
        yield lambda: {"LAPACK": total[0], "factors": float(sum(each.work for each in factors))}
    finally:
        GrowingCholesky.__init__ = make  # type: ignore[method-assign]
        for name, original in originals.items():
            setattr(lapack, name, original)


def serve() -> None:
    """Answer in the process of a version."""

    def answer(message: Message) -> Message:
        if "work" in message:
            return work(message["work"])
        measure = {"quality": quality, "coverage": shortfall}[message["figure"]]
        return {"score": measure(message["problem"], message["seed"])}

    converse(lambda _hello: answer, "1")


# -------------------------------------------------------------------- comparison


class Version:
    """A process with one version of lazybo: a folder that contains the package."""

    def __init__(self, folder: Path) -> None:
        one = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.release", "--serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **one, "PYTHONPATH": str(folder)},
        )
        self.say({})

    def say(self, message: Message) -> Message:
        """The answer to a message."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(message) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise SystemExit(f"a version failed (see above): {json.dumps(message)}")
        found: Message = json.loads(answer)
        return found

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with self._process:
            pass


def p_value(differences: Sequence[float]) -> float:
    """The probability of a mean difference this large if each is as likely as its negative; one-sided, and exact."""
    d = np.asarray(differences)
    if len(d) <= 16:
        signs = 1.0 - 2.0 * ((np.arange(2 ** len(d))[:, None] >> np.arange(len(d))) & 1)
        return float((signs @ d >= d.sum() - 1e-12).mean())
    rng, hits = np.random.default_rng(0), 1
    for _ in range(20):
        signs = rng.choice([-1.0, 1.0], size=(DRAWS // 20, len(d)))
        hits += int((signs @ d >= d.sum() - 1e-12).sum())
    return hits / (DRAWS + 1)


def unpacked(wheel: Path, folder: Path) -> Path:
    """The folder that contains the package of a wheel; a folder that contains it is returned as it is."""
    if wheel.is_dir():
        found = wheel.resolve()
    else:
        try:
            with zipfile.ZipFile(wheel) as file:
                file.extractall(folder)
        except (OSError, zipfile.BadZipFile) as error:
            raise SystemExit(
                f"{wheel} cannot be read as a wheel: {error}; CONTRIBUTING.md says how to build it"
            ) from None
        found = folder
    if not (found / "lazybo" / "__init__.py").exists():
        raise SystemExit(f"{wheel} does not contain the package lazybo; give a wheel, or a folder such as ../old/src")
    return found


def compare(release: Path, tree: Path, seeds: int) -> Iterator[tuple[str, str, bool]]:
    """Each figure: its name, a line about it, and whether the tree is worse."""
    versions = [Version(release), Version(tree)]
    try:
        for n in WORK_AT:
            before, after = (version.say({"work": n}) for version in versions)
            for name in before:
                ratio = after[name] / before[name]
                line = f"{before[name]:10.3g} {after[name]:10.3g} {ratio:9.2f} times"
                yield f"work-{name}-{n}", line, ratio > MOST_WORK
        for figure in ("quality", "coverage"):
            scores: list[list[float]] = [[], []]
            for problem in PROBLEMS:
                for seed in range(seeds):
                    for version, found in zip(versions, scores, strict=True):
                        found.append(version.say({"figure": figure, "problem": problem, "seed": seed})["score"])
            p = p_value([b - a for a, b in zip(*scores, strict=True)])
            line = f"{np.mean(scores[0]):10.3f} {np.mean(scores[1]):10.3f}   p = {p:.4f} of {len(scores[0])} pairs"
            yield figure, line, p < FALSE_ALARMS / 2
    finally:
        for version in versions:
            version.close()


def main(arguments: Sequence[str] | None = None) -> None:
    """Print all figures, and fail if the tree is worse in one that is not accepted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "release", nargs="?", type=Path, help="the wheel of the last release, or a folder such as old/src"
    )
    parser.add_argument("--tree", type=Path, default=ROOT / "src", help="the version to release (default: this one)")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="of each problem")
    parser.add_argument("--accept", nargs="*", default=(), metavar="FIGURE", help="figures that may be worse")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve()
        return
    if options.release is None:
        parser.error("give the wheel of the last release")
    worse = []
    print(f"{'figure':20} {'release':>10} {'tree':>10}")
    with tempfile.TemporaryDirectory() as folder:
        release = unpacked(options.release, Path(folder))
        for name, line, is_worse in compare(release, options.tree.resolve(), options.seeds):
            verdict = "" if not is_worse else "  worse, accepted" if name in options.accept else "  WORSE"
            print(f"{name:20} {line}{verdict}", flush=True)
            worse += [name] if is_worse and name not in options.accept else []
    if worse:
        raise SystemExit(
            f"worse than the release: {', '.join(worse)}; repair it, or --accept it and say why in CHANGELOG.md"
        )


if __name__ == "__main__":
    main()
