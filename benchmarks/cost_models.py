"""`python -m benchmarks.cost_models`: how well models predict the logarithm of the training time of a table.

Each model learns from n random rows of a table and predicts 500 others. The score is R²: 1 is perfect, 0 is the mean of
the n rows. Contestants: the process that ``cost=`` uses, the same with the kernel "matern52", and ridge regression on
the coordinates (choices as indicators), whose penalty is chosen by leave-one-out errors.
"""

import argparse
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
from optuna.distributions import CategoricalDistribution

from benchmarks import problems
from lazybo.core.checks import Array
from lazybo.search.optimizer import Optimizer

SIZES = (10, 25, 50, 100)
TESTED = 500
PENALTIES = 10.0 ** np.arange(-3, 3)


def rows_of(problem: problems.Problem, seed: int, count: int) -> tuple[list[dict[str, Any]], Array]:
    """Random rows of a table: configurations, and the logarithms of their times."""
    bench, data = problem.name.split("-")
    table = list(problems._table(bench, data)[1].items())
    chosen = np.random.default_rng(seed).choice(len(table), count, replace=False)
    params = [dict(zip(problem.space, table[i][0], strict=True)) for i in chosen]
    return params, np.log([table[i][1].seconds for i in chosen])


def by_process(kernel: str) -> Callable[[problems.Problem, list[dict[str, Any]], Array, int], Array]:
    """The process that the optimiser has for the cost."""

    def predict(problem: problems.Problem, params: list[dict[str, Any]], known: Array, n: int) -> Array:
        optimizer = Optimizer(problem.space, seed=0, cost="seconds", kernel=kernel)
        for each, log_cost in zip(params[:n], known, strict=True):
            optimizer.observe(each, 0.0, seconds=float(np.exp(log_cost)))
        surrogate = optimizer.model.search.models.cost
        assert surrogate is not None
        now = surrogate.current()
        points = np.array([optimizer.space.encode(each) for each in params[n:]])
        mean = now.posterior.mean(optimizer.space.as_rows(points))
        return now.warping.inverse(mean)

    return predict


def by_ridge(problem: problems.Problem, params: list[dict[str, Any]], known: Array, n: int) -> Array:
    """Linear in each parameter, one coefficient for each choice."""
    columns = []
    for name, each in problem.space.items():
        values = [row[name] for row in params]
        if isinstance(each, CategoricalDistribution):
            columns += [[float(value == choice) for value in values] for choice in each.choices]
        else:
            columns.append([value / max(values) for value in values])
    x = np.array(columns).T
    x -= x[:n].mean(axis=0)
    y, u = known - known.mean(), x[:n]
    scores, weights = [], []
    for penalty in PENALTIES:
        inverse = np.linalg.inv(u.T @ u + penalty * np.eye(u.shape[1]))
        weight = inverse @ u.T @ y
        leverage = np.einsum("ij,jk,ik->i", u, inverse, u) + 1.0 / n
        scores.append(float(np.mean(((y - u @ weight) / np.maximum(1.0 - leverage, 1e-6)) ** 2)))
        weights.append(weight)
    return np.asarray(known.mean() + x[n:] @ weights[int(np.argmin(scores))])


MODELS = {"additive (ours)": by_process("additive"), "matern52": by_process("matern52"), "ridge": by_ridge}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    print(f"mean R² after {' / '.join(map(str, SIZES))} rows\n")
    print(f"| table | {' | '.join(MODELS)} |\n|---|{'---|' * len(MODELS)}")
    for name in problems.table_names():
        problem = problems.load(name, 1)
        cells = []
        for predict in MODELS.values():
            scores: list[str] = []
            for n in SIZES:
                found = []
                for seed in range(options.seeds):
                    params, logs = rows_of(problem, seed, n + TESTED)
                    errors = predict(problem, params, logs[:n], n) - logs[n:]
                    found.append(1.0 - float(np.mean(errors**2) / np.mean((logs[n:] - logs[:n].mean()) ** 2)))
                scores.append(f"{statistics.fmean(found):.2f}")
            cells.append(" / ".join(scores))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
