"""Compare two variants of the optimiser, and record the answer: ``python -m benchmarks.compare A B --suite open``.

A and B are variants (`benchmarks.variants`): ``default``, ``n_startup=10``, ``src=../other/src``, ``optuna-gp``.
The command says how many runs are needed to find a difference of ``--detect``, takes seeds that no comparison has used
(`benchmarks.ledger`), runs both variants in turns (`benchmarks.pairs`), and stops when the answer is clear
(`benchmarks.sequential`):

- better, worse: the interval of the difference excludes 0,
- equivalent: the interval lies between -detect and detect,
- undecided: neither, though there are enough runs to find ``--detect`` with 80 % power, or ``--rounds`` are over.

What decides is the mean difference of the regrets, averaged over the numbers of evaluations ``--at`` and relative to
the mean regret of A. All families have the same weight.

The same command continues a comparison that was interrupted, if the code of both variants is still the same. The runs
are in ``results/compare/``, which is not committed; what they say is in the ledger, and on the page docs/notebook.md.
"""

import argparse
import queue
import time
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import ledger, notebook
from benchmarks.ledger import LEDGER, Entry
from benchmarks.notebook import STUCK, percent
from benchmarks.pairs import LABELS, Pair, Runs, pairs_of
from benchmarks.paper.tables import markdown
from benchmarks.problems import SUITES
from benchmarks.runner import CHECKPOINTS, log10
from benchmarks.sequential import PILOT, Estimate, Monitor, Strata, mean_of, relative, rounds_needed, stratified
from benchmarks.variants import Server, Variant, parse

USUAL = (25, 50, 100, 200)

Servers = list[Server]  # of A and of B


@contextmanager
def slots(variants: Sequence[Variant], workers: int) -> Iterator["queue.Queue[Servers]"]:
    """For each worker the processes of A and B: one and the same if they have the same source."""
    free: queue.Queue[Servers] = queue.Queue()
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


def played(
    entry: Entry, runs: Runs, variants: Sequence[Variant], free: "queue.Queue[Servers]", end: float
) -> Generator[int, None, None]:
    """Run round after round, and yield how many are complete; start no pair after the time ``end``."""

    def run(pair: Pair) -> bool:
        if time.monotonic() > end:
            return False
        servers = free.get()
        try:
            for i in (1, 0) if pair.swapped else (0, 1):
                runs.add(LABELS[i], servers[i].run(variants[i], pair.problem, pair.seed, entry.budget))
        finally:
            free.put(servers)
        return True

    started: dict[Pair, Future[bool]] = {}
    pool = ThreadPoolExecutor(free.qsize())
    try:
        for number in range(entry.rounds):
            for ahead in range(number, min(number + 2, entry.rounds)):  # so that no worker waits for the others
                for pair in pairs_of(entry, ahead):
                    if pair not in started and not runs.has(pair):
                        started[pair] = pool.submit(run, pair)
            if not all(started[pair].result() for pair in pairs_of(entry, number) if pair in started):
                return
            yield number + 1
    finally:
        pool.shutdown(cancel_futures=True)


def decide(entry: Entry, runs: Runs, rounds: Generator[int, None, None], path: Path) -> None:
    """Look at the runs until there is an answer, and record each look."""
    monitor, done, recorded = Monitor(entry.detect), 0, 0
    start, before = time.monotonic(), len(runs.rows)
    for done in rounds:
        if done < monitor.next_look and done < entry.rounds:
            continue
        found = relative(*runs.strata(entry, done, [f"r{n}" for n in entry.at]))
        decision = monitor.look(found, done, last=done == entry.rounds)
        entry.open, entry.decision = decision is None, decision or "undecided"
        if decision:
            rounds.close()  # pairs that are running use a seed, too
        record(entry, runs, done, monitor.z, path)
        recorded = done
        added = (len(runs.rows) - before) / 2 / len(entry.problems)
        print(progress(entry, decision, (time.monotonic() - start) / added if added else 0.0), flush=True)
    if done > recorded >= PILOT:
        record(entry, runs, done, monitor.z, path)


def record(entry: Entry, runs: Runs, rounds: int, z: float, path: Path) -> None:
    """Write what is known after so many rounds into the ledger, and onto the page if it is that of the project."""
    entry.result = result(entry, runs, rounds, z)
    if not entry.open:
        entry.last_seed = max(seed for _, _, seed in runs.rows)
    ledger.update(entry, path)
    if path == LEDGER:
        notebook.write()


# --------------------------------------------------------------------------- result


def result(entry: Entry, runs: Runs, rounds: int, z: float) -> dict[str, Any]:
    """What the runs say; all intervals have the critical value of the last look.

    ``spread`` is the standard error of the effect after one round. ``after`` has the mean regrets after so many
    evaluations, with the relative difference and that of the logarithms.
    """
    a, b = runs.strata(entry, rounds, [f"r{n}" for n in entry.at])
    found, last = relative(a, b), points(entry.budget)[-1]
    families = {
        family: {
            "a": _short(x.mean()),
            "b": _short(y.mean()),
            "better": int((y < x).sum()),
            "worse": int((y > x).sum()),
        }
        for family, x, y in zip(entry.problems, a, b, strict=True)
    }
    ends, seconds = (runs.strata(entry, rounds, [f"{kind}{last}"]) for kind in "rs")
    return {
        "rounds": rounds,
        "pairs": sum(map(len, a)),
        "effect": _interval(found, z),
        "spread": _short(found.error * rounds**0.5),
        "needed": rounds_needed(found.error, rounds, entry.detect),
        "after": {str(n): _after(*runs.strata(entry, rounds, [f"r{n}"]), z) for n in points(entry.budget)},
        "families": families,
        "stuck": [int((np.concatenate(side) > STUCK).sum()) for side in ends],
        "seconds": [_short(mean_of(side)) for side in seconds],
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
    """The numbers of evaluations that are reported, and averaged unless ``--at`` says otherwise."""
    return [n for n in USUAL if n <= budget] or [n for n in CHECKPOINTS if n <= budget][-1:]


# --------------------------------------------------------------------------- report


def report(entry: Entry) -> str:
    """The tables of a comparison."""
    found = entry.result
    if not found:
        return f"comparison {entry.first_seed} has no {PILOT} rounds yet; the same command continues it"
    after = [
        [
            n,
            f"{at['a']:.4f}",
            f"{at['b']:.4f}",
            percent(at["effect"]),
            "{1:+.2f} ({0:+.2f} to {2:+.2f})".format(*at["log10"]),
        ]
        for n, at in found["after"].items()
    ]
    families = [
        [family, f"{each['a']:.4f}", f"{each['b']:.4f}", f"{each['better']}, {each['worse']}"]
        for family, each in found["families"].items()
    ]
    head = (
        f"Comparison {entry.first_seed}: {'not finished' if entry.open else entry.decision}. Mean regret after "
        f"{', '.join(map(str, entry.at))}: {percent(found['effect'])}, from {found['pairs']} pairs in "
        f"{found['rounds']} rounds; {found['needed']} are needed to find {100 * entry.detect:g} %. Runs with a regret "
        f"above {STUCK:g} at the end: {found['stuck'][0]} and {found['stuck'][1]}. CPU seconds of a run: "
        f"{found['seconds'][0]:.3g} and {found['seconds'][1]:.3g}."
    )
    labels = [f"A: {entry.a['label']}", f"B: {entry.b['label']}"]
    tables = [
        markdown(["regret after", *labels, "difference", "log10"], after),
        markdown(["family", *labels, "better, worse"], families),
    ]
    return "\n\n".join([head, *tables])


def progress(entry: Entry, decision: str | None, seconds: float) -> str:
    """A line for each look; ``seconds`` is the time of a round if it is known."""
    done, needed = entry.result["rounds"], entry.result["needed"]
    text = f"{done} rounds: {percent(entry.result['effect'])}, {decision or 'goes on'}; {needed} rounds are needed"
    if decision:
        return text
    if needed > entry.rounds:
        text += f", but it ends after {entry.rounds}"
    hours = max(0, min(needed, entry.rounds) - done) * seconds / 3600
    return text + (f", {hours:.1f} hours more" if seconds else "")


def forecast(entries: Sequence[Entry], entry: Entry) -> str:
    """How many runs are needed, as far as earlier comparisons can say, and which compared the same labels."""
    size, others = len(entry.problems), [e for e in entries if e.first_seed != entry.first_seed]
    alike = [e for e in others if (e.suite, e.budget) == (entry.suite, entry.budget)]
    spreads = [e.result["spread"] for e in alike if e.result]
    text = f"after {PILOT} rounds of {size} pairs the command says how many are needed"
    if spreads:
        low, high = (rounds_needed(float(np.quantile(spreads, q)), 1, entry.detect) for q in (0.25, 0.75))
        text = f"comparisons like this one needed {low} to {high} rounds of {size} pairs; {text}"
    labels = (entry.a["label"], entry.b["label"])
    same = [e for e in alike if (e.a["label"], e.b["label"]) == labels]
    earlier = "; ".join(f"{e.first_seed} of {e.date}: {e.decision}" for e in same)
    return text + (
        f"\ncompared before ({earlier}): repeating a comparison until it says yes is a choice, too" if same else ""
    )


# ----------------------------------------------------------------------------- main


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("a", help="a variant")
    parser.add_argument("b", help="the variant that may be better or worse")
    parser.add_argument("--suite", default="open", choices=list(SUITES))
    parser.add_argument("--problems", nargs="+", metavar="PROBLEM", help="instead of those of the suite")
    parser.add_argument("--budget", type=int, default=100, help="evaluations of a run")
    parser.add_argument("--at", type=int, nargs="+", help="numbers of evaluations whose regret counts")
    parser.add_argument("--detect", type=float, default=0.1, help="the relative difference to find")
    parser.add_argument("--rounds", type=int, default=200, help="no more rounds than this")
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no pair after so many seconds")
    parser.add_argument("--workers", type=int, default=1, help="pairs at the same time")
    parser.add_argument("--why", default="", help="the question, in one sentence")
    parser.add_argument("--final", action="store_true", help="take held-out seeds, to measure what was chosen")
    parser.add_argument("--only-report", action="store_true", help="print the last comparison of these variants")
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    options = parser.parse_args()
    possible = [n for n in CHECKPOINTS if n <= options.budget]
    options.at = sorted(set(options.at or points(options.budget)))
    if not options.at or not set(options.at) <= set(possible):
        raise SystemExit(f"--at must be among {possible} if --budget is {options.budget}, not {options.at}")
    if not 0 < options.detect < 1:
        raise SystemExit(f"--detect must be a share between 0 and 1, such as 0.1, not {options.detect:g}")
    if options.rounds < PILOT or options.workers < 1:
        raise SystemExit(f"--rounds must be at least {PILOT} and --workers at least 1")
    return options


def main() -> None:
    options = arguments()
    variants = [parse(text) for text in (options.a, options.b)]
    labels = [variant.label for variant in variants]
    if options.only_report:
        found = [e for e in ledger.read(options.ledger) if [e.a["label"], e.b["label"]] == labels]
        if not found:
            raise SystemExit(f"the ledger has no comparison of {labels[0]!r} with {labels[1]!r}")
        print(report(found[-1]))
        return
    end = time.monotonic() + options.limit
    with slots(variants, options.workers) as free:
        entry = ledger.begin(planned(options, variants, free.queue[0]), options.rounds, options.ledger)
        print(f"comparison {entry.first_seed}: {forecast(ledger.read(options.ledger), entry)}", flush=True)
        with Runs(options.ledger.parent / "compare" / f"{entry.first_seed}.csv") as runs:
            try:
                decide(entry, runs, played(entry, runs, variants, free, end), options.ledger)
            except KeyboardInterrupt:
                raise SystemExit(f"interrupted: the same command continues comparison {entry.first_seed}") from None
    print(f"\n{report(entry)}")


def planned(options: argparse.Namespace, variants: Sequence[Variant], servers: Servers) -> Entry:
    """The entry of a comparison, once it is known that both variants can run."""
    for server, variant in zip(servers, variants, strict=True):
        server.check(variant)
    problems: dict[str, list[str]] = {}
    for name, family in servers[0].families(options.problems or SUITES[options.suite]).items():
        problems.setdefault(family, []).append(name)
    return Entry(
        date=date.today().isoformat(),
        why=options.why,
        a=variants[0].record(),
        b=variants[1].record(),
        suite="chosen problems" if options.problems else options.suite,
        problems=problems,
        budget=options.budget,
        at=options.at,
        detect=options.detect,
        final=options.final,
    )


if __name__ == "__main__":
    main()
