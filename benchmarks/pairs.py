"""The pairs of runs of a comparison: which they are, and what was recorded of them.

A round is a seed with one problem of each family, so that the families stay balanced whenever the runs end. A family's
problems come in an order that is drawn anew whenever all have had their turn. Both variants run each problem one after
the other, and take turns in being first.
"""

import fcntl
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from benchmarks import runner
from benchmarks.ledger import Entry
from benchmarks.sequential import Strata

LABELS = "AB"


@dataclass(frozen=True)
class Pair:
    """A problem and a seed, which both variants run; ``swapped`` if B is first."""

    family: str
    problem: str
    seed: int
    swapped: bool


def pairs_of(entry: Entry, number: int) -> list[Pair]:
    """The pairs of a round, one for each family."""
    pairs = []
    for i, (family, names) in enumerate(entry.problems.items()):
        turn, place = divmod(number, len(names))
        order = np.random.default_rng((entry.first_seed, i, turn)).permutation(len(names))
        pairs.append(Pair(family, names[order[place]], entry.first_seed + number, (number + i) % 2 == 1))
    return pairs


class Runs:
    """The recorded runs of a comparison: a CSV file that one command has open at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._adding = path, threading.Lock()
        self._file = path.open("a")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise SystemExit(f"another command is running comparison {path.stem}") from None
        _drop_torn_line(path)
        self.rows = {(row["optimizer"], row["problem"], int(row["seed"])): row for row in runner.read(path)}

    def has(self, pair: Pair) -> bool:
        """Whether both variants have run it."""
        return all((label, pair.problem, pair.seed) in self.rows for label in LABELS)

    def add(self, label: str, row: dict[str, Any]) -> None:
        """Record a run."""
        found = {field: str(row.get(field, "")) for field in runner.FIELDS} | {"optimizer": label}
        with self._adding:
            runner.append(self._path, runner.FIELDS, found)
            self.rows[label, found["problem"], int(found["seed"])] = found

    def strata(self, entry: Entry, rounds: int, fields: Iterable[str]) -> tuple[Strata, Strata]:
        """The mean of some fields in each run of A and of B, by family, over so many rounds."""
        pairs = [pair for number in range(rounds) for pair in pairs_of(entry, number)]
        a, b = ([self._means(label, family, pairs, list(fields)) for family in entry.problems] for label in LABELS)
        return a, b

    def _means(self, label: str, family: str, pairs: Sequence[Pair], fields: Sequence[str]) -> np.ndarray:
        rows = [self.rows[label, pair.problem, pair.seed] for pair in pairs if pair.family == family]
        return np.array([[float(row[field]) for field in fields] for row in rows]).mean(axis=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._file.close()


def _drop_torn_line(path: Path) -> None:
    """Remove a last line that an interrupted command did not finish."""
    text = path.read_text()
    if not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1])
