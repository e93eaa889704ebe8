"""The flags that describe what is optimised: `lazybo tune` and `lazybo ask` share them."""

from typing import Annotated

import typer

WHAT, KEPT = "What is tuned", "What is kept"

Floats = Annotated[
    list[str] | None,
    typer.Option("--float", metavar="NAME=LOW:HIGH[:log|:STEP]", help="A number.", rich_help_panel=WHAT),
]
Ints = Annotated[
    list[str] | None,
    typer.Option("--int", metavar="NAME=LOW:HIGH[:log|:STEP]", help="A whole number.", rich_help_panel=WHAT),
]
Choices = Annotated[
    list[str] | None,
    typer.Option("--choice", metavar="NAME=A,B,C", help="One of these texts.", rich_help_panel=WHAT),
]
Require = Annotated[
    list[str] | None,
    typer.Option(
        metavar="EXPRESSION",
        help="Only suggest configurations for which this holds, for example 'a + b <= 1'. All of them, if several.",
        rich_help_panel=WHAT,
    ),
]
Maximize = Annotated[
    list[str] | None,
    typer.Option(
        "--maximize",
        metavar="[METRIC]",
        help="Larger values are better. With a name: an objective, in the JSON that a program prints.",
        rich_help_panel=WHAT,
    ),
]
Minimize = Annotated[
    list[str] | None,
    typer.Option(
        "--minimize",
        metavar="[METRIC]",
        help="Smaller values are better (default). Give several objectives by their names.",
        rich_help_panel=WHAT,
    ),
]
Constraints = Annotated[
    list[str] | None,
    typer.Option(
        "--constraint",
        metavar="METRIC<=NUMBER",
        help="Only trials with such a metric are feasible and count; also METRIC>=NUMBER.",
        rich_help_panel=WHAT,
    ),
]
Cost = Annotated[
    str | None,
    typer.Option(
        metavar="seconds|METRIC",
        help="Prefer trials that take less time, or cost less by a metric that is measured with the value.",
        rich_help_panel=WHAT,
    ),
]
Deterministic = Annotated[
    bool | None,
    typer.Option(
        "--deterministic",
        help="The same parameters always give the same value: nothing is repeated, and the best trial is recommended.",
        rich_help_panel=WHAT,
    ),
]
Earlier = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STUDY[@STORAGE]",
        help="Start from what was good in an earlier study of a related problem. Also the name of a CSV file.",
        rich_help_panel=WHAT,
    ),
]
Seed = Annotated[int | None, typer.Option(help="Seed; makes a run with one worker repeatable.", rich_help_panel=KEPT)]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
