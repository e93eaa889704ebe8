"""The options of the model: one table with the default, the check and the help of each, and their plain data for JSON.

`Optimizer`, `LazySampler`, the command and the attributes of a study all use this table.
"""

import base64
import json
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np

from lazybo.core import Lag, checks, codec
from lazybo.gp import Kernel, Priors, Warping
from lazybo.search.acquisition import ACQUISITIONS, Acquisition, check_acquisition
from lazybo.search.earlier import EarlierStudy, check_sources
from lazybo.space import Belief, Space

# Results of earlier studies, unpacked, are not longer than this. A short text that was edited may unpack to any length.
MOST_BYTES = 1 << 28
BATCHES = ("auto", "fantasy", "maxima")
PLAIN = str | int | float | bool | None


@dataclass(frozen=True)
class LocalModels:
    """When local models take over from the single model of all records, and how large they are.

    - ``after``: this many results; None disables them. "auto" is ``early_after`` for one objective without noise,
      constraints and costs, where local models are better and cost less, and otherwise ``late_after``: the factor of
      all records has 0.4 GB then.
    - ``neighbours``: a round starts with this many records: half of them the nearest ones, half spread over twice the
      box. ``round`` is the number of evaluations in it, or of parameters if there are more.
    - ``first_side``, ``least_side``: the side of a new box, and the side below which a region is replaced.
    - ``most_pending``: a search begins with at most this many of the newest pending records. A round with ``most_new``
      results more than it needs begins again: they were not asked for, and are too many for one search.
    - ``best_of_all``, ``spread_over_all``: what the model of the whole space has: the best records, and others.
    """

    after: int | Literal["auto"] | None = "auto"
    early_after: int = 1000
    late_after: int = 10_000
    neighbours: int = 200
    round: int = 100
    first_side: float = 0.4
    least_side: float = 2.0**-10
    most_pending: int = 500
    most_new: int = 500
    best_of_all: int = 250
    spread_over_all: int = 500


def _option(default: Any, check: Callable[[Any], Any], text: str, metavar: str = "") -> Any:
    """An option: ``check`` returns its value or raises a ValueError; the command shows the text."""
    return field(default=default, metadata={"check": check, "help": text, "metavar": metavar})


def _or_none(check: Callable[..., Any], name: str, *limits: Any) -> Callable[[Any], Any]:
    return lambda given: None if given is None else check(name, given, *limits)


def _one_of(name: str, choices: Iterable[str]) -> Callable[[Any], Any]:
    return lambda given: checks.one_of(name, given, tuple(choices))


def _acquisition(given: Any) -> str | Acquisition:
    check_acquisition(given)
    return given


def _local_after(given: Any) -> Any:
    if isinstance(given, LocalModels):
        return replace(given, after=_local_after(given.after))
    if given is None or (isinstance(given, str) and given == "auto"):
        return given
    try:
        return checks.whole("local_after", given, 0)
    except ValueError:
        raise ValueError(
            f'local_after must be a whole number, "auto" or None (never), not {checks.shortened(given)}'
        ) from None


def _deterministic(given: Any) -> bool:
    if not isinstance(given, bool):
        raise ValueError(f"deterministic must be True or False, not {checks.shortened(given)}")
    return given


@dataclass(frozen=True, kw_only=True)
class Options:
    """How the model works. Every option is checked here, and only here.

    - ``seed``: makes the suggestions repeatable; None is a random one.
    - ``lag``: learn the kernel after every ``lag`` observations. None never learns; "auto" spreads the work.
    - ``acquisition``: "auto" (log EI, now and then with larger standard deviations, and an upper confidence bound where
      the model finds noise), "logei" or "ei", which have the same maxima, "pi", "ucb", or a function as in
      `lazybo.search.acquisition`.
    - ``batch``: how ``ask(n)`` chooses several points: "fantasy" (one after the other, earlier ones pending), "maxima"
      (the n best local maxima, as in the paper, in less time) or "auto", which is "fantasy". Local models always choose
      one after the other.
    - ``n_startup``: how many points are spread over the space before the model is used.
    - ``kernel``: "additive" (the default: part of the variance is a sum over single parameters), "matern52", or a
      kernel of `lazybo.gp.kernels`. Learning starts from a kernel object and from ``noise``; ``lag=None`` keeps both.
    - ``noise``: the variance of the noise to start with, in units of the transformed values.
    - ``priors``: a `lazybo.Priors` for the parameters of the kernel and the noise.
    - ``value_transform``: how the model transforms the values: "warped" (to look like a normal sample), "scaled"
      (mean 0, standard deviation 1) or "centred" (mean 0, in their own units, as in the paper).
    - ``cost``: evaluations differ in cost, and cheap ones are preferred while much of the budget is left. "seconds", or
      the name of what is told as the cost of an evaluation.
    - ``earlier``: earlier studies of *related* problems (docs/earlier.md): Optuna studies, data frames, or lists of
      dicts with the parameters and ``value``. The first suggestions come from what was good there, and the model learns
      which of them resemble this problem.
    - ``beliefs``: those of the space by parameter (`lazybo.Belief`), and perhaps others that it does not have yet.
    - ``local_after``: after this many results, local models take over from the single model of all observations, whose
      memory grows with their square. "auto": 1,000 for one objective without noise, constraints and costs, otherwise
      10,000. None disables it; so does ``lag=None``. A `LocalModels` also says how large they are.
    - ``deterministic``: the same configuration always has the same value. Nothing is evaluated twice, and the best
      value is the recommended one.
    """

    seed: int = _option(None, checks.check_seed, "Seed; makes a run with one worker repeatable.")
    lag: Lag = _option("auto", checks.check_lag, "Learn the kernel after this many trials.", "N|auto")
    acquisition: str | Acquisition = _option(
        "auto", _acquisition, "What the next trial maximises.", "|".join(ACQUISITIONS)
    )
    batch: Literal["auto", "fantasy", "maxima"] = _option(
        "auto", _one_of("batch", BATCHES), "How several configurations are chosen at once.", "|".join(BATCHES)
    )
    n_startup: int | None = _option(
        None, _or_none(checks.whole, "n_startup", 0), "How many trials are spread over the space first.", "N"
    )
    kernel: str | Kernel | None = _option(
        None, Kernel.check_choice, "The kernel of the model.", "|".join(Kernel.by_name)
    )
    noise: float | None = _option(
        None, _or_none(checks.positive, "noise"), "The variance of the noise to start with.", "NUMBER"
    )
    priors: Priors | None = _option(None, Priors.check, "Priors of the kernel's parameters and the noise.")
    value_transform: Literal["warped", "scaled", "centred"] = _option(
        "warped",
        _one_of("value_transform", Warping.KINDS),
        "How the model transforms the values.",
        "|".join(Warping.KINDS),
    )
    cost: str | None = _option(
        None,
        checks.check_cost,
        "Prefer trials that take less time, or cost less by a metric that is measured with the value.",
        "seconds|METRIC",
    )
    earlier: tuple[Any, ...] = _option(
        (),
        check_sources,
        "Start from what was good in an earlier study of a related problem. Also the name of a CSV file.",
        "STUDY[@STORAGE]",
    )
    local_after: LocalModels | int | Literal["auto"] | None = _option(
        "auto", _local_after, "Use local models after this many trials.", "N|auto"
    )
    deterministic: bool = _option(
        False,
        _deterministic,
        "The same parameters always give the same value: nothing is repeated, and the best trial is recommended.",
    )
    beliefs: Mapping[str, Belief] = _option(None, Belief.by_name, "Where the best value of a parameter is expected.")

    def __post_init__(self) -> None:
        for each in fields(self):
            object.__setattr__(self, each.name, each.metadata["check"](getattr(self, each.name)))
        _ = self.learned_priors  # raises if options contradict each other

    @property
    def learned_priors(self) -> Priors | None:
        """The priors that learning uses: without noise if the objective is deterministic."""
        return (self.priors or Priors()).deterministic(self.noise) if self.deterministic else self.priors

    LATER: ClassVar[tuple[str, ...]] = ("cost", "local_after", "deterministic", "beliefs")
    """Studies have these only if they are given: the first versions did not know them."""

    @property
    def local_models(self) -> LocalModels:
        """When local models take over, and how large they are."""
        return self.local_after if isinstance(self.local_after, LocalModels) else LocalModels(self.local_after)

    def joined(self, space: Space) -> "tuple[Space, Options]":
        """A space and these options, both with the beliefs that one of them has. A ValueError if they differ."""
        if self.beliefs and space.beliefs and space.beliefs != self.beliefs:
            raise ValueError("there are beliefs in the space and others in the sampler; leave one of them out")
        space = space.changed(beliefs=self.beliefs) if self.beliefs else space
        return space, replace(self, beliefs=space.beliefs)

    def completed(self, stored: "Options") -> "Options":
        """The stored options of a study, changed as these say what is new about its problem."""
        about = ("cost", "deterministic", "earlier", "beliefs")
        return replace(stored, **{name: value for name in about if (value := getattr(self, name))})

    def informed(self, space: Space) -> Space:
        """A space with the beliefs of these options, if there are any, except for those that do not fit it."""
        return space.believing(self.beliefs) if self.beliefs else space

    def about(self) -> dict[str, set[str]]:
        """The names of parameters that options are about, by the name of the option."""
        return {"beliefs": {*self.beliefs}}

    def arguments(self) -> dict[str, Any]:
        """The options by name, as arguments of `Optimizer`, whose beliefs are those of its space."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "beliefs"}

    # ------------------------------------------------------------------------ JSON

    def to_json(self) -> dict[str, Any]:
        """Plain data for JSON. What JSON cannot hold, a function or another's kernel, becomes ``{"given": text}``."""
        own = ("earlier", "beliefs")
        plain = {each.name: _to_plain(getattr(self, each.name)) for each in fields(self) if each.name not in own}
        if self.earlier:
            plain["earlier"] = pack(self.earlier)
        if self.beliefs:
            plain["beliefs"] = [[name, each.to_plain()] for name, each in self.beliefs.items()]
        return plain

    @staticmethod
    def from_json(plain: Mapping[str, Any], space: Space, given: Mapping[str, Any] | None = None) -> "Options":
        """The inverse of `to_json`, also for what 0.1.0 wrote. A kernel gets the columns of the space.

        ``given`` has what JSON cannot hold, or None for defaults in its place.
        """
        known = {each.name: plain[each.name] for each in fields(Options) if each.name in plain}
        return Options(**{name: _from_plain(name, value, space, given) for name, value in known.items()})


def _to_plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, Priors | LocalModels):
        return {each.name: _to_plain(getattr(value, each.name)) for each in fields(value)}
    named = value.plain() if isinstance(value, Kernel) else None
    return named or {"given": checks.shortened(value)}


def _from_plain(name: str, plain: Any, space: Space, given: Mapping[str, Any] | None) -> Any:
    if given is None and isinstance(plain, Mapping) and "given" in plain:
        return next(each.default for each in fields(Options) if each.name == name)
    value = given_again(name, plain, given or {})
    if name == "priors" and isinstance(value, Mapping):
        return Priors(**{**value, "like": _from_plain("kernel", value.get("like"), space, None)})
    if name == "kernel" and isinstance(value, Mapping):
        return Kernel.chosen(value["name"], space.points.columns).with_values(value["values"])
    if name == "local_after" and isinstance(value, Mapping):
        return LocalModels(**value)
    if name == "beliefs":
        return dict(value)
    return unpack(value) if name == "earlier" else value


def given_again(name: str, plain: Any, given: Mapping[str, Any]) -> Any:
    """``plain``, or the object that JSON could not hold and that the caller must give again."""
    is_missing, again = isinstance(plain, Mapping) and "given" in plain, given.get(name)
    if again is not None and not is_missing:
        raise codec.Advised(
            f"it was saved with {name}={checks.shortened(plain)}, so {name} cannot be given here; leave it out"
        )
    if is_missing and again is None:
        raise codec.Advised(
            f"it was saved with {name}={plain['given']}, which no file can hold; give the same one again: "
            f"Optimizer.load(path, {name}=...)"
        )
    return again if is_missing else plain


# ------------------------------------------------------------- earlier studies as plain data


def pack(studies: Sequence[EarlierStudy]) -> str:
    """The results of earlier studies as a short text. Choices that JSON does not have become strings."""
    plain = [
        [
            each.name,
            [{name: codec.to_plain(value, str) for name, value in one.items()} for one in each.configurations],
            each.values,
        ]
        for each in studies
    ]
    return base64.b85encode(zlib.compress(json.dumps(plain).encode())).decode()


def unpack(written: Any) -> tuple[EarlierStudy, ...]:
    """The inverse of `pack`; also the lists of 0.1.0's optimiser files. Raises a ValueError if it is damaged."""
    with codec.readable("the earlier studies"):
        if not isinstance(written, str):
            parts = [(each["name"], each["configurations"], each["values"]) for each in written]
        else:
            unpacker = zlib.decompressobj()
            parts = codec.from_json(unpacker.decompress(base64.b85decode(written), MOST_BYTES))
            if unpacker.unconsumed_tail:
                raise ValueError(f"they are longer than {MOST_BYTES} bytes")
        return tuple(_unpacked(*each) for each in parts)


def _unpacked(name: Any, configurations: Any, values: Any) -> EarlierStudy:
    numbers = tuple(tuple(checks.finite_number("a value", each) for each in row) for row in values)
    if len(configurations) != len(numbers) or len({len(row) for row in numbers}) > 1:
        raise ValueError("each configuration must have a value for each objective")
    params = [{key: codec.from_plain(value) for key, value in codec.as_object(each).items()} for each in configurations]
    return EarlierStudy(str(name), tuple(params), numbers)
