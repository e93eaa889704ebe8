"""What ``make demo`` shows: a Gaussian process that grows, beside one that is factored anew at every step."""

import time

import numpy as np
from scipy.linalg import cho_factor

from lazybo.checks import Array
from lazybo.fit import learn, prior_kernel
from lazybo.gp import LazyGP
from lazybo.kernels import Matern52
from lazybo.targets import standardize

STEPS = 1000
REPORT_EVERY = 100


def main() -> None:
    """Feed Levy's function in 5-D point by point; print error, and time per step of both ways."""
    rng = np.random.default_rng(0)
    x, u = rng.random((STEPS, 5)), rng.random((500, 5))
    y, truth = levy(20 * x - 10), levy(20 * u - 10)
    gp = LazyGP(*prior_kernel(Matern52(np.ones(5))), transform=standardize)
    gp.append(x[:50], y[:50])
    learned = learn(gp)
    print("Levy's function in 5-D, one observation at a time; kernel learned once, from the first 50.")
    print(f"length scales {np.array2string(learned.kernel.length_scales, precision=2)}, noise {learned.noise:.1e}\n")
    print(f"{'n':>5} {'RMSE / std':>11} {'extend':>10} {'factor anew':>12} {'ratio':>7}")
    lazy = full = 0.0
    for n in range(50, STEPS):
        start = time.perf_counter()
        gp.append(x[n : n + 1], y[n : n + 1])
        lazy += time.perf_counter() - start
        start = time.perf_counter()
        covariance = gp.kernel(x[: n + 1])
        covariance[np.diag_indices_from(covariance)] += gp.noise
        cho_factor(covariance, lower=True, overwrite_a=True, check_finite=False)
        full += time.perf_counter() - start
        if (n + 1) % REPORT_EVERY == 0:
            error = np.sqrt(np.mean((gp.posterior(u).mean - truth) ** 2)) / truth.std()
            times = f"{lazy * 1e3 / REPORT_EVERY:7.2f} ms {full * 1e3 / REPORT_EVERY:9.2f} ms"
            print(f"{n + 1:5} {error:11.3f} {times} {full / lazy:6.0f}×")
            lazy = full = 0.0


def levy(x: Array) -> Array:
    """Levy's function of the rows of x, (n,); minimum 0 at (1, …, 1) (paper, section 4.1)."""
    w = 1 + (x - 1) / 4
    inner = (w[:, :-1] - 1) ** 2 * (1 + 10 * np.sin(np.pi * w[:, :-1] + 1) ** 2)
    last = (w[:, -1] - 1) ** 2 * (1 + np.sin(2 * np.pi * w[:, -1]) ** 2)
    return np.sin(np.pi * w[:, 0]) ** 2 + inner.sum(axis=1) + last


if __name__ == "__main__":
    main()
