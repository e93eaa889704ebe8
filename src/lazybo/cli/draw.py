"""`lazybo plot`: which figures to draw, and the files to write."""

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from optuna.study import Study

from lazybo.cli.figures import RECORDS, kinds_of
from lazybo.core.codec import write_whole
from lazybo.core.text import file_name
from lazybo.report import plots
from lazybo.report.recommendation import recommend
from lazybo.search.predictions import Recommendation

TITLES = {
    "history": "values, the best so far, and the recommended trial",
    "time": "time per step",
    "importances": "how much each parameter matters",
    "slices": "the model through the best trial",
    "parallel": "parallel coordinates",
    "front": "all objectives, and the front",
    "curves": "learning curves, and forecasts of where unfinished ones end",
}
PICTURES: dict[str, Callable[[Any, str], Figure]] = {
    "time": plots.draw_times,
    "importances": plots.draw_importances,
    "slices": plots.draw_slices,
    "parallel": plots.draw_parallel,
    "front": plots.draw_front,
    "curves": plots.draw_curves,
}
KINDS = ("png", "svg", "pdf", "html")


def draw(kind: str, study: Study, output: Path | None) -> list[Path]:
    """Write one figure or all of them and return the files: one HTML page, or one image for each figure."""
    kinds = kinds_of(kind, study)
    name = file_name(study.study_name)
    path = output or Path(f"{name}.html" if kind == "all" else f"{name}-{kind}.png")
    suffix = path.suffix.removeprefix(".").lower()
    if suffix not in KINDS:
        raise ValueError(f"{str(path)!r} must end with one of {', '.join('.' + known for known in KINDS)}")
    figures = {each: _figure(each, study) for each in kinds}
    if suffix == "html":
        write_whole(path, _page(study.study_name, figures))
        return [path]
    paths = {each: path.with_stem(f"{path.stem}-{each}") if kind == "all" else path for each in kinds}
    for each, figure in figures.items():
        write_whole(paths[each], plots.as_bytes(figure, suffix))
    return list(paths.values())


def _figure(kind: str, study: Study) -> Figure:
    record, title = RECORDS[kind](study), f"{study.study_name}: {TITLES[kind]}"
    if kind == "history":
        return plots.draw_history(record, title, _recommended(study))
    return PICTURES[kind](record, title)


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
