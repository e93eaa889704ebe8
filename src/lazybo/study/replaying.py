"""replay(): every suggestion of a study made again, from the study alone, and compared bit for bit.

The trials have kept what each suggestion had seen (`lazybo.study.memory`). A session is replayed event by event on a
new model; sessions that continue with what another one had learned get it from the replay of that one.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Any

from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

import lazybo
from lazybo.core import checks
from lazybo.search import Optimizer, Options
from lazybo.study.attributes import Key, object_of
from lazybo.study.definition import directions_of, options_digest, options_of, reporting_of
from lazybo.study.memory import Opening, Part, read_seen
from lazybo.study.model import StudyModel
from lazybo.study.store import Store
from lazybo.study.trial import TrialView, as_given, params_in

# A moment of a session: its name, and how many of its events were before.
Moment = tuple[str, int]


class Missing(Exception):
    """What is needed for a replay and is not in the study."""


@dataclass(frozen=True)
class Replayed:
    """What the replay says about a trial: ``again`` are the parameters that it suggests, None if it cannot.

    ``missing`` says why, or why the parameters may differ from those of the trial.
    """

    number: int
    params: dict[str, Any]
    again: dict[str, Any] | None
    missing: str = ""

    @property
    def differs(self) -> bool:
        """Whether a suggestion was made again and is another one, although nothing is missing."""
        return not self.missing and self.again != self.params


@dataclass
class _Session:
    """The events of a session in their order, each part with its trial; None for the end of a run."""

    opening: Opening | None = None
    parts: list[tuple[int | None, list[str]]] = field(default_factory=list)


def replay(study: Study, feasible: Callable[[dict[str, Any]], bool] | None = None) -> Iterator[Replayed]:
    """Make every suggestion of a study again. Trials that somebody enqueued completely are left out.

    ``feasible`` is the predicate of the space, which a study cannot hold.
    """
    if not isinstance(study, Study):
        raise ValueError(f"study must be an Optuna study, not {checks.shortened(study)}")
    store = Store(study)
    trials = store.trials()
    recorded = {trial.number: part for trial in trials if (part := read_seen(trial.system_attrs)) is not None}
    for trial in trials:
        if trial.number not in recorded and not TrialView(trial).handling.was_enqueued:
            yield Replayed(trial.number, dict(trial.params), None, "what its suggestion had seen was not recorded")
    if not recorded:
        return
    sessions = _sessions(recorded, store.attributes())
    options, space = options_of(study, trials)
    space = space.changed(feasible=feasible)
    wanted, moments = _moments_to_keep(sessions), dict[Moment, dict[str, Any]]()
    for name, session in sessions.items():
        model = StudyModel(Optimizer.with_options(space, directions_of(study), options), reporting_of(study))
        missing = _open(model, session.opening, options, feasible, moments)
        yield from _Player(name, model, trials, wanted, moments, missing).play(session)


def _moments_to_keep(sessions: Mapping[str, _Session]) -> set[Moment]:
    """The moments with which a session begins, or to which one goes back."""
    wanted = {each.opening.recalled for each in sessions.values() if each.opening and each.opening.recalled}
    for name, session in sessions.items():
        words = (word for _, events in session.parts for word in events)
        wanted |= {(name, int(word[1:])) for word in words if word[0] == "z" and word[1:].isdecimal()}
    return wanted


def _sessions(recorded: Mapping[int, Part], attributes: Mapping[str, Any]) -> dict[str, _Session]:
    """The sessions in the order in which they began. Parts of one are in the order of their trials."""
    found: dict[str, _Session] = {}
    for number, part in sorted(recorded.items()):
        session = found.setdefault(part.session, _Session())
        session.opening = session.opening or part.opening
        session.parts.append((number, part.events))
    for name, session in found.items():
        rest = read_seen(attributes, f"{Key.SEEN}:{name}")
        if rest is not None:
            session.parts.append((None, rest.events))
    return found


def _open(
    model: StudyModel,
    opening: Opening | None,
    options: Options,
    feasible: Callable[[dict[str, Any]], bool] | None,
    moments: Mapping[Moment, Mapping[str, Any]],
) -> str:
    """Let a model begin as its session did; returns what is missing for that."""
    if opening is None:
        return "the first trial of its session is not in the study"
    if opening.known:
        return f"the run was given {opening.known} known results (warm_start), which the study does not have"
    if opening.predicate and feasible is None:
        return "its space has a predicate (feasible), which the study does not have"
    if opening.options != options_digest(options):
        return "the run had other options than those that the study has now"
    if opening.recalled is None:
        return ""
    if opening.recalled not in moments:
        return "it continued with what an earlier version, a sampler or an unrecorded run had learned"
    model.memory.adopt(moments[opening.recalled])
    return ""


@dataclass
class _Player:
    """Replays the events of one session on a model. ``missing`` says what it lacks, ``doubt`` what it may lack."""

    name: str
    model: StudyModel
    trials: Sequence[FrozenTrial]
    wanted: set[Moment]
    moments: dict[Moment, dict[str, Any]]
    missing: str
    doubt: str = ""
    ended: list[FrozenTrial] = field(default_factory=list)
    proposed: dict[int, dict[str, Any]] = field(
        default_factory=dict
    )  # the last ones by number, unless a trial has them
    repeat: dict[str, Any] | None = None

    def play(self, session: _Session) -> Iterator[Replayed]:
        """Replay all events; yields each trial whose suggestion is then known."""
        count, version = 0, "" if session.opening is None else session.opening.version
        if version != lazybo.__version__:
            made = f"lazybo {version}" if version else "another version of lazybo"
            self.doubt = f"it was suggested by {made}, and {lazybo.__version__} suggests something else"
        self._keep(count)
        for number, events in session.parts:
            for event in events:
                try:
                    yield from self._follow(event)
                except (Missing, ValueError, IndexError) as error:
                    self.missing = self.missing or str(error)
                count += 1
                self._keep(count)
            if number is not None:
                # It has a later number than its proposal if others wrote while its process was suspended.
                first = number if number in self.proposed else min(self.proposed, default=number)
                params = self.repeat if self.repeat is not None else self.proposed.pop(first, None)
                self.repeat = None
                yield self._compared(self.trials[number], params)

    def _keep(self, count: int) -> None:
        """Keep what was learned after this many events, if somebody continues with it."""
        if not self.missing and (self.name, count) in self.wanted:
            self.moments[self.name, count] = self.model.memory.learned()

    def _follow(self, event: str) -> Iterator[Replayed]:
        """One event; yields the trial that it completes."""
        if self.missing:
            return
        model, kind, argument = self.model, event[0], event[1:]
        if kind == "z":
            model.memory.adopt(self.moments[self.name, int(argument)])
        elif kind == "x":
            found = model.next_repeat(self.ended)
            if found is not None:  # else a driver that has reserved a number uses the last one
                self.repeat = found[0]
        elif kind == "b":
            model.optimizer.planner.budget_left = json.loads(argument.replace("None", "null"))
        elif kind == "q":
            first, count = map(int, argument.split("."))
            self.proposed, self.repeat = dict(enumerate(model.propose(first, count), first)), None
        elif kind == "c":
            trial = self.trials[int(argument)]
            yield self._compared(trial, model.complete(self._fixed(trial), trial.number))
        else:
            self._tell(kind, *map(int, argument.split(".")))

    def _tell(self, kind: str, number: int, count: int = 0) -> None:
        """An event of a trial."""
        trial, model = self.trials[number], self.model
        if kind == "a":
            model.announce(number, TrialView(trial).handling.announced(model.space.distributions))
        elif kind == "f":
            if not trial.state.is_finished():
                raise Missing(f"trial {number} had ended and runs again")
            if trial.user_attrs.get(Key.CORRECTIONS):
                raise Missing(f"the value of trial {number} was corrected by hand")
            self.ended.append(trial)
            model.settle(trial)
        elif kind == "p":
            model.hold(_paused_at(trial, count))
        elif kind == "w":
            steps = sorted(trial.intermediate_values)[:count]
            again = f"trial {number} was run again, and the values that it had reported before are gone"
            if len(steps) < count:
                raise Missing(again)
            self.doubt = self.doubt or (again if Key.ATTEMPTS in trial.system_attrs else "")
            model.watch(number, {step: trial.intermediate_values[step] for step in steps})

    def _fixed(self, trial: FrozenTrial) -> dict[str, Any]:
        """The parameters that somebody has chosen for an enqueued trial."""
        space = self.model.space.distributions
        if f"{Key.INITIAL}:0" not in trial.system_attrs:
            return as_given(trial.system_attrs.get("fixed_params", {}), space)
        given = object_of(trial.system_attrs, Key.INITIAL)
        return {name: space[name].to_external_repr(value) for name, value in given.items() if name in space}

    def _compared(self, trial: FrozenTrial, again: dict[str, Any] | None) -> Replayed:
        params = params_in(self.model.space.distributions, trial.params)
        if not self.missing and again != params and self.doubt:
            self.missing = self.doubt
        return Replayed(trial.number, params, None if self.missing else again, self.missing)


def _paused_at(trial: FrozenTrial, step: int) -> FrozenTrial:
    """A trial as it was when it was paused after this step."""
    values = {each: value for each, value in trial.intermediate_values.items() if each <= step}
    if step not in values:
        raise Missing(f"trial {trial.number} has no value of step {step}")
    paused = copy(trial)
    paused.state, paused.values, paused.datetime_complete = TrialState.WAITING, None, None
    paused.user_attrs, paused.intermediate_values = {**trial.user_attrs, Key.PAUSED: step}, values
    return paused
