"""Parameters with structure in a study: what its ordinary parameters mean, and `suggest` for Optuna's objectives."""

from collections.abc import Mapping
from typing import Any

from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    check_distribution_compatibility,
)
from optuna.study import Study
from optuna.trial import BaseTrial, FixedTrial, FrozenTrial

from lazybo.core import checks, codec
from lazybo.space import Structured
from lazybo.study.attributes import KIND_KEY, of_study
from lazybo.study.store import Store


def suggest(trial: Any, name: str, kind: Structured) -> Any:
    """The value of a parameter with structure in an objective: ``lazybo.suggest(trial, "order", Permutation([…]))``.

    It works with every sampler: the value is made of ordinary parameters, and an attribute of the study says of which
    kind they are.
    """
    if not isinstance(kind, Structured):
        raise ValueError(f"lazybo.suggest takes a kind such as lazybo.Permutation([...]), not {checks.shortened(kind)}")
    known: object = trial
    if not isinstance(known, BaseTrial):
        raise ValueError(f"lazybo.suggest takes the trial of an objective, not {checks.shortened(trial)}")
    if not isinstance(name, str):
        raise ValueError(f"the name of a parameter must be a text, not {checks.shortened(name)}")
    if callable(getattr(trial, "suggest", None)):  # of `lazybo.optimize`, which has chosen before
        return trial.suggest(name, kind)
    if not isinstance(trial, FixedTrial | FrozenTrial):
        keep_kinds(trial.study, {name: kind})
    return kind.read([_suggested(trial, each, d) for each, d in kind.stored(name).items()])


def _suggested(trial: BaseTrial, name: str, distribution: BaseDistribution) -> Any:
    if isinstance(distribution, CategoricalDistribution):
        return trial.suggest_categorical(name, distribution.choices)
    assert isinstance(distribution, FloatDistribution), "kinds are stored as choices and numbers"
    return trial.suggest_float(name, distribution.low, distribution.high)


def keep_kinds(study: Study, kinds: Mapping[str, Structured]) -> None:
    """Write what parameters mean, unless the study says it already."""
    store = Store(study)
    known = store.study_user_attributes() if kinds else {}
    for name, kind in kinds.items():
        plain = kind.to_plain()
        earlier = known.get(f"{KIND_KEY}:{name}")
        if earlier != plain:
            _check_change(name, kind, earlier)
            store.set_study_user_attribute(f"{KIND_KEY}:{name}", plain)


def _check_change(name: str, kind: Structured, earlier: Any) -> None:
    """Raise a ValueError if a study cannot have this kind after an earlier one: its parameters have other choices."""
    try:
        known = Structured.of_plain(earlier).stored(name)
    except ValueError:  # there is none, or it is damaged
        return
    for each, distribution in kind.stored(name).items():
        try:
            check_distribution_compatibility(known.get(each, distribution), distribution)
        except ValueError:
            raise ValueError(
                f"{name!r} is {checks.shortened(kind, 200)} here, but in an earlier trial it was "
                f"{checks.shortened(earlier, 200)}; "
                "use another name"
            ) from None


def kinds_of(study: Study) -> dict[str, Structured]:
    """The parameters with structure that a study has. Raises a ValueError if an attribute is damaged."""
    kinds = {}
    for key, plain in Store(study).study_user_attributes().items():
        if key.startswith(f"{KIND_KEY}:"):
            with codec.readable(
                of_study(key, study.study_name), "its parameters are then read one by one if you delete it"
            ):
                kinds[key.removeprefix(f"{KIND_KEY}:")] = Structured.of_plain(plain)
    return kinds
