"""``python -m benchmarks.paper EXPERIMENT``: the paper's experiments, tables and figures, in full size or scaled down.

Numbers are written to CSV files in ``--out``. Recorded runs are not run again: the same command resumes a killed
experiment.
"""

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from benchmarks.paper import architectures, levy, tables, tuning, workers
from benchmarks.paper.common import LABELS
from benchmarks.paper.tuning import Images, load_cifar10, load_mnist
from lazybo.core import codec

F = TypeVar("F", bound=Callable[..., None])

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Repeat the experiments of the paper.",
)

Out = Annotated[Path, typer.Option(help="The folder of the recorded numbers and the figures.")]
Seeds = Annotated[int, typer.Option(min=1, help="How many runs of each method.")]
Methods = Annotated[str, typer.Option(help=f"Which methods, separated by commas: {', '.join(LABELS)}.")]
Data = Annotated[Path | None, typer.Option(help="A folder of the data set's own files, or an .npz.")]
ImageCount = Annotated[int | None, typer.Option("--images", help="How many images; all if not given.")]
Epochs = Annotated[int, typer.Option(min=1, help="Epochs of a training.")]
Batch = Annotated[int, typer.Option(min=2, help="Images in a batch.")]
Folds = Annotated[int, typer.Option(min=1, help="Folds of the cross-validation; 1 is one split.")]
Iterations = Annotated[int, typer.Option(min=1, help="Evaluations of each method.")]

OUT = Path("paper-results")
LEVY_METHODS = ",".join(levy.METHODS)
ARCHITECTURES = ",".join(architectures.NAMES)


def main() -> None:
    """Run the command as ``python -m benchmarks.paper``."""
    app(prog_name="python -m benchmarks.paper")


def experiment(name: str) -> Callable[[F], F]:
    """Register a command. A ValueError prints one line and exits with code 2."""

    def register(function: F) -> F:
        @wraps(function)
        def run(*args: Any, **options: Any) -> None:
            try:
                function(*args, **options)
            except ValueError as error:
                typer.echo(f"python -m benchmarks.paper {name}: {error}", err=True)
                raise typer.Exit(2) from None

        app.command(name)(run)
        return function

    return register


def _say(text: str) -> None:
    typer.echo(text, err=True)


def _some(option: str, text: str, allowed: tuple[str, ...]) -> list[str]:
    chosen = [name.strip() for name in text.split(",") if name.strip()]
    wrong = [name for name in chosen if name not in allowed]
    if wrong or not chosen:
        raise ValueError(f"{option} must be some of {', '.join(allowed)}, not {', '.join(wrong) or 'none'}")
    return chosen


@experiment("levy")
def levy_command(
    out: Out = OUT,
    seeds: Seeds = 5,
    iterations: Iterations = 1000,
    dim: Annotated[int, typer.Option(min=1, help="Dimensions of the function.")] = 5,
    seed_points: Annotated[str, typer.Option(help="Numbers of random seed points, separated by commas.")] = "1,100",
    methods: Methods = LEVY_METHODS,
) -> None:
    """Table 1 and figure 5: the negative Levy function from 1 and from 100 seed points."""
    points = _whole_numbers("--seed-points", seed_points)
    chosen = _some("--methods", methods, tuple(LABELS))
    levy.run_all(out / "levy.csv", levy.plan(chosen, points, seeds, iterations, dim), _say)
    levy.record_factors(out / "factorisation.csv", iterations)
    _show(out, "levy", "factorisation")


@experiment("lag")
def lag_command(
    out: Out = OUT,
    seeds: Seeds = 5,
    iterations: Iterations = 300,
    accuracy: Annotated[float, typer.Option(help="The value at which a run ends.")] = levy.LAG_ACCURACY,
    seed_points: Annotated[int, typer.Option(min=1, help="Random seed points.")] = levy.LAG_SEED_POINTS,
    dim: Annotated[int, typer.Option(min=1, help="Dimensions of the function.")] = 5,
) -> None:
    """Figure 6: time and iterations to a fixed accuracy over the lag, from 200 seed points."""
    path = out / "lag.csv"
    sizes: dict[str, Any] = {"dim": dim, "accuracy": accuracy, "seed_points": seed_points}
    levy.run_lags(path, seeds=seeds, iterations=iterations, kernels=("ours", "paper"), say=_say, **sizes)
    _show(out, "lag")


@experiment("lenet")
def lenet_command(
    out: Out = OUT,
    data: Data = None,
    images: ImageCount = None,
    epochs: Epochs = 10,
    batch: Batch = 128,
    folds: Folds = 1,
    iterations: Iterations = 1000,
    methods: Methods = "lazy,naive,ours",
    seed: Annotated[int, typer.Option(min=0, help="The seed.")] = 0,
) -> None:
    """Table 2 and figure 1: LeNet5 on MNIST, five hyperparameters."""
    chosen, scale = _some("--methods", methods, tuple(LABELS)), tuning.Scale(epochs, batch, folds)
    _tune("lenet", load_mnist(data), images, scale, chosen, out, iterations=iterations, seed=seed)


@experiment("resnet")
def resnet_command(
    out: Out = OUT,
    data: Data = None,
    images: ImageCount = None,
    epochs: Epochs = 10,
    batch: Batch = 128,
    folds: Folds = 1,
    iterations: Iterations = 300,
    methods: Methods = "lazy,naive,ours",
    parallel: Annotated[int, typer.Option(min=1, help="Evaluations at once.")] = 1,
    executor: Annotated[str | None, typer.Option(help="threads, processes, dask://host:port, ray or mpi.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="The seed.")] = 0,
) -> None:
    """Tables 3 and 4: ResNet32 on CIFAR-10, three hyperparameters, sequential or with parallel workers."""
    chosen, scale = _some("--methods", methods, tuple(LABELS)), tuning.Scale(epochs, batch, folds)
    options: dict[str, Any] = {"iterations": iterations, "seed": seed, "n_parallel": parallel, "executor": executor}
    _tune("resnet", load_cifar10(data), images, scale, chosen, out, **options)


@experiment("workers")
def workers_command(
    out: Out = OUT,
    seeds: Seeds = 20,
    parallel: Annotated[str, typer.Option(help="Numbers of workers, separated by commas.")] = "1,20",
) -> None:
    """Table 4 on a virtual clock: 20 workers on NAS-Bench-201's CIFAR-10 trainings with their real times."""
    path, counts = out / "workers.csv", _whole_numbers("--parallel", parallel)
    workers.run_all(path, counts, seeds, _say, table=workers.load_table(), targets=workers.TARGETS)
    _show(out, "workers")


@experiment("architectures")
def architectures_command(
    out: Out = OUT,
    seeds: Seeds = 20,
    data: Annotated[str, typer.Option(help=f"Data sets: {', '.join(architectures.NAMES)}.")] = ARCHITECTURES,
    parallel: Annotated[str, typer.Option(help="Numbers of workers, separated by commas.")] = "1,20",
    methods: Annotated[str, typer.Option(help=f"Which spaces: {', '.join(architectures.METHODS)}.")] = "graph",
    evaluations: Annotated[int, typer.Option(min=1, help="Evaluations of a run.")] = 10_000,
    whole: Annotated[bool, typer.Option("--whole", help="Continue after the best network is found.")] = False,
) -> None:
    """The paper's outlook: architecture search on NAS-Bench-201 and NAS-Bench-Graph, with one and 20 workers."""
    counts, sets = _whole_numbers("--parallel", parallel), _some("--data", data, architectures.NAMES)
    chosen = _some("--methods", methods, architectures.METHODS)
    runs = [
        architectures.Run(name, method, workers, seed, evaluations, whole)
        for seed in range(seeds)
        for name in sets
        for workers in counts
        for method in chosen
    ]
    architectures.run_all(out / "architectures.csv", runs, _say)
    _show(out, "architectures")


@experiment("figures")
def figures_command(out: Out = OUT) -> None:
    """Draw all six figures as PNG and SVG from the recorded numbers."""
    try:
        from benchmarks.paper import figures
    except ImportError as error:
        raise ValueError(f"figures need matplotlib ({error}): pip install matplotlib") from None
    out.mkdir(parents=True, exist_ok=True)
    for path in figures.draw_all(out, _say):
        typer.echo(path)


@experiment("tables")
def tables_command(
    out: Out = OUT,
    into: Annotated[Path | None, typer.Option(help="A Markdown file to write them into, between their marks.")] = None,
) -> None:
    """Print all tables of the recorded numbers; nothing is run."""
    found = tables.recorded(out)
    if not found:
        raise ValueError(f"nothing is recorded in {out}; run an experiment with --out {out} first")
    if into is None:
        _show(out, *found)
        return
    if not into.is_file():
        raise ValueError(f"--into must be an existing file, but {into} is not one")
    codec.write_whole(into, tables.insert(into.read_text(), found))


def _show(out: Path, *names: str) -> None:
    found = tables.recorded(out)
    typer.echo("\n\n".join(found[name] for name in names))


def _tune(
    network: str, images: Images, count: int | None, scale: tuning.Scale, methods: list[str], out: Path, **options: Any
) -> None:
    """Run one study for each method, and export all of them even if one is interrupted."""
    tuning.import_networks()
    training, storage = tuning.Training(network, images.some(count), scale), out / f"{network}.db"
    try:
        for method in methods:
            tuning.tune(training, method, storage=storage, **options)
    finally:
        if storage.exists():
            tuning.export(storage, training, out / f"{network}.csv")
    _show(out, network)


def _whole_numbers(option: str, text: str) -> list[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdigit() and int(part) > 0 for part in parts):
        raise ValueError(f"{option} must be positive whole numbers, separated by commas, not {text!r}")
    return [int(part) for part in parts]
