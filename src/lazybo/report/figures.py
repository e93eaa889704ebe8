"""Figures of a study: pictures as files, or their numbers as plain data."""

import html
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from optuna.study import Study

from lazybo.core import codec, texts
from lazybo.report import predictions, records
from lazybo.report.facts import facts_of
from lazybo.study import StudyView

# The record of each figure, its drawing function in `plots`, and its title.
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


@dataclass(frozen=True)
class Figures:
    """One figure of a study, or all that show something, by their ``kinds``."""

    study: Study
    kinds: list[str]
    all: bool

    def numbers(self) -> Any:
        """The numbers of a figure as plain data for JSON; of all figures by their names."""
        found = {each: records.plain(FIGURES[each][0](self.study)) for each in self.kinds}
        return found if self.all else found[self.kinds[0]]

    def write(self, output: Path | None) -> list[Path]:
        """Write the pictures and return the files: one HTML page, or one image for each figure. Needs matplotlib."""
        name = texts.file_name(self.study.study_name)
        path = output or Path(f"{name}.html" if self.all else f"{name}-{self.kinds[0]}.png")
        suffix = path.suffix.removeprefix(".").lower()
        if suffix not in SUFFIXES:
            raise ValueError(f"{str(path)!r} must end with one of {', '.join('.' + known for known in SUFFIXES)}")
        pictures = {each: _picture(each, self.study, "svg" if suffix == "html" else suffix) for each in self.kinds}
        if suffix == "html":
            codec.write_whole(path, _page(self.study.study_name, pictures.values()))
            return [path]
        paths = {each: path.with_stem(f"{path.stem}-{each}") if self.all else path for each in self.kinds}
        for each, picture in pictures.items():
            codec.write_whole(paths[each], picture)
        return list(paths.values())


def figures_of(study: Study, kind: str) -> Figures:
    """The figure of a study with this name, or all of them. Raises a ValueError if the study has no such figure."""
    the_study, several = f"the study {study.study_name!r}", len(study.directions)
    if kind != "curves" and not records.front(study).numbers:
        raise ValueError(f"no trial of {the_study} has completed yet: there is nothing to draw")
    drawable = _drawable(study)
    if kind == "all":
        return Figures(study, drawable, all=True)
    if kind in drawable:
        return Figures(study, [kind], all=False)
    if kind == "curves":
        raise ValueError(f"no trial of {the_study} has reported values, so there are no curves")
    if kind == "front":
        raise ValueError(f"{the_study} has one objective, so there is no front; draw its history")
    if several > 1:
        raise ValueError(f"{kind} shows one objective, but {the_study} has {several}; draw its front")
    raise ValueError(f"no parameter of {the_study} varies, so there is nothing to draw for {kind!r}")


def _drawable(study: Study) -> list[str]:
    """The figures that show something of a study."""
    trials = StudyView.of(study).trials
    reported = ["curves"] if any(trial.reported for trial in trials) else []
    if len(study.directions) > 1:
        return ["front", "time", *reported]
    varies = any(not d.single() for trial in trials for d in trial.frozen.distributions.values())
    return ["history", "time", *(["importances", "slices", "parallel"] if varies else []), *reported]


def _picture(kind: str, study: Study, form: str) -> bytes:
    from lazybo.report import plots  # needs matplotlib

    make, drawing, title = FIGURES[kind]
    advice = facts_of(study).advice if kind == "history" else None
    more = [advice.recommendation] if advice else []
    return plots.as_bytes(getattr(plots, drawing)(make(study), f"{study.study_name}: {title}", *more), form)


def _page(name: str, pictures: Iterable[bytes]) -> str:
    """A self-contained HTML page with the figures as inline SVG."""
    shown = [f"<p>{svg[svg.index('<svg') :]}</p>" for svg in map(bytes.decode, pictures)]
    style = "body { font-family: sans-serif; max-width: 60em; margin: auto } svg { max-width: 100%; height: auto }"
    return (
        f'<!doctype html>\n<html lang="en">\n<meta charset="utf-8">\n<title>{html.escape(name)}</title>\n'
        f"<style>{style}</style>\n<h1>{html.escape(name)}</h1>\n" + "\n".join(shown) + "\n</html>\n"
    )
