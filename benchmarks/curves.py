"""Optimisation with learning curves: ``python -m benchmarks.curves``.

A training has 51 or 52 epochs, and the budget is counted in epochs. The problems are surrogates of real curves: extra
trees fitted to the curves of TaskSet and LCBench. The data is not part of this repository: ``--data``, or the variable
LAZYBO_CURVES, names the folder with taskset.npz and lcbench_curves.npz.

The table has the regret after 5, 10, 20 and 50 full trainings' worth of epochs: of the best training that was finished,
0 for the best that any run has found, 1 for random search after 5 trainings. Each run is a row of a CSV file; recorded
runs are not run again.
"""

import argparse
import os
import pickle
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, FloatDistribution, IntDistribution
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner, SuccessiveHalvingPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.trial import TrialState

from benchmarks.runner import append, read
from lazybo.study.pruner import LazyPruner
from lazybo.study.sampler import LazySampler

BUDGETS = (5, 10, 20, 50)
FIELDS = ("problem", "optimizer", "seed", *(f"b{n}" for n in BUDGETS), "trials", "finished", "seconds")
# Losses are clipped at this multiple of the median loss at step 0; diverged trainings have that value.
CLIP = 2.0


@dataclass(frozen=True)
class CurveProblem:
    """A space, and the curve of each configuration; small is good if ``direction`` is "minimize"."""

    name: str
    space: dict[str, BaseDistribution]
    direction: Literal["minimize", "maximize"]
    model: Any
    logs: tuple[bool, ...]
    steps: int

    def curve(self, params: dict[str, Any]) -> np.ndarray:
        """The values after each epoch, (steps,)."""
        row = [np.log(params[name]) if log else params[name] for name, log in zip(self.space, self.logs, strict=True)]
        return np.asarray(self.model.predict([row])[0])


LCBENCH = {
    "batch_size": IntDistribution(16, 512, log=True),
    "learning_rate": FloatDistribution(1e-4, 0.1, log=True),
    "momentum": FloatDistribution(0.1, 0.99),
    "weight_decay": FloatDistribution(1e-5, 0.1),
    "num_layers": IntDistribution(1, 5),
    "max_units": IntDistribution(64, 1024, log=True),
    "max_dropout": FloatDistribution(0.0, 1.0),
}
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
PROBLEMS = (*(f"taskset-{i}" for i in range(6)), "lcbench-accuracy", "lcbench-loss")


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
    return CurveProblem(name, space, direction, _surrogate(name, x, curves), logs, curves.shape[1])


def _surrogate(name: str, x: np.ndarray, curves: np.ndarray) -> Any:
    from sklearn.ensemble import ExtraTreesRegressor

    path = Path(tempfile.gettempdir()) / f"lazybo-curves-{os.getuid()}" / f"{name}.pickle"
    if path.exists():
        return pickle.loads(path.read_bytes())  # noqa: S301 - written by this function
    model = ExtraTreesRegressor(60, random_state=0).fit(x, curves)
    path.parent.mkdir(exist_ok=True, mode=0o700)
    path.write_bytes(pickle.dumps(model))
    return model


Make = Callable[[CurveProblem, int], tuple[BaseSampler, BasePruner]]


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
CONTESTANTS = [ONE_EPOCH, *(f"{sampler} + {pruner}" for sampler in SAMPLERS for pruner in PRUNERS)]


def run_one(problem: CurveProblem, label: str, seed: int, most: int = max(BUDGETS)) -> dict[str, object]:
    """One run until the epochs of ``most`` trainings are spent."""
    if label == ONE_EPOCH:
        return best_after_one_epoch(problem, seed, most)
    which, how = label.split(" + ")
    study = optuna.create_study(direction=problem.direction, sampler=SAMPLERS[which](seed), pruner=PRUNERS[how]())
    start, epochs, budget = time.process_time(), 0, most * problem.steps
    trials, best, finished = 0, np.nan, 0
    row: dict[str, object] = {"problem": problem.name, "optimizer": label, "seed": seed}
    better = np.fmin if problem.direction == "minimize" else np.fmax
    while epochs < budget:
        trial = study.ask(problem.space)
        curve, pruned, trials = problem.curve(trial.params), False, trials + 1
        for step in range(problem.steps):
            epochs += 1
            trial.report(curve[step], step + 1)
            last = step == problem.steps - 1
            if last:
                best, finished = better(best, curve[step]), finished + 1
            if epochs % problem.steps == 0 and epochs // problem.steps in BUDGETS:
                row[f"b{epochs // problem.steps}"] = f"{best:.6g}"
            if epochs >= budget:
                break
            if not last and trial.should_prune():
                pruned = True
                break
        study.tell(trial, None if pruned or not last else curve[-1], state=_state(pruned, last))
    seconds = time.process_time() - start
    return {**row, "trials": trials, "finished": finished, "seconds": f"{seconds:.1f}"}


def best_after_one_epoch(problem: CurveProblem, seed: int, most: int = max(BUDGETS)) -> dict[str, object]:
    """Half of each budget for one epoch of random configurations; the best of them are trained to their end."""
    start, rng = time.process_time(), np.random.default_rng(seed)
    study = optuna.create_study(sampler=RandomSampler(seed=int(rng.integers(2**31))))
    row: dict[str, object] = {"problem": problem.name, "optimizer": ONE_EPOCH, "seed": seed}
    sign = -1.0 if problem.direction == "maximize" else 1.0
    curves = [problem.curve(study.ask(problem.space).params) for _ in range(most * problem.steps // 2)]
    for n in (n for n in BUDGETS if n <= most):
        tried = np.array(curves[: n * problem.steps // 2])
        kept = np.argsort(sign * tried[:, 0], kind="stable")[: n * problem.steps // 2 // (problem.steps - 1)]
        row[f"b{n}"] = f"{sign * (sign * tried[kept, -1]).min():.6g}"
    seconds = time.process_time() - start
    return {**row, "trials": len(tried), "finished": len(kept), "seconds": f"{seconds:.1f}"}


def _state(pruned: bool, last: bool) -> TrialState:
    if pruned:
        return TrialState.PRUNED
    return TrialState.COMPLETE if last else TrialState.FAIL


def report(path: Path, seeds: Sequence[int]) -> str:
    """Mean normalised regrets of the recorded runs, over the problems of each family."""
    every = read(path)
    rows = [row for row in every if int(row["seed"]) in seeds]
    lines = []
    for family in ("taskset", "lcbench"):
        names = sorted({row["problem"] for row in rows if row["problem"].startswith(family)})
        lines += ["", f"| {family}, {len(names)} problems | runs | 5 | 10 | 20 | 50 | trials | finished | seconds |"]
        lines += ["|---" * 9 + "|"]
        for label in dict.fromkeys(row["optimizer"] for row in rows):
            here = [row for row in rows if row["optimizer"] == label and row["problem"] in names]
            if here:
                means = np.mean([_regrets(row, every) for row in here], axis=0)
                counts = [np.mean([float(row[key]) for row in here]) for key in ("trials", "finished", "seconds")]
                cells = [*(f"{mean:.3f}" if np.isfinite(mean) else "" for mean in means), *(f"{n:.0f}" for n in counts)]
                lines.append(f"| {label} | {len(here)} | {' | '.join(cells)} |")
    return "\n".join(lines[1:])


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


if __name__ == "__main__":
    main()
