"""Write the comparisons of the ledger into the lab notebook: ``python -m benchmarks.notebook``.

``--conclude NUMBER SENTENCE`` adds what followed from a comparison, and closes it if it was not finished.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from benchmarks import ledger
from benchmarks.ledger import LEDGER, Entry
from benchmarks.paper.tables import insert, markdown

PAGE = Path(__file__).parents[1] / "docs" / "notebook.md"
# A run with a larger regret at its end is stuck.
STUCK = 0.3
HEAD = ("comparison", "question and conclusion", "A", "B", "runs", "difference after", "stuck", "decision")


def percent(effect: Sequence[float]) -> str:
    """A relative difference with its interval."""
    low, value, high = (100 * each for each in effect)
    return f"{value:+.1f} % ({low:+.1f} to {high:+.1f})"


def table(entries: Sequence[Entry]) -> str:
    """All comparisons that have a result, the last one first."""
    rows = [_row(entry) for entry in reversed(entries) if entry.result]
    return markdown(HEAD, rows) if rows else "No comparison is recorded yet."


def _row(entry: Entry) -> list[str]:
    found = entry.result
    after = "<br>".join(f"{n}: {percent(cells['effect'])}" for n, cells in found["after"].items())
    families, held_out = len(entry.problems), ", held out" if entry.final else ""
    runs = (
        f"{entry.suite}, {families} families, {entry.budget} evaluations: {found['pairs']} pairs, seeds "
        f"{entry.first_seed} to {entry.first_seed + found['rounds'] - 1}{held_out}"
    )
    state = "not finished" if entry.open else entry.decision
    cells = [
        f"{entry.first_seed}, {entry.date}",
        " ".join(filter(None, (entry.why, entry.conclusion and f"*{entry.conclusion}*"))),
        _variant(entry.a),
        _variant(entry.b),
        runs,
        after,
        f"{found['stuck'][0]} → {found['stuck'][1]}",
        f"**{state}**: {percent(found['effect'])}",
    ]
    return [" ".join(cell.replace("|", "\\|").split()) for cell in cells]


def _variant(record: dict[str, str]) -> str:
    """A variant with its revision."""
    label, source = record["label"], record["source"]
    return label if not source or source in label else f"{label} ({source})"


def write(path: Path = LEDGER, page: Path = PAGE) -> None:
    """Put the table of a ledger onto a page."""
    page.write_text(insert(page.read_text(), {"ledger": table(ledger.read(path))}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--conclude", nargs=2, metavar=("NUMBER", "SENTENCE"))
    parser.add_argument("--ledger", type=Path, default=LEDGER)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    if options.conclude:
        number, sentence = options.conclude
        if not number.isdigit():
            raise SystemExit(f"the number of a comparison is its first seed, such as 1000, not {number!r}")
        entry = ledger.find(ledger.read(options.ledger), int(number))
        entry.conclusion, entry.open = sentence, False
        ledger.update(entry, options.ledger)
    write(options.ledger, options.page)
    print(options.page)


if __name__ == "__main__":
    main()
