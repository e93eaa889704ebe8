"""The commands for studies that exist: show, best, resume, export, plot, report, dashboard."""

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from optuna.study import Study

from lazybo.cli import console, summary
from lazybo.cli.export import FORMATS, format_of, rows_of
from lazybo.cli.figures import numbers
from lazybo.cli.flags import JsonFlag
from lazybo.cli.storages import StorageArgument, StorageFlag, StudyArgument, StudyFlag, find, named_place
from lazybo.core.codec import write_whole
from lazybo.core.text import file_name
from lazybo.report.html import write_report
from lazybo.report.recommendation import Advice, advise
from lazybo.study.paused import paused_trials
from lazybo.study.paused import resume as resume_trials

commands = typer.Typer()


class Kind(StrEnum):
    """What `lazybo plot` can draw."""

    HISTORY = "history"
    TIME = "time"
    IMPORTANCES = "importances"
    SLICES = "slices"
    PARALLEL = "parallel"
    FRONT = "front"
    CURVES = "curves"
    ALL = "all"


@commands.command(
    epilog="""[bold]Examples[/bold]

lazybo show lenet.db

lazybo show lenet.db lenet --json"""
)
def show(
    storage: StorageArgument = None,
    study: StudyArgument = None,
    place: StorageFlag = None,
    name: StudyFlag = None,
    as_json: JsonFlag = False,
) -> None:
    """List the studies in a storage, or show one: progress, best, importances, failures, running trials."""
    with console.exit_on_bad_input():
        found = find(*named_place((storage, study), place, name))
        if found.study_name is None and len(found.storage.get_all_studies()) != 1:
            records = summary.overviews(found.storage)
            console.print_json(records) if as_json else summary.print_overview(records)
            return
        record = summary.details(found.study())
    console.print_json(record) if as_json else summary.print_details(record)


@commands.command(
    epilog="""[bold]Examples[/bold]

lazybo best lenet.db

sh -c "$(lazybo best lenet.db --command)"

sh -c "$(lazybo best lenet.db --command --recommended)"

lazybo best lenet.db --json | jq .params.lr"""
)
def best(
    storage: StorageArgument = None,
    study: StudyArgument = None,
    place: StorageFlag = None,
    name: StudyFlag = None,
    command: Annotated[bool, typer.Option("--command", help="Print the command line, ready to run.")] = False,
    recommended: Annotated[
        bool,
        typer.Option(
            "--recommended",
            help="Print the trial that the model expects most of instead: under noise the best value may be luck.",
        ),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print the best trial, or the front of several objectives, as text, as JSON, or as a command line."""
    with console.exit_on_bad_input():
        found = find(*named_place((storage, study), place, name)).study()
        record = summary.best_record(found)
        if len(found.directions) > 1:
            _print_front(found, command=command, recommended=recommended, as_json=as_json)
            return
        if record is None:
            console.fail(summary.nothing_best(summary.overview(found)), console.FAILED)
        if recommended:
            chosen = advise(found)
            advice: Advice | None = chosen
            record = summary.recommended_trial(found, chosen)
        else:
            advice = None if command and not as_json else summary.advice_of(found)
        if command and record["command"] is None:
            raise ValueError(f"the study {found.study_name!r} was not made by lazybo tune with a command")
    if as_json:
        console.print_json({**record, "recommended": summary.recommended_record(advice)})
    elif command:
        console.plain(shlex.join(record["command"]))
    elif recommended and advice is not None:
        summary.print_recommended(found, advice)
    else:
        summary.print_best(record)
        summary.print_advice(found, advice)


def _print_front(study: Study, *, command: bool, recommended: bool, as_json: bool) -> None:
    """Print the best trials of a study with several objectives."""
    if command or recommended:
        flag = "--command" if command else "--recommended"
        raise ValueError(f"{flag} needs one best trial, but the study {study.study_name!r} has several objectives")
    record, front = summary.overview(study), summary.front_records(study)
    if not front:
        console.fail(summary.nothing_best(record), console.FAILED)
    if as_json:
        console.print_json(front)
    else:
        summary.print_front(record, front)


@commands.command(
    epilog="""[bold]Examples[/bold]

lazybo resume lenet.db --trial 12 --trial 17

lazybo resume lenet.toml --all"""
)
def resume(
    storage: StorageArgument = None,
    study: StudyArgument = None,
    place: StorageFlag = None,
    name: StudyFlag = None,
    numbers: Annotated[
        list[int] | None, typer.Option("--trial", metavar="NUMBER", help="A paused trial; may be given several times.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All paused trials.")] = False,
) -> None:
    """Queue paused trials: the next lazybo tune continues them first, each to its end."""
    with console.exit_on_bad_input():
        found = find(*named_place((storage, study), place, name)).study()
        if bool(numbers) == everything:
            paused = ", ".join(str(trial.number) for trial in paused_trials(found)) or "none"
            raise ValueError(f"give --trial NUMBER or --all; paused trials: {paused}")
        resume_trials(found, *(numbers or ()))
    console.say("run the same lazybo tune again to continue them")


@commands.command(
    epilog="""[bold]Examples[/bold]

lazybo export lenet.db -o trials.csv

lazybo export lenet.db --format json | jq length"""
)
def export(
    storage: StorageArgument = None,
    study: StudyArgument = None,
    place: StorageFlag = None,
    name: StudyFlag = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file (default: standard output).")] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", help="csv, json or parquet (default: from the file name, or csv).")
    ] = None,
) -> None:
    """Export all trials as CSV, JSON or Parquet."""
    with console.exit_on_bad_input():
        form = format_of(output, file_format)
        if form == "parquet" and output is None and sys.stdout.isatty():
            raise ValueError("Parquet is binary and cannot be shown on a terminal; give a file with -o")
        convert = FORMATS[form]
        content = convert(rows_of(find(*named_place((storage, study), place, name)).study()))
        if output is not None:
            write_whole(output, content)
            return
    if sys.stdout.isatty():
        print("\n".join(map(console.field, content.decode().splitlines())))
        return
    sys.stdout.buffer.write(content)
    sys.stdout.flush()


@commands.command(
    epilog="""[bold]Examples[/bold]

lazybo plot history lenet.db -o history.png

lazybo plot all lenet.db -o lenet.html"""
)
def plot(
    kind: Annotated[Kind, typer.Argument(help="What to draw.")],
    storage: StorageArgument = None,
    study: StudyArgument = None,
    place: StorageFlag = None,
    name: StudyFlag = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="A file: .png, .svg, .pdf or .html (default: STUDY-KIND.png, all: STUDY.html)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers of the figure as JSON instead.")] = False,
) -> None:
    """Draw history, times, importances, slices of the model, parallel coordinates, the front, or learning curves."""
    if as_json:
        with console.exit_on_bad_input():
            console.print_json(numbers(kind.value, find(*named_place((storage, study), place, name)).study()))
        return
    console.needs("matplotlib", "plot")
    from lazybo.cli import draw

    with console.exit_on_bad_input():
        for path in draw.draw(kind.value, find(*named_place((storage, study), place, name)).study(), output):
            console.plain(str(path))


@commands.command(
    epilog="""[bold]Examples[/bold]

lazybo report lenet.db -o report.html

lazybo report lenet.toml"""
)
def report(
    storage: StorageArgument = None,
    study: StudyArgument = None,
    place: StorageFlag = None,
    name: StudyFlag = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="An HTML file (default: STUDY-report.html).")
    ] = None,
) -> None:
    """Write a report as one HTML file: the course, what to use, health checks, the model with sliders, failures."""
    with console.exit_on_bad_input():
        found = find(*named_place((storage, study), place, name)).study()
        path = output or Path(f"{file_name(found.study_name)}-report.html")
        if path.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"the report is an HTML file, so {str(path)!r} must end with .html")
        console.plain(str(write_report(found, path)))


@commands.command(
    epilog="""[bold]Examples[/bold]

lazybo dashboard lenet.db

lazybo dashboard lenet.db --port 8090"""
)
def dashboard(
    storage: StorageArgument = None,
    place: StorageFlag = None,
    host: Annotated[str, typer.Option(help="The address to listen on; the dashboard has no password.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 8080,
) -> None:
    """Start optuna-dashboard on a storage; by default only this machine can connect."""
    console.needs("optuna_dashboard", "dashboard")
    import optuna_dashboard

    with console.exit_on_bad_input():
        found = find(*named_place((storage,), place, None))
        print(f"http://{host}:{port}/dashboard  (Ctrl-C stops it)", flush=True)
        optuna_dashboard.run_server(found.storage, host=host, port=port)
