"""The picture of the README: ``python -m benchmarks.figures``, from what ``python -m benchmarks.overhead`` printed."""

import csv
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

NUMBERS = Path(__file__).parent / "results" / "overhead.csv"
PICTURE = Path(__file__).parents[1] / "docs" / "time-per-step.svg"
PEERS = {
    "gp_sampler_ms": ("Optuna GPSampler", "#b2182b", "s"),
    "tpe_ms": ("Optuna TPE", "#888888", "^"),
    "lazybo_ms": ("lazybo", "#2166ac", "o"),
}


def series(parameters: int = 5) -> dict[str, list[tuple[int, float]]]:
    """Milliseconds a step by the number of observations, for each contestant."""
    with NUMBERS.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if int(row["parameters"]) == parameters]
    return {key: [(int(row["n"]), float(row[key])) for row in rows if row[key]] for key in PEERS}


def draw() -> Figure:
    figure = Figure(figsize=(7.2, 3.6), layout="constrained")
    axes = figure.subplots()
    for key, points in series().items():
        name, colour, marker = PEERS[key]
        n, milliseconds = zip(*points, strict=True)
        axes.plot(n, milliseconds, marker=marker, color=colour, linewidth=2, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("observations")
    axes.set_ylabel("one step: suggest and learn")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda ms, _: f"{ms / 1000:g} s" if ms >= 1000 else f"{ms:g} ms"))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)
    axes.set_title("Time per step, Levy's function in 5-D, one thread", fontsize=11)
    return figure


def main() -> None:
    # The same picture every time: no date, no random names; text stays text.
    with rc_context({"svg.hashsalt": "lazybo", "svg.fonttype": "none"}):
        draw().savefig(PICTURE, metadata={"Date": None})
    print(PICTURE)


if __name__ == "__main__":
    main()
