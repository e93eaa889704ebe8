"""How often `benchmarks.compare` is right: ``python -m benchmarks.false_alarms`` simulates it with recorded runs.

Pairs of runs of two optimisers are drawn again from ``results/open.csv``, and each pair is swapped at random, so that
there is no difference; or all regrets of B are multiplied by 1 + ``effect``. The table has the share of each decision
and the mean number of rounds.
"""

import argparse
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np

from benchmarks.paper.tables import markdown
from benchmarks.run import RESULTS
from benchmarks.runner import read
from benchmarks.sequential import Monitor, Strata, relative

AT = (25, 50, 100)
# Relative differences to find, and the true ones.
CASES = ((0.1, 0.0), (0.2, 0.0), (0.3, 0.0), (0.1, -0.1), (0.2, -0.2), (0.3, -0.3))
DECISIONS = ("better", "worse", "equivalent", "undecided")


def recorded(path: Path, a: str, b: str) -> list[np.ndarray]:
    """The mean regrets of the pairs that both have, (pairs, 2), by family."""
    rows = {(row["optimizer"], row["problem"], row["seed"]): row for row in read(path)}
    families: dict[str, list[list[float]]] = defaultdict(list)
    for (name, problem, seed), row in rows.items():
        other = rows.get((b, problem, seed))
        if name == a and other:
            families[row["family"]].append([sum(float(each[f"r{n}"]) for n in AT) / len(AT) for each in (row, other)])
    return [np.array(pairs) for pairs in families.values()]


def drawn(families: list[np.ndarray], rounds: int, effect: float, rng: np.random.Generator) -> tuple[Strata, Strata]:
    """So many pairs of each family, drawn again and swapped at random."""
    found = [rng.permuted(rng.choice(pairs, rounds), axis=1) for pairs in families]
    return [pairs[:, 0] for pairs in found], [pairs[:, 1] * (1.0 + effect) for pairs in found]


def decided(a: Strata, b: Strata, detect: float) -> tuple[str, int]:
    """The decision, and after how many rounds."""
    monitor, most = Monitor(detect), len(a[0])
    while True:
        rounds = min(monitor.next_look, most)
        found = relative([x[:rounds] for x in a], [y[:rounds] for y in b])
        decision = monitor.look(found, rounds, last=rounds == most)
        if decision:
            return decision, rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, default=RESULTS / "open.csv")
    parser.add_argument("--pairs", nargs=2, default=["lazybo", "optuna-tpe"], metavar=("A", "B"))
    parser.add_argument("--simulations", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=1000)
    options = parser.parse_args()
    families, rows = recorded(options.csv, *options.pairs), []
    if not families:
        raise SystemExit(f"{options.csv} has no pairs of {options.pairs[0]!r} and {options.pairs[1]!r}")
    for detect, effect in CASES:
        found = []
        for seed in range(options.simulations):
            a, b = drawn(families, options.rounds, effect, np.random.default_rng(seed))
            found.append(decided(a, b, detect))
        counts = Counter(decision for decision, _ in found)
        shares = [f"{100 * counts[decision] / len(found):.1f} %" for decision in DECISIONS]
        rows.append([f"{detect:g}", f"{effect:g}", *shares, f"{np.mean([rounds for _, rounds in found]):.0f}"])
    print(markdown(["--detect", "true difference", *DECISIONS, "rounds"], rows))


if __name__ == "__main__":
    main()
