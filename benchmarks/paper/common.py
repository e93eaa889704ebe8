"""What all experiments share: the methods that are compared, and rows of CSV files.

The paper's Gaussian process sees raw coordinates with one length scale ρ = 1, a kernel of variance 1, noise 1e-6,
values that are centred but not scaled, and expected improvement with ξ = 0.01. Our kernel works in the unit cube, where
ρ = 1 is one over the width of each parameter's range. We search the logarithm of expected improvement: it has the same
maxima, and a gradient where the value itself underflows. Where the kernel is learned, only its length scales are, one
for each parameter, by maximum likelihood.
"""

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from optuna.distributions import FloatDistribution
from scipy.special import erfcx, ndtr

from lazybo import Matern52, Priors
from lazybo.core import Array, Lag

Row = dict[str, str]

XI = 0.01
NOISE = 1e-6
# Below the first z, 1 + z Φ(z)/φ(z) is 1/z²; above the second, φ(z) + z Φ(z) is z.
LOW, HIGH = -1e3, 10.0
# The spread of a prior so wide that it has no influence.
FLAT = 5.0

LAGS: dict[str, Lag] = {"naive": 1, "lag3": 3, "lazy": None}
# What each method is called in a table.
LABELS = {
    "naive": "naive (lag 1)",
    "lag3": "lag 3",
    "lazy": "lazy (lag ∞)",
    "naive-scaled": "naive, values scaled",
    "lazy-scaled": "lazy, values scaled",
    "naive-random": "naive, the paper's search",
    "lazy-random": "lazy, the paper's search",
    "ours-naive": "our kernel, lag 1",
    "ours-lazy": "our kernel, lag ∞",
    "ours": "our default",
}


def optimizer_options(method: str, space: Mapping[str, FloatDistribution]) -> dict[str, Any]:
    """The options of a method for `lazybo.Optimizer`."""
    family, _, variant = method.partition("-")
    if family == "ours":
        return {"lag": LAGS[variant] if variant else "auto"}
    return paper_options(LAGS[family], space, scaled=variant == "scaled")


def paper_options(lag: Lag, space: Mapping[str, FloatDistribution], *, scaled: bool = False) -> dict[str, Any]:
    """The paper's settings with a lag. ``scaled`` scales values to standard deviation 1; the paper does not.

    The priors fix the variance at 1 and the noise, and do not restrict the length scales.
    """
    return {
        "lag": lag,
        "kernel": unit_kernel(space),
        "noise": NOISE,
        "priors": Priors(length_scale_spread=FLAT, output_scale_spread=0.0, noise=NOISE, noise_spread=0.0),
        "value_transform": "scaled" if scaled else "centred",
        "acquisition": log_improvement,
    }


def improvement(mean: Array, std: Array, best: float) -> tuple[Array, Array, Array]:
    """EI = γ Φ(z) + σ φ(z), γ = best - ξ - μ, z = γ/σ (paper, section 2.2.1), and its derivatives -Φ(z) and φ(z)."""
    gain = best - XI - mean
    z = gain / std
    density = np.exp(_log_density(z))
    return np.maximum(gain * ndtr(z) + std * density, 0.0), -ndtr(z), density


def log_improvement(mean: Array, std: Array, best: float) -> tuple[Array, Array, Array]:
    """log EI. Φ(z)/φ(z) has no underflow: log EI = log σ + log φ(z) + log(1 + z Φ(z)/φ(z))."""
    z = (best - XI - mean) / std
    near, low, high = np.clip(z, LOW, HIGH), np.minimum(z, LOW), np.maximum(z, HIGH)
    ratio = math.sqrt(math.pi / 2) * erfcx(near / -math.sqrt(2))
    rest = 1.0 + near * ratio
    value = np.select(
        [z < LOW, z > HIGH], [_log_density(z) - 2 * np.log(-low), np.log(high)], _log_density(near) + np.log(rest)
    )
    slope = np.select([z < LOW, z > HIGH], [-low, 1 / high], ratio / rest)
    return np.log(std) + value, -slope / std, (1.0 - z * slope) / std


def _log_density(z: Array) -> Array:
    return -0.5 * z * z - 0.5 * math.log(2 * math.pi)


def unit_kernel(space: Mapping[str, FloatDistribution], rho: float = 1.0) -> Matern52:
    """Matérn 5/2 with the length scale ρ in raw coordinates and variance 1."""
    return Matern52(np.array([rho / (d.high - d.low) for d in space.values()]))


# ------------------------------------------------------------------------ records


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV file; empty if the file does not exist."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append_rows(path: Path, fields: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Append rows in one write, so that a killed process never leaves part of a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = [] if path.exists() else [",".join(fields)]
    lines = [",".join(_cell(row.get(name)) for name in fields) for row in rows]
    with path.open("a", newline="") as file:
        file.write("".join(f"{line}\n" for line in head + lines))


def write_rows(path: Path, fields: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Replace a file by new rows."""
    fresh = path.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    append_rows(fresh, fields, rows)
    fresh.replace(path)


def _cell(value: Any) -> str:
    """A value as written to a file; these numbers are accurate to fewer than six digits."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def improvements(values: Iterable[float], step: float = 0.0) -> list[tuple[int, float]]:
    """The iterations, from 1, at which the best value so far grew by more than ``step``, and the value."""
    found: list[tuple[int, float]] = []
    for iteration, value in enumerate(values, 1):
        if not found or value > found[-1][1] + step:
            found.append((iteration, float(value)))
    return found


def first_at(values: Sequence[float], target: float) -> float:
    """The first iteration, from 1, with at least this value; infinity if there is none."""
    return next((float(i) for i, value in enumerate(values, 1) if value >= target), math.inf)


def quartiles(values: Sequence[float]) -> tuple[float, float, float]:
    """Lower quartile, median and upper quartile, each one of the values: some may be infinite."""
    low, middle, high = np.quantile(np.asarray(values, dtype=float), (0.25, 0.5, 0.75), method="inverted_cdf")
    return float(low), float(middle), float(high)
