"""`lazybo ask` and `lazybo tell`: experiments that people make, without Python."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from optuna.study import Study, load_study

from lazybo.cli import console, summary
from lazybo.cli.measurements import (
    UNUSED,
    Step,
    Words,
    measured_of,
    named_form,
    params_from,
    result_columns,
    split_words,
    step_for,
    steps_of,
    value_columns,
)
from lazybo.cli.parameters import space_in
from lazybo.cli.plan import (
    definition_of,
    in_stored_order,
    keep_requirement,
    parse_constraints,
    run_of,
    with_stored_requirement,
)
from lazybo.cli.settings import (
    DEFAULT_STORAGE,
    JsonFlag,
    StorageFlag,
    StudyFlag,
    Where,
    find,
    from_flags,
    named_place,
    open_checked,
    settings_of,
    with_place,
    with_settings,
)
from lazybo.core import checks, codec
from lazybo.report import facts_of
from lazybo.run import ByHand, Goals, Measurement
from lazybo.search import Options
from lazybo.space import Cells, Space
from lazybo.study import Definition, StudyView, TrialView

commands = typer.Typer()
MOST_AT_ONCE = 1000
# Flags of `lazybo tell` with what may not be given beside them, and what is said then.
EXCLUSIONS: tuple[tuple[str, set[str], str], ...] = (
    ("--failed", {"--skip"}, "--failed and --skip exclude each other"),
    ("--failed", {"VALUE"}, "--failed has no value, but {value:g} is given"),
    ("--skip", {"VALUE"}, "--skip has no value, but {value:g} is given"),
    (
        "--table",
        {"--param", "VALUE", "NAME=NUMBER", "--failed", "--skip", "--repeat"},
        "--table has all results; give nothing else but --correct",
    ),
    (
        "--skip",
        {"--param", "--correct", "--repeat"},
        "--skip needs the number of a trial that was asked for, and nothing else",
    ),
    ("--correct", {"--repeat"}, "--correct changes a value and --repeat adds another one: give one of them"),
    ("--correct", {"--param"}, "--correct needs the number of the trial, not its parameters"),
    ("--repeat", {"--param"}, "--repeat needs the number of the trial, not its parameters"),
)


@commands.command(
    cls=console.OptionalNames,
    epilog="""[bold]Examples[/bold]

lazybo ask bread.db --float temperature=180:250:5 --int minutes=20:60 --choice flour=rye,wheat --maximize

lazybo ask bread.db

lazybo ask bread.db -n 8 --csv > plan.csv

lazybo ask bread.toml --pending

The first call needs the parameters, as flags or in a TOML file as lazybo tune takes it; later calls take them from the
study. Write each result with lazybo tell.""",
)
@with_place
@with_settings(before="as_csv", in_ask=True)
def ask(
    ctx: typer.Context,
    where: Where,
    count: Annotated[int, typer.Option("-n", "--count", help="How many experiments.")] = 1,
    pending: Annotated[
        bool, typer.Option("--pending", help="Print those that wait for a result again; ask for no new one.")
    ] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV with columns for the results.")] = False,
    as_json: JsonFlag = False,
    **given: Any,
) -> None:
    """Print the next experiments to make by hand. Each waits for its result: see lazybo tell."""
    with console.exit_on_bad_input():
        if as_csv and as_json:
            raise ValueError("--csv and --json exclude each other")
        if checks.whole("--count", count, 1) > MOST_AT_ONCE:
            raise ValueError(f"--count must be at most {MOST_AT_ONCE}, not {count}")
        by_hand = _open_or_create(*where, from_flags(given, ctx.obj))
        entries = by_hand.pending() if pending else by_hand.ask(count)
    _print_entries(by_hand, entries, where[0], as_csv=as_csv, as_json=as_json)


@commands.command(
    # A negative value looks like an option.
    context_settings={"ignore_unknown_options": True},
    epilog="""[bold]Examples[/bold]

lazybo tell bread.db 3 0.71

lazybo tell bread.db 3 0.71 crust=4.5 --variance 0.01

lazybo tell bread.db 4 --failed

lazybo tell bread.db 3 0.17 --correct

lazybo tell bread.db 3 0.69 --repeat

lazybo tell bread.db --param temperature=200 --param minutes=40 --param flour=rye 0.66

lazybo tell bread.db --table plan.csv

Several objectives: their values by name, yield=0.71 cost=12.""",
)
def tell(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="STORAGE STUDY NUMBER VALUE NAME=NUMBER",
            help="The number of the experiment, its value, and what else was measured: metrics of constraints, notes.",
        ),
    ] = None,
    place: StorageFlag = None,
    name: StudyFlag = None,
    params: Annotated[
        list[str] | None,
        typer.Option("--param", metavar="NAME=VALUE", help="A parameter of an experiment that nobody asked for."),
    ] = None,
    table: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A CSV file with parameters and values, or of lazybo ask --csv.")
    ] = None,
    variance: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[NAME=]NUMBER", help="The known variance of the noise in the value; by name for each objective."
        ),
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="How long the experiment took.")] = None,
    failed: Annotated[bool, typer.Option("--failed", help="The experiment failed: it has no value.")] = False,
    skip: Annotated[
        bool, typer.Option("--skip", help="Cancel this experiment: the model learns nothing from it.")
    ] = False,
    correct: Annotated[
        bool, typer.Option("--correct", help="Change a result that was told; the earlier result is kept as well.")
    ] = False,
    repeat: Annotated[
        bool, typer.Option("--repeat", help="Another measurement of an experiment that was told: both values are kept.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Record the result of an experiment: of one that was asked for, of any other, or a whole table."""
    flags = {"--failed": failed, "--skip": skip, "--correct": correct, "--repeat": repeat}
    flags |= {"--param": bool(params), "--table": table is not None}
    with console.exit_on_bad_input():
        said = split_words(words or (), numbered=not params and table is None)
        storage, study = named_place(said.place, place, name)
        flags |= {"VALUE": bool(said.values), "NAME=NUMBER": bool(said.named)}
        _check_flags({flag for flag, is_given in flags.items() if is_given}, said)
        by_hand = _open(storage, study)
        if table is not None:
            steps = steps_of(table, by_hand, correct=correct)
        elif skip:
            steps = [_step(by_hand, said, "skipped")]
        else:
            measured = measured_of(said, by_hand.goals, variance or (), seconds, failed=failed, correct=correct)
            if said.number is None:
                steps = [step_for(by_hand, params_from(params or (), by_hand), measured)]
            else:
                steps = [_step(by_hand, said, "corrected" if correct else "added" if repeat else "told", measured)]
        numbers = [step.apply() for step in steps]
    _print_steps(by_hand, steps, numbers, as_json=as_json)


def _check_flags(given: set[str], said: Words) -> None:
    for flag, others, message in EXCLUSIONS:
        if flag in given and given & others:
            raise ValueError(message.format(value=next(iter(said.values), 0.0)))


def _step(by_hand: ByHand, said: Words, kind: str, *measured: Measurement) -> Step:
    """What `lazybo tell` records of the trial that it names."""
    assert said.number is not None, "the words begin with a number"
    calls: dict[str, Callable[..., int | None]]
    calls = {"skipped": by_hand.skip, "corrected": by_hand.correct, "added": by_hand.repeat, "told": by_hand.tell}
    return Step(kind, partial(calls[kind], said.number, *measured), said.number)


# ------------------------------------------------------------------------ open


def _open(storage: str, study: str | None) -> ByHand:
    """An existing study with the space, objectives, constraints and options that are stored with it."""
    found = find(storage, study).study()
    view = StudyView.of(found)
    if not view.has_options and not view.has_parameters:
        raise ValueError(
            f"the parameters of the study {found.study_name!r} are not known: give them to lazybo ask with --float, "
            "--int or --choice, or in a TOML file"
        )
    options, space = view.options()
    return ByHand(found, options, with_stored_requirement(space, found), _stored_goals(found, options))


def _stored_goals(study: Study, options: Options) -> Goals:
    """What a study optimises, as it is stored there."""
    view = StudyView.of(study)
    bounds = view.first_constraints(parse_constraints)
    names, directions = study.metric_names, view.directions
    goals = Goals.of(dict(zip(names, directions, strict=True)) if names else list(directions), bounds)
    return replace(goals, cost=None if options.cost == checks.SECONDS else options.cost)


def _open_or_create(storage: str, study: str | None, flags: Mapping[str, Any]) -> ByHand:
    """The study to ask: an existing one, or a new one with the parameters of the flags and the TOML file."""
    in_file = storage.endswith(".toml")
    settings = settings_of([storage] if in_file else [], flags)
    place = settings.get("storage", DEFAULT_STORAGE) if in_file else storage
    if settings["parameters"]:
        return _create({**settings, "storage": place}, study or settings.get("study"))
    if "://" not in place and not Path(place).expanduser().exists():
        raise ValueError(
            f"there is no study in {place!r} yet: give its parameters with --float, --int or --choice, or give a "
            "TOML file with [parameters]"
        )
    given = [name for name, value in flags.items() if value]
    if given:
        raise ValueError(f"--{given[0].rstrip('s')} is for the first call, together with the parameters")
    return _open(storage, study)


def _create(settings: Mapping[str, Any], name: str | None) -> ByHand:
    """Open a study with these settings, or make it. Everything is validated before anything is written."""
    place, default = settings["storage"], Definition.DEFAULT_NAME
    run = run_of(_by_people, space_in(settings), settings, n_trials=1, storage=place, study_name=name or default)
    goals, space, options = run.goals, run.space, run.options
    storage = open_checked(place)
    names = [found.study_name for found in storage.get_all_studies()]
    name = name or (names[0] if len(names) == 1 else default)
    if name in names:
        there = load_study(study_name=name, storage=storage)
        if (ordered := in_stored_order(settings, there)) is not None:
            return _create(ordered, name)
        options = _completed_options(options, space, there)
        stored = _stored_goals(there, options)
        given = goals if "direction" in settings or "directions" in settings else stored
        goals = replace(given, bounds=goals.bounds or stored.bounds, cost=stored.cost)
        space = space if settings["require"] else with_stored_requirement(space, there)
    try:
        study, seed = definition_of(goals).open(storage, name, space, settings.get("seed"))
    except ValueError as error:
        raise ValueError(str(error).replace(Definition.REMEDY, "give another name as STUDY")) from error
    options = replace(options, seed=seed)
    StudyView.of(study).keep_options(options, space)
    keep_requirement(study, space.feasible)
    by_hand = ByHand(study, options, space, goals)
    by_hand.enqueue(run.initial)
    return by_hand


def _by_people(params: dict[str, Any]) -> float:
    """The objective of experiments, which no function makes."""
    raise NotImplementedError(params)


def _completed_options(given: Options, space: Space, study: Study) -> Options:
    """The options, completed by those of an existing study. Damaged ones are replaced."""
    view = StudyView.of(study)
    try:
        if not view.has_options:
            return given
        stored, _ = view.options(space)
    except codec.Advised as error:
        console.say(f"lazybo: {error}; the options of a new study are used")
        return given
    return given.completed(stored)


# ------------------------------------------------------------------------ print


def _print_entries(by_hand: ByHand, entries: Sequence[TrialView], storage: str, *, as_csv: bool, as_json: bool) -> None:
    metrics = [*(bound.metric for bound in by_hand.goals.bounds), *filter(None, [by_hand.goals.cost])]
    wanted = list(dict.fromkeys([*value_columns(by_hand.goals), *metrics]))
    names = [name for name in by_hand.space.distributions if any(name in entry.params for entry in entries)]
    columns = [_heading(name, {"number", "variance", *wanted, *result_columns(by_hand.goals)}) for name in names]
    if as_json:
        console.print_json([{"number": entry.number, "params": entry.params} for entry in entries])
    elif as_csv:
        values = [[entry.number, *map(entry.params.get, names)] for entry in entries]
        rows = [dict(zip(["number", *columns], row, strict=True)) for row in values]
        console.plain(Cells.csv(["number", *columns, *wanted], rows).rstrip("\r\n"))
    elif not entries:
        console.line("nothing is pending", style="dim")
    else:
        _print_table(entries, names, columns)
        place = "" if storage == DEFAULT_STORAGE else f" {storage}"
        numbers = [f"{name}=NUMBER" for name in dict.fromkeys(metrics)]
        console.say(" ".join([f"then: lazybo tell{place} {entries[0].number}", named_form(by_hand.goals), *numbers]))


def _heading(name: str, others: set[str]) -> str:
    """The column of a parameter, which may have the name of another column."""
    return f"{Cells.MARK}{name}" if name in others or name.startswith(Cells.MARK) else name


def _print_table(entries: Sequence[TrialView], names: Sequence[str], columns: Sequence[str]) -> None:
    rows: list[list[console.Cell]] = []
    for entry in entries:
        shown = (console.short(entry.params[name]) if name in entry.params else "" for name in names)
        rows.append([(str(entry.number), "bold"), *shown])
    console.table(["number", *columns], rows, left=())


def _print_steps(by_hand: ByHand, steps: Sequence[Step], numbers: Sequence[int | None], *, as_json: bool) -> None:
    counts = dict(Counter(step.kind for step in steps))
    pending = [entry.number for entry in by_hand.pending()]
    facts = facts_of(by_hand.study)
    unused = [step.row for step in steps if step.kind == UNUSED]
    if as_json:
        known = [each for each in numbers if each is not None]
        record = {"recorded": counts, "numbers": known, "unused_rows": unused, **summary.best_and_front(facts)}
        record["pending"] = pending
        console.print_json(record)
        return
    where = {UNUSED: f" (row{'s' * (len(unused) > 1)} {checks.shortened(unused)[1:-1]})"}
    done = ", ".join(f"{n} {kind}{where.get(kind, '')}" for kind, n in counts.items())
    parts = [f"trial {numbers[0]} {steps[0].kind}" if len(steps) == 1 and numbers[0] is not None else done]
    if facts.view.front:
        first = facts.view.front[0]
        best = f"best {console.short(first.values[0])} (trial {first.number})"
        parts.append(f"front of {len(facts.view.front)}" if facts.several else best)
    if pending:
        parts.append(f"pending: {', '.join(map(str, pending))}")
    console.line("; ".join(parts))
