"""What the model should learn from pruned trials: ``python -m benchmarks.pruning``.

LazySampler with Optuna's MedianPruner. A training has ten steps and falls towards its final value, at a random speed.
The table has the mean regret of the completed trials after 80 trials, and the number of steps, over problems of the
open set.
"""

import argparse
import math
from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import optuna
from optuna.trial import FrozenTrial, TrialState

from benchmarks import problems
from benchmarks.runner import log10
from lazybo.study.model import StudyModel
from lazybo.study.sampler import LazySampler

NAMES = ("levy-5d", "hpobench-australian", "hpobench-credit_g", "bbob-f15-5d", "bbob-f20-5d", "hpolib-naval_propulsion")
STEPS = 10
TRIALS = 80

Finish = Callable[[StudyModel, FrozenTrial], None]
forecast: Finish = StudyModel._finish_stopped


def last(model: StudyModel, trial: FrozenTrial) -> None:
    """Teach the last intermediate value."""
    assert trial.last_step is not None, "these trials report before they are pruned"
    model._teach(trial, trial.intermediate_values[trial.last_step], 0.0)


def at_best_median(model: StudyModel, trial: FrozenTrial) -> None:
    """Teach the last intermediate value, but never better than the median of the completed trials."""
    assert trial.last_step is not None, "these trials report before they are pruned"
    ends = sorted(end for _, end in model.curves._finals.values())
    value = max(trial.intermediate_values[trial.last_step], ends[len(ends) // 2]) if ends else None
    model._teach(trial, value, 0.0)


def failure(model: StudyModel, trial: FrozenTrial) -> None:
    """Teach a failure."""
    model._teach(trial, None, 0.0)


WAYS: dict[str, Finish] = {
    "a forecast with its variance": forecast,
    "last value, at best the median": at_best_median,
    "last value": last,
    "failure": failure,
}


def one_study(name: str, seed: int) -> tuple[float, int]:
    """Regret of the best completed trial, and steps trained."""
    problem, rng = problems.load(name, 1 + seed % 5), np.random.default_rng(seed)
    study = optuna.create_study(sampler=LazySampler(seed=seed), pruner=optuna.pruners.MedianPruner(n_warmup_steps=2))
    steps = 0
    for _ in range(TRIALS):
        trial = study.ask(problem.space)
        final, speed = problem.objective(trial.params), rng.uniform(0.3, 1.0)
        pruned = False
        for step in range(STEPS):
            steps += 1
            trial.report(final + problem.scale * math.exp(-speed * (step + 1)), step)
            if step < STEPS - 1 and trial.should_prune():
                pruned = True
                break
        study.tell(trial, None if pruned else final, state=TrialState.PRUNED if pruned else TrialState.COMPLETE)
    return problem.regret(study.best_value), steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    print(f"| a pruned trial teaches ({len(NAMES)} problems, {options.seeds} seeds) | mean regret | log10 | steps |")
    print("|---|---|---|---|")
    for label, way in WAYS.items():
        with patch.object(StudyModel, "_finish_stopped", way):
            runs = [one_study(name, seed) for name in NAMES for seed in range(options.seeds)]
        regret = np.array([regret for regret, _ in runs])
        log = np.mean(log10(regret))
        print(
            f"| {label} | {regret.mean():.4f} | {log:.2f} | {np.mean([steps for _, steps in runs]):.0f} |", flush=True
        )


if __name__ == "__main__":
    main()
