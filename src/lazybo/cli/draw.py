"""`lazybo plot`: which figures to draw, and the files to write."""

import html
from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure
from optuna.study import Study

from lazybo.report import plots, records
from lazybo.report.recommendation import recommend
from lazybo.search.prediction import Recommendation
from lazybo.text import printable

TITLES = {
    "history": "values, the best so far, and the recommended trial",
    "time": "time per step",
    "slices": "the model through the best trial",
    "parallel": "parallel coordinates",
    "front": "all objectives, and the front",
}
PICTURES: dict[str, Callable[[Study, str], Figure]] = {
    "history": lambda study, title: plots.draw_history(records.history(study), title, _recommended(study)),
    "time": lambda study, title: plots.draw_times(records.times(study), title),
    "slices": lambda study, title: plots.draw_slices(records.slices(study), title),
    "parallel": lambda study, title: plots.draw_parallel(records.coordinates(study), title),
    "front": lambda study, title: plots.draw_front(records.front(study), title),
}
KINDS = ("png", "svg", "pdf", "html")


def draw(kind: str, study: Study, output: Path | None) -> list[Path]:
    """Write one figure or all of them and return the files: one HTML page, or one image for each figure."""
    if not records.front(study).numbers:
        raise ValueError(f"no trial of the study {study.study_name!r} has completed yet: there is nothing to draw")
    name = "".join("_" if char == "/" or printable(char) != char else char for char in study.study_name)
    path = output or Path(f"{name}.html" if kind == "all" else f"{name}-{kind}.png")
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in KINDS:
        raise ValueError(f"{str(path)!r} must end with one of {', '.join('.' + known for known in KINDS)}")
    drawable = _drawable(study)
    kinds = drawable if kind == "all" else [kind]
    several = len(study.directions)
    if kind == "front" and several == 1:
        raise ValueError(f"the study {study.study_name!r} has one objective, so there is no front; draw its history")
    if several > 1 and not set(kinds) <= set(drawable):
        raise ValueError(
            f"{kind} shows one objective, but the study {study.study_name!r} has {several}; draw its front"
        )
    if not set(kinds) <= set(drawable):
        raise ValueError(
            f"no parameter of the study {study.study_name!r} varies, so there is nothing to draw for {kind!r}"
        )
    figures = {each: PICTURES[each](study, f"{study.study_name}: {TITLES[each]}") for each in kinds}
    if suffix == "html":
        path.write_text(_page(study.study_name, figures), encoding="utf-8")
        return [path]
    paths = {each: path.with_stem(f"{path.stem}-{each}") if kind == "all" else path for each in kinds}
    for each, figure in figures.items():
        paths[each].write_bytes(plots.as_bytes(figure, suffix))
    return list(paths.values())


def _drawable(study: Study) -> list[str]:
    """The figures that show something of a study."""
    if len(study.directions) > 1:
        return ["front", "time"]
    return ["history", "time", *(["slices", "parallel"] if records.varies(study) else [])]


def _recommended(study: Study) -> Recommendation | None:
    """The recommended trial, if there is a model that can recommend one."""
    try:
        return recommend(study)
    except ValueError:
        return None


def _page(name: str, figures: dict[str, Figure]) -> str:
    """A self-contained HTML page with the figures as inline SVG."""
    pictures = []
    for figure in figures.values():
        svg = plots.as_bytes(figure, "svg").decode()
        pictures.append(f"<p>{svg[svg.index('<svg') :]}</p>")
    style = "body { font-family: sans-serif; max-width: 60em; margin: auto } svg { max-width: 100%; height: auto }"
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{html.escape(name)}</title>\n'
        f"<style>{style}</style>\n<h1>{html.escape(name)}</h1>\n" + "\n".join(pictures) + "\n</html>\n"
    )
