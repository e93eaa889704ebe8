"""The commands and their options."""

import shlex
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from optuna.study import Study

import lazybo
from lazybo.cli import console, parameters, summary
from lazybo.cli.by_hand import commands as by_hand
from lazybo.cli.config import DEFAULT_STORAGE, make_plan, settings_of
from lazybo.cli.directions import OptionalNames, directions_of
from lazybo.cli.export import FORMATS, format_of, rows_of
from lazybo.cli.figures import numbers
from lazybo.cli.flags import (
    KEPT,
    WHAT,
    Choices,
    Constraints,
    Cost,
    Earlier,
    Floats,
    Ints,
    JsonFlag,
    Maximize,
    Minimize,
    Require,
    Seed,
)
from lazybo.cli.storages import StorageArgument, StudyArgument, find
from lazybo.cli.tune import exit_with, run_plan
from lazybo.paper.command import app as paper
from lazybo.report.html import write_report
from lazybo.report.recommendation import Advice, advise
from lazybo.study.paused import paused_trials
from lazybo.study.paused import resume as resume_trials
from lazybo.text import file_name

app = typer.Typer(
    name="lazybo",
    help="Bayesian optimisation of any program or Python function; inspect and plot the results.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(paper, name="paper")
app.add_typer(by_hand)

WHEN, WHERE = "When it ends", "Where it runs"


class Kind(StrEnum):
    """What `lazybo plot` can draw."""

    HISTORY = "history"
    TIME = "time"
    SLICES = "slices"
    PARALLEL = "parallel"
    FRONT = "front"
    CURVES = "curves"
    ALL = "all"


@app.command(
    cls=OptionalNames,
    epilog="""[bold]Examples[/bold]

lazybo tune --trials 50 --float lr=1e-4:0.1:log --choice opt=sgd,adam -- python train.py --lr {lr} --opt {opt}

lazybo tune lenet.toml

lazybo tune lenet.toml --trials 500 --executor dask://10.0.0.1:8786

lazybo tune --trials 100 --float x=-5:5 mymodule:objective

lazybo tune --trials 50 --float x=0:1 --maximize --value-regex 'Accuracy: (\\S+)' -- ./train.sh {x}

lazybo tune --trials 50 --float x=0:1 --maximize acc --minimize latency --constraint 'memory<=4000' -- ./train.sh {x}

The value is the last line of standard output that is a number or a JSON object with "value"; lines such as
{"step": 3, "value": 0.7} are intermediate values, which the pruner uses. --value-key and --value-regex
read other output. Run the same command again to resume.

Exit codes: 0 done, 1 the run failed or no trial completed, 2 bad input, 130 interrupted.""",
)
def tune(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FILE.toml] [MODULE:FUNCTION | -- COMMAND...]",
            help="What to tune. {name} in the command becomes the value of that parameter, {{ is a brace. No shell.",
        ),
    ] = None,
    floats: Floats = None,
    ints: Ints = None,
    choices: Choices = None,
    require: Require = None,
    maximize: Maximize = None,
    minimize: Minimize = None,
    constraints: Constraints = None,
    cost: Cost = None,
    earlier: Earlier = None,
    value_file: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="The file that holds the value; may have placeholders.", rich_help_panel=WHAT
        ),
    ] = None,
    value_key: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            help="The program prints JSON objects with the value under this key; metrics.acc is a nested key.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    value_regex: Annotated[
        str | None,
        typer.Option(
            metavar="REGEX",
            help="The value is the group of this regular expression, for example 'Accuracy: (\\S+)'; the last match "
            "counts. With groups called step and value every match is an intermediate value.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    from_environment: Annotated[
        bool | None,
        typer.Option(
            "--from-environment",
            help="The program reads LAZYBO_PARAMS: parameters need no placeholders.",
            rich_help_panel=WHAT,
        ),
    ] = None,
    trials: Annotated[
        int | None, typer.Option(help="Total number of trials, earlier runs included.", rich_help_panel=WHEN)
    ] = None,
    timeout: Annotated[
        float | None, typer.Option(help="Stop this run after so many seconds.", rich_help_panel=WHEN)
    ] = None,
    target: Annotated[float | None, typer.Option(help="Stop at this value.", rich_help_panel=WHEN)] = None,
    patience: Annotated[
        int | None, typer.Option(help="Stop after so many trials without an improvement.", rich_help_panel=WHEN)
    ] = None,
    min_gain: Annotated[
        float | None,
        typer.Option(
            help="Stop when the model expects the next 10 trials to improve the best value by less than this.",
            rich_help_panel=WHEN,
        ),
    ] = None,
    confirm: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="A final check: up to K of the trials, the last ones, repeat the configurations that may be the best.",
            rich_help_panel=WHEN,
        ),
    ] = None,
    trial_timeout: Annotated[
        float | None, typer.Option(help="Seconds for one trial; a longer trial fails.", rich_help_panel=WHEN)
    ] = None,
    max_failures: Annotated[
        int | None, typer.Option(help="Stop after so many failures in a row (default: 10).", rich_help_panel=WHEN)
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(help="How often to run a trial again whose worker died (default: 2).", rich_help_panel=WHEN),
    ] = None,
    pruner: Annotated[
        str | None,
        typer.Option(help="lazy (default), median, hyperband, halving or none.", rich_help_panel=WHEN),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="The last step that a training reports. One with a checkpoint is paused and resumed by a model of all "
            "curves: {checkpoint} in the command is a folder of the trial that outlives the program.",
            rich_help_panel=WHEN,
        ),
    ] = None,
    grace: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="How long a program that is stopped may take after SIGTERM (default: 5; with {checkpoint} 30).",
            rich_help_panel=WHEN,
        ),
    ] = None,
    parallel: Annotated[
        int | None, typer.Option(help="Trials at the same time (default: 1).", rich_help_panel=WHERE)
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(
            help="threads (default for commands), processes, dask://host:port, ray, mpi.", rich_help_panel=WHERE
        ),
    ] = None,
    storage: Annotated[
        str | None, typer.Option(help=f"An SQLite file or a URL (default: {DEFAULT_STORAGE}).", rich_help_panel=KEPT)
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(help="The study's name (default: the name of the TOML file, or lazybo).", rich_help_panel=KEPT),
    ] = None,
    output: Annotated[
        str | None, typer.Option(metavar="DIR", help="The folder for the output of all trials.", rich_help_panel=KEPT)
    ] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="DIR", help="The folder for all checkpoints (default: in --output).", rich_help_panel=KEPT
        ),
    ] = None,
    seed: Seed = None,
    force: Annotated[
        bool, typer.Option("--force", help="Resume a study that was made with another command.", rich_help_panel=KEPT)
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: JsonFlag = False,
) -> None:
    """Tune a program in any language, or a Python function."""
    with console.exit_on_bad_input():
        flags: dict[str, Any] = {
            "parameters": parameters.from_flags(floats or (), ints or (), choices or ()),
            **directions_of(maximize or [], minimize or []),
            "constraints": constraints or None,
            "require": require or None,
            "cost": cost,
            "earlier": earlier or None,
            "value_file": value_file,
            "value_key": value_key,
            "value_regex": value_regex,
            "from_environment": from_environment,
            "trials": trials,
            "timeout": timeout,
            "target": target,
            "patience": patience,
            "min_gain": min_gain,
            "confirm": confirm,
            "trial_timeout": trial_timeout,
            "max_failures": max_failures,
            "retries": retries,
            "pruner": pruner,
            "parallel": parallel,
            "executor": executor,
            "storage": storage,
            "study": study,
            "steps": steps,
            "grace": grace,
            "checkpoints": checkpoints,
            "output": output,
            "seed": seed,
        }
        plan = make_plan(settings_of(words or (), flags))
    found, code = run_plan(plan, force=force, progress=not quiet)
    code = code or (0 if summary.has_result(found) else console.FAILED)
    if as_json:
        advice = summary.recommended_record(summary.advice_of(found))
        results = {"best": summary.best_record(found), "front": summary.front_records(found), "recommended": advice}
        console.print_json({**summary.overview(found), **results})
    else:
        summary.print_result(found, plan.output if plan.command else None, interrupted=code == console.INTERRUPTED)
    exit_with(code)


@app.command(
    epilog="""[bold]Examples[/bold]

lazybo show lenet.db

lazybo show lenet.db lenet --json"""
)
def show(storage: StorageArgument = DEFAULT_STORAGE, study: StudyArgument = None, as_json: JsonFlag = False) -> None:
    """List the studies in a storage, or show one: progress, best, importances, failures, running trials."""
    with console.exit_on_bad_input():
        place = find(storage, study)
        if study is None and place.study_name is None and len(place.storage.get_all_studies()) != 1:
            records = summary.overviews(place.storage)
            console.print_json(records) if as_json else summary.print_overview(records)
            return
        record = summary.details(place.study())
    console.print_json(record) if as_json else summary.print_details(record)


@app.command(
    epilog="""[bold]Examples[/bold]

lazybo best lenet.db

sh -c "$(lazybo best lenet.db --command)"

sh -c "$(lazybo best lenet.db --command --recommended)"

lazybo best lenet.db --json | jq .params.lr"""
)
def best(
    storage: StorageArgument = DEFAULT_STORAGE,
    study: StudyArgument = None,
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
        found = find(storage, study).study()
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


@app.command(
    epilog="""[bold]Examples[/bold]

lazybo resume lenet.db --trial 12 --trial 17

lazybo resume lenet.toml --all"""
)
def resume(
    storage: StorageArgument = DEFAULT_STORAGE,
    study: StudyArgument = None,
    numbers: Annotated[
        list[int] | None, typer.Option("--trial", metavar="NUMBER", help="A paused trial; may be given several times.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All paused trials.")] = False,
) -> None:
    """Queue paused trials: the next lazybo tune continues them first, each to its end."""
    with console.exit_on_bad_input():
        found = find(storage, study).study()
        if bool(numbers) == everything:
            paused = ", ".join(str(trial.number) for trial in paused_trials(found)) or "none"
            raise ValueError(f"give --trial NUMBER or --all; paused trials: {paused}")
        resume_trials(found, *(numbers or ()))
    console.say("run the same lazybo tune again to continue them")


@app.command(
    epilog="""[bold]Examples[/bold]

lazybo export lenet.db -o trials.csv

lazybo export lenet.db --format json | jq length"""
)
def export(
    storage: StorageArgument = DEFAULT_STORAGE,
    study: StudyArgument = None,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file (default: standard output).")] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", help="csv, json or parquet (default: from the file name, or csv).")
    ] = None,
) -> None:
    """Export all trials as CSV, JSON or Parquet."""
    with console.exit_on_bad_input():
        name = format_of(output, file_format)
        if name == "parquet" and output is None and sys.stdout.isatty():
            raise ValueError("Parquet is binary and cannot be shown on a terminal; give a file with -o")
        convert = FORMATS[name]
        content = convert(rows_of(find(storage, study).study()))
        if output is not None:
            output.write_bytes(content)
            return
    if sys.stdout.isatty():
        print("\n".join(map(console.field, content.decode().splitlines())))
        return
    sys.stdout.buffer.write(content)
    sys.stdout.flush()


@app.command(
    epilog="""[bold]Examples[/bold]

lazybo plot history lenet.db -o history.png

lazybo plot all lenet.db -o lenet.html"""
)
def plot(
    kind: Annotated[Kind, typer.Argument(help="What to draw.")],
    storage: StorageArgument = DEFAULT_STORAGE,
    study: StudyArgument = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", help="A file: .png, .svg, .pdf or .html (default: STUDY-KIND.png, all: STUDY.html)."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers of the figure as JSON instead.")] = False,
) -> None:
    """Draw the history, the time per step, slices of the model, parallel coordinates, the front, or learning curves."""
    if as_json:
        with console.exit_on_bad_input():
            console.print_json(numbers(kind.value, find(storage, study).study()))
        return
    console.needs("matplotlib", "plot")
    from lazybo.cli import draw

    with console.exit_on_bad_input():
        for path in draw.draw(kind.value, find(storage, study).study(), output):
            console.plain(str(path))


@app.command(
    epilog="""[bold]Examples[/bold]

lazybo report lenet.db -o report.html

lazybo report lenet.toml"""
)
def report(
    storage: StorageArgument = DEFAULT_STORAGE,
    study: StudyArgument = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="An HTML file (default: STUDY-report.html).")
    ] = None,
) -> None:
    """Write a report as one HTML file: the course, what to use, health checks, the model with sliders, failures."""
    with console.exit_on_bad_input():
        found = find(storage, study).study()
        path = output or Path(f"{file_name(found.study_name)}-report.html")
        if path.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"the report is an HTML file, so {str(path)!r} must end with .html")
        console.plain(str(write_report(found, path)))


@app.command(
    epilog="""[bold]Examples[/bold]

lazybo dashboard lenet.db

lazybo dashboard lenet.db --port 8090"""
)
def dashboard(
    storage: StorageArgument = DEFAULT_STORAGE,
    host: Annotated[str, typer.Option(help="The address to listen on; the dashboard has no password.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535)] = 8080,
) -> None:
    """Start optuna-dashboard on a storage; by default only this machine can connect."""
    console.needs("optuna_dashboard", "dashboard")
    import optuna_dashboard

    with console.exit_on_bad_input():
        place = find(storage, None)
        print(f"http://{host}:{port}/dashboard  (Ctrl-C stops it)", flush=True)
        optuna_dashboard.run_server(place.storage, host=host, port=port)


@app.command()
def demo() -> None:
    """Minimise Levy's function in 5-D, and show how much time extending the factor saves."""
    from lazybo.demo import main

    main()


@app.callback(invoke_without_command=True)
def version(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """Bayesian optimisation of any program or Python function; inspect and plot the results."""
    if show_version:
        print(f"lazybo {lazybo.__version__}")
        raise typer.Exit
