"""What `lazybo export` and `lazybo plot` write: tables of trials, and figures or their numbers."""

import dataclasses
import html
import io
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from optuna.distributions import BaseDistribution
from optuna.study import Study
from optuna.trial import TrialState

from lazybo.cli import console
from lazybo.core import codec, texts
from lazybo.report import predictions, records, unless_missing
from lazybo.space import csv_text
from lazybo.study import REPEAT_KEY, Store, constraints_of, feasible_trials, measured_constraints, names_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = dict[str, Any]

# ------------------------------------------------------------------------------------- tables


def rows_of(study: Study) -> list[Row]:
    """One row for each trial with the columns of Optuna's ``trials_dataframe()``; None where a trial has no entry.

    If the study had a final check, ``repeat_of`` is the first trial with the configuration that a trial repeats.
    """
    trials = Store(study).trials()
    names = names_of(study)
    values = ["value"] if len(names) == 1 else [f"values_{name}" for name in study.metric_names or range(len(names))]
    counted = {trial.number for trial in feasible_trials(trials)}
    constrained = bool(constraints_of(trials))
    rows: list[Row] = []
    for trial in trials:
        start, end = trial.datetime_start, trial.datetime_complete
        row: Row = {
            "number": trial.number,
            **dict(zip(values, trial.values or [None] * len(values), strict=True)),
            "datetime_start": start.isoformat() if start else None,
            "datetime_complete": end.isoformat() if end else None,
            "duration": (end - start).total_seconds() if start and end else None,
        }
        row |= {f"params_{name}": value for name, value in trial.params.items()}
        row |= {f"user_attrs_{name}": value for name, value in trial.user_attrs.items() if name != "traceback"}
        row |= {f"constraints_{name}": value for name, value in measured_constraints(trial).items()}
        if constrained:
            row["feasible"] = trial.number in counted if trial.state == TrialState.COMPLETE else None
        if REPEAT_KEY in trial.system_attrs:
            row["repeat_of"] = trial.system_attrs[REPEAT_KEY]
        rows.append(row | {"state": trial.state.name, "reason": trial.system_attrs.get("fail_reason")})
    found: list[str] = []
    for prefix in ("params_", "user_attrs_", "constraints_"):
        found += sorted({name for row in rows for name in row if name.startswith(prefix)})
    found += ["feasible"] if constrained else []
    columns = ["number", *values, "datetime_start", "datetime_complete", "duration", *found, "state", "reason"]
    columns += ["repeat_of"] if any("repeat_of" in row for row in rows) else []
    return [{column: row.get(column) for column in columns} for row in rows]


def as_csv(rows: list[Row]) -> bytes:
    """CSV with a header; None is an empty cell."""
    columns = list(rows[0]) if rows else ["number", "value", "state"]
    return csv_text(columns, rows).encode(errors="backslashreplace")


def as_json(rows: list[Row]) -> bytes:
    """A list of objects."""
    return (console.as_json(rows, 1) + "\n").encode()


def as_parquet(rows: list[Row]) -> bytes:
    """A Parquet file; a column of several types becomes text."""
    console.needs("pyarrow")
    import pyarrow
    import pyarrow.parquet

    columns = {}
    for name in rows[0] if rows else ():
        cells = [row[name] for row in rows]
        kinds = {type(cell) for cell in cells if cell is not None} - ({int} if float in map(type, cells) else set())
        plain = kinds <= {bool} or kinds <= {int} or kinds <= {float}
        columns[name] = cells if plain else [None if cell is None else _text(cell) for cell in cells]
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.table(columns), buffer)
    return buffer.getvalue()


def _text(cell: object) -> str:
    """A cell as text. Lone surrogates, which JSON allows and UTF-8 files do not, become escapes."""
    return str(cell).encode(errors="backslashreplace").decode()


FORMATS: dict[str, Callable[[list[Row]], bytes]] = {"csv": as_csv, "json": as_json, "parquet": as_parquet}


def format_of(path: Path | None, given: str | None) -> str:
    """The format that was given, or the one of the file's suffix."""
    name = given or (path.suffix.removeprefix(".").lower() if path else "csv")
    if name not in FORMATS:
        raise ValueError(f"the format must be one of {', '.join(FORMATS)}, not {name!r}; choose it with --format")
    return name


# ------------------------------------------------------------------------------------ figures

# The record of each figure, its drawing function in `report.plots`, and its title.
FIGURES: dict[str, tuple[Callable[[Study], Any], str, str]] = {
    "history": (records.history, "draw_history", "values, the best so far, and the recommended trial"),
    "time": (records.times, "draw_times", "time per step"),
    "importances": (predictions.importances, "draw_importances", "how much each parameter matters"),
    "slices": (predictions.slices, "draw_slices", "the model through the best trial"),
    "parallel": (predictions.coordinates, "draw_parallel", "parallel coordinates"),
    "front": (records.front, "draw_front", "all objectives, and the front"),
    "curves": (records.learning_curves, "draw_curves", "learning curves, and forecasts for unfinished ones"),
}
SUFFIXES = ("png", "svg", "pdf", "html")


def kinds_of(kind: str, study: Study) -> list[str]:
    """The figures to draw: one, or all that show something. Raises a ValueError if a study has no such figure."""
    if kind != "curves" and not records.front(study).numbers:
        raise ValueError(f"no trial of the study {study.study_name!r} has completed yet: there is nothing to draw")
    drawable = _drawable(study)
    if kind == "all" or kind in drawable:
        return drawable if kind == "all" else [kind]
    several = len(study.directions)
    if kind == "curves":
        raise ValueError(f"no trial of the study {study.study_name!r} has reported values, so there are no curves")
    if kind == "front":
        raise ValueError(f"the study {study.study_name!r} has one objective, so there is no front; draw its history")
    if several > 1:
        raise ValueError(
            f"{kind} shows one objective, but the study {study.study_name!r} has {several}; draw its front"
        )
    raise ValueError(f"no parameter of the study {study.study_name!r} varies, so there is nothing to draw for {kind!r}")


def _drawable(study: Study) -> list[str]:
    """The figures that show something of a study."""
    trials = Store(study).trials()
    reported = ["curves"] if any(trial.intermediate_values for trial in trials) else []
    if len(study.directions) > 1:
        return ["front", "time", *reported]
    varies = any(not d.single() for trial in trials for d in trial.distributions.values())
    return ["history", "time", *(["importances", "slices", "parallel"] if varies else []), *reported]


def numbers(kind: str, study: Study) -> Any:
    """The numbers of a figure as plain data for JSON; of all figures by their names."""
    found = {each: _plain(FIGURES[each][0](study)) for each in kinds_of(kind, study)}
    return found if kind == "all" else found[kind]


def _plain(thing: Any) -> Any:
    """A record as dicts and lists. JSON has no NaN and no infinity: they are None."""
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return {field.name: _plain(getattr(thing, field.name)) for field in dataclasses.fields(thing)}
    if isinstance(thing, np.ndarray):
        return _plain(thing.tolist())
    if isinstance(thing, BaseDistribution):
        return str(thing)
    if isinstance(thing, tuple) and hasattr(thing, "_asdict"):
        return _plain(thing._asdict())
    if isinstance(thing, Mapping):
        return {name: _plain(each) for name, each in thing.items()}
    if isinstance(thing, Sequence) and not isinstance(thing, str):
        return [_plain(each) for each in thing]
    return None if isinstance(thing, float) and not math.isfinite(thing) else thing


def draw(kind: str, study: Study, output: Path | None) -> list[Path]:
    """Write one figure or all of them and return the files: one HTML page, or one image for each figure."""
    kinds = kinds_of(kind, study)
    name = texts.file_name(study.study_name)
    path = output or Path(f"{name}.html" if kind == "all" else f"{name}-{kind}.png")
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"{str(path)!r} must end with one of {', '.join('.' + known for known in SUFFIXES)}")
    figures = {each: _figure(each, study) for each in kinds}
    if suffix == "html":
        codec.write_whole(path, _page(study.study_name, figures))
        return [path]
    paths = {each: path.with_stem(f"{path.stem}-{each}") if kind == "all" else path for each in kinds}
    for each, figure in figures.items():
        codec.write_whole(paths[each], _image(figure, suffix))
    return list(paths.values())


def _figure(kind: str, study: Study) -> "Figure":
    from lazybo.report import plots  # needs matplotlib

    make, drawing, title = FIGURES[kind]
    more = [unless_missing(lambda: predictions.recommend(study))] if kind == "history" else []
    figure: Figure = getattr(plots, drawing)(make(study), f"{study.study_name}: {title}", *more)
    return figure


def _image(figure: "Figure", suffix: str) -> bytes:
    from lazybo.report import plots

    return plots.as_bytes(figure, suffix)


def _page(name: str, figures: Mapping[str, "Figure"]) -> str:
    """A self-contained HTML page with the figures as inline SVG."""
    pictures = []
    for figure in figures.values():
        svg = _image(figure, "svg").decode()
        pictures.append(f"<p>{svg[svg.index('<svg') :]}</p>")
    style = "body { font-family: sans-serif; max-width: 60em; margin: auto } svg { max-width: 100%; height: auto }"
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{html.escape(name)}</title>\n'
        f"<style>{style}</style>\n<h1>{html.escape(name)}</h1>\n" + "\n".join(pictures) + "\n</html>\n"
    )
