"""Run lazybo and its peers on the same problems: ``python -m benchmarks.run SUITE``.

Each run is a row of ``results/SUITE.csv``; recorded runs are not run again. ``python -m benchmarks.report`` makes
tables and pictures from the rows.
"""

import argparse
from pathlib import Path

from benchmarks import live
from benchmarks.optimizers import OPTIMIZERS
from benchmarks.problems import SUITES
from benchmarks.runner import run_all

RESULTS = Path(__file__).parent / "results"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=["live", *(name for name in SUITES if name != "many")])
    parser.add_argument("--csv", type=Path, help="instead of results/SUITE.csv")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no run after so many seconds")
    parser.add_argument("--rounds", type=int, help="so many problems of each family, families and seeds in turn")
    parser.add_argument("--optimizers", nargs="+", default=list(OPTIMIZERS), choices=list(OPTIMIZERS))
    parser.add_argument("--problems", nargs="+", help="instead of those of the suite")
    options = parser.parse_args()
    path = options.csv or RESULTS / f"{options.suite}.csv"
    chosen = {name: OPTIMIZERS[name] for name in options.optimizers}
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    if options.suite == "live":
        for row in live.run_all(path, chosen, options.problems or live.names(), seeds, options.budget):
            print(*(row[key] for key in ("optimizer", "problem", "seed")), flush=True)
        return
    names = options.problems or SUITES[options.suite]
    run_all(path, chosen, names, seeds, options.budget, options.limit, options.rounds)


if __name__ == "__main__":
    main()
