"""The estimators beside scikit-learn's own: ``python -m benchmarks.sklearn [PART ...]``.

regressor: rows that come to a fitted regressor by `partial_fit`, beside `GaussianProcessRegressor.fit` on all of them.
The same kernel with fixed parameters for both, 5 columns; medians, measured alternately with one BLAS thread.
"""

import argparse
from collections.abc import Callable
from functools import partial
from itertools import count

import numpy as np
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from benchmarks.timing import alternate
from lazybo.sklearn import LazyGPRegressor

KERNEL = ConstantKernel(1.0) * Matern(np.full(5, 0.5), nu=2.5)
ALPHA = 1e-4
BLOCK = 20
SIZES = {1000: 21, 3000: 11, 5000: 7}  # rows, and rounds


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).random((n, 5))
    return x, np.sin(5 * x[:, 0]) + x[:, 1] ** 2


def newcomer(n: int, t: int, *, predict: bool = False) -> Callable[[], object]:
    """What brings t fresh rows to a regressor with n: it grows by them each time."""
    regressor = LazyGPRegressor(KERNEL, alpha=ALPHA, optimizer=None).fit(*rows(n, 0))
    seeds, u = count(1), rows(1, 0)[0]

    def run() -> None:
        regressor.partial_fit(*rows(t, next(seeds)))
        if predict:
            regressor.predict(u, return_std=True)

    return run


def regressor_part() -> None:
    print("rows that come to n others, beside scikit-learn's fit of all (fixed parameters)")
    titles = ("n", "fit", "1 row", "ratio", f"{BLOCK} rows", "ratio", "1 + predict", "ratio")
    print("".join(f"{title:>12}" for title in titles))
    for n, rounds in SIZES.items():
        fit = partial(GaussianProcessRegressor(KERNEL, alpha=ALPHA, optimizer=None).fit, *rows(n, 0))
        contestants = {"one": newcomer(n, 1), "block": newcomer(n, BLOCK), "predict": newcomer(n, 1, predict=True)}
        t = alternate({"fit": fit, **contestants}, rounds)
        cells = [f"{n}", f"{1e3 * t['fit']:.0f} ms"]
        for name in contestants:
            cells += [f"{1e3 * t[name]:.2f} ms", f"{t['fit'] / t[name]:.0f}×"]
        print("".join(f"{cell:>12}" for cell in cells), flush=True)


PARTS: dict[str, Callable[[], None]] = {"regressor": regressor_part}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"which of {', '.join(PARTS)}; all of them by default")
    options = parser.parse_args()
    unknown = set(options.parts) - set(PARTS)
    if unknown:
        parser.error(f"unknown part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    for name in options.parts or PARTS:
        PARTS[name]()


if __name__ == "__main__":
    main()
