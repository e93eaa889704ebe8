"""What declaring conditions changes: ``python -m benchmarks.declared --first-seed 1009000 --rounds 14``.

lazybo runs each training whose choices switch parameters off twice: as all optimisers get it, every parameter always
given ("flat"), and with its conditions. Both have the same problems and seeds, in rounds of one problem of each family.
Recorded runs are not run again. Families have equal weights; intervals are 95 %.
"""

import argparse
from pathlib import Path

import numpy as np

from benchmarks.notebook import STUCK, percent
from benchmarks.optimizers import OPTIMIZERS
from benchmarks.paper.tables import markdown
from benchmarks.problems import SUITES, family
from benchmarks.records import OURS
from benchmarks.report import SHORT
from benchmarks.runner import balanced, read, run_all
from benchmarks.sequential import Strata, mean_of, relative

FAMILIES = ("svm", "xgboost", "mlp")
SEEDS = 5
# Of the normal distribution, for an interval of 95 %.
Z = 1.96


def table(path: Path, runs: list[tuple[str, int]]) -> str:
    """Mean regrets after 25, 50 and 100 evaluations of the pairs that are complete."""
    rows = {(row["problem"], int(row["seed"])): row for row in read(path)}
    pairs = [(name, seed) for name, seed in runs if {(name, seed), (f"{name}~declared", seed)} <= rows.keys()]

    def strata(suffix: str, n: int) -> Strata:
        """The regrets of the pairs by family."""
        found = [(family(name), float(rows[name + suffix, seed][f"r{n}"])) for name, seed in pairs]
        return [np.array([value for own, value in found if own == each]) for each in FAMILIES]

    cells = []
    for n in SHORT:
        flat, declared = strata("", n), strata("~declared", n)
        a, b = np.concatenate(flat), np.concatenate(declared)
        effect = relative(flat, declared)
        low, high = effect.interval(Z)
        cells.append(
            [
                str(n),
                f"{mean_of(flat):.3f}",
                f"{mean_of(declared):.3f}",
                percent([low, effect.value, high]),
                f"{(b < a).sum()}, {(b > a).sum()}",
                f"{(a > STUCK).sum()}, {(b > STUCK).sum()}",
            ]
        )
    head = [f"regret after ({len(pairs)} pairs)", "flat", "declared", "difference", "better, worse", f"above {STUCK:g}"]
    return markdown(head, cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--csv", type=Path, default=Path("declared.csv"), help="where the runs are recorded")
    parser.add_argument("--first-seed", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--budget", type=int, default=max(SHORT))
    options = parser.parse_args()
    names = [name for name in SUITES["trainings"] if family(name) in FAMILIES]
    runs = balanced(names, range(options.first_seed, options.first_seed + SEEDS), options.rounds)
    for name, seed in runs:
        run_all(options.csv, {OURS: OPTIMIZERS[OURS]}, [name, f"{name}~declared"], [seed], options.budget)
    print(table(options.csv, runs))


if __name__ == "__main__":
    main()
