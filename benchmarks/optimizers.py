"""The contestants as thin adapters: each minimises a problem and yields the value of every evaluation."""

from collections.abc import Callable, Iterator
from typing import Any

import optuna

from benchmarks.problems import Problem
from lazybo.optimizer import Optimizer as LazyOptimizer

Optimizer = Callable[[Problem, int], Iterator[float]]


def optuna_sampler(make: Callable[[int], optuna.samplers.BaseSampler]) -> Optimizer:
    """An Optuna sampler with its defaults, in an in-memory study."""

    def run(problem: Problem, seed: int) -> Iterator[float]:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(sampler=make(seed))
        while True:
            trial = study.ask(problem.space)
            value = problem.objective(trial.params)
            study.tell(trial, value)
            yield value

    return run


def gp_sampler(seed: int) -> optuna.samplers.BaseSampler:
    """Optuna's Gaussian process; torch with one thread, as everything here."""
    import torch

    torch.set_num_threads(1)
    return optuna.samplers.GPSampler(seed=seed)


def lazybo(**options: Any) -> Optimizer:
    """Our optimiser, with its defaults unless ``options`` says otherwise."""

    def run(problem: Problem, seed: int) -> Iterator[float]:
        optimizer = LazyOptimizer(problem.space, seed=seed, **options)
        while True:
            suggestion = optimizer.ask()
            value = problem.objective(suggestion.params)
            optimizer.tell(suggestion, value)
            yield value

    return run


OPTIMIZERS: dict[str, Optimizer] = {
    "lazybo": lazybo(),
    "optuna-gp": optuna_sampler(gp_sampler),
    "optuna-tpe": optuna_sampler(lambda seed: optuna.samplers.TPESampler(seed=seed)),
    "random": optuna_sampler(lambda seed: optuna.samplers.RandomSampler(seed=seed)),
}
