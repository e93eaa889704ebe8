"""Our model beside BoTorch's fully Bayesian one, on the same data: ``python -m benchmarks.bayesian``.

A run of our optimiser gives the first 50 and 100 evaluations of a problem. Both models get them, as values that our
warping has warped, so that their units agree:

- ours, with its default options;
- BoTorch's `FullyBayesianSingleTaskGP`, whose kernel parameters NUTS draws (`benchmarks.peers.botorch_bayesian` has the
  settings).

Of each: how often the 95 % interval contains the true value at 200 random points and at the 20 that the model predicts
to be best, the mean log density of the true values and their CRPS, as in `benchmarks.calibration`. Then each continues
the search alone. The regret is that before and after these steps. The seconds are CPU time: "fit" is learning from all
values, with the predictions at the random points, and "suggest" the search for the next point; both are means over the
steps. Each line is a row of ``results/bayesian.csv``; recorded ones are not measured again.
"""

import argparse
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy.special import ndtr

from benchmarks.calibration import BEST, POINTS, crps, densities
from benchmarks.optimizers import Contestant, Lazy, Params, Peer, Space, peer_command
from benchmarks.paper.tables import markdown
from benchmarks.problems import Problem, load
from benchmarks.run import RESULTS
from benchmarks.runner import append, read
from lazybo import Optimizer
from lazybo.core import Array
from lazybo.gp import Components, Warping
from lazybo.search import Predictor

PROBLEMS = ("lcbench-126025", "xgboost-1049", "svm-digits", "levy-5d", "bbob-f8-5d")
# Evaluations that both models get, and how many follow.
SIZES, STEPS = (50, 100), 5
SEED = 710_000
SCORES = ("random", "best", "density", "best density", "crps")
FIELDS = ("problem", "seed", "n", "model", *SCORES, "fit", "suggest", "steps", "before", "after")


class Model(Contestant, Protocol):
    """A contestant whose model can be asked for its predictions."""

    def predict(self, configurations: Sequence[Params]) -> Components:
        """Fit the model, and predict: a mixture of normal distributions for each configuration."""


class Ours(Lazy):
    """Our optimiser; its intervals are widened as those of `Optimizer.predict`."""

    def __init__(self, space: Space, seed: int, _warping: Warping | None = None) -> None:
        super().__init__(space, seed, {})

    def predict(self, configurations: Sequence[Params]) -> Components:
        self.optimizer.learn()
        rows = self.optimizer.space.as_rows(np.array([self.optimizer.space.encode(each) for each in configurations]))
        found = self.optimizer.model.predictor().posterior.components(rows)
        return found._replace(std=Predictor.widths()["widened"] * found.std)


class Nuts(Peer):
    """BoTorch's fully Bayesian model, on the values that ``warping`` has warped."""

    def __init__(self, space: Space, seed: int, warping: Warping) -> None:
        super().__init__(peer_command("botorch", "botorch_bayesian"), space, seed, 0)
        self.warping = warping

    def load(self, points: list[Params], values: Sequence[Any]) -> None:
        super().load(points, self.warping(np.array(values)).tolist())

    def predict(self, configurations: Sequence[Params]) -> Components:
        answer = self.program.say({"predict": [self.program.point(each) for each in configurations]})
        mean = np.array(answer["mean"])
        return Components(np.full(len(mean), -np.log(len(mean))), mean, np.array(answer["std"]))


Make = Callable[[Space, int, Warping], Model]
MODELS: dict[str, Make] = {"lazybo": Ours, "NUTS": Nuts}


class Given(NamedTuple):
    """What both models get, and the truth at random points."""

    problem: Problem
    seed: int
    points: list[Params]
    values: list[float]
    configurations: list[Params]
    truths: Array

    def first(self, n: int) -> "Given":
        """The same with the first n evaluations."""
        return self._replace(points=self.points[:n], values=self.values[:n])


def given(name: str, seed: int, n: int) -> Given:
    """The first n evaluations of a run of our optimiser."""
    problem = load(name, instance=1 + seed % 5)
    optimizer = Optimizer(problem.space, seed=seed)
    sample = optimizer.space.sample(np.random.default_rng((seed, 5)), POINTS)
    configurations: list[Params] = [optimizer.space.decode(point) for point in sample]
    truths = np.array([problem.objective(params) for params in configurations])
    points: list[Params] = []
    values: list[float] = []
    for _ in range(n):
        suggestion = optimizer.ask()
        points.append(suggestion.params)
        values.append(problem.objective(suggestion.params))
        optimizer.tell(suggestion, values[-1])
    return Given(problem, seed, points, values, configurations, truths)


def levels(found: Components, targets: Array) -> Array:
    """The predicted probability of a value below each target, (m,)."""
    below = ndtr((targets - found.mean) / np.maximum(found.std, 1e-9))
    return np.asarray(np.exp(found.log_weights) @ below)


def scores(found: Components, targets: Array) -> dict[str, float]:
    """Coverage, log density and CRPS of predictions; "best" are the points with the lowest predicted means."""
    at = levels(found, targets)
    low, high = Predictor.widths()["interval"]
    inside, logs = (low <= at) & (at <= high), densities(found, targets, 1.0)
    best = np.argsort(np.exp(found.log_weights) @ found.mean, kind="stable")[:BEST]
    means = (inside.mean(), inside[best].mean(), logs.mean(), logs[best].mean(), crps(found, targets, 1.0))
    return dict(zip(SCORES, map(float, means), strict=True))


def measured(model: Model, data: Given, warping: Warping, steps: int) -> dict[str, object]:
    """The figures of one model: `SCORES` of the data as given, then the search for some steps."""
    problem, values, seconds = data.problem, list(data.values), []
    model.load(data.points, data.values)
    found: dict[str, float] = {}
    for _ in range(steps):
        start = model.seconds()
        predicted = model.predict(data.configurations)
        fitted = model.seconds()
        (task,) = model.ask(1)
        seconds.append((fitted - start, model.seconds() - fitted))
        found = found or scores(predicted, warping(data.truths))
        values.append(problem.objective(task.params))
        model.tell(task, values[-1])
    fit, suggest = np.mean(seconds, axis=0)
    before, after = (problem.regret(min(each)) for each in (data.values, values))
    figures = {**found, "fit": fit, "suggest": suggest, "steps": steps, "before": before, "after": after}
    return {name: f"{figure:.5g}" for name, figure in figures.items()}


def warping_of(data: Given) -> Warping:
    """The warping that our optimiser learns from the values."""
    ours = Ours(data.problem.space, data.seed)
    ours.load(data.points, data.values)
    return ours.optimizer.model.predictor().warping


def run_all(
    path: Path, names: Sequence[str], seed: int, sizes: Sequence[int], steps: int, makers: Mapping[str, Make]
) -> None:
    """Append the rows that ``path`` does not have."""
    done = {tuple(row[key] for key in FIELDS[:4]) for row in read(path)}
    for name in names:
        missing = [(n, label) for n in sizes for label in makers if (name, str(seed), str(n), label) not in done]
        if not missing:
            continue
        data = given(name, seed, max(n for n, _ in missing))
        for n, label in missing:
            first = data.first(n)
            warping = warping_of(first)
            figures = measured(makers[label](data.problem.space, seed, warping), first, warping, steps)
            append(path, FIELDS, {"problem": name, "seed": seed, "n": n, "model": label, **figures})


def table(rows: Sequence[Mapping[str, str]]) -> str:
    """One line for each row, then the means of each model over the problems that all models have."""
    sizes = sorted({int(row["n"]) for row in rows})
    labels = list(dict.fromkeys(row["model"] for row in rows))
    lines = [_cells(row["problem"], row["n"], row["model"], [row]) for row in rows]
    for n in sizes:
        by_label = {label: {row["problem"]: row for row in rows if _is(row, n, label)} for label in labels}
        shared = set.intersection(*(set(found) for found in by_label.values()))
        if shared:
            lines += [
                _cells(f"mean of {len(shared)}", str(n), label, [found[name] for name in sorted(shared)])
                for label, found in by_label.items()
            ]
    heads = ("problem", "n", "model", "random points", "predicted best", "log density", "of the best", "CRPS")
    return markdown((*heads, "s a fit", "s a suggestion", "steps", "regret before", "after"), lines)


def _is(row: Mapping[str, str], n: int, label: str) -> bool:
    return (int(row["n"]), row["model"]) == (n, label)


def _cells(problem: str, n: str, label: str, rows: Sequence[Mapping[str, str]]) -> list[str]:
    """The cells of a line: means over rows."""
    means = [float(np.mean([float(row[field]) for row in rows])) for field in FIELDS[4:]]
    formats = (*(".3f",) * 2, *(".2f",) * 2, ".3f", *(".3g",) * 2, ".0f", *(".3g",) * 2)
    return [problem, n, label, *(f"{mean:{each}}" for mean, each in zip(means, formats, strict=True))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, default=RESULTS / "bayesian.csv")
    parser.add_argument("--problems", nargs="+", default=PROBLEMS)
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="evaluations that both models get")
    parser.add_argument("--steps", type=int, default=STEPS, help="evaluations that follow")
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    makers = {label: MODELS[label] for label in options.models}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run_all(options.csv, options.problems, options.seed, options.sizes, options.steps, makers)
    rows = [row for row in read(options.csv) if row["problem"] in options.problems and int(row["seed"]) == options.seed]
    print(table(sorted(rows, key=lambda row: (options.problems.index(row["problem"]), int(row["n"])))))


if __name__ == "__main__":
    main()
