"""What people measured, from words of the command line or from a table, as calls of `ByHand`."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from lazybo.run import ByHand, Goals, Measurement
from lazybo.space import Cells
from lazybo.study import StudyView, TrialView

# Columns of `lazybo export` besides parameters, values and metrics.
EXPORTED = ("number", "datetime_start", "datetime_complete", "duration", "feasible", "state", "reason", "repeat_of")
# Columns of an export that lazybo has computed.
OWN = ("constraints_", "user_attrs_lazybo:")
FAILED = "failed"
# The rows of a table that record nothing, since nothing was measured yet.
UNUSED = "without a value"


@dataclass(frozen=True)
class Step:
    """Something to record: what it is called (told, added, corrected), and the call that does it.

    ``number`` is the trial's; a trial that is added gets its number from the call. ``row`` is that of a table.
    """

    kind: str
    call: Callable[[], int | None] = lambda: None
    number: int | None = None
    row: int | None = None

    def apply(self) -> int | None:
        """Record it; the number of its trial, None if nothing was recorded."""
        added = self.call()
        return self.number if added is None else added


# ------------------------------------------------------------------------ words


@dataclass(frozen=True)
class Words:
    """The words of `lazybo tell`: [STORAGE [STUDY]] [NUMBER] VALUE... NAME=NUMBER..."""

    place: tuple[str, ...]
    number: int | None
    values: tuple[float, ...]
    named: dict[str, float | str]


def split_words(words: Sequence[str], *, numbered: bool) -> Words:
    """Parse the words. With ``numbered``, the first number names a trial; otherwise all numbers are values."""
    rest, place, number = list(words), list[str](), None
    while rest and len(place) < 2 and _is_place(rest[0]):
        place.append(rest.pop(0))
    if numbered:
        if not rest:
            raise ValueError("give the number of a trial and its value, for example: lazybo tell 3 0.71")
        number = _trial_number(rest.pop(0))
    values: list[float] = []
    named: dict[str, float | str] = {}
    for word in rest:
        name, is_named, text = word.partition("=")
        value = _number(text if is_named else word)
        if is_named:
            if not name.strip():
                raise ValueError(f"{word!r} has no name: write NAME=NUMBER, or the value alone")
            if name in named:
                raise ValueError(f"{name} is given twice")
            named[name] = text if value is None else value
        elif value is None:
            raise ValueError(f"a value must be a number or NAME=NUMBER, not {word!r}{_with_point(word)}")
        else:
            values.append(value)
    return Words(tuple(place), number, tuple(values), named)


def _is_place(word: str) -> bool:
    """Whether a word is the storage or the study."""
    if _number(word) is not None or ("=" in word and "://" not in word):
        return False
    if word.startswith("-"):
        raise ValueError(f"there is no option {word} (see lazybo tell --help)")
    return True


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _trial_number(word: str) -> int:
    if not word.isdecimal():
        raise ValueError(f"the number of a trial must be a whole number such as 3, not {word!r}")
    return int(word)


def _with_point(word: str) -> str:
    point = word.replace(",", ".")
    return f"; write {point}" if point != word and _number(point) is not None else ""


def measured_of(
    words: Words, goals: Goals, variance: Sequence[str], seconds: float | None, *, failed: bool, correct: bool
) -> Measurement:
    """What the words say was measured. Each of several values has its name; a correction may leave some out."""
    known, names = _variances(variance, goals), value_columns(goals)
    if failed:
        return Measurement(None, words.named, known, seconds)
    metrics = dict(words.named)
    by_name = [metrics.pop(name, None) for name in names]
    is_named = by_name != [None] * len(names)
    if words.values and (goals.several or is_named):
        what = f"the study has {len(names)} objectives, so give" if goals.several else "give the value once, or"
        raise ValueError(f"{what} each value by its name: {named_form(goals)}")
    if not (words.values or is_named or (correct and (metrics or known or seconds))):
        raise ValueError(f"there is no value: give {named_form(goals)} after the number, or --failed, or --skip")
    return Measurement(_values(words.values or by_name, "tell a failure with --failed"), metrics, known, seconds)


def named_form(goals: Goals) -> str:
    """How the values are given on the command line."""
    return " ".join(f"{name}=NUMBER" for name in value_columns(goals)) if goals.several else "VALUE"


def _variances(words: Sequence[str], goals: Goals) -> tuple[float, ...] | None:
    """The variances of the flags: NUMBER, or NAME=NUMBER for each of several objectives."""
    wanted = value_columns(goals) if goals.several else [""]
    given = {name: _number(text) for name, _, text in (word.rpartition("=") for word in words)}
    if words and (len(words) != len(wanted) or given.keys() != set(wanted) or None in given.values()):
        form = " ".join(f"--variance {name}=NUMBER" if name else "--variance NUMBER" for name in wanted)
        raise ValueError(f"give {form}, not {' '.join(words)}")
    return tuple(float(given[name] or 0.0) for name in wanted) if words else None


def _values(given: Sequence[Any], failure: str) -> tuple[float | None, ...]:
    for value in given:
        if value is not None and (not isinstance(value, int | float) or not math.isfinite(value)):
            shown = f"{value!r}{_with_point(value)}" if isinstance(value, str) else value
            raise ValueError(f"a value must be a finite number, not {shown}; {failure}")
    return tuple(None if value is None else float(value) for value in given)


def params_from(texts: Sequence[str], by_hand: ByHand) -> dict[str, Any]:
    """Parameters that are given as NAME=VALUE."""
    cells: dict[str, Any] = {}
    for text in texts:
        name, is_given, value = text.partition("=")
        if not is_given or name in cells:
            raise ValueError(f"--param {text!r}: write --param NAME=VALUE, once for each parameter")
        if name not in by_hand.space.distributions:
            raise ValueError(f"there is no parameter {name!r}; this study has {sorted(by_hand.space.distributions)}")
        cells[name] = by_hand.space.cells.parsed(name, value)
    return by_hand.space.plain(by_hand.space.cells.params(cells))


def step_for(by_hand: ByHand, params: Mapping[str, Any], measured: Measurement) -> Step:
    """Tell the pending trial with these parameters; if there is none, add an experiment that nobody asked for."""
    for entry in by_hand.pending():
        if entry.given_in(by_hand.space) == dict(params):
            return Step("told", partial(by_hand.tell, entry.number, measured), entry.number)
    return Step("added", partial(by_hand.add, params, measured))


# ------------------------------------------------------------------------ tables


def steps_of(path: Path, by_hand: ByHand, *, correct: bool) -> list[Step]:
    """What a table says that the study does not know yet. All of it is validated before anything is written."""
    rows = by_hand.space.cells.read(path, "the table", first=2)
    table = _Table(by_hand, StudyView.of(by_hand.study).trials, correct=correct)
    if not rows:
        raise ValueError(f"{path.name} has no row below its heading; nothing is recorded")
    table.check_columns(next(iter(rows.values())), path.name)
    found = []
    for i, cells in rows.items():
        try:
            found.append(replace(table.step(cells), row=i))
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"row {i} of {path.name}: {error}") from None
    return found


class _Table:
    """Matches the rows of a table with the trials of a study. Rows without a number use each trial once."""

    def __init__(self, by_hand: ByHand, trials: Sequence[TrialView], *, correct: bool) -> None:
        self._by_hand, self._correct = by_hand, correct
        self._space, self._goals = by_hand.space, by_hand.goals
        self._left = list(trials)
        self._numbers: set[int] = set()

    def check_columns(self, columns: Collection[str], table: str) -> None:
        """Raise a ValueError if values have no column, or if a column nearly has the name of another one."""
        lacking, names, goals = [], value_columns(self._goals), self._goals
        for objective, name in zip(_names(goals), names, strict=True):
            found = [column for column in _columns(objective, goals) if column in columns]
            if len(found) > 1:
                raise ValueError(
                    f"{table} has two columns for {objective!r}, {' and '.join(found)}; remove one of them"
                )
            lacking += [] if found else [name]
        self._check_spelling(columns, table)
        if lacking and (not self._correct or lacking == names):
            raise ValueError(
                f"{table} has no column {' and no column '.join(map(repr, lacking))}, only "
                f"{', '.join(columns)}; rename the one that has these values"
            )

    def _check_spelling(self, columns: Collection[str], table: str) -> None:
        metrics = [bound.metric for bound in self._goals.bounds] + [self._goals.cost or "number"]
        names = [*metrics, *value_columns(self._goals), *self._space.distributions]
        known = dict.fromkeys(["number", "variance", "state", *names])
        similar = {_letters(name): name for name in reversed(known) if name not in columns}
        for column in columns:
            if column not in known and (meant := similar.get(_letters(column))):
                raise ValueError(f"{table} has the column {column!r}; rename it to {meant!r}")

    def step(self, cells: Mapping[str, Any]) -> Step:
        """What a row changes."""
        columns = self._space.cells.columns(cells)
        for name, column in columns.items():
            if column in result_columns(self._goals):
                better = f"call the column of the parameter {name!r} {Cells.MARK + name!r}"
                raise ValueError(f"the column {column!r} is a result; {better}")
        params = self._space.cells.params({name: cells[column] for name, column in columns.items()})
        others = {column: cell for column, cell in cells.items() if column not in columns.values()}
        number, measured = others.get("number"), self._measured(others)
        if measured is None or others.get("state") == TrialState.PRUNED.name:
            return Step(UNUSED)
        if number is not None:
            return self._numbered(number, params, measured)
        self._by_hand.result(measured)
        params = self._space.plain(params)
        same = next((trial for trial in self._left if self._is_same(trial, params, measured)), None)
        if same is None:
            return Step("added", partial(self._by_hand.add, params, measured))
        self._left.remove(same)
        if self._by_hand.was_told(same):
            return Step("unchanged")
        return Step("told", partial(self._by_hand.tell, same.number, measured), same.number)

    def _numbered(self, number: object, params: Mapping[str, Any], measured: Measurement) -> Step:
        if isinstance(number, float) and number.is_integer():
            number = int(number)
        if not isinstance(number, int) or isinstance(number, bool):
            raise ValueError(f"the number of a trial must be a whole number, not {number!r}; leave it empty for others")
        if number in self._numbers:
            raise ValueError(
                f"trial {number} is in the table twice; keep one of its rows, or leave the second "
                "number empty if it was measured twice"
            )
        self._numbers.add(number)
        trial = self._by_hand.trial(number)
        self._left = [each for each in self._left if each.number != number]
        if not self._by_hand.agrees(trial, params):
            raise ValueError(
                f"trial {number} has the parameters {trial.params}, not {dict(params)}; leave its number empty to "
                "record an experiment of its own"
            )
        if not self._by_hand.was_told(trial):
            self._by_hand.pending_trial(number)
            self._by_hand.result(measured)
            return Step("told", partial(self._by_hand.tell, number, measured), number)
        if self._by_hand.says(trial, measured):
            return Step("unchanged")
        if not self._correct:
            there = trial.values or FAILED
            raise ValueError(f"trial {number} was told already as {there}; give --correct to change it")
        return Step("corrected", partial(self._by_hand.correct, number, measured), number)

    def _is_same(self, trial: TrialView, params: Mapping[str, Any], measured: Measurement) -> bool:
        """Whether a trial has these parameters, and is pending or has these values."""
        if trial.given_in(self._space) != params:
            return False
        was_told = self._by_hand.was_told(trial)
        return trial.state == "running" or (was_told and self._by_hand.says(trial, measured))

    def _measured(self, cells: Mapping[str, Any]) -> Measurement | None:
        """What a row without its parameters has measured; None if it has no value yet."""
        columns = {name: _column(name, cells, self._goals) for name in _names(self._goals)}
        given = {name: None if column is None else cells[column] for name, column in columns.items()}
        values = {name: value for name, value in given.items() if str(value).strip().lower() != FAILED}
        is_failed = len(values) < len(given) or cells.get("state") == TrialState.FAIL.name
        if not is_failed and set(values.values()) == {None}:
            return None
        metrics = _metrics_of(cells, {"variance", *filter(None, columns.values()), *EXPORTED})
        variance = cells.get("variance")
        if isinstance(variance, str):
            raise ValueError(f"a variance must be a number, not {variance!r}{_with_point(variance)}")
        variances = None if variance is None else (float(variance),) * len(given)
        numbers = _values(list(values.values()), f"write {FAILED} if there is none, or leave the cell empty")
        if not is_failed:
            return Measurement(numbers, metrics, variances)
        kept = zip(values, numbers, strict=True)  # what was measured all the same
        return Measurement(None, metrics | {name: each for name, each in kept if each is not None}, variances)


def _metrics_of(cells: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    more = {name: cell for name, cell in cells.items() if name not in known and cell is not None}
    return {name.removeprefix("user_attrs_"): cell for name, cell in more.items() if not name.startswith(OWN)}


def _letters(name: str) -> str:
    """A name without case, spaces and signs."""
    return "".join(filter(str.isalnum, name.casefold()))


def _names(goals: Goals) -> list[str]:
    """How the objectives are called in tables; by their positions if they have no names."""
    return list(goals.names or (["value"] if not goals.several else map(str, range(len(goals.directions)))))


def value_columns(goals: Goals) -> list[str]:
    """The columns of a table for the values of the objectives, and their names on the command line."""
    return _names(goals) if goals.names or not goals.several else [f"values_{name}" for name in _names(goals)]


def result_columns(goals: Goals) -> list[str]:
    """The columns of a table that may have the values of the objectives, also under the names of `lazybo export`."""
    return [column for name in _names(goals) for column in _columns(name, goals)]


def _columns(name: str, goals: Goals) -> tuple[str, ...]:
    """The columns that an objective may have; one objective may be called ``value`` too."""
    # One objective without a name is itself called ``value``.
    return tuple(dict.fromkeys((name, f"values_{name}", *(() if goals.several else ("value",)))))


def _column(name: str, cells: Collection[str], goals: Goals) -> str | None:
    """The column of an objective, if a row has it."""
    return next((column for column in _columns(name, goals) if column in cells), None)
