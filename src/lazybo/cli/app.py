"""The lazybo command: `lazybo tune`, and the commands for studies that exist."""

import gc
import io
import os
import shlex
import shutil
import sys
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

import lazybo
from lazybo.cli import console, summary
from lazybo.cli.by_hand import commands as by_hand
from lazybo.cli.plan import make_plan, with_stored_requirement
from lazybo.cli.settings import (
    JsonFlag,
    StorageArgument,
    StorageFlag,
    Where,
    examples,
    find,
    from_flags,
    named_place,
    settings_of,
    with_place,
    with_settings,
)
from lazybo.cli.tune import run_plan
from lazybo.core import codec, texts
from lazybo.report import facts_of, figures_of, table_of, write_report
from lazybo.space import Cells
from lazybo.study import StudyView
from lazybo.study import replay as replay_study
from lazybo.study import resume as resume_trials

app = typer.Typer(
    name="lazybo",
    cls=console.HelpInWords,
    help="Bayesian optimisation of any program or Python function; inspect and plot the results.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the command. Wrong arguments print one line and end with exit code 2."""
    # The imported modules stay until the end. Otherwise the collector looks at them again for every few thousand rows.
    gc.freeze()
    console.quiet_libraries()
    try:
        code = app(standalone_mode=False)
    except BrokenPipeError:
        # The reader of our output is gone. Without this, Python prints another error when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = console.FAILED
    except Exception as error:
        # An argument that Typer rejects. The class of such errors depends on Typer's version, the method does not.
        if not hasattr(error, "format_message"):
            raise
        code = console.print_error(f"{error.format_message()}{_dashes(sys.argv[1:])} (see lazybo --help)")
    except KeyboardInterrupt:
        code = console.INTERRUPTED
    sys.exit(code if isinstance(code, int) else 0)


def _dashes(words: list[str]) -> str:
    """The advice to put -- before a program, if its options may have been taken for ours."""
    program = next((word for word in words[1:] if shutil.which(word)), None)
    is_missing = words[:1] == ["tune"] and "--" not in words and program is not None
    return f"; put -- before the program: -- {program} ..." if is_missing else ""


@app.callback(invoke_without_command=True)
def version(
    show_version: Annotated[bool, typer.Option("--version", help="Print the version.", is_eager=True)] = False,
) -> None:
    """Bayesian optimisation of any program or Python function; inspect and plot the results."""
    if show_version:
        print(f"lazybo {lazybo.__version__}")
        raise typer.Exit


@app.command(
    cls=console.OptionalNames,
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
@with_settings(before="force")
def tune(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE.toml | MODULE:FUNCTION | -- COMMAND",
            help="What to tune. {name} in the command becomes the value of that parameter, {{ is a brace. No shell.",
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Resume a study that was made with another command.", rich_help_panel="What is kept"
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
    as_json: JsonFlag = False,
    **given: Any,
) -> None:
    """Tune a program in any language, or a Python function."""
    with console.exit_on_bad_input():
        plan = make_plan(settings_of(words or (), from_flags(given, ctx.obj)))
    study, code = run_plan(plan, force=force, progress=not quiet)
    facts = facts_of(study)
    code = code or (0 if facts.view.feasible else console.FAILED)
    if as_json:
        console.print_json(summary.result(facts))
    else:
        output = plan.program.folder if plan.program else None
        summary.print_result(facts, output, interrupted=code == console.INTERRUPTED)
    if code:
        raise typer.Exit(code)


# What `lazybo plot` can draw, in lower case.
Kind = StrEnum("Kind", ["HISTORY", "TIME", "IMPORTANCES", "SLICES", "PARALLEL", "FRONT", "CURVES", "ALL"])


@app.command(epilog=examples("lazybo show lenet.db", "lazybo show lenet.db lenet --json"))
@with_place
def show(where: Where, as_json: JsonFlag = False) -> None:
    """List the studies in a storage, or show one: progress, best, importances, failures, running trials."""
    with console.exit_on_bad_input():
        found = find(*where)
        if found.study_name is None and len(found.storage.get_all_studies()) != 1:
            every = sorted(map(facts_of, found.studies()), key=lambda each: each.name)
            overviews = [summary.overview(each) for each in every]
            console.print_json(overviews) if as_json else summary.print_overview(overviews)
            return
        facts = facts_of(found.study())
        record = summary.details(facts)
    console.print_json(record) if as_json else summary.print_details(record, facts)


@app.command(
    epilog=examples(
        "lazybo best lenet.db",
        'sh -c "$(lazybo best lenet.db --command)"',
        'sh -c "$(lazybo best lenet.db --command --recommended)"',
        "lazybo best lenet.db --json | jq .params.lr",
    )
)
@with_place
def best(
    where: Where,
    command: Annotated[bool, typer.Option("--command", help="Print the command line, ready to run.")] = False,
    recommended: Annotated[
        bool,
        typer.Option(
            "--recommended",
            help="Print the trial that the model predicts to be best: under noise the best value may be luck.",
        ),
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Print the best trial, or the front of several objectives, as text, as JSON, or as a command line."""
    with console.exit_on_bad_input():
        facts = facts_of(find(*where).study())
        if facts.several and (command or recommended):
            flag = "--command" if command else "--recommended"
            raise ValueError(f"{flag} needs one best trial, but the study {facts.name!r} has several objectives")
        if not facts.view.front:
            console.fail(facts.nothing_best, console.FAILED)
        if facts.several:
            console.print_json(summary.best_and_front(facts)["front"]) if as_json else summary.print_front(facts)
            return
        trial = facts.advise().trial if recommended else facts.view.front[0]
        record = summary.trial_record(facts, trial)
        if command and record["command"] is None:
            raise ValueError(f"the study {facts.name!r} was not made by lazybo tune with a command")
    if as_json:
        console.print_json({**record, "recommended": summary.recommended_record(facts.advice)})
    elif command:
        console.plain(shlex.join(record["command"]))
    elif recommended:
        summary.print_recommended(facts)
    else:
        summary.print_best(record)
        summary.print_advice(facts)


@app.command(epilog=examples("lazybo resume lenet.db --trial 12 --trial 17", "lazybo resume lenet.toml --all"))
@with_place
def resume(
    where: Where,
    numbers: Annotated[
        list[int] | None, typer.Option("--trial", metavar="NUMBER", help="A paused trial; may be given several times.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All paused trials.")] = False,
) -> None:
    """Queue paused trials: the next lazybo tune continues them first, each to its end."""
    with console.exit_on_bad_input():
        found = find(*where).study()
        if bool(numbers) == everything:
            paused = ", ".join(str(trial.number) for trial in StudyView.of(found).paused) or "none"
            raise ValueError(f"give --trial NUMBER or --all; paused trials: {paused}")
        resume_trials(found, *(numbers or ()))
    console.say("run the same lazybo tune again to continue them")


Rows = list[dict[str, Any]]


def _csv(rows: Rows) -> bytes:
    """CSV with a header; None is an empty cell."""
    columns = list(rows[0]) if rows else ["number", "value", "state"]
    return Cells.csv(columns, rows).encode(errors="backslashreplace")


def _json(rows: Rows) -> bytes:
    """A list of objects."""
    return (console.as_json(rows, 1) + "\n").encode()


def _parquet(rows: Rows) -> bytes:
    """A Parquet file; a column of several types becomes text."""
    console.needs("pyarrow")
    import pyarrow
    import pyarrow.parquet

    columns = {}
    for name in rows[0] if rows else ():
        cells = [row[name] for row in rows]
        kinds = {type(cell) for cell in cells if cell is not None} - ({int} if float in map(type, cells) else set())
        plain = kinds <= {bool} or kinds <= {int} or kinds <= {float}
        columns[name] = cells if plain else [None if cell is None else _text(cell) for cell in cells]
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def _text(cell: object) -> str:
    """A cell as text. Lone surrogates, which JSON allows and UTF-8 files do not, become escapes."""
    return str(cell).encode(errors="backslashreplace").decode()


FORMATS: dict[str, Callable[[Rows], bytes]] = {"csv": _csv, "json": _json, "parquet": _parquet}


def _format_of(path: Path | None, given: str | None) -> str:
    """The format that was given, or the one of the file's suffix."""
    name = given or (path.suffix.removeprefix(".").lower() if path else "csv")
    if name not in FORMATS:
        raise ValueError(f"the format must be one of {', '.join(FORMATS)}, not {name!r}; choose it with --format")
    return name


@app.command(
    epilog=examples("lazybo export lenet.db -o trials.csv", "lazybo export lenet.db --format json | jq length")
)
@with_place
def export(
    where: Where,
    output: Annotated[Path | None, typer.Option("-o", "--output", help="A file (default: standard output).")] = None,
    file_format: Annotated[
        str | None, typer.Option("--format", help="csv, json or parquet (default: from the file name, or csv).")
    ] = None,
) -> None:
    """Export all trials as CSV, JSON or Parquet."""
    with console.exit_on_bad_input():
        form = _format_of(output, file_format)
        if form == "parquet" and output is None and sys.stdout.isatty():
            raise ValueError("Parquet is binary and cannot be shown on a terminal; give a file with -o")
        convert = FORMATS[form]
        content = convert(table_of(find(*where).study()))
        if output is not None:
            codec.write_whole(output, content)
            return
    if sys.stdout.isatty():
        print("\n".join(map(console.field, content.decode().splitlines())))
        return
    sys.stdout.buffer.write(content)
    sys.stdout.flush()


@app.command(epilog=examples("lazybo plot history lenet.db -o history.png", "lazybo plot all lenet.db -o lenet.html"))
@with_place
def plot(
    kind: Annotated[Kind, typer.Argument(help="What to draw.")],
    where: Where,
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
            console.print_json(figures_of(find(*where).study(), kind.value).numbers())
        return
    console.needs("matplotlib")
    with console.exit_on_bad_input():
        for path in figures_of(find(*where).study(), kind.value).write(output):
            console.plain(str(path))


@app.command(epilog=examples("lazybo report lenet.db -o report.html", "lazybo report lenet.toml"))
@with_place
def report(
    where: Where,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", help="An HTML file (default: STUDY-report.html).")
    ] = None,
) -> None:
    """Write a report as one HTML file: the history, what to use, health checks, the model with sliders, failures."""
    with console.exit_on_bad_input():
        found = find(*where).study()
        path = output or Path(f"{texts.file_name(found.study_name)}-report.html")
        if path.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"the report is an HTML file, so {str(path)!r} must end with .html")
        console.plain(str(write_report(found, path)))


@app.command(epilog=examples("lazybo replay lenet.db", "lazybo replay lenet.db lenet --json"))
@with_place
def replay(where: Where, as_json: JsonFlag = False) -> None:
    """Make every suggestion of a study again, from the study alone, and compare them bit for bit."""
    with console.exit_on_bad_input():
        found = find(*where).study()
        _, space = StudyView.of(found).options()
        replayed = list(replay_study(found, with_stored_requirement(space, found).feasible))
    summary.print_replay(replayed, as_json=as_json)
    if any(each.differs for each in replayed):
        raise typer.Exit(console.FAILED)


@app.command(epilog=examples("lazybo dashboard lenet.db", "lazybo dashboard lenet.db --port 8090"))
def dashboard(
    storage: StorageArgument = None,
    place: StorageFlag = None,
    host: Annotated[str, typer.Option(help="The address to listen on; the dashboard has no password.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 8080,
) -> None:
    """Start optuna-dashboard on a storage; by default only this machine can connect."""
    console.needs("optuna-dashboard")
    import optuna_dashboard

    with console.exit_on_bad_input():
        found = find(*named_place((storage,), place, None))
        print(f"http://{host}:{port}/dashboard  (Ctrl-C stops it)", flush=True)
        optuna_dashboard.run_server(found.storage, host=host, port=port)


@app.command()
def demo() -> None:
    """Minimise Levy's function in 5-D, and show how much time extending the factor saves."""
    from lazybo.demo import main as run

    run()


app.add_typer(by_hand)
