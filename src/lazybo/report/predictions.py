"""What the model of a study says: importances, slices, the recommended trial, and how far to trust it.

The model is the one that the last run or sampler would continue with (`study.model`). Bands are the 95 % intervals of
its predictions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import Study

from lazybo.core import Array, checks, one_thread, texts
from lazybo.report.good_ranges import Ranges, along, columns_of, ranges_of
from lazybo.search import Contender, Optimizer, Prediction, Predictor, Recommendation
from lazybo.space import FeasibleSet, Space
from lazybo.study import StudyView, TrialView

# Random points at which importances are computed.
SAMPLE = 1024
# With more configurations than this, only those with the best values may be recommended.
MOST_COMPARED = 1000
# Contenders that are named.
MOST_SHOWN = 5
# Leave-one-out predictions are made for at most this many values: each takes a triangular solve.
MOST_LEFT_OUT = 1000


def optimizer_for(view: StudyView) -> Optimizer:
    """The model that the last run or sampler would continue with. Raises a ValueError if there cannot be one."""
    if len(view.directions) > 1:
        raise ValueError(
            f"the study {view.name!r} has {len(view.directions)} objectives, and this needs one; "
            "study.best_trials has the front, `lazybo best` prints it and `lazybo plot front` draws it"
        )
    if not view.complete:
        raise ValueError(f"the study {view.name!r} has no completed trial yet, so there is no model of it")
    if not view.has_parameters:
        raise ValueError(f"the trials of the study {view.name!r} have no parameters, so there is no model of it")
    return view.model().optimizer


@one_thread()
def predictor_of(view: StudyView) -> Predictor:
    """The model of a study, for predictions. Reports that use the same model share it."""
    return optimizer_for(view).model.predictor()


# ------------------------------------------------------------------------- parameters


@one_thread()
def importances(study: Study, predictor: Predictor | None = None) -> dict[str, float]:
    """The share of each parameter in the variation of the model's mean over the space, the largest first.

    These are Sobol's total effects, as shares of their sum. A total effect is half the expected squared change of the
    mean when only this parameter is resampled.
    """
    predictor = predictor or predictor_of(StudyView.of(study))
    space, posterior, rng = predictor.space, predictor.posterior, np.random.default_rng(0)
    if space.points.dim == 0:
        return {}
    x, other = space.points.sample(rng, SAMPLE), space.points.sample(rng, SAMPLE)
    mean = posterior.mean(x)
    effects = {}
    for name, columns in space.points.slices.items():
        moved = x.copy()
        moved[:, columns] = other[:, columns]
        effects[name] = float(np.mean((posterior.mean(space.points.repair(moved, rng)) - mean) ** 2)) / 2
    total = sum(effects.values()) or 1.0
    return {name: effect / total for name, effect in sorted(effects.items(), key=lambda item: -item[1])}


@dataclass(frozen=True)
class Slice:
    """The model along one parameter, with the others as in the best trial.

    ``feasible`` is the probability at each place that all measured constraints hold, and ``infeasible`` says which of
    the trials ``seen`` violate one or have not measured it. Both are empty if the study has no measured constraint.
    """

    name: str
    choice: bool
    log: bool
    places: list[Any]
    middle: list[float]
    low: list[float]
    high: list[float]
    seen: list[tuple[Any, float]]
    best: tuple[Any, float]
    feasible: list[float] = field(default_factory=list)
    infeasible: list[bool] = field(default_factory=list)


@one_thread()
def slices(study: Study) -> list[Slice]:
    """The model through the best trial, along each parameter that is active there and can vary."""
    view = StudyView.of(study)
    optimizer = optimizer_for(view)
    if optimizer.space.points.dim == 0:
        return []
    predictor, space = optimizer.model.predictor(), optimizer.space
    best, point = _center(view, space)
    center, bounded = space.points.clip(point[None])[0], bool(view.constraints)
    found = []
    for j, name in columns_of(space):
        if math.isnan(center[j]):
            continue
        x = space.points.repair(along(space, center, j))
        expected = predictor.predictions(x)
        configurations = [space.points.decode(row) for row in x]
        with_it = [trial for trial in view.complete if name in trial.params]
        found.append(
            Slice(
                name,
                choice=not space.points.numeric[j],
                log=bool(getattr(space.distributions[name], "log", False)),
                places=[params[name] for params in configurations],
                middle=[each.value for each in expected],
                low=[each.low for each in expected],
                high=[each.high for each in expected],
                seen=[(trial.params[name], trial.value) for trial in with_it],
                best=(best.params[name], best.value),
                feasible=optimizer.model.predict_feasible(configurations) if bounded else [],
                infeasible=[trial.number not in view.feasible_numbers for trial in with_it] if bounded else [],
            )
        )
    return found


def _center(view: StudyView, space: Space) -> tuple[TrialView, Array]:
    """The best feasible trial that is in the space, and its point."""
    sign = -1.0 if view.maximizes else 1.0
    placed = [(trial, trial.point_in(space)) for trial in view.feasible]
    found = [(trial, point) for trial, point in placed if point is not None]
    if found:
        return min(found, key=lambda pair: sign * pair[0].value)
    raise ValueError(f"no trial of the study {view.name!r} satisfies its constraints yet, so there is no best one")


@dataclass(frozen=True)
class Coordinates:
    """Trials as lines over their parameters: positions in [0, 1], NaN where a parameter was not active."""

    names: list[str]
    distributions: list[BaseDistribution]
    lines: Array
    values: list[float]


@one_thread()
def coordinates(study: Study) -> Coordinates:
    """Complete trials as lines over the parameters that can vary, the worst first."""
    view = StudyView.of(study)
    space = optimizer_for(view).space
    trials = sorted(view.complete, key=lambda trial: trial.value, reverse=not view.maximizes)
    lines = space.points.clip(
        np.array([space.points.encode(trial.params) for trial in trials]).reshape(len(trials), space.points.dim)
    )
    scale = np.where(space.points.numeric, 1.0, np.maximum(space.points.levels - 1, 1.0))
    columns, names = [j for j, _ in columns_of(space)], [name for _, name in columns_of(space)]
    distributions = [space.distributions[name] for name in names]
    return Coordinates(names, distributions, (lines / scale)[:, columns], [trial.value for trial in trials])


@one_thread()
@checks.hinting(
    dict.fromkeys(("within", "tolerance", "margin", "threshold"), "use distance=, in units of the objective")
)
def ranges(study: Study, *, distance: float | None = None) -> Ranges:
    """For each parameter the range in which values stay within a distance of the best, by the model of a study.

    ``distance`` is in units of the objective; by default a twentieth of the difference between what the model expects
    of the recommended configuration and of a typical one. A range is given with the other parameters as in the
    recommended trial (``at_best``) and with the others free (``free``), and contains the recommended value. Works for
    any Optuna study with one objective. Parameters with structure have no ranges.
    """
    if not isinstance(study, Study):
        raise ValueError(f"study must be an Optuna study, not {checks.shortened(study)}")
    if distance is not None and checks.finite_number("distance", distance) < 0:
        raise ValueError(f"distance must be at least 0, not {checks.shortened(distance)}")
    view = StudyView.of(study)
    optimizer = optimizer_for(view)
    predictor = optimizer.model.predictor()
    return ranges_of(optimizer, predictor, recommended_of(view, predictor), distance)


# ---------------------------------------------------------------------- recommendation


def recommend(study: Study, *, feasible: Callable[[dict[str, Any]], bool] | None = None) -> Recommendation:
    """The configuration of a study to use: the completed trial with the best posterior mean.

    Under noise the best value may be the luckiest one; the posterior mean also uses the values around each trial. Works
    for any Optuna study with one objective, whichever sampler chose its trials. The model is the one that the last run
    of lazybo would continue with, otherwise one with default options. ``number`` is the first trial with this
    configuration. Studies do not keep known constraints, so trials of another sampler or run may violate yours: pass
    the constraint as ``feasible`` to leave them out. If more than 1,000 configurations have completed, those with the
    best values are compared.
    """
    if not isinstance(study, Study):
        raise ValueError(f"study must be an Optuna study, not {checks.shortened(study)}")
    view = StudyView.of(study)
    predictor = predictor_of(view)
    if feasible is not None:
        space = predictor.space
        checked = space.changed(feasible=feasible)
        holds, counted = FeasibleSet(checked, feasible).contains.holds, view.feasible_numbers
        view = view.only(lambda trial: trial.number in counted and holds(trial.params))
        if not view.trials:
            raise ValueError(
                f"there is nothing to recommend in the study {study.study_name!r}: feasible is false for all of its "
                "completed trials"
            )
    found = recommended_of(view, predictor)
    return replace(found, params=predictor.space.values(found.params))


@one_thread()
def recommended_of(view: StudyView, predictor: Predictor) -> Recommendation:
    """The recommended configuration among the trials of a study."""
    evaluations = view.evaluations(predictor.space, MOST_COMPARED)
    if not evaluations:
        raise ValueError(
            f"there is nothing to recommend in the study {view.name!r}: no trial of its present space has "
            "completed and satisfies its constraints"
        )
    return predictor.recommendation(evaluations)


@one_thread()
def contenders_of(view: StudyView, optimizer: Optimizer) -> list[Contender]:
    """The configurations of a study that may be the best one, with the probability of each, best first."""
    evaluations = view.evaluations(optimizer.space, MOST_COMPARED)
    return optimizer.model.final_check(evaluations).contenders() if evaluations else []


def chances_shown(contenders: Sequence[Contender], best: int, params: Mapping[str, Any]) -> str:
    """The most probable contenders, how many more there are, and always the best trial seen.

    That one has these ``params``. It may be a repeat: a contender has the number of its first evaluation.
    """
    place = next((i for i, each in enumerate(contenders) if each.params == params), None)
    listed = list(range(min(len(contenders), MOST_SHOWN)))
    if place is not None and place not in listed:
        listed[-1] = place
    words = ", ".join(f"trial {contenders[i].number} {texts.percent(contenders[i].chance)}" for i in listed)
    more = f" and {len(contenders) - len(listed)} more" if len(contenders) > len(listed) else ""
    return words + more + (f"; trial {best}, the best seen, is not among them" if place is None else "")


@dataclass(frozen=True)
class Advice:
    """The recommended configuration with its trial, and the best trial; ``expected`` is the prediction for the latter.

    ``expected`` is None if the best trial is not in the model, because it is from another space.
    """

    recommendation: Recommendation
    trial: TrialView
    best: TrialView
    expected: Prediction | None
    maximize: bool

    @property
    def differs(self) -> bool:
        """Whether the best trial and the recommended one have different configurations."""
        return self.best.params != self.recommendation.params

    @property
    def reason(self) -> str | None:
        """One line that says why the best trial is not the recommended one; None if it is."""
        if not self.differs:
            return None
        ours, number = self.recommendation, self.best.number
        return f"{self._difference(ours, number)}; use trial {ours.number}"

    def _difference(self, ours: Recommendation, number: int) -> str:
        """Where the model and the values disagree: the best trial was lucky, or the recommended one unlucky."""
        if self.expected is None:
            return f"the model does not cover trial {number}"
        value = self.best.value
        luck, bad_luck = self._gain(self.expected.value, value), self._gain(ours.measured, ours.value)
        if max(luck, bad_luck) <= 0:
            return f"the model expects as much of trial {ours.number} as of trial {number}"
        if luck >= bad_luck:
            return f"trial {number} {_contrast(value, self.expected)} luck"
        return f"trial {ours.number} {_contrast(ours.measured, Prediction(ours.value, ours.low, ours.high))} bad luck"

    def _gain(self, before: float, after: float) -> float:
        """How much better the second value is. Halves, since the difference of two doubles may overflow."""
        return (after / 2 - before / 2) * (1 if self.maximize else -1)


@one_thread()
def advise(view: StudyView, predictor: Predictor | None = None) -> Advice:
    """The recommended configuration and the best trial. Raises a ValueError if no trial counts."""
    predictor, best = predictor or predictor_of(view), next(iter(view.front), None)
    if best is None:
        raise ValueError(f"no trial of the study {view.name!r} has completed and satisfies its constraints")
    point = best.point_in(predictor.space)
    expected = None if point is None else predictor.predictions(point[None])[0]
    found = recommended_of(view, predictor)
    trial = next(trial for trial in view.trials if trial.number == found.number)
    return Advice(found, trial, best, expected, maximize=predictor.sign < 0)


def _contrast(measured: float, expected: Prediction) -> str:
    """The measured and the expected value, and how likely it is that the difference is chance."""
    outside = not expected.low <= measured <= expected.high
    shown, instead = _distinct(measured, expected.value)
    return f"measured {shown}, but the model expects {instead} there: {'probably' if outside else 'perhaps'}"


def _distinct(one: float, other: float) -> tuple[str, str]:
    """Two numbers with just enough digits to differ, at least four; close ones have equally many (53.98, 54.00)."""
    digits = next((d for d in (4, 6, 9) if f"{one:.{d}g}" != f"{other:.{d}g}"), 17)
    form = f"#.{digits}g" if digits < 17 and math.isclose(one, other, rel_tol=0.01) else f".{digits}g"
    return f"{one:{form}}".rstrip("."), f"{other:{form}}".rstrip(".")


# -------------------------------------------------------------------------------- trust


@dataclass(frozen=True)
class Quality:
    """What the model predicts for each value from all others, in the units of the objective.

    ``low`` and ``high`` are the 95 % interval of a measurement, noise included. ``explained`` is the share of the
    variance of the warped values that the predictions explain: 1 is perfect, 0 is as good as their mean. ``covered``
    is the share of values within their intervals.
    """

    measured: list[float]
    expected: list[float]
    low: list[float]
    high: list[float]
    explained: float
    covered: float


@dataclass(frozen=True)
class Noise:
    """The noise of one measurement by the model: its share of the variance of the warped values, and its size.

    ``deviation`` is in the units of the objective, near the best values.
    """

    share: float
    deviation: float


@one_thread()
def quality_of(predictor: Predictor) -> Quality | None:
    """Leave-one-out predictions of the values that the model has learned from; None if there are fewer than three."""
    warping, sign = predictor.warping, predictor.sign
    targets, mean, reach = predictor.left_out(MOST_LEFT_OUT)
    if len(targets) < 3 or not np.ptp(targets):
        return None

    def values(warped: Array) -> list[float]:
        return (sign * warping.inverse(warped) + 0.0).tolist()

    return Quality(
        values(targets),
        values(mean),
        values(mean - sign * reach),
        values(mean + sign * reach),
        explained=float(1.0 - np.sum((targets - mean) ** 2) / np.sum((targets - targets.mean()) ** 2)),
        covered=float(np.mean(np.abs(targets - mean) <= reach)),
    )


@one_thread()
def noise_of(predictor: Predictor) -> Noise | None:
    """The noise of one measurement; None if there are fewer than two different values. Exact values have none."""
    posterior, warping = predictor.posterior, predictor.warping
    targets = posterior.targets[~np.isnan(posterior.targets)]
    if len(targets) < 2 or not np.ptp(targets):
        return None
    if predictor.exact:
        return Noise(0.0, 0.0)
    measured = np.delete(predictor.known_variances, predictor.forecasts)
    variance = posterior.noise + float(np.median(measured))
    center = np.quantile(targets, 0.1)
    low, high = warping.inverse(center + np.sqrt(variance) * np.array([-1.0, 1.0]))
    # Halves, since the difference of two doubles may overflow.
    return Noise(min(variance / float(targets.var()), 1.0), float(high / 2 - low / 2))
