"""What a study says: the command prints these facts, and the page of `lazybo report` shows them.

A part that a study does not have is None or empty, so missing parts are handled in one place. What needs the model is
computed when it is first asked for.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from optuna.study import Study

from lazybo.core import codec, one_thread, texts
from lazybo.report import health, predictions, records
from lazybo.report.good_ranges import Ranges, indifferent, ranges_of
from lazybo.report.page_data import EXACT_ROWS, portable_model
from lazybo.search import Contender, Optimizer, Predictor
from lazybo.study import StudyView, TrialView

T = TypeVar("T")

# The expected gain is shown for these numbers of further trials.
HORIZONS = (10, 50, 100)
# How many of a list are named in a sentence.
MOST_NAMED = 5
# Findings in the order of a report.
LEVELS = ("warning", "note", "good")


@dataclass
class Facts:
    """A study, as all reports show it. A page predicts from at most ``most`` rows."""

    view: StudyView
    most: int = EXACT_ROWS

    @property
    def name(self) -> str:
        """The name of the study."""
        return self.view.name

    @property
    def several(self) -> bool:
        """Whether there are several objectives."""
        return len(self.view.objectives) > 1

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many trials are in each state."""
        counts = Counter(map(records.counted_state, self.view.trials))
        return {state: counts[state] for state in records.STATES}

    @property
    def counts_shown(self) -> str:
        """The counts in words."""
        shown = [f"{count} {state}" for state, count in self.counts.items() if count]
        if self.view.constraints and self.counts["complete"]:
            shown[0] += f" ({len(self.view.feasible)} feasible; only these count)"
        return ", ".join(shown) or "no trials"

    @property
    def span(self) -> tuple[datetime, datetime] | None:
        """When the first trial started, and when the last one started or ended."""
        both = [(trial.frozen.datetime_start, trial.frozen.datetime_complete) for trial in self.view.trials]
        moments = [moment for pair in both for moment in pair if moment is not None]
        return (min(moments), max(moments)) if moments else None

    @property
    def nothing_best(self) -> str:
        """Why the study has no best trial."""
        of = f"no trial of the study {self.name!r}"
        if not self.counts["complete"]:
            return f"{of} has completed yet"
        return f"{of} is feasible yet: none satisfies {', '.join(self.view.constraints)}"

    @cached_property
    def front(self) -> list[TrialView]:
        """The best trials, sorted by the first objective."""
        return sorted(self.view.front, key=lambda trial: trial.values)

    @property
    def equal_values(self) -> list[health.Finding]:
        """The objectives whose values are all the same."""
        values = ([trial.values[j] for trial in self.view.complete] for j in range(len(self._named)))
        found = [health.equal_values(each, name) for each, name in zip(values, self._named, strict=True)]
        return [each for each in found if each is not None]

    @property
    def _named(self) -> list[str]:
        return self.view.objectives if self.several else [""]

    @cached_property
    def failures(self) -> list[records.Failures]:
        """Failed trials grouped by reason, the most frequent reason first."""
        return records.failures(self.view.trials)

    @cached_property
    def epochs(self) -> records.Epochs | None:
        """How many epochs were trained and saved; None if no trial has reported."""
        return records.epochs(self.view.trials)

    @cached_property
    def curves(self) -> records.LearningCurves | None:
        """The learning curves with forecasts; None if no trial has reported."""
        return unless_missing(lambda: records.learning_curves(self.view.study))

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
    def no_model(self) -> str:
        """Why there is no model, as a sentence; empty if there is one."""
        if isinstance(self._model, ValueError):
            return f"There is no model: {self._model}."
        return self._model if isinstance(self._model, str) else ""

    @property
    def unreadable(self) -> codec.Advised | None:
        """The error if there is no model because what is kept with the study cannot be read."""
        return self._model if isinstance(self._model, codec.Advised) else None

    @cached_property
    def _model(self) -> "ModelFacts | str | ValueError":
        return model_facts_of(self.view)

    @property
    def portable(self) -> dict[str, Any] | None:
        """The model as the script of a page uses it; None if there is none, see ``no_explorer``."""
        return self._portable if isinstance(self._portable, dict) else None

    @property
    def no_explorer(self) -> str:
        """Why a page has no sliders, as a sentence; empty if it has."""
        return self._portable if isinstance(self._portable, str) else ""

    @cached_property
    def _portable(self) -> dict[str, Any] | str:
        if self.model is None:
            return self.no_model
        try:
            return portable_model(self.model.optimizer, self.view.objectives, self.model.predictors, self.most)
        except ValueError as error:
            return f"There are no sliders: {error}."

    @cached_property
    def findings(self) -> list[health.Finding]:
        """What all checks have found, the most important first."""
        counts, model, view = self.counts, self.model, self.view
        ended = sum(counts[state] for state in ("complete", "pruned", "failed"))
        dim = len(model.optimizer.space.points.names) if model else len({n for t in view.trials for n in t.params})
        found = [
            health.few_trials(len(view.complete), dim),
            health.many_failures(counts["failed"], ended, self.failures),
            health.few_feasible(len(view.feasible), len(view.complete), view.constraints),
            *self.equal_values,
        ]
        if model is not None:
            for name, predictor, quality in zip(self._named, model.predictors, model.quality, strict=True):
                noise = predictions.noise_of(predictor)
                found += [health.predictions(quality, noise, name), health.noise_level(noise, name)]
            space, best = model.optimizer.space, [model.advice.trial] if model.advice else view.front
            points = [point for trial in best if (point := trial.point_in(space)) is not None]
            centers = np.array(points).reshape(-1, space.points.dim)
            idle = indifferent(model.optimizer, model.predictors, centers)
            found.append(health.best_at_edge(space, centers, model.importances))
            found.append(health.useless(model.importances, model.quality, idle))
        return sorted((each for each in found if each is not None), key=lambda each: LEVELS.index(each.level))


def facts_of(study: Study, most: int = EXACT_ROWS) -> Facts:
    """The facts of a study."""
    return Facts(StudyView.of(study), most)


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

    @property
    def related_shown(self) -> str:
        """The earlier studies, each with the probability that this one is like it."""
        shown = [f"{each.name} ({texts.percent(each.share)})" for each in self.related]
        more = len(shown) - MOST_NAMED
        return ", ".join(shown[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")

    @cached_property
    def quality(self) -> list[predictions.Quality | None]:
        """How well each objective is predicted."""
        return [predictions.quality_of(each) for each in self.predictors]

    @cached_property
    def good_ranges(self) -> Ranges | None:
        """Where each parameter is good, the most important one first; None if nothing is recommended."""
        if self.advice is None:
            return None
        found = ranges_of(self.optimizer, self.predictors[0], self.advice.recommendation)
        found = replace(found, parameters={name: found[name] for name in self.importances[0] if name in found})
        return found if found.distance > 0 else None  # with one value, the model knows nothing that is worse


@one_thread()
def model_facts_of(view: StudyView) -> ModelFacts | str | ValueError:
    """Ask the model of a study for everything that reports show, or say why there is no model."""
    single = len(view.objectives) == 1
    if not view.complete:
        return "No trial has completed yet, so there is no model."
    if not view.has_parameters:
        return "The trials have no parameters, so there is no model."
    try:
        optimizer = view.model().optimizer
        optimizer.learn()
        predictors = [optimizer.model.predictor(j) for j in range(len(view.objectives))]
    except ValueError as error:
        return error
    if not optimizer.space.points.dim:
        return "No parameter can vary, so there is nothing to model."
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
