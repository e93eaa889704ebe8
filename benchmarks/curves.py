"""Optimisation with learning curves: ``python -m benchmarks.curves``.

The budget is counted in epochs. Most problems are surrogates of real curves: extra trees fitted to the curves of
TaskSet and LCBench, of 51 or 52 epochs. Their data is not part of this repository: ``--data``, or the variable
LAZYBO_CURVES, names the folder with taskset.npz and lcbench_curves.npz. ``digits`` is a network that is really trained,
for 20 epochs.

The table has the regret after 5, 10, 20 and 50 full trainings' worth of epochs: of the best training that was finished,
0 for the best that any run has found, 1 for random search after 5 trainings. Each run is a row of a CSV file; recorded
runs are not run again.
"""

import argparse
import itertools
import os
import pickle
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import TrialState

import lazybo
from benchmarks import trainings
from benchmarks.optimizers import CurvePeer, peer_command
from benchmarks.runner import append, read
from benchmarks.trainings import LCBENCH
from lazybo import LazyPruner, LazySampler
from lazybo.run import Trial

BUDGETS = (5, 10, 20, 50)
FIELDS = ("problem", "optimizer", "seed", *(f"b{n}" for n in BUDGETS), "trials", "finished", "seconds")
# Losses are clipped at this multiple of the median loss at step 0; diverged trainings have that value.
CLIP = 2.0


@dataclass(frozen=True)
class CurveProblem:
    """A space, and a training of each of its configurations; small is good if ``direction`` is "minimize"."""

    name: str
    space: dict[str, BaseDistribution]
    direction: Literal["minimize", "maximize"]
    steps: int
    train: Callable[[Mapping[str, Any]], Iterator[float]]  # the value after each epoch


TASKSET = {
    "learning_rate": (1e-8, 10.0),
    "beta1": (1e-4, 1.0),
    "beta2": (1e-6, 1.0),
    "epsilon": (1e-10, 1e3),
    "l1": (1e-8, 10.0),
    "l2": (1e-8, 10.0),
    "linear_decay": (1e-7, 1e-4),
    "exponential_decay": (1e-6, 1e-3),
}
DIGITS: dict[str, BaseDistribution] = {
    "learning_rate": FloatDistribution(1e-5, 1.0, log=True),
    "units": IntDistribution(4, 128, log=True),
    "layers": IntDistribution(1, 3),
    "alpha": FloatDistribution(1e-6, 1.0, log=True),
    "batch_size": IntDistribution(8, 256, log=True),
    "beta": FloatDistribution(0.5, 0.999),
}
DIGITS_EPOCHS = 20
PROBLEMS = (*(f"taskset-{i}" for i in range(6)), "lcbench-accuracy", "lcbench-loss", "digits-accuracy")
# The errors of LCBench's networks on other data sets, by surrogates that are neural networks; not run by default.
SURROGATES = tuple(f"surrogate-{data}" for data in trainings.SETS["lcbench"])
EPOCHS = 52
# The empty one has all problems.
FAMILIES = ("", "taskset", "lcbench", "digits", "surrogate")


def data_folder(given: Path | None) -> Path:
    """The folder with the curves."""
    folder = given or Path(os.environ.get("LAZYBO_CURVES", "curves"))
    if not (folder / "taskset.npz").exists() or not (folder / "lcbench_curves.npz").exists():
        raise SystemExit(
            f"{folder} must have taskset.npz and lcbench_curves.npz (docs/curves.md says what they hold); name "
            "the folder with --data or the variable LAZYBO_CURVES"
        )
    return folder


def scaled_losses(losses: np.ndarray, most: float) -> np.ndarray:
    """Losses in units of the median loss at step 0, clipped at ``most``; not finite: ``most``."""
    median = np.nanmedian(losses[:, 0])
    return np.minimum(np.where(np.isfinite(losses), losses, np.inf) / median, most)


def load(name: str, folder: Path) -> CurveProblem:
    """A problem. Its surrogate is fitted once and kept in a temporary folder."""
    if name.startswith("digits"):
        return CurveProblem(name, DIGITS, "maximize", DIGITS_EPOCHS, train_digits)
    if name.startswith("surrogate"):
        return CurveProblem(name, dict(LCBENCH), "minimize", EPOCHS, lambda params: train_surrogate(name[10:], params))
    direction: Literal["minimize", "maximize"] = "minimize"
    if name.startswith("taskset"):
        data, i = np.load(folder / "taskset.npz"), int(name.split("-")[1])
        columns = [str(column) for column in data["columns"]]
        configs, curves = data["configs"][i], scaled_losses(data["valid_loss"][i], CLIP)
        space: dict[str, BaseDistribution] = {c: FloatDistribution(*TASKSET[c], log=True) for c in columns}
    else:
        data = np.load(folder / "lcbench_curves.npz")
        columns = [str(column) for column in data["columns"]]
        accuracy = name.endswith("accuracy")
        configs, curves = data["configs"], data["val_accuracy" if accuracy else "val_cross_entropy"]
        space = {c: LCBENCH[c] for c in columns}
        direction = "maximize" if accuracy else "minimize"
    logs = tuple(bool(space[c].log) for c in columns)  # type: ignore[attr-defined]
    given_logs = (configs < 0).any()  # TaskSet's configurations are logarithms already
    x = np.where(np.array(logs) & (not given_logs), np.log(np.where(configs > 0, configs, 1.0)), configs)
    model = _surrogate(name, x, curves)

    def train(params: Mapping[str, Any]) -> Iterator[float]:
        row = [np.log(params[c]) if log else params[c] for c, log in zip(columns, logs, strict=True)]
        # As model.predict, which takes ten times as long for a single row.
        cells = np.array([row], np.float32)
        curve = sum(tree.tree_.predict(cells)[0, :, 0] for tree in model.estimators_) / len(model.estimators_)
        yield from curve.tolist()

    return CurveProblem(name, space, direction, curves.shape[1], train)


def train_surrogate(data: str, params: Mapping[str, Any]) -> Iterator[float]:
    """The error in per cent of a network of LCBench after each epoch."""
    rows = np.tile(trainings.encoded(LCBENCH, params), (EPOCHS, 1))
    yield from (100.0 - trainings.lcbench_outputs(data, rows, np.arange(1, EPOCHS + 1))[:, 1]).tolist()


def train_digits(params: Mapping[str, Any]) -> Iterator[float]:
    """A network on scikit-learn's digits: its accuracy on 719 held-out images after each epoch."""
    from sklearn.neural_network import MLPClassifier

    x, x_valid, y, y_valid = _digits()
    network = MLPClassifier(
        [params["units"]] * params["layers"],
        learning_rate_init=params["learning_rate"],
        alpha=params["alpha"],
        batch_size=params["batch_size"],
        beta_1=params["beta"],
        random_state=0,
    )
    while True:
        network.partial_fit(x, y, classes=range(10))
        yield float(network.score(x_valid, y_valid))


@lru_cache
def _digits() -> list[np.ndarray]:
    """Images and labels: for training, held out, and the labels of each."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    images, labels = load_digits(return_X_y=True)
    split: list[np.ndarray] = train_test_split(images / 16, labels, test_size=0.4, random_state=0)
    return split


def _surrogate(name: str, x: np.ndarray, curves: np.ndarray) -> Any:
    from sklearn.ensemble import ExtraTreesRegressor

    path = Path(tempfile.gettempdir()) / f"lazybo-curves-{os.getuid()}" / f"{name}.pickle"
    if path.exists():
        return pickle.loads(path.read_bytes())  # noqa: S301 - written by this function
    model = ExtraTreesRegressor(60, random_state=0).fit(x, curves)
    path.parent.mkdir(exist_ok=True, mode=0o700)
    path.write_bytes(pickle.dumps(model))
    return model


def _halving() -> BasePruner:
    return SuccessiveHalvingPruner()


def _hyperband() -> BasePruner:
    return HyperbandPruner()


PRUNERS: dict[str, Callable[[], BasePruner]] = {
    "no pruning": NopPruner,
    "LazyPruner": LazyPruner,
    "median": MedianPruner,
    "ASHA": _halving,
    "Hyperband": _hyperband,
}
SAMPLERS: dict[str, Callable[[int], BaseSampler]] = {
    "lazybo": lambda seed: LazySampler(seed=seed),
    "TPE": lambda seed: TPESampler(seed=seed),
    "random": lambda seed: RandomSampler(seed=seed),
}
ONE_EPOCH = "best after one epoch"
# `optimize()` with a training that can be paused and resumed.
PAUSING = "lazybo, pausing"
# The environment and the module of each.
PEERS = {
    "SMAC multi-fidelity": ("smac", "smac_curves"),
    "DEHB": ("dehb", "dehb_curves"),
    "Syne Tune BOHB": ("synetune", "synetune_curves"),
}
CONTESTANTS = [ONE_EPOCH, PAUSING, *PEERS, *(f"{sampler} + {pruner}" for sampler in SAMPLERS for pruner in PRUNERS)]


class Spent:
    """The epochs of a run: the best value of a finished training whenever a budget is spent."""

    def __init__(self, problem: CurveProblem, most: int) -> None:
        self.problem, self.left = problem, most * problem.steps
        self.sign = -1.0 if problem.direction == "maximize" else 1.0
        self.best, self.epochs, self.trials, self.finished = np.nan, 0, 0, 0
        self.row: dict[str, object] = {}

    def epoch(self, value: float, step: int) -> None:
        """An epoch of a training, which ended with a value."""
        self.epochs, self.left = self.epochs + 1, self.left - 1
        if step == self.problem.steps:
            self.best, self.finished = np.fmin(self.best, self.sign * value), self.finished + 1
        done, rest = divmod(self.epochs, self.problem.steps)
        if rest == 0 and done in BUDGETS:
            self.row[f"b{done}"] = f"{self.sign * self.best:.6g}"


def run_one(problem: CurveProblem, label: str, seed: int, most: int = max(BUDGETS)) -> dict[str, object]:
    """One run until the epochs of ``most`` trainings are spent."""
    start, spent = time.process_time(), Spent(problem, most)
    if label == ONE_EPOCH:
        best_after_one_epoch(problem, seed, most, spent)
    elif label in PEERS:
        run_peer(problem, PEERS[label], seed, spent)
    elif label == PAUSING:
        run_pausing(problem, seed, spent)
    else:
        sampler, pruner = label.split(" + ")
        run_study(problem, sampler, pruner, seed, spent)
    first = {"problem": problem.name, "optimizer": label, "seed": seed}
    last = {"trials": spent.trials, "finished": spent.finished, "seconds": f"{time.process_time() - start:.1f}"}
    return {**first, **spent.row, **last}


def run_study(problem: CurveProblem, sampler: str, pruner: str, seed: int, spent: Spent) -> None:
    """An Optuna study."""
    study = optuna.create_study(direction=problem.direction, sampler=SAMPLERS[sampler](seed), pruner=PRUNERS[pruner]())
    while spent.left:
        trial = study.ask(problem.space)
        training, state, spent.trials = problem.train(trial.params), TrialState.FAIL, spent.trials + 1
        value = None
        for step in range(1, min(problem.steps, spent.left) + 1):
            value = next(training)
            spent.epoch(value, step)
            trial.report(value, step)
            if step == problem.steps:
                state = TrialState.COMPLETE
            elif trial.should_prune():
                state = TrialState.PRUNED
                break
        study.tell(trial, value if state == TrialState.COMPLETE else None, state=state)


def run_pausing(problem: CurveProblem, seed: int, spent: Spent) -> None:
    """`optimize()` with a generator function. A training that is resumed makes no epoch twice."""
    trainings: dict[int, Iterator[tuple[int, float]]] = {}

    def train(
        params: dict[str, Any],
        trial: Trial,
        checkpoint: Path,  # noqa: ARG001 - without it a training cannot be paused
    ) -> Iterator[tuple[int, float]]:
        # A run with one worker stays in this process, so the training itself is the checkpoint.
        training = trainings.setdefault(trial.number, enumerate(problem.train(params), 1))
        for step, value in itertools.islice(training, spent.left):
            spent.epoch(value, step)
            yield step, value
            if step == problem.steps or not spent.left:
                return

    def stop(study: optuna.Study, _: object) -> None:
        if not spent.left:
            study.stop()

    lazybo.optimize(
        train,
        problem.space,
        n_trials=spent.left,  # more than it can start
        direction=problem.direction,
        seed=seed,
        max_steps=problem.steps,
        callbacks=[stop],
        progress=False,
    )
    spent.trials = len(trainings)


def run_peer(problem: CurveProblem, module: tuple[str, str], seed: int, spent: Spent) -> None:
    """A peer in another environment (`benchmarks.peers.curve_protocol`)."""
    peer = CurvePeer(peer_command(*module), problem.space, seed, problem.steps)
    trainings: dict[int, tuple[Iterator[float], int]] = {}
    while spent.left:
        number, params, until = peer.ask()
        training, done = trainings.get(number) or (problem.train(params), 0)
        values = []
        for step in range(done + 1, min(until, done + spent.left) + 1):
            values.append(next(training))
            spent.epoch(values[-1], step)
        trainings[number] = training, max(until, done)
        peer.tell([spent.sign * value for value in values])
    spent.trials = len(trainings)


def best_after_one_epoch(problem: CurveProblem, seed: int, most: int, spent: Spent) -> None:
    """Half of each budget for one epoch of random configurations; the best of them are trained to their end."""
    study = optuna.create_study(sampler=RandomSampler(seed=int(np.random.default_rng(seed).integers(2**31))))
    trainings = [problem.train(study.ask(problem.space).params) for _ in range(most * problem.steps // 2)]
    curves = [[next(training)] for training in trainings]
    for n in (n for n in BUDGETS if n <= most):
        tried = n * problem.steps // 2
        order = np.argsort([spent.sign * curve[0] for curve in curves[:tried]], kind="stable")
        kept = order[: tried // (problem.steps - 1)]
        for i in kept:
            curves[i] += itertools.islice(trainings[i], problem.steps - len(curves[i]))
        spent.row[f"b{n}"] = f"{spent.sign * min(spent.sign * curves[i][-1] for i in kept):.6g}"
        spent.trials, spent.finished = tried, len(kept)


def report(path: Path, seeds: Sequence[int]) -> str:
    """Mean normalised regrets of the recorded runs, over the problems of each family."""
    every = read(path)
    rows = [row for row in every if int(row["seed"]) in seeds]
    lines = []
    for family in FAMILIES:
        names = sorted({row["problem"] for row in rows if row["problem"].startswith(family)})
        if not names:
            continue
        lines += [
            "",
            f"| {family or 'all'}, {len(names)} problems | runs | 5 | 10 | 20 | 50 | trials | finished | seconds |",
        ]
        lines += ["|---" * 9 + "|"]
        for label in dict.fromkeys(row["optimizer"] for row in rows):
            here = [row for row in rows if row["optimizer"] == label and row["problem"] in names]
            if here:
                means = np.mean([_regrets(row, every) for row in here], axis=0)
                counts = [np.mean([float(row[key]) for row in here]) for key in ("trials", "finished", "seconds")]
                cells = [*(f"{mean:.3f}" if np.isfinite(mean) else "" for mean in means), *(f"{n:.0f}" for n in counts)]
                lines.append(f"| {label} | {len(here)} | {' | '.join(cells)} |")
    return "\n".join(lines[1:])


def pairs(path: Path, seeds: Sequence[int]) -> str:
    """How often lazybo with pauses was better and worse than each contestant on the same problem and seed."""
    runs = {(row["problem"], row["seed"], row["optimizer"]): row for row in read(path) if int(row["seed"]) in seeds}
    columns = [f"{family or 'all'}, {n}" for family in FAMILIES for n in BUDGETS]
    lines = [f"| {PAUSING}: better / worse than | {' | '.join(columns)} |", "|---" * (1 + len(columns)) + "|"]
    for label in dict.fromkeys(optimizer for *_, optimizer in runs):
        cells = []
        for family in FAMILIES:
            both = [
                (row, runs[problem, seed, PAUSING])
                for (problem, seed, optimizer), row in runs.items()
                if optimizer == label and problem.startswith(family) and (problem, seed, PAUSING) in runs
            ]
            cells += [_wins(both, f"b{n}") for n in BUDGETS]
        if label != PAUSING:
            lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _wins(both: Sequence[tuple[dict[str, str], dict[str, str]]], budget: str) -> str:
    """Better / worse, of pairs of another run and ours; a run that has not finished any training is worse."""
    better = worse = 0
    for other, ours in both:
        sign = -1.0 if other["problem"].endswith("accuracy") else 1.0
        theirs, own = (float(np.nan_to_num(sign * float(row[budget] or "nan"), nan=np.inf)) for row in (other, ours))
        better, worse = better + (own < theirs), worse + (own > theirs)
    return f"{better} / {worse}" if both else ""


def _regrets(row: dict[str, str], every: list[dict[str, str]]) -> list[float]:
    """Regrets at each budget, NaN if the run was shorter.

    A run that has not finished any training yet has 1, as random search after 5 trainings.
    """
    same = [other for other in every if other["problem"] == row["problem"]]
    sign = -1.0 if row["problem"].endswith("accuracy") else 1.0
    best = np.nanmin([sign * float(other[f"b{n}"] or "nan") for other in same for n in BUDGETS])
    scale = np.mean([sign * float(o["b5"]) for o in same if o["optimizer"] == "random + no pruning"]) - best
    regrets = [(sign * float(row[f"b{n}"] or "inf") - best) / scale for n in BUDGETS]
    return [1.0 if np.isnan(regret) else np.nan if np.isinf(regret) else float(regret) for regret in regrets]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "curves.csv")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--problems", nargs="+", default=PROBLEMS)
    parser.add_argument("--optimizers", nargs="+", default=CONTESTANTS)
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no run after so many seconds")
    parser.add_argument("--budget", type=int, choices=BUDGETS, default=max(BUDGETS), help="trainings, at most")
    parser.add_argument("--only-report", action="store_true")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")  # Optuna announces experimental features
    start = time.perf_counter()
    if not options.only_report:
        folder = data_folder(options.data)
        done = {(row["problem"], row["optimizer"], int(row["seed"])) for row in read(options.csv)}
        for seed in seeds:
            for name in options.problems:
                problem = load(name, folder)
                for label in options.optimizers:
                    if (name, label, seed) not in done and time.perf_counter() - start < options.limit:
                        append(options.csv, FIELDS, run_one(problem, label, seed, options.budget))
                        print(name, label, seed, file=sys.stderr)
    print(report(options.csv, seeds))
    print("\n" + pairs(options.csv, seeds))


if __name__ == "__main__":
    main()
