"""The ledger of comparisons, ``results/ledger.jsonl``: one line for each, with its seeds, so that none is used twice.

Seeds below FIRST_CHOICE were used before there was a ledger. Those from FIRST_FINAL on are held out: they measure what
was chosen, and never choose. A comparison that still runs keeps a block of seeds; when it ends, it gives back those
that it has not used.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.run import RESULTS

LEDGER = RESULTS / "ledger.jsonl"
FIRST_CHOICE, FIRST_FINAL = 1100, 1_000_000


@dataclass
class Entry:
    """A comparison of variant b with variant a. Its first seed is its number.

    ``problems`` are the names of the problems by family. ``at`` are the numbers of evaluations whose mean regret is
    compared, ``detect`` is the relative difference that should be found. ``result`` is that of `compare.result`.
    """

    date: str
    why: str
    a: dict[str, Any]
    b: dict[str, Any]
    suite: str
    problems: dict[str, list[str]]
    budget: int
    at: list[int]
    detect: float
    final: bool = False
    first_seed: int = 0
    last_seed: int = 0
    open: bool = True
    decision: str = "undecided"
    conclusion: str = ""
    result: dict[str, Any] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """How many rounds its seeds allow."""
        return self.last_seed - self.first_seed + 1

    def continues(self, other: "Entry") -> bool:
        """Whether this is the same comparison, with the same code; its revision may have another name."""
        keys = ("suite", "problems", "budget", "at", "detect", "final")
        parts = ("options", "optimizer", "code")
        mine, theirs = (
            [getattr(each, key) for key in keys] + [side[part] for side in (each.a, each.b) for part in parts]
            for each in (self, other)
        )
        return mine == theirs


def read(path: Path = LEDGER) -> list[Entry]:
    """All entries. A damaged line is an error: its seeds would be forgotten."""
    if not path.exists():
        return []
    entries = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        try:
            entries.append(Entry(**json.loads(line)))
        except (ValueError, TypeError) as error:
            raise SystemExit(f"line {number} of {path.name} is no entry of the ledger ({error}): repair it") from None
    return entries


def begin(entry: Entry, rounds: int, path: Path = LEDGER) -> Entry:
    """The open entry that compares the same, or this one, with a block of seeds that no other has."""
    with _locked(path):
        entries = read(path)
        for other in entries:
            if other.open and entry.continues(other):
                return other
        entry.first_seed = next_seed(entries, final=entry.final)
        entry.last_seed = entry.first_seed + rounds - 1
        if not entry.final and entry.last_seed >= FIRST_FINAL:
            raise SystemExit(f"there are no seeds below {FIRST_FINAL} left")
        _write(path, [*entries, entry])
    return entry


def update(entry: Entry, path: Path = LEDGER) -> None:
    """Replace the entry with the same first seed."""
    with _locked(path):
        _write(path, [entry if other.first_seed == entry.first_seed else other for other in read(path)])


def next_seed(entries: list[Entry], *, final: bool) -> int:
    """The lowest seed above all that were used."""
    return max([FIRST_FINAL if final else FIRST_CHOICE, *(e.last_seed + 1 for e in entries if e.final == final)])


def find(entries: list[Entry], number: int) -> Entry:
    """The entry with a number."""
    for entry in entries:
        if entry.first_seed == number:
            return entry
    raise SystemExit(f"the ledger has no comparison {number}: the number is its first seed")


def _write(path: Path, entries: list[Entry]) -> None:
    text = "".join(json.dumps(asdict(entry), ensure_ascii=False) + "\n" for entry in entries)
    new = path.with_suffix(".new")
    new.write_text(text)
    new.replace(path)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Keep other commands out; the lock is on the folder, because the file is replaced."""
    path.parent.mkdir(parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
