"""``make demo``: minimise Levy's function in 5-D, and show how much time extending the factor saves."""

import time
from collections.abc import Sequence
from statistics import median

import numpy as np
from scipy.linalg import cho_factor

from lazybo import LazyGP, Matern52, Optimizer
from lazybo.core import Array


def main(evaluations: int = 200, sizes: Sequence[int] = (200, 500, 1000, 2000)) -> None:
    """Run both parts and print them: a search, and one more observation for factors of these sizes."""
    improvements, seconds = minimise_levy(evaluations)
    print(f"\n{'evaluation':>11} {'best':>10}")
    for number, value in improvements:
        print(f"{number:11} {value:10.5f}")
    early, late = (1e3 * float(np.mean(part)) for part in (seconds[:20], seconds[-20:]))
    print(f"\ntime per step: {1e3 * np.mean(seconds):.1f} ms on average (first 20: {early:.1f}, last 20: {late:.1f})\n")
    print("one more observation, with the kernel's parameters kept:")
    print(f"{'n':>6} {'extend':>10} {'rebuild':>12} {'ratio':>7}")
    for n in sizes:
        extend, rebuild = one_more(n)
        print(f"{n:6} {1e3 * extend:7.2f} ms {1e3 * rebuild:9.2f} ms {rebuild / extend:6.0f}×")


def minimise_levy(evaluations: int) -> tuple[list[tuple[int, float]], list[float]]:
    """Run the optimiser; returns the improvements and the seconds of each step."""
    optimizer = Optimizer({f"x{j}": (-10.0, 10.0) for j in range(5)}, seed=0)
    improvements: list[tuple[int, float]] = []
    seconds: list[float] = []
    print(f"minimising Levy's function in 5-D (optimum 0), {evaluations} evaluations")
    for number in range(1, evaluations + 1):
        start = time.perf_counter()
        suggestion = optimizer.ask()
        seconds.append(time.perf_counter() - start)
        value = levy(np.array(list(suggestion.params.values())))
        optimizer.tell(suggestion, value)
        if not improvements or value < improvements[-1][1]:
            improvements.append((number, value))
        if number % 50 == 0:
            print(f"{number:4}/{evaluations}  best {improvements[-1][1]:.5f}", flush=True)
    return improvements, seconds


def one_more(n: int) -> tuple[float, float]:
    """Median seconds, of nine: to extend the factor of n observations by one row, and to factor from scratch."""
    rng = np.random.default_rng(n)
    x = rng.random((n + 1, 5))
    gp = LazyGP(Matern52(np.full(5, 0.5)), 1e-4)
    gp.append(x[:n], x[:n].sum(axis=1))
    extend, rebuild = [], []
    for _ in range(9):
        start = time.perf_counter()
        gp.append(x[n:], x[n:].sum(axis=1))
        extend.append(time.perf_counter() - start)
        gp.truncate(n)
        start = time.perf_counter()
        covariance = gp.kernel(x)
        covariance[np.diag_indices_from(covariance)] += gp.noise
        cho_factor(covariance, lower=True, overwrite_a=True, check_finite=False)
        rebuild.append(time.perf_counter() - start)
    return median(extend), median(rebuild)


def levy(x: Array) -> float:
    """Levy's function, minimum 0 at (1, …, 1) (paper, section 4.1)."""
    w = 1 + (x - 1) / 4
    middle = ((w[:-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:-1] + 1) ** 2)).sum()
    return float(np.sin(np.pi * w[0]) ** 2 + middle + (w[-1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[-1]) ** 2))


if __name__ == "__main__":
    main()
