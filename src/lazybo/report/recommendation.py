"""Which trial of a study to use: the one that the model expects most of, beside the one with the best value.

Under noise the best value may be the luckiest one. The model's posterior mean also uses the values around each trial.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from optuna.study import Study
from optuna.trial import FrozenTrial

from lazybo.core.blas import one_thread
from lazybo.core.checks import shortened
from lazybo.report.records import predictor_of
from lazybo.search.contenders import Contender
from lazybo.search.optimizer import Optimizer
from lazybo.search.prediction import Prediction, Predictor, Recommendation
from lazybo.space.feasible import Feasibility
from lazybo.space.space import Predicate
from lazybo.study import ledger
from lazybo.study.evaluated import evaluations_of, most_promising, point_of
from lazybo.study.feasible import best_trial, feasible_trials

# Of more configurations than this, only those with the best values are compared.
MOST_COMPARED = 1000


def recommend(study: Study, *, feasible: Predicate | None = None) -> Recommendation:
    """The configuration of a study to use: of its completed trials, the one with the best posterior mean.

    Works for any Optuna study with one objective, whichever sampler chose its trials. The model is the one that the
    last run of lazybo would continue with, otherwise one with default options. ``number`` is that of the first trial
    with this configuration. A known constraint is not kept with a study, which may have trials that violate it: those
    of another sampler, or of a run with another constraint. With ``feasible`` they are not recommended. If more than
    1,000 configurations have completed, those with the best values are compared.
    """
    if not isinstance(study, Study):
        raise ValueError(f"study must be an Optuna study, not {shortened(study)}")
    predictor, trials = predictor_of(study), ledger.read(study)
    if feasible is not None:
        holds = Feasibility(predictor.space, feasible).holds
        trials = [trial for trial in feasible_trials(trials) if holds(trial.params)]
        if not trials:
            raise ValueError(
                f"there is nothing to recommend in the study {study.study_name!r}: feasible is false for all of its "
                "completed trials"
            )
    return recommended_of(study, trials, predictor)


@one_thread()
def contenders_of(trials: Sequence[FrozenTrial], optimizer: Optimizer) -> list[Contender]:
    """The configurations of some trials that may be the best one, with the chance of each; best first."""
    promising = most_promising(trials, maximize=optimizer.direction == "maximize", most=MOST_COMPARED)
    evaluations = evaluations_of(promising, optimizer.space)
    return optimizer.race(evaluations).contenders() if evaluations else []


@dataclass(frozen=True)
class Advice:
    """The recommended configuration beside the best trial; ``expected`` is the model's prediction for the latter.

    ``expected`` is None if the best trial is not in the model, because it is from another space.
    """

    recommendation: Recommendation
    best: FrozenTrial
    expected: Prediction | None
    maximize: bool

    @property
    def differs(self) -> bool:
        """Whether the best trial has another configuration than the recommended one."""
        return self.best.params != self.recommendation.params

    @property
    def reason(self) -> str | None:
        """One line that says why the best trial is not the recommended one; None if it is."""
        if not self.differs:
            return None
        ours, number = self.recommendation, self.best.number
        return f"{self._difference(ours, number)}; use trial {ours.number}"

    def _difference(self, ours: Recommendation, number: int) -> str:
        """What the model sees otherwise than the values: the best trial was lucky, or the recommended one unlucky."""
        if self.expected is None:
            return f"the model does not cover trial {number}"
        value = float(self.best.value or 0.0)
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
def advise(study: Study, predictor: Predictor | None = None) -> Advice:
    """The recommended configuration and the best trial of a study that has one."""
    predictor = predictor or predictor_of(study)
    trials = ledger.read(study)
    best = best_trial(study, trials)
    if best is None:
        raise ValueError(f"no trial of the study {study.study_name!r} has completed and satisfies its constraints")
    point = point_of(best, predictor.space)
    expected = None if point is None else predictor.predictions(point[None])[0]
    recommendation = recommended_of(study, trials, predictor)
    return Advice(recommendation, best, expected, maximize=predictor.sign < 0)


@one_thread()
def recommended_of(study: Study, trials: Sequence[FrozenTrial], predictor: Predictor) -> Recommendation:
    """The recommended configuration among some trials of a study."""
    promising = most_promising(trials, maximize=predictor.sign < 0, most=MOST_COMPARED)
    evaluations = evaluations_of(promising, predictor.space)
    if not evaluations:
        raise ValueError(
            f"there is nothing to recommend in the study {study.study_name!r}: no trial of its present space has "
            "completed and satisfies its constraints"
        )
    return predictor.recommendation(evaluations)


def _contrast(measured: float, expected: Prediction) -> str:
    """What was measured beside what the model expects, and how likely it is that chance made the difference."""
    outside = not expected.low <= measured <= expected.high
    shown, instead = _distinct(measured, expected.value)
    return f"measured {shown}, but the model expects {instead} there: {'probably' if outside else 'perhaps'}"


def _distinct(one: float, other: float) -> tuple[str, str]:
    """Two numbers with as few digits as tell them apart, at least four; close ones have equally many (53.98, 54.00)."""
    digits = next((d for d in (4, 6, 9) if f"{one:.{d}g}" != f"{other:.{d}g}"), 17)
    form = f"#.{digits}g" if digits < 17 and math.isclose(one, other, rel_tol=0.01) else f".{digits}g"
    return f"{one:{form}}".rstrip("."), f"{other:{form}}".rstrip(".")
