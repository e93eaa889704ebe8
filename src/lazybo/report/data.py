"""What the script of a page draws, as plain data for JSON: trials, curves, and the model."""

import json
import math
from collections.abc import Sequence
from typing import Any

from optuna.trial import FrozenTrial

from lazybo.core.text import printable, shortened, without_password
from lazybo.report.content import Content, Model, last_values
from lazybo.report.quality import Quality
from lazybo.study.evaluated import point_of

# At most so many trials are drawn in slices and parallel coordinates, so many learning curves with so many points each.
MOST_TRIALS, MOST_CURVES, MOST_STEPS = 2000, 300, 100
NAME_LENGTH = 200


def as_json(thing: Any) -> str:
    """Plain data as JSON that is harmless inside of a script element: it has no ``<``. NaN and infinity are null."""
    text = json.dumps(_finite(thing), ensure_ascii=True, allow_nan=False, separators=(",", ":"), default=str)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _finite(thing: Any) -> Any:
    if isinstance(thing, dict):
        return {name: _finite(each) for name, each in thing.items()}
    if isinstance(thing, list | tuple):
        return [_finite(each) for each in thing]
    return None if isinstance(thing, float) and not math.isfinite(thing) else thing


def data_of(content: Content) -> dict[str, Any]:
    """The numbers that the script draws, and the model."""
    model = content.model
    return {
        "objectives": [
            {"name": name_of(name), "maximize": direction == "maximize"}
            for name, direction in zip(content.objectives, content.directions, strict=True)
        ],
        "trials": _trials(content),
        "best": content.best,
        "bestPlaces": _exact_places(content, content.best[0]) if content.best else None,
        "failed": [trial.number for trial in content.trials if trial.state.name == "FAIL"],
        "pruned": [trial.number for trial in content.trials if trial.state.name == "PRUNED"],
        "recommended": _recommended(content),
        "model": None if model is None else _printable_names(model.portable),
        "order": [] if model is None else _by_importance(model),
        "quality": [] if model is None else [None if q is None else _quality(q) for q in model.quality],
        "curves": _curves(content),
    }


def _trials(content: Content) -> dict[str, Any]:
    """The completed trials by number: values, which are feasible, and the coordinates of those that are drawn."""
    complete = content.complete
    drawn = {trial.number for trial in _thinned(content, complete)}
    places = []
    for trial in complete:
        point = point_of(trial, content.model.optimizer.space) if content.model and trial.number in drawn else None
        places.append(None if point is None else [None if math.isnan(x) else round(x, 6) for x in point.tolist()])
    return {
        "numbers": [trial.number for trial in complete],
        "values": [last_values(trial) for trial in complete],
        "feasible": [trial.number in content.feasible for trial in complete],
        "places": places,
    }


def _thinned(content: Content, trials: Sequence[FrozenTrial]) -> Sequence[FrozenTrial]:
    """At most `MOST_TRIALS` trials: half of them the best ones by the first objective, the others spread."""
    if len(trials) <= MOST_TRIALS:
        return trials
    sign = -1.0 if content.directions[0] == "maximize" else 1.0
    order = sorted(trials, key=lambda trial: sign * trial.values[0])
    half = MOST_TRIALS // 2
    return [*order[:half], *_spread(order[half:], half)]


def _spread(things: Sequence[Any], most: int) -> list[Any]:
    """At most so many of some things, at even distances, with the first and the last."""
    if len(things) <= most:
        return list(things)
    return [things[round(i * (len(things) - 1) / (most - 1))] for i in range(most)]


def _recommended(content: Content) -> dict[str, Any] | None:
    if content.model is None or content.model.advice is None:
        return None
    ours = content.model.advice.recommendation
    places = None if ours.number is None else _exact_places(content, ours.number)
    return {"number": ours.number, "value": ours.value, "low": ours.low, "high": ours.high, "places": places}


def _exact_places(content: Content, number: int) -> list[float | None] | None:
    """The coordinates of a trial, None where a parameter is not active; None if it is not in the model."""
    trial = next(trial for trial in content.trials if trial.number == number)
    point = None if content.model is None else point_of(trial, content.model.optimizer.space)
    return None if point is None else [None if math.isnan(x) else x for x in point.tolist()]


def _quality(quality: Quality) -> dict[str, Any]:
    return {name: getattr(quality, name) for name in ("measured", "expected", "low", "high")}


def _curves(content: Content) -> dict[str, Any] | None:
    found = content.curves
    if found is None:
        return None
    wanted = [each for each in found.curves if each.forecast is not None or each.number == found.best]
    rest = [each for each in found.curves if each not in wanted]
    kept = sorted([*wanted, *_spread(rest, MOST_CURVES)], key=lambda each: each.number)
    return {
        "objective": name_of(found.objective),
        "lastStep": found.last_step,
        "best": found.best,
        "left": len(found.curves) - len(kept),
        "curves": [
            {
                "number": each.number,
                "state": each.state,
                "points": _spread(list(zip(each.steps, each.values, strict=True)), MOST_STEPS),
                "forecast": None if each.forecast is None else list(each.forecast),
            }
            for each in kept
        ],
    }


def _by_importance(model: Model) -> list[int]:
    """The columns of the parameters, the most important one of any objective first."""
    largest = {name: max(each[name] for each in model.importances) for name in model.optimizer.space.names}
    names = list(model.optimizer.space.names)
    return sorted(range(len(names)), key=lambda column: -largest[names[column]])


def _printable_names(portable: dict[str, Any]) -> dict[str, Any]:
    """The portable model with names and choices as a page can show them."""
    parameters = [
        {
            **each,
            "name": name_of(each["name"]),
            **({"choices": list(map(name_of, each["choices"]))} if "choices" in each else {}),
        }
        for each in portable["parameters"]
    ]
    named = {
        kind: [{**each, "name": name_of(each["name"])} for each in portable[kind]]
        for kind in ("objectives", "constraints")
    }
    return {**portable, "parameters": parameters, **named}


def name_of(text: object) -> str:
    """A name or a choice as a page can show it."""
    return shortened(printable(without_password(str(text))), NAME_LENGTH)
