"""The paper's six figures as PNG and SVG, drawn from recorded numbers.

Each figure first collects its numbers, here or in the module of its experiment, then draws them.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from numpy.typing import NDArray

from benchmarks.paper import levy
from benchmarks.paper.common import LABELS, NOISE, improvement, read_rows, unit_kernel
from lazybo import LazyGP
from lazybo.core import Array, codec
from lazybo.demo import levy as demo_levy
from lazybo.gp import Targets

COLOURS = {"naive": "#d95f02", "lazy": "#1f78b4", "ours": "#33a02c", "lag3": "#7570b3", "algorithm2": "#666666"}
STYLE: Any = {"font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "svg.hashsalt": "lazybo", "svg.fonttype": "none"}
# Times are smoothed over this many iterations: a shared machine stalls now and then.
WINDOW = 15
# Figures 2 to 4: the seed points, their seed, and the sizes of the grids.
SEED_POINTS = 12
SEED = 4
GRID = 401
SURFACE = 121


def draw_all(folder: Path, say: Callable[[str], None]) -> list[Path]:
    """Draw all figures whose numbers are in the folder, and return the written files."""
    written = []
    for name, draw in FIGURES.items():
        with rc_context(STYLE):
            figure = draw(folder)
        if figure is None:
            say(f"{name}: nothing recorded yet")
            continue
        for kind in ("png", "svg"):
            picture, path = io.BytesIO(), folder / f"{name}.{kind}"
            figure.savefig(picture, format=kind, dpi=110, metadata={"Date": None} if kind == "svg" else None)
            codec.write_whole(path, picture.getvalue())
            written.append(path)
    return written


def smooth(values: Array, window: int = WINDOW) -> Array:
    """Running medians, (n,)."""
    half = window // 2
    return np.array([np.median(values[max(i - half, 0) : i + half + 1]) for i in range(len(values))])


# ------------------------------------------------------------------------ figure 1


def step_seconds(folder: Path, method: str) -> Array:
    """Seconds of the optimiser at each iteration of Levy from one seed point, the median over seeds, (n,)."""
    recorded = levy.recorded(folder / "levy.csv").items()
    histories = [history for run, history in recorded if (run.method, run.seed_points) == (method, 1)]
    steps = [np.diff(history.seconds, prepend=0.0) for history in histories]
    shortest = min((len(step) for step in steps), default=0)
    return np.median([step[:shortest] for step in steps], axis=0) if steps else np.zeros(0)


def overhead(folder: Path) -> Figure | None:
    """Figure 1: the optimiser's overhead when LeNet5 is trained, and over 1000 steps on 5-D Levy."""
    rows = read_rows(folder / "lenet.csv")
    if not rows:
        return None
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for method in ("naive", "lazy", "ours"):
        own = [row for row in rows if row["method"] == method and row["overhead_seconds"]]
        x = [int(row["iteration"]) for row in own]
        y = np.array([float(row["overhead_seconds"]) for row in own])
        if len(y):
            left.plot(x, 1e3 * smooth(y), color=COLOURS[method], label=LABELS[method])
        steps = step_seconds(folder, method)
        if len(steps):
            right.plot(
                np.arange(1, len(steps) + 1), 1e3 * smooth(steps, 41), color=COLOURS[method], label=LABELS[method]
            )
    training = np.median([float(row["train_seconds"]) for row in rows if row["train_seconds"]])
    left.set(title="LeNet5 on MNIST, suggestion and storage", xlabel="iteration", ylabel="overhead (ms)")
    left.text(0.02, 0.97, f"a training: {training:.1f} s (median)", transform=left.transAxes, va="top")
    timed = read_rows(folder / "factorisation.csv")
    if timed:
        n = np.array([int(row["n"]) for row in timed])
        loops = np.array([float(row["algorithm2_seconds"]) for row in timed])
        right.plot(n, 1e3 * loops, "--", color=COLOURS["algorithm2"], label="algorithm 2 as printed (factor alone)")
    right.set(title="The same on 5-D Levy, the optimiser alone", xlabel="iteration", ylabel="step (ms)", yscale="log")
    for axes in (left, right):
        axes.legend(loc="lower right", fontsize=8)
    left.set_ylim(0, 1.15 * left.get_ylim()[1])
    return figure


# -------------------------------------------------------------------- figures 2 to 4


@dataclass(frozen=True)
class Illustration:
    """A process given 12 points of the negative 1-D Levy function, on a grid, (m,); values in units of the function."""

    x: Array
    truth: Array
    points: Array
    values: Array
    mean: Array
    std: Array
    draws: Array  # (3, m)
    improvement: Array
    maxima: NDArray[np.intp]  # where expected improvement has its local maxima, best first


def illustration() -> Illustration:
    """The paper's kernel on 12 random points, with values scaled so that a variance of 1 is visible."""
    rng = np.random.default_rng(SEED)
    points = np.sort(rng.random(SEED_POINTS))
    values = negative_levy(points)
    gp = LazyGP(unit_kernel(levy.space(1)), NOISE, transform=Targets.standardized)
    gp.append(points[:, None], values)
    grid = np.linspace(0.0, 1.0, GRID)
    mean, variance = gp.posterior(grid[:, None])
    std = np.sqrt(variance)
    draws = gp.sample(grid[:, None], 3, rng)
    # The acquisition functions minimise.
    expected, *_ = improvement(-mean, std, -float(values.max()))
    return Illustration(
        *(raw(grid), negative_levy(grid), raw(points), values, mean, std, draws, expected),
        local_maxima(expected),
    )


def raw(u: Array) -> Array:
    """Map points of the unit interval to [-10, 10]."""
    return (2.0 * u - 1.0) * levy.BOUND


def negative_levy(u: Array) -> Array:
    """The negative 1-D Levy function at points of the unit interval (paper, equation 7)."""
    w = 1.0 + (raw(u) - 1.0) / 4.0
    return -(np.sin(np.pi * w) ** 2 + (w - 1.0) ** 2 * (1.0 + np.sin(2.0 * np.pi * w) ** 2))


def local_maxima(values: Array, least: float = 1e-3) -> NDArray[np.intp]:
    """Indices of the local maxima on a grid, best first; those below ``least`` times the best are left out."""
    padded = np.concatenate(([-np.inf], values, [-np.inf]))
    top = (padded[1:-1] > padded[:-2]) & (padded[1:-1] >= padded[2:]) & (values >= least * values.max())
    rows = np.flatnonzero(top)
    return rows[np.argsort(-values[rows], kind="stable")]


def levy_surface() -> tuple[Array, Array]:
    """The axis, (m,), and the negative 2-D Levy function over it, (m, m)."""
    axis = np.linspace(-levy.BOUND, levy.BOUND, SURFACE)
    return axis, np.array([[-demo_levy(np.array((x, y))) for x in axis] for y in axis])


def _draw_process(axes: Axes, p: Illustration, *, draws: bool) -> None:
    axes.fill_between(p.x, p.mean - 2 * p.std, p.mean + 2 * p.std, alpha=0.18, color="#1f78b4", label="mean ± 2 std")
    axes.plot(p.x, p.truth, color="black", lw=0.8, label="−Levy")
    axes.plot(p.x, p.mean, "--", color="#1f78b4", label="posterior mean")
    if draws:
        for values, colour in zip(p.draws, ("#08306b", "#ff7f00", "#33a02c"), strict=True):
            axes.plot(p.x, values, color=colour, lw=1.0, alpha=0.9)
    axes.plot(p.points, p.values, "o", color="black", ms=4, label="seed points")
    axes.set(xlim=(p.x[0], p.x[-1]), ylabel="value")


def posterior(_folder: Path) -> Figure:
    """Figure 2: the process on 12 seed points, with three functions drawn from it."""
    figure = Figure(figsize=(7, 3.4), layout="constrained")
    axes = figure.subplots()
    _draw_process(axes, illustration(), draws=True)
    axes.set(title="1-D Levy, 12 random seed points; three functions drawn from the posterior", xlabel="x")
    axes.legend(fontsize=8, loc="lower center", ncols=2)
    return figure


def suggestions(_folder: Path) -> Figure:
    """Figure 3: the process, expected improvement with its maximum, and with all its local maxima."""
    p = illustration()
    figure = Figure(figsize=(7, 6), layout="constrained")
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=(2, 1, 1))
    _draw_process(top, p, draws=False)
    top.legend(fontsize=8, loc="lower center", ncols=2)
    top.set(title="1-D Levy, 12 random seed points")
    scaled = p.improvement / p.improvement.max()
    for axes, chosen, what in ((middle, p.maxima[:1], "its maximum"), (bottom, p.maxima, "all its local maxima")):
        axes.plot(p.x, scaled, color="#6a3d9a")
        axes.plot(p.x[chosen], scaled[chosen], "v", color="#e31a1c", ms=7, clip_on=False)
        axes.set(ylabel="EI, scaled", ylim=(-0.05, 1.2))
        axes.set_title(f"expected improvement, and {what}", fontsize=9)
    bottom.set(xlabel="x")
    return figure


def surface(_folder: Path) -> Figure:
    """Figure 4: the negative Levy function in two dimensions."""
    axis, values = levy_surface()
    figure = Figure(figsize=(5.6, 4.6), layout="constrained")
    axes: Any = figure.add_subplot(projection="3d")
    x, y = np.meshgrid(axis, axis)
    # Thousands of polygons: rasterised in the SVG too.
    axes.plot_surface(x, y, values, cmap="viridis", rcount=70, ccount=70, linewidth=0, rasterized=True)
    axes.set(xlabel="x₁", ylabel="x₂", title="−Levy in 2-D, maximum 0 at (1, 1)")
    axes.set_xticks(range(-10, 11, 5))
    axes.set_yticks(range(-10, 11, 5))
    axes.view_init(elev=38, azim=-55)
    return figure


# -------------------------------------------------------------------- figures 5 and 6


def factorisations(folder: Path) -> Figure | None:
    """Figure 5: the time of one factorisation over the iterations."""
    rows = read_rows(folder / "factorisation.csv")
    if not rows:
        return None
    n = np.array([int(row["n"]) for row in rows])
    series = {name: np.array([float(row[name]) for row in rows]) for name in levy.FACTOR_FIELDS[1:4]}
    figure = Figure(figsize=(7, 3.8), layout="constrained")
    axes = figure.subplots()
    measured = np.array([row["algorithm2_measured"] == "1" for row in rows]) & (n % 10 == 0)
    loops = series["algorithm2_seconds"]
    axes.plot(n, loops, "--", color=COLOURS["algorithm2"], label="algorithm 2, by operation count")
    axes.plot(n[measured], loops[measured], "o", color=COLOURS["algorithm2"], ms=4, label="algorithm 2, measured")
    axes.plot(n, smooth(series["lapack_seconds"]), color=COLOURS["naive"], label="LAPACK from scratch")
    axes.plot(n, smooth(series["extended_seconds"]), color=COLOURS["lazy"], label="extended (algorithm 3)")
    axes.set(yscale="log", xlabel="observations", ylabel="seconds", title="One factorisation")
    axes.legend(fontsize=8)
    return figure


def lags(folder: Path) -> Figure | None:
    """Figure 6: iterations and time to a fixed accuracy by lag; runs that never reached it count as infinite."""
    path = folder / "lag.csv"
    rows = levy.latest_lags(path)
    if not rows:
        return None
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    left, right = figure.subplots(1, 2)
    names = list(dict.fromkeys(row["lag"] for row in rows))
    budget = max(int(row["budget"]) for row in rows)
    for kernel, colour, shift in (("paper", COLOURS["lazy"], -0.12), ("ours", COLOURS["ours"], 0.12)):
        for row in levy.lag_summary(path, kernel):
            x = names.index(str(row["lag"])) + shift
            text = f"{row['reached']}/{row['runs']}"
            _bar(left, x, row["iterations"], colour, budget)
            _bar(right, x, row["seconds_a_step"], colour, np.inf)
            left.annotate(
                text, (x, budget * (1.04 if kernel == "paper" else 1.1)), ha="center", fontsize=7, color=colour
            )
        label = "the paper's settings" if kernel == "paper" else "our kernel"
        left.plot([], [], "o", color=colour, label=label)
        right.plot([], [], "o", color=colour, label=label)
    accuracy = rows[0]["accuracy"]
    left.set(title=f"Iterations to {accuracy} from 200 seed points", ylabel="iterations")
    left.set_ylim(0, budget * 1.45)
    left.axhline(budget, color="black", lw=0.8, ls=":")
    right.set(title="The optimiser's time", ylabel="ms a step", yscale="log")
    right.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{1e3 * value:g}"))
    right.yaxis.set_minor_formatter(NullFormatter())
    for axes in (left, right):
        axes.set_xticks(range(len(names)), names)
        axes.set_xlabel("lag" if axes is right else "lag (above the dotted line: how many runs got there)")
        axes.legend(fontsize=8, loc="upper left" if axes is left else "upper right")
    return figure


def _bar(axes: Axes, x: float, quartiles: Any, colour: str, top: float) -> None:
    """A median with its quartiles; an open triangle at the top where the median is infinite."""
    low, middle, high = (min(value, top) for value in quartiles)
    axes.plot([x, x], [low, high], color=colour, lw=1.2)
    lost = not np.isfinite(quartiles[1])
    axes.plot(x, middle, "^" if lost else "o", color=colour, ms=5, mfc="white" if lost else colour)


FIGURES: dict[str, Callable[[Path], Figure | None]] = {
    "figure1-overhead": overhead,
    "figure2-posterior": posterior,
    "figure3-suggestions": suggestions,
    "figure4-levy": surface,
    "figure5-factorisation": factorisations,
    "figure6-lag": lags,
}
