"""Minimise a function of a conditional space with LazySampler from OptunaHub."""

import optuna
import optunahub


def objective(trial: optuna.Trial) -> float:
    """A quadratic function; the second parameter exists for one of two kernels only."""
    x = trial.suggest_float("x", -5, 5)
    if trial.suggest_categorical("kernel", ["linear", "rbf"]) == "linear":
        return (x - 2) ** 2 + 1
    return (x - 2) ** 2 + (trial.suggest_float("log_gamma", -4, 1) + 1) ** 2


if __name__ == "__main__":
    sampler = optunahub.load_module(package="samplers/lazybo").LazySampler(seed=0)
    study = optuna.create_study(sampler=sampler)
    study.optimize(objective, n_trials=50)
    print(study.best_value, study.best_params)
