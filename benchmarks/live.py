"""Real trainings, evaluated live: ``python -m benchmarks.run live``, then ``python -m benchmarks.live`` for the tables.

The optimiser sees a validation score: of one split, or the mean of five folds. What users take home is scored on test
data that it does not see, by the learner trained on everything else. Losses are the log loss, 1 − R² (at most 1.5), or
the error rate of a support-vector machine, which has no probabilities.

A run records raw losses after some numbers of evaluations: the best validation loss (v), the test loss of that
configuration (b), the test loss of what the optimiser recommends (t), and the CPU seconds of the optimiser (s). The
tables are in units of each problem: 0 is the best loss of all runs, 1 the median of random search after 25.
"""

import argparse
import json
import sqlite3
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import datasets
from benchmarks.learners import LEARNERS, Params
from benchmarks.optimizers import Lazy, Make
from benchmarks.runner import append, read

DATA = (
    *("keel/spambase", "MASS/Boston", "keel/vehicle", "Ecdat/Hmda", "mosaicData/SaratogaHouses", "keel/german"),
    *("sklearn/digits", "openintro/ames", "psych/bfi", "keel/phoneme", "wooldridge/fertil2", "survival/rotterdam"),
)
PROTOCOLS = ("split", "folds")
CHECKPOINTS = (5, 10, 25, 50, 100)
FIELDS = (
    *("problem", "family", "optimizer", "seed", "default_v", "default_t"),
    *(f"{kind}{n}" for n in CHECKPOINTS for kind in "vbts"),
)
# Rows to choose a configuration with, at most; the others, at most so many, are test data.
SEEN, TEST = 800, 2000
FOLDS, VALIDATION = 5, 0.3
SPLITS = 3  # so many ways to split a data set; the seed of a run says which
WORST_REGRESSION, LEAST_PROBABILITY = 1.5, 1e-3
RANDOM, UNIT = "random", 25


def names() -> list[str]:
    """All problems, such as "lightgbm-keel/german-split": families and protocols take turns."""
    learners = list(LEARNERS)
    turns = [(learners[(i + j) % len(learners)], data) for j in range(len(learners)) for i, data in enumerate(DATA)]
    return [f"{learner}-{data}-{PROTOCOLS[k % 2]}" for k, (learner, data) in enumerate(turns)] + [
        f"{learner}-{data}-{PROTOCOLS[(k + 1) % 2]}" for k, (learner, data) in enumerate(turns)
    ]


@dataclass(frozen=True)
class Live:
    """A problem: a learner on a data set with one of the ways to split it."""

    name: str
    split: int

    @cached_property
    def parts(self) -> tuple[str, str, str]:
        """Learner, data set, protocol."""
        learner, _, rest = self.name.partition("-")
        data, _, protocol = rest.rpartition("-")
        return learner, data, protocol

    @cached_property
    def data(self) -> datasets.DataSet:
        """All rows."""
        return datasets.load(self.parts[1])

    @property
    def space(self) -> dict[str, Any]:
        """What is tuned."""
        return LEARNERS[self.parts[0]].space

    @property
    def default(self) -> dict[str, Any]:
        """The library's default."""
        return LEARNERS[self.parts[0]].default(self.data)

    @cached_property
    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows to choose a configuration with, and those of the test."""
        order = np.random.default_rng(self.split).permutation(len(self.data.y))
        seen = min(SEEN, len(order) // 2)
        return order[:seen], order[seen : seen + TEST]

    def validation(self, params: Params) -> list[float]:
        """The losses that the optimiser may see: one, or one for each fold."""
        return kept(f"{self.name}:{self.split}", params, lambda: [self._loss(params, *fold) for fold in self.folds])

    def test(self, params: Params) -> float:
        """The loss on test data."""
        return kept(f"{self.name}:{self.split}:test", params, lambda: [self._loss(params, *self.rows)])[0]

    @cached_property
    def folds(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """The rows for training and validation, once or five times; each has rows of all classes."""
        from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

        seen, _ = self.rows
        if self.parts[2] == "split":
            kind: Any = StratifiedShuffleSplit if self.data.is_classes else ShuffleSplit
            cut = kind(1, test_size=VALIDATION, random_state=0)
        else:
            kind = StratifiedKFold if self.data.is_classes else KFold
            cut = kind(FOLDS, shuffle=True, random_state=0)
        return [(seen[a], seen[b]) for a, b in cut.split(seen, self.data.y[seen])]

    def _loss(self, params: Params, train: np.ndarray, test: np.ndarray) -> float:
        x, y = self.data.x, self.data.y
        learner = self.parts[0]
        model = LEARNERS[learner].make(params, self.data, 0)
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            if not self.data.is_classes:
                center, scale = y[train].mean(), y[train].std()
                try:
                    predicted = center + scale * model.fit(x[train], (y[train] - center) / scale).predict(x[test])
                except ValueError:  # it diverged
                    return WORST_REGRESSION
                loss = float(np.mean((y[test] - predicted) ** 2) / np.var(y[test]))
                return min(loss, WORST_REGRESSION) if np.isfinite(loss) else WORST_REGRESSION
            known, codes = np.unique(y[train], return_inverse=True)
            model.fit(x[train], codes)
            if learner == "svm":
                return float(np.mean(known[model.predict(x[test])] != y[test]))
            shares = np.full((len(test), self.data.classes), LEAST_PROBABILITY)
            shares[:, known] = np.maximum(model.predict_proba(x[test]), LEAST_PROBABILITY)
            return float(-np.mean(np.log(shares[np.arange(len(test)), y[test]])))


def kept(problem: str, params: Params, compute: Any) -> list[float]:
    """Losses by configuration, kept in a temporary folder: a configuration is trained once."""
    key = json.dumps(params, sort_keys=True)
    with sqlite3.connect(Path(tempfile.gettempdir()) / "lazybo-live.db", timeout=60.0) as base:
        base.execute(
            "CREATE TABLE IF NOT EXISTS losses (problem TEXT, params TEXT, losses TEXT, UNIQUE(problem, params))"
        )
        found = base.execute("SELECT losses FROM losses WHERE problem = ? AND params = ?", (problem, key)).fetchone()
    if found:
        return list(json.loads(found[0]))
    losses = [float(loss) for loss in compute()]
    with sqlite3.connect(Path(tempfile.gettempdir()) / "lazybo-live.db", timeout=60.0) as base:
        base.execute("INSERT OR IGNORE INTO losses VALUES (?, ?, ?)", (problem, key, json.dumps(losses)))
    return losses


def run_one(name: str, label: str, make: Make, seed: int, budget: int) -> dict[str, object]:
    """One run as a row."""
    problem = Live(name, seed % SPLITS)
    default_v = float(np.mean(problem.validation(problem.default)))
    row: dict[str, object] = {"problem": name, "family": problem.parts[0], "optimizer": label, "seed": seed}
    row |= {"default_v": f"{default_v:.6g}", "default_t": f"{problem.test(problem.default):.6g}"}
    contestant = make(problem.space, seed, budget)
    best, best_params, seconds = float("inf"), problem.default, 0.0
    for n in range(1, budget + 1):
        start = contestant.seconds()
        (task,) = contestant.ask(1)
        seconds += contestant.seconds() - start
        value = float(np.mean(problem.validation(task.params)))
        if value < best:
            best, best_params = value, dict(task.params)
        start = contestant.seconds()
        contestant.tell(task, value)
        seconds += contestant.seconds() - start
        if n in CHECKPOINTS:
            recommended = contestant.recommended() if isinstance(contestant, Lazy) else best_params
            row |= {f"v{n}": f"{best:.6g}", f"b{n}": f"{problem.test(best_params):.6g}"}
            row |= {f"t{n}": f"{problem.test(recommended):.6g}", f"s{n}": f"{seconds:.3f}"}
    return row


def run_all(
    path: Path, optimizers: Mapping[str, Make], chosen: Iterable[str], seeds: Sequence[int], budget: int
) -> Iterator[dict[str, object]]:
    """Run and append the runs that ``path`` does not have yet: all problems with the first seed, then with the next."""
    done = {(row["problem"], row["optimizer"], int(row["seed"])) for row in read(path)}
    for seed in seeds:
        for name in chosen:
            for label, make in optimizers.items():
                if (name, label, seed) not in done:
                    row = run_one(name, label, make, seed, budget)
                    append(path, FIELDS, row)
                    yield row


# ----------------------------------------------------------------------- tables


def scores(rows: Sequence[Mapping[str, str]], kind: str, n: int) -> dict[tuple[str, str, int], float]:
    """The regret of each run by optimizer, problem and seed: 0 is the best loss of all runs, 1 random search after 25.

    ``kind`` is v, b or t. Runs on the same way to split a data set share the unit.
    """
    places: dict[tuple[str, int], list[Mapping[str, str]]] = {}
    for row in rows:
        places.setdefault((row["problem"], int(row["seed"]) % SPLITS), []).append(row)
    found = {}
    for (problem, _), runs in places.items():
        measure = "v" if kind == "v" else "b"
        typical = [float(row[f"{measure}{UNIT}"]) for row in runs if row["optimizer"] == RANDOM and row[f"v{UNIT}"]]
        if not typical:
            continue
        kinds = ("v",) if kind == "v" else ("b", "t")
        losses = [float(row[f"{each}{m}"]) for row in runs for each in kinds for m in CHECKPOINTS if row[f"v{m}"]]
        best = min(losses, default=0.0)
        unit = max(float(np.median(typical)) - best, LEAST_UNIT * abs(best), 1e-9)
        for row in runs:
            if row[f"v{n}"]:
                loss = float(row[f"{kind}{n}"])
                found[row["optimizer"], problem, int(row["seed"])] = (loss - best) / unit
    return found


LEAST_UNIT = 0.005  # of the best loss: where random search finds it, differences are luck


def mean_of_families(regrets: Mapping[tuple[str, str, int], float], optimizer: str) -> dict[str, float]:
    """The mean regret of an optimizer on each family."""
    families: dict[str, list[float]] = {}
    for (name, problem, _), regret in regrets.items():
        if name == optimizer:
            families.setdefault(problem.partition("-")[0], []).append(regret)
    return {family: float(np.mean(values)) for family, values in families.items()}


def worse_than_default(rows: Sequence[Mapping[str, str]], optimizer: str, kind: str, n: int) -> float:
    """The share of runs that end with a higher test loss than the library's default has."""
    ended = [row for row in rows if row["optimizer"] == optimizer and row[f"v{n}"]]
    return float(np.mean([float(row[f"{kind}{n}"]) > float(row["default_t"]) for row in ended])) if ended else np.nan


def common(rows: Sequence[Mapping[str, str]], optimizers: Sequence[str], n: int) -> list[Mapping[str, str]]:
    """The rows of the runs that all of these optimizers have."""
    done = [
        {(row["problem"], row["seed"]) for row in rows if row["optimizer"] == each and row[f"v{n}"]}
        for each in optimizers
    ]
    shared = set.intersection(*done)
    return [row for row in rows if row["optimizer"] in optimizers and (row["problem"], row["seed"]) in shared]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--csv", type=Path, default=Path(__file__).parent / "results" / "live.csv")
    parser.add_argument("--optimizers", nargs="+", help="compare on the runs that all of these have")
    parser.add_argument("--until", type=int, default=50, choices=CHECKPOINTS)
    options = parser.parse_args()
    recorded = read(options.csv)
    chosen = options.optimizers or sorted({row["optimizer"] for row in recorded})
    rows = common(recorded, chosen, options.until)
    shown = [n for n in CHECKPOINTS if n <= options.until]
    print(f"{len(rows) // max(len(chosen), 1)} runs each; families weighted equally")
    print("| | validation | test: recommended | test: best value | worse than the default | CPU s |")
    print("|---|---|---|---|---|---|")
    for name in chosen:
        cells = []
        for kind in "vtb":
            means = [np.mean([*mean_of_families(scores(rows, kind, n), name).values()]) for n in shown]
            cells.append("/".join(f"{mean:.2f}" for mean in means))
        cells.append("/".join(f"{100 * worse_than_default(rows, name, 't', n):.0f} %" for n in shown))
        seconds = [float(row[f"s{options.until}"]) for row in rows if row["optimizer"] == name]
        print(f"| {name} | {' | '.join(cells)} | {np.mean(seconds):.1f} |")
    for kind, what in (("v", "validation"), ("t", "test")):
        print(f"\n| {what}, after {options.until} | {' | '.join(LEARNERS)} |\n|---|{'---|' * len(LEARNERS)}")
        for name in chosen:
            found = mean_of_families(scores(rows, kind, options.until), name)
            print(f"| {name} | {' | '.join(f'{found.get(family, np.nan):.2f}' for family in LEARNERS)} |")


if __name__ == "__main__":
    main()
