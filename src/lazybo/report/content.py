"""Everything that the page of a study shows, gathered from the records. What a study does not have is None or empty."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

import numpy as np
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState

from lazybo.core.blas import one_thread
from lazybo.core.checks import Array
from lazybo.report import curves as learning
from lazybo.report import health, records
from lazybo.report.failures import Failures, failures
from lazybo.report.portable import portable_model
from lazybo.report.quality import Quality, noise_of, quality_of
from lazybo.report.recommendation import Advice, advise, contenders_of
from lazybo.search.optimizer import Optimizer
from lazybo.search.predictions import Contender, Predictor
from lazybo.search.queries import Relation
from lazybo.study import feasible, ledger
from lazybo.study.evaluated import point_of
from lazybo.study.factory import directions_of, model_of
from lazybo.study.paused import is_paused

T = TypeVar("T")

# The expected gain is that of so many more trials.
HORIZONS = (10, 50, 100)


@dataclass(frozen=True)
class Model:
    """What the model of a study says. ``portable`` are its numbers (`report.portable`)."""

    optimizer: Optimizer
    predictors: list[Predictor]
    portable: dict[str, Any]
    importances: list[dict[str, float]]
    quality: list[Quality | None]
    advice: Advice | None
    contenders: list[Contender]
    gains: dict[int, float]
    related: list[Relation]


@dataclass(frozen=True)
class Content:
    """A study as a page shows it. ``model`` is None if there can be no model; ``no_model`` says why."""

    name: str
    objectives: list[str]
    directions: list[str]
    counts: dict[str, int]
    span: tuple[datetime, datetime] | None
    trials: list[FrozenTrial]
    feasible: set[int]
    constraints: list[str]
    best: list[int]
    model: Model | None
    no_model: str
    curves: learning.Curves | None
    epochs: learning.Epochs | None
    failures: list[Failures]
    findings: list[health.Finding] = field(default_factory=list)

    @property
    def complete(self) -> list[FrozenTrial]:
        """The trials with finite values."""
        return feasible.complete_trials(self.trials)


@one_thread()
def content_of(study: Study) -> Content:
    """Gather all that a page of this study shows."""
    trials = ledger.read(study)
    model, reason = _model(study, trials)
    moments = [m for t in trials for m in (t.datetime_start, t.datetime_complete) if m is not None]
    counts = Counter("paused" if is_paused(trial) else learning.NAMES[trial.state] for trial in trials)
    constraints = feasible.constraints_of(trials)
    kept = feasible.feasible_trials(trials)
    found = Content(
        name=study.study_name,
        objectives=feasible.names_of(study),
        directions=list(directions_of(study)),
        counts={state: counts[state] for state in (*learning.NAMES.values(), "paused") if counts[state]},
        span=(min(moments), max(moments)) if moments else None,
        trials=trials,
        feasible={trial.number for trial in kept},
        constraints=constraints,
        best=[trial.number for trial in feasible.front_of(study, trials)],
        model=model,
        no_model=reason,
        curves=_unless_missing(lambda: learning.curves(study)),
        epochs=learning.epochs(trials),
        failures=failures(trials),
    )
    found.findings.extend(findings_of(found))
    return found


def findings_of(content: Content) -> list[health.Finding]:
    """What all checks have found, the most important first."""
    complete, model = content.complete, content.model
    failed = content.counts.get("failed", 0)
    ended = sum(content.counts.get(state, 0) for state in ("complete", "pruned", "failed"))
    dim = model.optimizer.space.dim if model else len({name for t in content.trials for name in t.params})
    found = [
        health.few_trials(len(complete), dim),
        health.many_failures(failed, ended, content.failures),
        health.few_feasible(len(content.feasible), len(complete), content.constraints),
    ]
    several = len(content.objectives) > 1
    for j, name in enumerate(content.objectives):
        found.append(health.equal_values([t.values[j] for t in complete], name if several else ""))
    if model is not None:
        found += _of_model(content, model)
    order = {"warning": 0, "note": 1, "good": 2}
    return sorted((each for each in found if each is not None), key=lambda each: order[each.level])


def _of_model(content: Content, model: Model) -> list[health.Finding | None]:
    found: list[health.Finding | None] = []
    for name, predictor, quality in zip(content.objectives, model.predictors, model.quality, strict=True):
        noise = noise_of(predictor)
        named = name if len(content.objectives) > 1 else ""
        found += [health.predictions(quality, noise, named), health.noise_level(noise, named)]
    found.append(health.best_at_edge(model.optimizer.space, _best_points(content, model), model.importances))
    found.append(health.useless(model.importances, model.quality))
    return found


def _best_points(content: Content, model: Model) -> Array:
    """The points of the recommended trial, or of the best ones, (m, d)."""
    space = model.optimizer.space
    if model.advice is not None:
        known = {n: v for n, v in model.advice.recommendation.params.items() if n in space.distributions}
        return space.encode(known)[None]
    best = [point_of(trial, space) for trial in content.trials if trial.number in set(content.best)]
    return np.array([point for point in best if point is not None]).reshape(-1, space.dim)


def _model(study: Study, trials: Sequence[FrozenTrial]) -> tuple[Model | None, str]:
    """The model of a study, or why there is none."""
    if not feasible.complete_trials(trials):
        return None, "No trial has completed yet, so there is no model."
    if not any(trial.params for trial in trials):
        return None, "The trials have no parameters, so there is no model."
    try:
        optimizer = model_of(study, trials).optimizer
        optimizer.learn()
        predictors = [optimizer.model.predictor(j) for j in range(len(study.directions))]
    except ValueError as error:
        return None, f"There is no model: {error}."
    if optimizer.space.dim == 0:
        return None, "No parameter can vary, so there is nothing to model."
    single = len(study.directions) == 1
    return (
        Model(
            optimizer,
            predictors,
            portable_model(optimizer, feasible.names_of(study), predictors),
            [records.importances(study, predictor) for predictor in predictors],
            [quality_of(predictor) for predictor in predictors],
            _unless_missing(lambda: advise(study, predictors[0])) if single else None,
            contenders_of(trials, optimizer) if single else [],
            _gains(optimizer) if single and optimizer.planner.n_feasible else {},
            optimizer.model.related(),
        ),
        "",
    )


def _gains(optimizer: Optimizer) -> dict[int, float]:
    return dict(zip(HORIZONS, optimizer.model.gain_parts(HORIZONS).expected(), strict=True))


def _unless_missing(make: Callable[[], T]) -> T | None:
    """A record; None if the study has no such thing."""
    try:
        return make()
    except ValueError:
        return None


def last_values(trial: FrozenTrial) -> list[float] | None:
    """The values of a completed trial, None if one is not finite or there are none."""
    ended = trial.state == TrialState.COMPLETE and trial.values and all(map(math.isfinite, trial.values))
    return [float(value) for value in trial.values] if ended else None
