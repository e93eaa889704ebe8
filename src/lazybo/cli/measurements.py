"""What people measured, from words of the command line or from a table, as calls of `ByHand`."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial, TrialState

from lazybo.run.by_hand import TOLD, ByHand, Measurement
from lazybo.run.goals import Goals
from lazybo.space.tables import MARK, csv_rows, parameter_columns, params_of, parsed
from lazybo.study.store import Store
from lazybo.study.trial import as_given

# Columns of `lazybo export` besides parameters, values and metrics.
EXPORTED = ("number", "datetime_start", "datetime_complete", "duration", "feasible", "state", "reason", "repeat_of")
# Columns of an export that lazybo has computed.
OWN = ("constraints_", "user_attrs_lazybo:")
FAILED = "failed"


@dataclass(frozen=True)
class Step:
    """Something to record: what it is called (told, added, corrected), and the call that does it.

    ``number`` is the trial's; a trial that is added gets its number from the call.
    """

    kind: str
    call: Callable[[], int | None]
    number: int | None = None

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
    rest = list(words)
    place: list[str] = []
    while rest and _number(rest[0]) is None and ("://" in rest[0] or "=" not in rest[0]) and len(place) < 2:
        if rest[0].startswith("-"):
            raise ValueError(f"there is no option {rest[0]} (see lazybo tell --help)")
        place.append(rest.pop(0))
    number = _trial_number(rest.pop(0)) if numbered and rest else None
    if numbered and number is None:
        raise ValueError("give the number of a trial and its value, for example: lazybo tell 3 0.71")
    values, named = [], {}
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


def measured_of(words: Words, goals: Goals, variance: Sequence[float] | None, seconds: float | None) -> Measurement:
    """What the words say was measured: values by position, or by the names of the objectives."""
    names = _names(goals)
    by_name = [name for name in names if name in words.named]
    if by_name and (words.values or len(by_name) < len(names)):
        raise ValueError(f"give the values of all objectives by name ({', '.join(names)}), or all in this order")
    values = [words.named[name] for name in by_name] or list(words.values)
    if not values:
        raise ValueError("there is no value: give it after the number, or --failed, or --skip")
    metrics = {name: value for name, value in words.named.items() if name not in by_name}
    return Measurement(_values(values), metrics, None if not variance else tuple(variance), seconds)


def _names(goals: Goals) -> list[str]:
    """How the objectives are called on the command line."""
    return list(goals.names or (["value"] if len(goals.directions) == 1 else []))


def _values(given: Sequence[Any]) -> tuple[float, ...]:
    for value in given:
        if not isinstance(value, int | float) or not math.isfinite(value):
            raise ValueError(f"a value must be a finite number, not {value!r}; tell a failure with --failed")
    return tuple(map(float, given))


def params_from(texts: Sequence[str], by_hand: ByHand) -> dict[str, Any]:
    """Parameters that are given as NAME=VALUE."""
    cells: dict[str, Any] = {}
    for text in texts:
        name, is_given, value = text.partition("=")
        if not is_given or name in cells:
            raise ValueError(f"--param {text!r}: write --param NAME=VALUE, once for each parameter")
        if name not in by_hand.space.distributions:
            raise ValueError(f"there is no parameter {name!r}; this study has {sorted(by_hand.space.distributions)}")
        cells[name] = parsed(value, by_hand.space.distributions[name])
    return by_hand.space.plain(params_of(cells, by_hand.space.distributions, by_hand.space.stored_conditions))


def step_for(by_hand: ByHand, params: Mapping[str, Any], measured: Measurement) -> Step:
    """Tell the pending trial with these parameters; if there is none, add an experiment that nobody asked for."""
    for entry in by_hand.pending():
        if as_given(entry.params, by_hand.space.distributions) == dict(params):
            return Step("told", partial(by_hand.tell, entry.number, measured), entry.number)
    return Step("added", partial(by_hand.add, params, measured))


# ------------------------------------------------------------------------ tables


def steps_of(path: Path, by_hand: ByHand, *, correct: bool) -> list[Step]:
    """What a table says that the study does not know yet. All of it is validated before anything is written."""
    rows = csv_rows(path, "the table", by_hand.space.distributions, first=2)
    trials = Store(by_hand.study).trials()
    table = _Table(by_hand, trials, correct=correct)
    found = []
    for i, cells in enumerate(rows, 2):
        try:
            found.append(table.step(cells))
        except (ValueError, TypeError, OverflowError) as error:
            raise ValueError(f"row {i} of {path.name}: {error}") from None
    return found


class _Table:
    """Matches the rows of a table with the trials of a study. Rows without a number use each trial once."""

    def __init__(self, by_hand: ByHand, trials: Sequence[FrozenTrial], *, correct: bool) -> None:
        self._by_hand, self._correct = by_hand, correct
        self._space, self._goals = by_hand.space, by_hand.goals
        self._left = list(trials)
        self._numbers: set[int] = set()

    def step(self, cells: Mapping[str, Any]) -> Step:
        """What a row changes."""
        columns = self._parameter_columns(cells)
        named = {name: cells[column] for name, column in columns.items()}
        params = params_of(named, self._space.distributions, self._space.stored_conditions)
        others = {column: cell for column, cell in cells.items() if column not in columns.values()}
        number, measured = others.get("number"), self._measured(others)
        if measured is None or others.get("state") == TrialState.PRUNED.name:
            return _nothing("without a value")
        self._by_hand.result(measured)
        if number is not None:
            return self._numbered(number, params, measured)
        params = self._space.plain(params)
        same = next((trial for trial in self._left if self._is_same(trial, params, measured)), None)
        if same is None:
            return Step("added", partial(self._by_hand.add, params, measured))
        self._left.remove(same)
        told = partial(self._by_hand.tell, same.number, measured)
        return _nothing("unchanged") if same.state in TOLD else Step("told", told, same.number)

    def _parameter_columns(self, cells: Mapping[str, Any]) -> dict[str, str]:
        """The columns of the parameters. A column with the name of an objective belongs to the objective."""
        columns = parameter_columns(cells, self._space.distributions)
        for name, column in columns.items():
            if column in result_columns(self._goals):
                raise ValueError(
                    f"the column {column!r} is a result; call the column of the parameter {name!r} {MARK + name!r}"
                )
        return columns

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
        if trial in self._left:
            self._left.remove(trial)
        if not self._by_hand.agrees(trial, params):
            raise ValueError(
                f"trial {number} has the parameters {trial.params}, not {dict(params)}; leave its number empty to "
                "record an experiment of its own"
            )
        if trial.state not in TOLD:
            self._by_hand.pending_trial(number)
            return Step("told", partial(self._by_hand.tell, number, measured), number)
        if self._is_told(trial, measured):
            return _nothing("unchanged")
        if not self._correct:
            there = FAILED if trial.values is None else trial.values
            raise ValueError(f"trial {number} was told already as {there}; give --correct to change it")
        return Step("corrected", partial(self._by_hand.correct, number, measured), number)

    def _is_same(self, trial: FrozenTrial, params: Mapping[str, Any], measured: Measurement) -> bool:
        """Whether a trial has these parameters, and is pending or has these values."""
        if as_given(trial.params, self._space.distributions) != params:
            return False
        return trial.state == TrialState.RUNNING or (trial.state in TOLD and self._is_told(trial, measured))

    def _is_told(self, trial: FrozenTrial, measured: Measurement) -> bool:
        values = None if trial.values is None else tuple(trial.values)
        known = all(trial.user_attrs.get(name) == value for name, value in measured.metrics.items())
        return values == measured.values and known

    def _measured(self, cells: Mapping[str, Any]) -> Measurement | None:
        """What a row without its parameters has measured; None if it has no value yet."""
        several = len(self._goals.directions) > 1
        names = _names(self._goals) or [str(i) for i in range(len(self._goals.directions))]
        columns = [_column(name, cells, several=several) for name in names]
        values = [cells[column] for column in columns if column is not None]
        is_failed = any(isinstance(value, str) and value.strip().lower() == FAILED for value in values)
        is_failed |= cells.get("state") == TrialState.FAIL.name
        if not is_failed and all(value is None for value in values):
            return None
        known = {"variance", *filter(None, columns), *EXPORTED}
        metrics = {
            str(name).removeprefix("user_attrs_"): cell
            for name, cell in cells.items()
            if name not in known and cell is not None and not name.startswith(OWN)
        }
        variance = cells.get("variance")
        known_variance = None if variance is None else (float(variance),) * len(names)
        if is_failed:
            return Measurement(None, metrics, known_variance)
        if len(values) < len(names) or None in values:
            raise ValueError(f"it needs a value for each of {', '.join(names)}")
        return Measurement(_values(values), metrics, known_variance)


def value_columns(goals: Goals) -> list[str]:
    """The columns of a table for the values of the objectives."""
    return _names(goals) or [f"values_{i}" for i in range(len(goals.directions))]


def result_columns(goals: Goals) -> list[str]:
    """The columns of a table that may have the values of the objectives, also under the names of `lazybo export`."""
    names = _names(goals) or [str(i) for i in range(len(goals.directions))]
    return [column for name in names for column in _columns(name, several=len(goals.directions) > 1)]


def _columns(name: str, *, several: bool) -> tuple[str, ...]:
    """The columns that an objective may have; one objective may be called ``value`` too."""
    return (name, f"values_{name}", *(() if several else ("value",)))


def _column(name: str, cells: Mapping[str, Any], *, several: bool) -> str | None:
    """The column of an objective, if a row has it."""
    return next((column for column in _columns(name, several=several) if column in cells), None)


def _nothing(kind: str) -> Step:
    return Step(kind, lambda: None)
