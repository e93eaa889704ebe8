"""Compare two variants of the optimiser, and record the answer: ``python -m benchmarks.compare A B --suite open``.

A and B are variants (`benchmarks.variants`): ``default``, ``n_startup=10``, ``src=../other/src``, ``optuna-gp``.
The command says how many runs are needed to find a difference of ``--detect``, takes seeds that no comparison has used
(`benchmarks.ledger`), and stops as soon as the answer is clear (`benchmarks.sequential`):

- better or worse: the interval of the difference excludes 0,
- equivalent: it lies between -detect and detect,
- undecided: there are enough runs to find ``--detect`` with 80 % power, or ``--rounds`` are over.

What counts is the regret, averaged over the numbers of evaluations ``--at``, relative to that of A. All families have
the same weight. A round is a seed with one problem of each family, in an order that is drawn anew whenever a family has
had its turn. Both variants run one after the other on the same problem and seed, and take turns in being first.

The same command continues a comparison that was interrupted. Its runs are in ``results/compare/``, which is not
committed; what they say is in the ledger.
"""

import argparse
import fcntl
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ledger, runner
from benchmarks.ledger import LEDGER, Entry
from benchmarks.problems import SUITES
from benchmarks.runner import CHECKPOINTS, log10
from benchmarks.sequential import Estimate, Monitor, Strata, mean_of, relative, rounds_needed, stratified
from benchmarks.variants import Server, Variant, parse
from lazybo.paper.tables import markdown

USUAL = (25, 50, 100, 200)
# Before so many rounds the variances are not known well enough.
PILOT = 4
# A run with a larger regret at its end is stuck.
STUCK = 0.3


@dataclass(frozen=True)
class Pair:
    """A problem and a seed, which both variants run; ``swapped`` if B is first."""

    family: str
    problem: str
    seed: int
    swapped: bool


def pairs_of(entry: Entry, round_: int) -> list[Pair]:
    """The pairs of a round: one problem of each family."""
    pairs = []
    for i, (family, names) in enumerate(entry.problems.items()):
        turn, place = divmod(round_, len(names))
        order = np.random.default_rng((entry.first_seed, i, turn)).permutation(len(names))
        pairs.append(Pair(family, names[order[place]], entry.first_seed + round_, (round_ + i) % 2 == 1))
    return pairs


# ---------------------------------------------------------------------------- runs


class Runs:
    """The recorded runs of a comparison: a CSV file that one command writes at a time."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self.path, self._lock = path, threading.Lock()
        self._file = path.open("a+")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SystemExit(f"another command runs comparison {path.stem}") from None
        _drop_torn_line(path)
        rows = runner.read(path)
        self.rows = {(row["optimizer"], row["problem"], int(row["seed"])): row for row in rows}

    def has(self, pair: Pair) -> bool:
        return all((label, pair.problem, pair.seed) in self.rows for label in "AB")

    def add(self, label: str, row: dict[str, Any]) -> None:
        with self._lock:
            runner.append(self.path, runner.FIELDS, {**row, "optimizer": label})
            found = {field: str(row.get(field, "")) for field in runner.FIELDS}
            self.rows[label, row["problem"], int(row["seed"])] = found

    def close(self) -> None:
        self._file.close()


def _drop_torn_line(path: Path) -> None:
    """Remove a last line that an interrupted command did not finish."""
    text = path.read_text()
    if not text.endswith("\n"):
        path.write_text(text[: text.rfind("\n") + 1])


@contextmanager
def slots(variants: Sequence[Variant], workers: int) -> Iterator["queue.Queue[list[Server]]"]:
    """For each worker the processes of A and B; the same one if they have the same source."""
    free: queue.Queue[list[Server]] = queue.Queue()
    started: list[Server] = []
    try:
        for _ in range(workers):
            servers: dict[Path, Server] = {}
            for variant in variants:
                if variant.folder not in servers:
                    servers[variant.folder] = Server(variant.folder)
                    started.append(servers[variant.folder])
            free.put([servers[variant.folder] for variant in variants])
        yield free
    finally:
        for server in started:
            server.close()


def rounds(entry: Entry, runs: Runs, variants: Sequence[Variant], workers: int, limit: float) -> Iterator[int]:
    """Run round after round, and yield how many are complete; start no pair after ``limit`` seconds."""
    end, total = time.monotonic() + limit, entry.last_seed - entry.first_seed + 1
    waiting: dict[Pair, Future[bool]] = {}
    with slots(variants, workers) as free:
        pool = ThreadPoolExecutor(workers)

        def run(pair: Pair) -> bool:
            if time.monotonic() > end:
                return False
            servers = free.get()
            try:
                for i in (1, 0) if pair.swapped else (0, 1):
                    runs.add("AB"[i], servers[i].run(variants[i], pair.problem, pair.seed, entry.budget))
            finally:
                free.put(servers)
            return True

        try:
            for n in range(total):
                for ahead in range(n, min(n + 2, total)):  # the next round keeps all workers busy
                    for pair in pairs_of(entry, ahead):
                        if pair not in waiting and not runs.has(pair):
                            waiting[pair] = pool.submit(run, pair)
                if not all(waiting[pair].result() for pair in pairs_of(entry, n) if pair in waiting):
                    return
                yield n + 1
        finally:
            pool.shutdown(cancel_futures=True)


# --------------------------------------------------------------------------- result


def strata(entry: Entry, runs: Runs, n_rounds: int, fields: Sequence[str]) -> tuple[Strata, Strata]:
    """The mean of some fields of all runs of A and of B, by family."""
    both = []
    for label in "AB":
        by_family: dict[str, list[float]] = {family: [] for family in entry.problems}
        for n in range(n_rounds):
            for pair in pairs_of(entry, n):
                row = runs.rows[label, pair.problem, pair.seed]
                by_family[pair.family].append(float(np.mean([float(row[field]) for field in fields])))
        both.append([np.array(values) for values in by_family.values()])
    return both[0], both[1]


def primary(entry: Entry, runs: Runs, n_rounds: int) -> Estimate:
    """The relative difference that decides."""
    return relative(*strata(entry, runs, n_rounds, [f"r{n}" for n in entry.at]))


def result(entry: Entry, runs: Runs, n_rounds: int, z: float) -> dict[str, Any]:
    """What the ledger keeps of the runs; all intervals have the critical value of the last look."""
    found = primary(entry, runs, n_rounds)
    a, b = strata(entry, runs, n_rounds, [f"r{n}" for n in entry.at])
    last = [np.concatenate(side) for side in strata(entry, runs, n_rounds, [f"r{points(entry.budget)[-1]}"])]
    seconds = [mean_of(side) for side in strata(entry, runs, n_rounds, [f"s{points(entry.budget)[-1]}"])]
    families = {
        family: {
            "a": _short(x.mean()),
            "b": _short(y.mean()),
            "better": int((y < x).sum()),
            "worse": int((y > x).sum()),
        }
        for family, x, y in zip(entry.problems, a, b, strict=True)
    }
    return {
        "rounds": n_rounds,
        "pairs": sum(map(len, a)),
        "effect": _interval(found, z),
        "spread": _short(found.error * n_rounds**0.5),
        "needed": rounds_needed(found.error, n_rounds, entry.detect),
        "after": {str(n): _after(*strata(entry, runs, n_rounds, [f"r{n}"]), z) for n in points(entry.budget)},
        "families": families,
        "stuck": [int((values > STUCK).sum()) for values in last],
        "seconds": [_short(value) for value in seconds],
    }


def _after(a: Strata, b: Strata, z: float) -> dict[str, Any]:
    logs = stratified([log10(y) - log10(x) for x, y in zip(a, b, strict=True)])
    means = {"a": _short(mean_of(a)), "b": _short(mean_of(b))}
    return {**means, "effect": _interval(relative(a, b), z), "log10": _interval(logs, z)}


def _interval(found: Estimate, z: float) -> list[float]:
    low, high = found.interval(z)
    return [_short(low), _short(found.value), _short(high)]


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def points(budget: int) -> list[int]:
    """The numbers of evaluations that are reported, and averaged by default."""
    usual = [n for n in USUAL if n <= budget]
    return usual or [n for n in CHECKPOINTS if n <= budget][-1:]


# --------------------------------------------------------------------------- report


def percent(effect: Sequence[float]) -> str:
    """A relative difference with its interval."""
    low, value, high = (100 * each for each in effect)
    return f"{value:+.1f} % ({low:+.1f} to {high:+.1f})"


def report(entry: Entry) -> str:
    """The tables of a comparison."""
    found, a, b = entry.result, entry.a["label"], entry.b["label"]
    if not found:
        return f"comparison {entry.first_seed} has fewer than {PILOT} rounds"
    after = [
        [
            n,
            f"{cells['a']:.4f}",
            f"{cells['b']:.4f}",
            percent(cells["effect"]),
            "{1:+.2f} ({0:+.2f} to {2:+.2f})".format(*cells["log10"]),
        ]
        for n, cells in found["after"].items()
    ]
    families = [
        [family, f"{cells['a']:.4f}", f"{cells['b']:.4f}", f"{cells['better']}, {cells['worse']}"]
        for family, cells in found["families"].items()
    ]
    last = points(entry.budget)[-1]
    lines = [
        f"Comparison {entry.first_seed}: {entry.decision}, {found['pairs']} pairs, seeds {entry.first_seed} to "
        f"{entry.last_seed}. Mean regret after {', '.join(map(str, entry.at))}: {percent(found['effect'])}; "
        f"{found['needed']} rounds find {100 * entry.detect:g} %.",
        f"Runs with a regret above {STUCK:g} after {last}: {found['stuck'][0]} with A, {found['stuck'][1]} with B; "
        f"CPU seconds of a run: {found['seconds'][0]:.3g} and {found['seconds'][1]:.3g}.",
    ]
    tables = [
        markdown(["regret after", f"A: {a}", f"B: {b}", "difference", "log10"], after),
        markdown(["family", "A", "B", "better, worse"], families),
    ]
    return "\n\n".join([*lines, *tables])


def forecast(entries: Sequence[Entry], entry: Entry) -> str:
    """How many runs are needed, as far as earlier comparisons can say."""
    alike = [e.result["spread"] for e in entries if e.result and (e.suite, e.budget) == (entry.suite, entry.budget)]
    families = len(entry.problems)
    if not alike:
        return f"after {PILOT} rounds of {families} pairs the command says how many are needed"
    low, high = (rounds_needed(float(np.quantile(alike, q)), 1, entry.detect) for q in (0.25, 0.75))
    return f"in earlier comparisons on this suite {low} to {high} rounds of {families} pairs would have been needed"


# ----------------------------------------------------------------------------- main


def compare(entry: Entry, variants: Sequence[Variant], options: argparse.Namespace) -> None:
    """Run until there is an answer, and record it after each look."""
    path, start = options.ledger, time.monotonic()
    runs = Runs(path.parent / "compare" / f"{entry.first_seed}.csv")
    monitor, done, before = Monitor(entry.detect), 0, len(runs.rows)
    total = entry.last_seed - entry.first_seed + 1
    for done in rounds(entry, runs, variants, options.workers, options.limit):
        if done < PILOT:
            continue
        found, looks = primary(entry, runs, done), len(monitor.times)
        decision = monitor.look(found, last=done == total)
        entry.open, entry.decision = decision is None, decision or "undecided"
        if len(monitor.times) > looks or decision:
            needed = min(total, rounds_needed(found.error, done, entry.detect))
            hours = (time.monotonic() - start) / max(1, len(runs.rows) - before) * 2 * len(entry.problems) / 3600
            print(
                f"{done} rounds: {percent(_interval(found, monitor.z))}, {entry.decision if decision else 'goes on'}; "
                f"about {needed} rounds needed, {max(0, needed - done) * hours:.1f} hours more",
                flush=True,
            )
            entry.result = result(entry, runs, done, monitor.z)
            ledger.update(entry, path)
        if decision:
            break
    if not entry.open:
        entry.last_seed = max(seed for _, _, seed in runs.rows)
    if done >= PILOT:
        entry.result = result(entry, runs, done, monitor.z)
    ledger.update(entry, path)
    runs.close()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a")
    parser.add_argument("b")
    parser.add_argument("--suite", default="open", choices=list(SUITES))
    parser.add_argument("--problems", nargs="+", help="instead of those of the suite")
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--at", type=int, nargs="+", help="numbers of evaluations (25, 50 and 100)")
    parser.add_argument("--detect", type=float, default=0.1, help="the relative difference to find")
    parser.add_argument("--rounds", type=int, default=100, help="no more rounds than this")
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no pair after so many seconds")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--why", default="", help="the question, in one sentence")
    parser.add_argument("--final", action="store_true", help="held-out seeds, to measure what was chosen")
    parser.add_argument("--only-report", action="store_true", help="the last comparison of these two variants")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    options = parser.parse_args()
    options.at = options.at or points(options.budget)
    wrong = [n for n in options.at if n not in CHECKPOINTS or n > options.budget]
    if wrong or not options.at:
        possible = [n for n in CHECKPOINTS if n <= options.budget]
        parser.error(f"--at must be among {possible} with this --budget, not {wrong}")
    if not 0 < options.detect < 1 or options.rounds < PILOT or options.workers < 1:
        parser.error(f"--detect must be between 0 and 1, --rounds at least {PILOT}, --workers at least 1")
    return options


def main() -> None:
    options = arguments()
    variants = [parse(text) for text in (options.a, options.b)]
    if options.only_report:
        labels = [variant.label for variant in variants]
        alike = [e for e in ledger.read(options.ledger) if [e.a["label"], e.b["label"]] == labels]
        if not alike:
            raise SystemExit(f"the ledger has no comparison of {labels[0]!r} and {labels[1]!r}")
        print(report(alike[-1]))
        return
    entry = ledger.begin(planned(options, variants), options.rounds, options.ledger)
    print(f"comparison {entry.first_seed}: {forecast(ledger.read(options.ledger), entry)}", flush=True)
    compare(entry, variants, options)
    print(f"\n{report(entry)}")


def planned(options: argparse.Namespace, variants: Sequence[Variant]) -> Entry:
    """The entry of a comparison, once it is known that both variants can run."""
    names, families = list(options.problems or SUITES[options.suite]), dict[str, list[str]]()
    with slots(variants, 1) as free:
        servers = free.get()
        for server, variant in zip(servers, variants, strict=True):
            server.check(variant)
        for name, family in servers[0].families(names).items():
            families.setdefault(family, []).append(name)
    return Entry(
        date=date.today().isoformat(),
        why=options.why,
        a=variants[0].record(),
        b=variants[1].record(),
        suite=options.suite,
        problems=families,
        budget=options.budget,
        at=options.at,
        detect=options.detect,
        final=options.final,
    )


if __name__ == "__main__":
    main()
