"""A study as one HTML file that needs no network, no server and no other file.

Texts and tables are HTML, made here. The page's own script (`page/`) draws pictures into the elements with a
``data-chart``, and computes predictions from the numbers of the model (`report.page_data`). Everything from outside
(names, errors, choices) goes through `escaped`, and a content security policy allows only the script of this module, by
its hash, and no connection.
"""

import base64
import hashlib
import html
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from importlib import resources
from pathlib import Path
from typing import Any

from optuna.study import Study

import lazybo
from lazybo.core import checks, codec, texts
from lazybo.report.facts import Facts, ModelFacts, facts_of
from lazybo.report.good_ranges import HEADINGS
from lazybo.report.health import Finding
from lazybo.report.page_data import as_json, data_of, name_of
from lazybo.report.predictions import Quality
from lazybo.report.records import Epochs, Failures
from lazybo.search import Prediction, Recommendation

# The files of the page, in this order.
SCRIPTS = ("model.js", "charts.js", "explorer.js", "page.js")
STYLE = "report.css"
# Rows of tables.
MOST_FAILURES, MOST_FRONT, MOST_NUMBERS = 20, 50, 12
REASON_LENGTH = 400
# Parameters in parallel coordinates.
MOST_AXES = 12
LEVELS = {"warning": "!", "note": "i", "good": "✓"}


def write_report(study: Study, path: str | Path) -> Path:
    """Write a report of a study as one HTML file, and return its path.

    The file needs no network and no server. It has the history of the study, what is recommended and how sure the model
    is, health checks in words, the model with a slider for each parameter, importances, learning curves, the front of
    several objectives, and failures. The report of a study without any value says what is missing.
    """
    if not isinstance(study, Study):
        raise ValueError(f"study must be an Optuna study, not {checks.shortened(study)}")
    file = Path(path)
    codec.write_whole(file, page_of(facts_of(study)))
    return file


def page_of(facts: Facts) -> str:
    """The whole page."""
    script = "\n".join(_resource(name) for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{script}\n}})();'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        f"script-src 'sha256-{digest}'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escaped(facts.name)} · lazybo report</title>
<style>
{_resource(STYLE)}</style>
</head>
<body>
{_header(facts)}
<main>
{_sections(facts)}
</main>
<footer><p>Made by lazybo {escaped(lazybo.__version__)}. The predictions are computed in this page by the model of the \
study; nothing is loaded from anywhere.</p></footer>
<script type="application/json" id="data">{as_json(data_of(facts))}</script>
<script>{script}</script>
</body>
</html>
"""


def _resource(name: str) -> str:
    return (resources.files("lazybo.report") / "page" / name).read_text(encoding="utf-8")


def escaped(text: object) -> str:
    """A name, a value or a message as HTML: one line, without control characters."""
    return html.escape(name_of(text), quote=True)


def _header(facts: Facts) -> str:
    """The name of the study, and what it is in one line."""
    goals = ", ".join(f"{d} {escaped(n)}" for n, d in zip(facts.view.objectives, facts.view.directions, strict=True))
    parts = [goals, facts.counts_shown]
    if facts.span is not None:
        first, last = facts.span
        parts.append(f"{first:%Y-%m-%d %H:%M} to {_end(first, last)} ({_duration(last - first)})")
    line = '<span class="sep"> · </span>'.join(f"<span>{part}</span>" for part in parts)
    return f'<header>\n<p class="kind">lazybo report</p>\n<h1>{escaped(facts.name)}</h1>\n<p>{line}</p>\n</header>'


def _sections(facts: Facts) -> str:
    """All sections that this study has."""
    model, complete = facts.model, bool(facts.view.complete)
    parts = [
        _section("health", "Health", _health(facts.findings), "Possible problems of this study, and what to do."),
        _front(facts) if facts.several and complete else "",
        _recommendation(facts) if not facts.several else "",
        _history(facts) if complete else "",
        _explorer(facts),
        _importances(facts, model) if model else "",
        _ranges(model) if model else "",
        _parallel(facts, model) if model and facts.portable and complete else "",
        _curves(facts.epochs) if facts.curves else "",
        _quality(model.quality) if model else "",
        _failures(facts.failures) if facts.failures else "",
    ]
    script = (
        "<noscript><p>The pictures and the sliders need JavaScript, which this browser does not run.</p></noscript>"
    )
    return "\n".join([_tiles(facts), script, *(part for part in parts if part)])


def _section(key: str, title: str, body: str, lead: str = "") -> str:
    words = f'\n<p class="lead">{lead}</p>' if lead else ""
    return f'<section id="{key}">\n<h2>{title}</h2>{words}\n{body}\n</section>'


def _missing(reason: str) -> str:
    return f'<p class="missing">{_sentence(reason)}</p>'


# ------------------------------------------------------------------------- top


def _tiles(facts: Facts) -> str:
    """The most important numbers."""
    tiles = "".join(
        f'<div class="tile"><p>{title}</p><p class="number">{value}</p><p class="note">{note}</p></div>'
        for title, value, note in _tiles_of(facts, facts.model)
    )
    return f'<div class="tiles">{tiles}</div>'


def _tiles_of(facts: Facts, model: ModelFacts | None) -> Iterator[tuple[str, str, str]]:
    best = facts.view.front
    if facts.several:
        yield "Best trade-offs", str(len(best)), f"{'trial' if len(best) == 1 else 'trials'} that no other dominates"
    elif not best:
        yield "Best seen", "–", "no trial counts yet"
    else:
        yield "Best seen", short(best[0].value), f"measured in trial {best[0].number}"
    if model is not None and model.advice is not None:
        ours = model.advice.recommendation
        yield "Recommended", f"trial {ours.number}", f"expected {_expected(ours)}"
    if model is not None and model.gains:
        (first, gain), *later = model.gains.items()
        note = ", ".join(f"{number(gain, 2)} of {count}" for count, gain in later)
        yield "Expected gain", number(gain, 2), f"of {first} more trials; {note}"


def _expected(found: Recommendation | Prediction) -> str:
    digits = next((each for each in (4, 6, 9) if number(found.low, each) != number(found.high, each)), 4)
    return f"{number(found.value)} (95 %: {number(found.low, digits)} to {number(found.high, digits)})"


def _health(findings: Sequence[Finding]) -> str:
    problems = [each for each in findings if each.level != "good"]
    good = [each for each in findings if each.level == "good"]
    fine = Finding("fine", "good", "Nothing to worry about", "All checks passed.")
    body = f'<ul class="findings">{"".join(map(_finding, problems or [fine]))}</ul>'
    if good:
        summary = f"{texts.counted(len(good), 'check')} passed"
        passed = "".join(map(_finding, good))
        body += f'\n<details><summary>{summary}</summary><ul class="findings">{passed}</ul></details>'
    return body


def _finding(found: Finding) -> str:
    mark = f'<i class="mark" aria-hidden="true">{LEVELS[found.level]}</i>'
    return f'<li class="{found.level}">{mark}<div><b>{_sentence(found.title)}.</b> {_sentence(found.text)}</div></li>'


def _sentence(text: str) -> str:
    """Our own text with names or errors in it; it may be longer than a name."""
    return html.escape(texts.one_line(text), quote=True)


# -------------------------------------------------------------- recommendation


def _recommendation(facts: Facts) -> str:
    model = facts.model
    if model is None or model.advice is None:
        reason = facts.no_model or "No trial of the present space is feasible, so nothing is recommended."
        return _section("recommendation", "What to use", _missing(reason))
    advice = model.advice
    ours, best, expected = advice.recommendation, advice.best, advice.expected
    measured = short(ours.measured) + (f" (mean of {ours.evaluations})" if ours.evaluations > 1 else "")
    columns = [(f"recommended: trial {ours.number}", ours.params, _expected(ours), measured)]
    why = "The recommended trial is also the best one seen."
    if advice.differs:
        there = "–" if expected is None else _expected(expected)
        columns.append((f"best seen: trial {best.number}", best.params, there, short(best.value)))
        why = f"The two differ: {_sentence(advice.reason or '')}."
    body = f"<p>{why}</p>\n{_comparison(columns)}"
    if chances := model.chances_shown(best):
        text = html.escape(chances)
        body += f"\n<p>Probability of being the best, by the model (ties count for both): {text}.</p>"
    if model.gains:
        parts = ", ".join(f"{number(gain, 2)} in the next {count}" for count, gain in model.gains.items())
        body += (
            f"\n<p>Expected improvement of the best value: {parts} trials. This combines the model with the gains of "
            "earlier trials. On average it is about twice the true gain.</p>"
        )
    lead = "The evaluated configuration the model predicts to be best. Under noise, the best value seen may be luck."
    if model.predictors[0].exact:
        lead = "The evaluated configuration with the best value: the values have no noise."
    return _section("recommendation", "What to use", body, lead)


def _comparison(columns: Sequence[tuple[str, Mapping[str, Any], str, str]]) -> str:
    names = list(dict.fromkeys(name for _, params, *_ in columns for name in params))
    rows = [
        ["", *(title for title, *_ in columns)],
        ["<b>the model expects</b>", *(expected for *_, expected, _ in columns)],
        ["<b>measured</b>", *(measured for *_, measured in columns)],
        *([escaped(name), *(_param(params, name) for _, params, *_ in columns)] for name in names),
    ]
    return _table(rows, "facts")


# --------------------------------------------------------------------- pictures


def _charts(kind: str, objectives: Sequence[int]) -> str:
    """A chart for each of these objectives, two in a row."""
    charts = "\n".join(f'<div class="chart" data-chart="{kind}" data-objective="{j}"></div>' for j in objectives)
    return f'<div class="grid2">{charts}</div>' if len(objectives) > 1 else charts


def _history(facts: Facts) -> str:
    charts = _charts("course", range(len(facts.view.objectives)))
    return _section("course", "History", charts, "The value of each trial by trial number.")


def _explorer(facts: Facts) -> str:
    model = facts.model
    if model is None or facts.portable is None:
        return _section("model", "The model", _missing(facts.no_explorer))
    lead = (
        "Move a slider: the prediction (median and 95 % interval, without the noise of a measurement) and the curves "
        "follow. Each curve shows the model along one parameter, with the others where their sliders are; dots are "
        "trials. The most important parameters come first."
    )
    if model.optimizer.space.kinds:
        lead += " A parameter with structure has a list of the values that were tried, the most promising first."
    if facts.portable["constraints"]:
        lead += " The dashed line is the probability that all constraints hold; infeasible trials are crosses."
    related = ""
    if model.related:
        related = (
            '\n<p class="fine">Earlier studies that the model has learned from, with the probability that this one is '
            f"like them: {_sentence(model.related_shown)}.</p>"
        )
    body = f'<div id="explorer" class="explorer"></div>{related}{_subset(model, facts.portable)}'
    return _section("model", "The model", body, lead)


def _subset(model: ModelFacts, portable: Mapping[str, Any]) -> str:
    rows = portable["rows"]
    if rows is None:
        return ""
    wider = max(portable["widening"] or 0.0, 0.0)
    return (
        f'\n<p class="fine">The median uses all {len(model.predictors[0].posterior.X)} trials. To stay fast, the '
        f"interval in this page uses {len(rows)} of them, half of these the best ones: it is never narrower, and "
        f"wider by {100 * wider:.1f} % (the median over the space).</p>"
    )


def _importances(facts: Facts, model: ModelFacts) -> str:
    lists = []
    for objective, shares in zip(facts.view.objectives, model.importances, strict=True):
        largest = max(shares.values(), default=0.0) or 1.0
        bars = "".join(
            f'<li><span class="name">{escaped(name)}</span><span class="bar">'
            f'<i style="width:{100 * share / largest:.1f}%"></i></span>'
            f"<span>{html.escape(texts.percent(share))}</span></li>"
            for name, share in shares.items()
        )
        title = f"<h3>{escaped(objective)}</h3>" if facts.several else ""
        lists.append(f'<div>{title}<ol class="bars">{bars}</ol></div>')
    lead = "The share of each parameter in the variation of the model over the space (Sobol's total effects)."
    return _section("importances", "Which parameters matter", "\n".join(lists), lead)


def _ranges(model: ModelFacts) -> str:
    """Where each parameter is good, as a table; the most important parameters first."""
    found = model.good_ranges
    if found is None:
        return ""
    cells = [[escaped(cell) for cell in row] for row in found.rows()]
    lead = (
        f"Where the model expects at most {number(found.distance, 2)} worse than the best "
        f"({number(found.best)}), with the other parameters as recommended, and with the others free. The probability "
        "is that of a value drawn evenly from the range."
    )
    return _section("ranges", "Good ranges", _table([HEADINGS, *cells], "facts"), lead)


def _parallel(facts: Facts, model: ModelFacts) -> str:
    better = "largest" if facts.view.directions[0] == "maximize" else "smallest"
    lead = (
        f"Each line is a trial; the strongest have the {better} {escaped(facts.view.objectives[0])}. "
        "Click one to load it into the model above."
    )
    if len(model.optimizer.space.points.names) > MOST_AXES:
        lead += f" Only the {MOST_AXES} most important parameters are shown."
    chart = f'<div class="chart" data-chart="parallel" data-most="{MOST_AXES}"></div>'
    return _section("parallel", "Trials side by side", chart, lead)


def _front(facts: Facts) -> str:
    trials = facts.front[:MOST_FRONT]
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    rows = [
        ["trial", *map(escaped, facts.view.objectives), *map(escaped, names)],
        *([str(t.number), *map(short, t.values), *(_param(t.params, name) for name in names)] for t in trials),
    ]
    more = len(facts.front) - len(trials)
    left = f"<p>The front has {texts.counted(more, 'more trial')}.</p>" if more else ""
    table = f'<details><summary>As a table</summary><div class="scroll">{_table(rows, "plain")}</div>{left}</details>'
    missing = "" if trials else _missing("No trial satisfies all constraints yet, so there is no front.")
    body = f'{missing}<div class="chart" data-chart="front"></div>{table if trials else ""}'
    return _section("front", "The front", body, "Trials that no other trial dominates.")


def _curves(epochs: Epochs | None) -> str:
    saved = f"<p>{html.escape(str(epochs))}.</p>" if epochs and epochs.stopped else ""
    lead = "The values that trials have reported, and forecasts for those that have not ended."
    return _section("curves", "Learning curves", f'<div class="chart" data-chart="curves"></div>{saved}', lead)


def _quality(quality: Sequence[Quality | None]) -> str:
    known = [j for j, each in enumerate(quality) if each is not None]
    lead = (
        "Each trial is predicted from all others, with the 95 % interval of a measurement. Near the diagonal the model "
        "is right."
    )
    return _section("quality", "How well the model predicts", _charts("quality", known), lead) if known else ""


def _failures(failures: Sequence[Failures]) -> str:
    rows = [["count", "reason", "trials"]]
    for found in failures[:MOST_FAILURES]:
        numbers = ", ".join(map(str, found.numbers[-MOST_NUMBERS:]))
        more = "…, " if len(found.numbers) > MOST_NUMBERS else ""
        where = f'<br><span class="fine">{escaped(found.output)}</span>' if found.output else ""
        reason = html.escape(texts.shortened(texts.one_line(found.reason), REASON_LENGTH))
        rows.append([str(len(found.numbers)), f"<code>{reason}</code>{where}", more + numbers])
    left = len(failures) - MOST_FAILURES
    rest = f"<p>Not shown: {texts.counted(left, 'more reason')}.</p>" if left > 0 else ""
    return _section("failures", "Failures", _table(rows, "failures") + rest, "Failed trials, grouped by their errors.")


# ------------------------------------------------------------------------ helpers


def _table(rows: Sequence[Sequence[str]], kind: str) -> str:
    """A table of cells that are HTML already; the first row is the head."""
    head, *body = rows
    cells = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
    return f'<table class="{kind}"><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>'


def _param(params: Mapping[str, Any], name: str) -> str:
    return short(params[name]) if name in params else ""


def short(value: Any) -> str:
    """A value for people as HTML: floats with five digits."""
    return number(value) if isinstance(value, float) else escaped(value)


def number(value: float, digits: int = 5) -> str:
    """A number with this many digits: 1.2e-5 rather than 1.2e-05, and a real minus."""
    return re.sub(r"e([+-])0*", lambda found: "e-" if found[1] == "-" else "e", f"{value:.{digits}g}").replace("-", "−")


def _end(first: datetime, last: datetime) -> str:
    return f"{last:%H:%M}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M}"


def _duration(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds} s"
