"""The command, `lazybo tune` and its options."""

from typing import Annotated, Any

import typer

import lazybo
from lazybo.cli import console, parameters, summary
from lazybo.cli.by_hand import commands as by_hand
from lazybo.cli.config import make_plan
from lazybo.cli.directions import OptionalNames, directions_of
from lazybo.cli.flags import (
    KEPT,
    WHAT,
    Choices,
    Constraints,
    Cost,
    Deterministic,
    Earlier,
    Floats,
    Ints,
    JsonFlag,
    Maximize,
    Minimize,
    Require,
    Seed,
)
from lazybo.cli.help import HelpInWords
from lazybo.cli.settings import DEFAULT_STORAGE, settings_of
from lazybo.cli.studies import commands as studies
from lazybo.cli.tune import exit_with, run_plan
from lazybo.paper.command import app as paper

app = typer.Typer(
    name="lazybo",
    cls=HelpInWords,
    help="Bayesian optimisation of any program or Python function; inspect and plot the results.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(studies)
app.add_typer(paper, name="paper", cls=HelpInWords)
app.add_typer(by_hand)

WHEN, WHERE = "When it ends", "Where it runs"


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
            metavar="FILE.toml | MODULE:FUNCTION | -- COMMAND",
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
    deterministic: Deterministic = None,
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
            "deterministic": deterministic,
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


@studies.command()  # so that it is listed after them
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
