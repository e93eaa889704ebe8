"""What a study says: the command prints these facts, and the page of `lazybo report` shows them.

A part that a study does not have is None or empty, so missing parts are handled in one place.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from optuna.study import Study

from lazybo.core import Array, codec, one_thread
from lazybo.report import health, predictions, records
from lazybo.report.good_ranges import Ranges, indifferent, ranges_of
from lazybo.report.page_data import portable_model
from lazybo.search import Contender, Optimizer, Predictor
from lazybo.study import StudyView, TrialView

T = TypeVar("T")

# The expected gain is shown for these numbers of further trials.
HORIZONS = (10, 50, 100)


@dataclass(frozen=True)
class Facts:
    """A study without its model. ``counts`` has all states."""

    view: StudyView
    counts: dict[str, int]
    span: tuple[datetime, datetime] | None

    @property
    def name(self) -> str:
        """The name of the study."""
        return self.view.name

    @property
    def several(self) -> bool:
        """Whether there are several objectives."""
        return len(self.view.objectives) > 1

    @property
    def nothing_best(self) -> str:
        """Why the study has no best trial."""
        of = f"no trial of the study {self.name!r}"
        if not self.counts["complete"]:
            return f"{of} has completed yet"
        return f"{of} is feasible yet: none satisfies {', '.join(self.view.constraints)}"

    @property
    def equal_values(self) -> list[health.Finding]:
        """The objectives whose values are all the same."""
        named = self.view.objectives if self.several else [""]
        found = [health.equal_values([t.values[j] for t in self.view.complete], name) for j, name in enumerate(named)]
        return [each for each in found if each is not None]

    @property
    def failures(self) -> list[records.Failures]:
        """Failed trials grouped by reason, the most frequent reason first."""
        return records.failures(self.view.trials)

    @property
    def epochs(self) -> records.Epochs | None:
        """How many epochs were trained and saved; None if no trial has reported."""
        return records.epochs(self.view.trials)

    def advise(self) -> predictions.Advice:
        """The recommended trial and the best one. Raises a ValueError if there is no model, or several objectives."""
        return predictions.advise(self.view)

    @cached_property
    def advice(self) -> predictions.Advice | None:
        """The recommended trial and the best one; None where `advise` raises."""
        return unless_missing(self.advise)

    @property
    def model(self) -> "ModelFacts | None":
        """What the model of the study says; None if there is none, see ``no_model``."""
        return self._model if isinstance(self._model, ModelFacts) else None

    @property
    def no_model(self) -> "NoModel | None":
        """Why there is no model."""
        return self._model if isinstance(self._model, NoModel) else None

    @cached_property
    def _model(self) -> "ModelFacts | NoModel":
        return model_facts_of(self)


def facts_of(study: Study) -> Facts:
    """Count the trials of a study and find the best ones. No model is made."""
    view = StudyView.of(study)
    counts = Counter(map(records.counted_state, view.trials))
    both = [(trial.frozen.datetime_start, trial.frozen.datetime_complete) for trial in view.trials]
    moments = [moment for pair in both for moment in pair if moment is not None]
    span = (min(moments), max(moments)) if moments else None
    return Facts(view, {state: counts[state] for state in records.STATES}, span)


@dataclass(frozen=True)
class ModelFacts:
    """What the model of a study says. Lists have an entry for each objective; the rest is for one objective."""

    optimizer: Optimizer
    predictors: list[Predictor]
    importances: list[dict[str, float]]
    advice: predictions.Advice | None
    contenders: list[Contender]
    gains: dict[int, float]
    related: list[Any]

    def chances_shown(self, best: TrialView) -> str:
        """Which trials may be the best one, in words; empty if only one may."""
        return predictions.chances_shown(self.contenders, best.number, best.params) if len(self.contenders) > 1 else ""

    @cached_property
    def good_ranges(self) -> Ranges | None:
        """Where each parameter is good; None if nothing is recommended."""
        if self.advice is None or not self.optimizer.space.points.dim:
            return None
        found = ranges_of(self.optimizer, self.predictors[0], self.advice.recommendation)
        return found if found.distance > 0 else None  # with one value, the model knows nothing that is worse


@dataclass(frozen=True)
class NoModel:
    """Why a study has no model, as a sentence; ``error`` is set if what is kept with the study cannot be read."""

    reason: str
    error: codec.Advised | None = None


@one_thread()
def model_facts_of(facts: Facts) -> ModelFacts | NoModel:
    """Ask the model of a study for everything that reports show, or say why there is no model."""
    view, single = facts.view, not facts.several
    if not facts.view.complete:
        return NoModel("No trial has completed yet, so there is no model.")
    if not view.has_parameters:
        return NoModel("The trials have no parameters, so there is no model.")
    try:
        optimizer = view.model().optimizer
        optimizer.learn()
        predictors = [optimizer.model.predictor(j) for j in range(len(facts.view.objectives))]
    except ValueError as error:
        return NoModel(f"There is no model: {error}.", error if isinstance(error, codec.Advised) else None)
    gains = optimizer.model.gain_parts(HORIZONS).expected() if single and optimizer.planner.n_feasible else []
    return ModelFacts(
        optimizer,
        predictors,
        importances=[predictions.importances(view.study, predictor) for predictor in predictors],
        advice=unless_missing(lambda: predictions.advise(view, predictors[0])) if single else None,
        contenders=predictions.contenders_of(view, optimizer) if single else [],
        gains=dict(zip(HORIZONS, gains, strict=False)),
        related=optimizer.model.related(),
    )


def unless_missing(make: Callable[[], T]) -> T | None:
    """What ``make`` returns; None if it raises a ValueError because the study has no such thing."""
    try:
        return make()
    except ValueError:
        return None


# ------------------------------------------------------------------------------ a page


@dataclass(frozen=True)
class Content:
    """Everything that the page of a study shows.

    ``model`` is None if there can be no model; ``no_model`` says why. ``portable`` is the model as the page's script
    uses it; without it, ``no_explorer`` says why. ``quality`` has an entry for each objective of the model.
    """

    facts: Facts
    model: ModelFacts | None
    no_model: str
    portable: dict[str, Any] | None
    no_explorer: str
    quality: list[predictions.Quality | None]
    curves: records.LearningCurves | None
    findings: list[health.Finding] = field(default_factory=list)


@one_thread()
def content_of(study: Study, **limits: int) -> Content:
    """Gather all that a page of this study shows. ``limits`` are passed to `portable_model`."""
    facts = facts_of(study)
    model = facts.model if facts.model and facts.model.optimizer.space.points.dim else None
    no_model = facts.no_model.reason if facts.no_model else "No parameter can vary, so there is nothing to model."
    portable, no_explorer = None, no_model
    if model is not None:
        try:
            portable = portable_model(model.optimizer, facts.view.objectives, model.predictors, **limits)
        except ValueError as error:
            no_explorer = f"There are no sliders: {error}."
    content = Content(
        facts=facts,
        model=model,
        no_model="" if model else no_model,
        portable=portable,
        no_explorer=no_explorer,
        quality=[] if model is None else [predictions.quality_of(each) for each in model.predictors],
        curves=unless_missing(lambda: records.learning_curves(study)),
    )
    content.findings.extend(findings_of(content))
    return content


def findings_of(content: Content) -> list[health.Finding]:
    """What all checks have found, the most important first."""
    facts, model, counts = content.facts, content.model, content.facts.counts
    ended = sum(counts[state] for state in ("complete", "pruned", "failed"))
    dim = len(model.optimizer.space.points.names) if model else len({n for t in facts.view.trials for n in t.params})
    named = facts.view.objectives if facts.several else [""]
    found = [
        health.few_trials(len(facts.view.complete), dim),
        health.many_failures(counts["failed"], ended, facts.failures),
        health.few_feasible(len(facts.view.feasible), len(facts.view.complete), facts.view.constraints),
        *facts.equal_values,
    ]
    if model is not None:
        for name, predictor, quality in zip(named, model.predictors, content.quality, strict=True):
            noise = predictions.noise_of(predictor)
            found += [health.predictions(quality, noise, name), health.noise_level(noise, name)]
        best = _best_points(facts, model)
        found.append(health.best_at_edge(model.optimizer.space, best, model.importances))
        found.append(
            health.useless(model.importances, content.quality, indifferent(model.optimizer, model.predictors, best))
        )
    order = {"warning": 0, "note": 1, "good": 2}
    return sorted((each for each in found if each is not None), key=lambda each: order[each.level])


def _best_points(facts: Facts, model: ModelFacts) -> Array:
    """The points of the recommended trial, or of the best ones, (m, d)."""
    space = model.optimizer.space
    if model.advice is not None:
        known = {n: v for n, v in model.advice.recommendation.params.items() if n in space.distributions}
        return space.points.encode(known)[None]
    best = [trial.point_in(space) for trial in facts.view.front]
    return np.array([point for point in best if point is not None]).reshape(-1, space.points.dim)
