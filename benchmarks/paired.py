"""Compare one variant of our options with the default: ``python -m benchmarks.paired --variant NAME``.

The variants are those of `benchmarks.ablation`. Each run is a row of a CSV file; recorded runs are not run again.
``--only-report`` prints the results without running anything. Differences are paired by problem and seed. p is
Wilcoxon's signed-rank test on the logarithms of the regrets.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import binomtest, wilcoxon

from benchmarks.ablation import VARIANTS
from benchmarks.optimizers import lazybo
from benchmarks.problems import SUITES
from benchmarks.runner import log10, read, run_all

DEFAULT = "default"
BUDGETS = (25, 50, 100, 200)
# Problems that are a sum over their parameters, or nearly so: an additive kernel is made for them.
NEARLY_ADDITIVE = ("levy-5d", "bbob-f3-5d", "bbob-f15-2d", "bbob-f15-5d")

Row = dict[str, str]
Pair = tuple[Row, Row]


def pairs(path: Path, variant: str, seeds: Sequence[int]) -> list[Pair]:
    """The recorded pairs of runs of the default and of a variant."""
    rows = {(row["optimizer"], row["problem"], int(row["seed"])): row for row in read(path)}
    keys = [key[1:] for key in rows if key[0] == DEFAULT and (variant, *key[1:]) in rows and key[2] in seeds]
    return [(rows[DEFAULT, *key], rows[variant, *key]) for key in keys]


def numbers(found: Sequence[Pair], field: str) -> np.ndarray:
    """A field of both runs of each pair, (pairs, 2)."""
    return np.array([[float(row[field]) for row in pair] for pair in found]).reshape(-1, 2)


def compared(found: Sequence[Pair], variant: str) -> str:
    """Means, better and worse runs, and tests, at each checkpoint that all runs reach."""
    reached = [n for n in BUDGETS if all(row[f"r{n}"] for pair in found for row in pair)]
    regrets = [numbers(found, f"r{n}") for n in reached]
    lines = [f"| {len(found)} pairs | " + " | ".join(str(n) for n in reached) + " |", "|---" * (len(reached) + 1) + "|"]

    def line(title: str, cell: Callable[[np.ndarray], str]) -> None:
        lines.append(f"| {title} | " + " | ".join(cell(values) for values in regrets) + " |")

    for i, name in enumerate((DEFAULT, variant)):
        line(f"regret: {name}", lambda values, i=i: f"{values[:, i].mean():.4f}")  # type: ignore[misc]
    line("difference, 90 % when the runs are drawn again", _interval)
    for i, name in enumerate((DEFAULT, variant)):
        line(f"log10: {name}", lambda values, i=i: f"{log10(values[:, i]).mean():.2f}")  # type: ignore[misc]
    line("better, worse", lambda values: "{}, {}".format(*_counts(values)))
    line("p (sign test)", lambda values: f"{_sign(values):.3g}")
    line("p (Wilcoxon, of the logarithms)", lambda values: f"{_wilcoxon(values):.3g}")
    for i, name in enumerate((DEFAULT, variant)):
        seconds = [f"{numbers(found, f's{n}')[:, i].mean():.2f}" for n in reached]
        lines.append(f"| processor seconds: {name} | " + " | ".join(seconds) + " |")
    return "\n".join(lines)


def by_group(found: Sequence[Pair], variant: str) -> str:
    """Mean regrets by family and for the nearly additive problems, with counts, p and time at the last checkpoint."""
    reached = [n for n in BUDGETS if all(row[f"r{n}"] for pair in found for row in pair)]
    last = reached[-1]
    families = list(dict.fromkeys(pair[0]["family"] for pair in found))
    groups: list[tuple[str, Callable[[Row], bool]]] = [
        ("nearly additive: " + ", ".join(NEARLY_ADDITIVE), lambda row: row["problem"] in NEARLY_ADDITIVE),
        ("all others", lambda row: row["problem"] not in NEARLY_ADDITIVE),
        *((family, lambda row, family=family: row["family"] == family) for family in families),
    ]
    points = " ".join(str(n) for n in reached)
    lines = [
        f"| mean regret after {points} | pairs | {DEFAULT} | {variant} | better, worse after {last} | p | time |",
        "|---" * 7 + "|",
    ]
    for title, belongs in groups:
        here = [pair for pair in found if belongs(pair[0])]
        if here:
            regrets = [numbers(here, f"r{n}") for n in reached]
            means = [" ".join(f"{values[:, i].mean():.4f}".removeprefix("0") for values in regrets) for i in range(2)]
            better, worse = _counts(regrets[-1])
            seconds = numbers(here, f"s{last}").sum(axis=0)
            tail = f"{better}, {worse} | {_wilcoxon(regrets[-1]):.2g} | × {seconds[1] / seconds[0]:.2f}"
            lines.append(f"| {title} | {len(here)} | {means[0]} | {means[1]} | {tail} |")
    return "\n".join(lines)


def _counts(values: np.ndarray) -> tuple[int, int]:
    logs = log10(values)
    return int((logs[:, 1] < logs[:, 0]).sum()), int((logs[:, 1] > logs[:, 0]).sum())


def _sign(values: np.ndarray) -> float:
    better, worse = _counts(values)
    return float(binomtest(better, better + worse).pvalue) if better + worse else 1.0


def _wilcoxon(values: np.ndarray) -> float:
    difference = np.diff(log10(values), axis=1)[:, 0]
    return float(wilcoxon(difference).pvalue) if difference.any() else 1.0


def _interval(values: np.ndarray) -> str:
    difference, rng = np.diff(values, axis=1)[:, 0], np.random.default_rng(0)
    drawn = rng.choice(difference, (2000, len(difference))).mean(axis=1)
    return "{:.4f} to {:.4f}".format(*np.quantile(drawn, (0.05, 0.95)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variant", default="Matérn, strict noise", choices=list(VARIANTS))
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "paired.csv")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no run after so many seconds")
    parser.add_argument("--problems", nargs="+", default=SUITES["open"])
    parser.add_argument("--only-report", action="store_true")
    options = parser.parse_args()
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if not options.only_report:
        chosen = {name: lazybo(**VARIANTS[name]) for name in (DEFAULT, options.variant)}
        run_all(options.csv, chosen, options.problems, seeds, options.budget, options.limit)
    found = pairs(options.csv, options.variant, seeds)
    if not found:
        raise SystemExit(f"{options.csv} has no pairs of {options.variant!r} and the default for these seeds")
    print(compared(found, options.variant), by_group(found, options.variant), sep="\n\n")


if __name__ == "__main__":
    main()
