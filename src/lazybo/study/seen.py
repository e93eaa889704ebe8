"""What each suggestion had seen: the order in which a model was told about trials, kept with the trials.

A model that is used from its opening to its end is a *session*. Its events are short words, and a new trial keeps those
since the session's last one, in the same write as the trial itself. From these, `study.replaying` makes every
suggestion again, for any number of processes and kills.

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

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import lazybo
from lazybo.study.attributes import SEEN_KEY, joined, parts

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

    def attributes(self, key: str = SEEN_KEY) -> dict[str, str]:
        """The events since the last ones that were written, as attributes of a trial; empty if nothing is recorded."""
        if self.opening is None:
            return {}
        opening = f"{self.opening}" if self._is_new else ""
        return parts(key, ";".join((self.session, opening, " ".join(_shortened(self._words)))))

    def rest(self) -> dict[str, str]:
        """The same as attributes of the study, for the end of a session."""
        return self.attributes(f"{SEEN_KEY}:{self.session}")

    def written(self) -> None:
        """The attributes were written: later ones begin with the next event."""
        self._words, self._is_new = [], False


@dataclass(frozen=True)
class Part:
    """The events that a trial has kept, and the opening of the session if they are its first."""

    session: str
    opening: Opening | None
    events: list[str]


def read_seen(attributes: Mapping[str, Any], key: str = SEEN_KEY) -> Part | None:
    """What a trial had seen; None if that was not recorded, or is damaged."""
    try:
        session, opening, words = joined(attributes, key).split(";")
        return Part(session, Opening.parse(opening) if opening else None, list(_expanded(words.split())))
    except ValueError:
        return None


def _shortened(words: Iterable[str]) -> list[str]:
    """Runs of the same event of consecutive trials as one word each."""
    found: list[tuple[str, int, int]] = []
    texts: list[str] = []
    for word in words:
        kind, number = word[0], int(word[1:]) if word[0] in "af" else -1
        if found and kind in "af" and found[-1][0] == kind and found[-1][2] + 1 == number:
            found[-1] = kind, found[-1][1], number
            texts[-1] = f"{kind}{found[-1][1]}-{number}"
        else:
            found.append((kind, number, number))
            texts.append(word)
    return texts


def _expanded(words: Iterable[str]) -> Iterator[str]:
    """The inverse of `_shortened`."""
    for word in words:
        found = _RANGE.fullmatch(word)
        if found is None:
            yield word
        else:
            yield from (f"{found[1]}{number}" for number in range(int(found[2]), int(found[3]) + 1))
