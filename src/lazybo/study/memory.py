"""What a model has learned and what each suggestion had seen, kept with the study and its trials.

What was learned is kept so that a resumed study or a second process continues with it; what was seen, so that
`study.replaying` can make every suggestion again, for any number of processes and kills.

A model that is used from its opening to its end is a *session*. Its events are short words, and a new trial keeps those
since the session's last one, in the same write as the trial itself.

========  ========================================================================
word      event
========  ========================================================================
a12       trial 12 runs: it is pending
f12       trial 12 has ended
p12.6     trial 12 was paused after step 6
w12.8     trial 12 runs and has reported 8 values, from which it gets a forecast
b0.5      the share of the budget that is left
q13.2     suggestions for the numbers 13 and 14
c13       trial 13 was enqueued with some of its parameters, and gets the others
x         a configuration to repeat in the final check
z7        what was learned after the first 7 events is forgotten
========  ========================================================================

The same event of consecutive trials is one word: a12-15.
"""

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import optuna
from optuna.trial import FrozenTrial

import lazybo
from lazybo.core import checks, codec
from lazybo.search import Optimizer
from lazybo.study.attributes import Key, joined, object_of, of_trial, parts, rewritable_parts
from lazybo.study.trial import TrialView

_logger = optuna.logging.get_logger("optuna.samplers.lazybo")

# The description of a parameter with thousands of choices is long and written with most trials. Its hash is enough.
LONGEST_COLUMN = 500
_RANGE = re.compile(r"([af])(\d+)-(\d+)")


@dataclass(frozen=True)
class Opening:
    """How a session began.

    ``recalled`` is the moment whose learned parameters it began with: a session and its number of events there; None
    if nothing was learned before, and an empty session if nobody knows. ``options`` is a digest of its options.
    ``known`` results were given that the study does not have. ``predicate`` says whether the space had one. The
    ``version`` of lazybo is empty in studies of development versions.
    """

    recalled: tuple[str, int] | None
    options: str
    known: int = 0
    predicate: bool = False
    version: str = ""

    def __str__(self) -> str:
        recalled = "-" if self.recalled is None else f"{self.recalled[0]}.{self.recalled[1]}"
        return f"{recalled},{self.options},{self.known},{int(self.predicate)},{self.version}"

    @staticmethod
    def parse(text: str) -> "Opening":
        """The inverse of ``str``."""
        recalled, options, known, predicate, *version = text.split(",")
        session, _, events = recalled.partition(".")
        moment = None if recalled == "-" else (session, int(events))
        return Opening(moment, options, int(known), predicate == "1", *version)


@dataclass
class Seen:
    """The events of a session. Nothing is noted before it is opened."""

    opening: Opening | None = None
    recalled: tuple[str, int] | None = None  # the moment that this session continues
    session: str = field(default_factory=lambda: uuid.uuid4().hex[:8])
    count: int = 0  # of all events
    _words: list[str] = field(default_factory=list)  # since the last ones that were written
    _is_new: bool = True

    def record(self, options: str, known: int = 0, *, predicate: bool) -> None:
        """Note events from now on. The arguments are those of `Opening`."""
        self.opening = Opening(self.recalled, options, known, predicate, lazybo.__version__)

    def note(self, event: str) -> None:
        """Note an event, if this session is recorded."""
        if self.opening is not None:
            self._words.append(event)
            self.count += 1

    def attributes(self, key: str = Key.SEEN) -> dict[str, str]:
        """The events since the last ones that were written, as attributes of a trial; empty if nothing is recorded."""
        if self.opening is None:
            return {}
        opening = f"{self.opening}" if self._is_new else ""
        return parts(key, ";".join((self.session, opening, " ".join(_shortened(self._words)))))

    def rest(self) -> dict[str, str]:
        """The same as attributes of the study, for the end of a session."""
        return self.attributes(f"{Key.SEEN}:{self.session}")

    def written(self) -> None:
        """The attributes were written: later ones begin with the next event."""
        self._words, self._is_new = [], False


@dataclass(frozen=True)
class Part:
    """The events that a trial has kept, and the opening of the session if they are its first."""

    session: str
    opening: Opening | None
    events: list[str]


def read_seen(attributes: Mapping[str, Any], key: str = Key.SEEN) -> Part | None:
    """What a trial had seen; None if that was not recorded, or is damaged."""
    try:
        session, opening, words = joined(attributes, key).split(";")
        return Part(session, Opening.parse(opening) if opening else None, list(_expanded(words.split())))
    except ValueError:
        return None


def _shortened(words: Iterable[str]) -> Iterator[str]:
    """Runs of the same event of consecutive trials as one word each."""

    def run_of(place: tuple[int, str]) -> tuple[str, int]:
        i, word = place
        return (word[0], int(word[1:]) - i) if word[0] in "af" else (word, i)

    for _, same in groupby(enumerate(words), key=run_of):
        (_, first), *rest = same
        yield f"{first}-{rest[-1][1][1:]}" if rest else first


def _expanded(words: Iterable[str]) -> Iterator[str]:
    """The inverse of `_shortened`."""
    for word in words:
        found = _RANGE.fullmatch(word)
        if found is None:
            yield word
        else:
            yield from (f"{found[1]}{number}" for number in range(int(found[2]), int(found[3]) + 1))


class Memory:
    """What an optimiser has learned from ``finished`` trials of a study, and what of it the study has.

    A resumed study or a second process continues with it. It is stored with the trial whose suggestion needed it
    (`StudyModel.announcement`), or with the study (`unsaved_attributes`).
    """

    def __init__(self, optimizer: Optimizer) -> None:
        space = optimizer.space
        columns = [[name, str(space.parameters[name])] for name in space.points.names]
        columns += [["features", str(space.points.own)]] if space.points.own else []
        self._columns = _short_columns(columns)
        self._planner = optimizer.planner
        self.basis = ""  # `TrainingCurves.basis` when the process was last built for forecasts
        self.finished = 0
        self.seen = Seen()
        self._saved = self.learned()  # as it was last written or read
        self._saved_at = 0  # the number of events then

    def learned(self) -> dict[str, Any]:
        """What was learned, as plain data that `adopt` takes."""
        curves = {"curves": self.basis} if self.basis else {}
        found = {"columns": self._columns, "model": self._planner.state(), **curves}
        plain: dict[str, Any] = json.loads(json.dumps(found))  # so that it is equal to what a study returns
        return plain

    def adopt(self, saved: Mapping[str, Any]) -> None:
        """Continue with what a model of the same space had `learned`. Raises a ValueError if that is damaged."""
        session, events = saved.get("by", ("", 0))
        recalled = str(session), checks.whole("by", events, 0)
        self._planner.restore(saved["model"])
        self.basis, self.seen.recalled = str(saved.get("curves", "")), recalled

    def recall(self, attributes: Mapping[str, Any], trials: Sequence[FrozenTrial]) -> None:
        """Restore what another process, or an earlier one, has learned about the same space.

        It is stored with the study, whose ``attributes`` are given, or with a trial; the latest counts.
        """
        last = next((trial for trial in reversed(trials) if "model" in TrialView(trial).handling.announcement), None)
        candidates = [(f"the attribute {Key.MODEL!r} of the study", attributes, Key.MODEL)]
        if last is not None:
            candidates.append((of_trial(Key.SUGGESTION, last.number), last.system_attrs, Key.SUGGESTION))
        latest = -1
        for where, stored, key in candidates:
            try:
                with codec.readable(where):
                    saved = object_of(stored, key)
                    if not saved or _short_columns(saved["columns"]) != self._columns:
                        continue
                    finished = checks.whole("finished", saved.get("finished", 0), 0)
                    if finished >= latest:
                        self.adopt(saved)
                        latest = finished
            except ValueError as error:
                _logger.warning(f"What this study learned earlier cannot be used ({error}); it is learned again.")
        self._saved = self.learned()

    def unsaved(self) -> dict[str, Any]:
        """What has been learned since it was last saved. It then counts as saved."""
        learned = self.learned()
        if learned == self._saved:
            return {}
        self._saved, self._saved_at = learned, self.seen.count
        by = {"by": [self.seen.session, self.seen.count]} if self.seen.opening is not None else {}
        return {"finished": self.finished, **by, **learned}

    def unsaved_attributes(self) -> dict[str, Any]:
        """The same as attributes of the study."""
        unsaved = self.unsaved()
        return rewritable_parts(Key.MODEL, json.dumps(unsaved)) if unsaved else {}

    def forget_unsaved(self) -> None:
        """Go back to what was learned when it was last saved, since the suggestion that needed more is not used.

        Only new trials save what was learned. So what a resumed run continues with never depends on what was
        suggested, not used, and then lost.
        """
        if self.learned() != self._saved:
            self.seen.note(f"z{self._saved_at}")
            self.adopt(self._saved)


def _short_columns(columns: Iterable[Sequence[str]]) -> list[list[str]]:
    """Names and descriptions of parameters, with a hash instead of each long description."""
    return [
        [name, text if len(text) <= LONGEST_COLUMN else hashlib.sha256(text.encode()).hexdigest()]
        for name, text in columns
    ]
