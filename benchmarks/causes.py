"""Why the first evaluations are lost with many parameters: ``python -m benchmarks.causes`` changes one thing at a time.

COCO's 24 bbob functions in 20 dimensions, two seeds. The table has the mean log10 of the distance to the optimum after
25, 50 and 100 evaluations, and the share of the coordinates of suggestions 11 to 100 that are at the edge of their
range. Each run is a row of a CSV file; recorded runs are not run again.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.problems import bbob
from benchmarks.run import RESULTS
from benchmarks.runner import append, read
from lazybo.gp.fit import Priors, shortening
from lazybo.paper.tables import markdown
from lazybo.search import decide, maximise, surrogate
from lazybo.search.optimizer import Optimizer

CHECKPOINTS = (25, 50, 100)
FIELDS = ("dim", "function", "variant", "seed", *(f"r{n}" for n in CHECKPOINTS), "edge")
EVERY_FUNCTION = range(1, 25)
FLOOR = 1e-8


@dataclass(frozen=True)
class Variant:
    """Options of the optimiser, constants of modules, and the median of the length scales in units of √d."""

    length_scale: float
    options: dict[str, Any] = field(default_factory=dict)
    priors: dict[str, Any] = field(default_factory=dict)
    constants: tuple[tuple[Any, str, int], ...] = ()
    middle: bool = True  # whether the first suggestion is in the middle of the space

    def optimizer(self, space: Any, seed: int, dim: int) -> Optimizer:
        """An optimiser; the constants must be set."""
        priors = Priors(length_scale=self.length_scale / shortening(dim), **self.priors)
        return Optimizer(space, seed=seed, priors=priors, **{"n_startup": 10, **self.options})

    @contextmanager
    def set(self) -> Iterator[None]:
        """Set the constants for as long as this lasts."""
        constants = [*self.constants, *([] if self.middle else [(decide, "FEW_PARAMETERS", 10**9)])]
        before = [(module, name, getattr(module, name)) for module, name, _ in constants]
        try:
            for module, name, value in constants:
                setattr(module, name, value)
            yield
        finally:
            for module, name, value in before:
                setattr(module, name, value)


VARIANTS = {
    "as up to 10 parameters": Variant(0.5, middle=False),
    "the middle first": Variant(0.5),
    "and 5 startup points": Variant(0.5, {"n_startup": 5}),
    "and length scales 0.25 √d: the default": Variant(0.25, {"n_startup": 5}),
    "and length scales 0.125 √d": Variant(0.125, {"n_startup": 5}),
    "the middle first, length scales 1.0 √d": Variant(1.0),
    "the middle first, their spread 0.5": Variant(0.5, priors={"length_scale_spread": 0.5}),
    "the middle first, additive share 0.2": Variant(0.5, priors={"share": 0.2}),
    "the middle first, additive share 0.8": Variant(0.5, priors={"share": 0.8}),
    "the middle first, Matérn 5/2": Variant(0.5, {"kernel": "matern52"}),
    "the middle first, 30 steps of BFGS": Variant(0.5, constants=((maximise, "CLIMB_STEPS", 30),)),
    "the middle first, 64 candidates a center": Variant(0.5, constants=((maximise, "CANDIDATES_PER_CENTER", 64),)),
    "the middle first, a pool of 2048": Variant(0.5, constants=((surrogate, "POOL_POINTS", 2048),)),
}


def run_one(label: str, function: int, dim: int, seed: int) -> dict[str, object]:
    """One run as a row."""
    problem, variant = bbob(function, dim, 1 + seed % 5), VARIANTS[label]
    row: dict[str, object] = {"dim": dim, "function": function, "variant": label, "seed": seed}
    best, edges = np.inf, []
    with variant.set():
        optimizer = variant.optimizer(problem.space, seed, dim)
        for n in range(1, CHECKPOINTS[-1] + 1):
            suggestion = optimizer.ask()
            value = problem.objective(suggestion.params)
            optimizer.tell(suggestion, value)
            best = min(best, value - problem.optimum)
            if n > 10:
                edges.append(np.mean(np.abs(list(suggestion.params.values())) >= 5.0 - 1e-9))
            if n in CHECKPOINTS:
                row[f"r{n}"] = f"{np.log10(max(best, FLOOR)):.4f}"
    return {**row, "edge": f"{np.mean(edges):.2f}"}


def report(path: Path, dim: int, seeds: range) -> str:
    """The table of what was recorded."""
    rows = [row for row in read(path) if int(row["dim"]) == dim and int(row["seed"]) in seeds]
    body = []
    for label in VARIANTS:
        mine = [row for row in rows if row["variant"] == label]
        if mine:
            means = [f"{np.mean([float(row[key]) for row in mine]):.2f}" for key in FIELDS[4:]]
            body.append([label, str(len(mine)), *means])
    return markdown([f"{dim}-D", "runs", *map(str, CHECKPOINTS), "at the edge"], body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, default=RESULTS / "causes.csv")
    parser.add_argument("--dim", type=int, default=20)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--functions", type=int, nargs="+", default=[*EVERY_FUNCTION])
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=list(VARIANTS))
    options = parser.parse_args()
    done = {(row["dim"], row["function"], row["variant"], row["seed"]) for row in read(options.csv)}
    for label in options.variants:
        for seed in range(options.seeds):
            for function in options.functions:
                if (str(options.dim), str(function), label, str(seed)) not in done:
                    append(options.csv, FIELDS, run_one(label, function, options.dim, seed))
    print(report(options.csv, options.dim, range(options.seeds)))


if __name__ == "__main__":
    main()
