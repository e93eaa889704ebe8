"""The texts and tables of a page as HTML. Everything from outside goes through `escaped`.

A section is a heading, a line that says how to read it, and its content. Pictures are drawn by the page's script into
the elements with a ``data-chart``.
"""

import html
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from optuna.trial import FrozenTrial

import lazybo
from lazybo.core.text import one_line, shortened
from lazybo.report.content import Content, Model
from lazybo.report.data import name_of
from lazybo.report.failures import Failures
from lazybo.report.health import Finding
from lazybo.search.predictions import Prediction, Recommendation

# Rows of tables.
MOST_CONTENDERS, MOST_FAILURES, MOST_FRONT, MOST_NUMBERS = 5, 20, 50, 12
REASON_LENGTH = 400
# Parameters in parallel coordinates.
MOST_AXES = 12
LEVELS = {"warning": "!", "note": "i", "good": "✓"}


def escaped(text: object) -> str:
    """A name, a value or a message as HTML: one line, without control characters."""
    return html.escape(name_of(text), quote=True)


def header(content: Content) -> str:
    """The name of the study, and what it is in one line."""
    goals = ", ".join(f"{d} {escaped(n)}" for n, d in zip(content.objectives, content.directions, strict=True))
    counts = ", ".join(f"{count} {state}" for state, count in content.counts.items()) or "no trials"
    parts = [goals, counts]
    if content.span is not None:
        first, last = content.span
        parts.append(f"{first:%Y-%m-%d %H:%M} to {_end(first, last)} ({_duration(last - first)})")
    line = '<span class="sep"> · </span>'.join(f"<span>{part}</span>" for part in parts)
    return f'<header>\n<p class="kind">lazybo report</p>\n<h1>{escaped(content.name)}</h1>\n<p>{line}</p>\n</header>'


def footer() -> str:
    """Which program made the page."""
    return (
        f"<footer><p>Made by lazybo {escaped(lazybo.__version__)}. The predictions are computed in this page by the "
        "model of the study; nothing is loaded from anywhere.</p></footer>"
    )


def sections(content: Content) -> str:
    """All sections that this study has, with links to them at the top."""
    model, several = content.model, len(content.objectives) > 1
    complete = bool(content.complete)
    parts = [
        _section("health", "Health", _health(content.findings), "What this study may suffer from, and what to do."),
        _front(content) if several and complete else "",
        _recommendation(content, model) if not several else "",
        _course(content),
        _explorer(content, model),
        _importances(content, model) if model else "",
        _parallel(content, model) if model and complete else "",
        _curves(content),
        _quality(model) if model else "",
        _failures(content.failures),
    ]
    script = (
        "<noscript><p>The pictures and the sliders need JavaScript, which this browser does not run.</p></noscript>"
    )
    return "\n".join([_tiles(content), script, *(part for part in parts if part)])


def _section(key: str, title: str, body: str, lead: str = "") -> str:
    words = f'\n<p class="lead">{lead}</p>' if lead else ""
    return f'<section id="{key}">\n<h2>{title}</h2>{words}\n{body}\n</section>'


# ------------------------------------------------------------------------- top


def _tiles(content: Content) -> str:
    """The most important numbers."""
    tiles = [_tile(*each) for each in (*_best_tiles(content), *_gain_tiles(content.model))]
    return f'<div class="tiles">{"".join(tiles)}</div>' if tiles else ""


def _tile(title: str, value: str, note: str) -> str:
    return f'<div class="tile"><p>{title}</p><p class="number">{value}</p><p class="note">{note}</p></div>'


def _best_tiles(content: Content) -> Iterable[tuple[str, str, str]]:
    if len(content.objectives) > 1:
        yield "Best trade-offs", str(len(content.best)), "trials that no other dominates"
        return
    best = next((trial for trial in content.trials if trial.number in content.best[:1]), None)
    if best is None:
        yield "Best seen", "–", "no trial counts yet"
        return
    yield "Best seen", short(best.value), f"measured in trial {best.number}"
    if content.model is not None and content.model.advice is not None:
        ours = content.model.advice.recommendation
        yield "Recommended", f"trial {ours.number}", f"expected {_expected(ours)}"


def _gain_tiles(model: Model | None) -> Iterable[tuple[str, str, str]]:
    if model is None or not model.gains:
        return
    (first, gain), *later = model.gains.items()
    note = ", ".join(f"{number(gain, 2)} of {count}" for count, gain in later)
    yield "Expected gain", number(gain, 2), f"of {first} more trials; {note}"


def _expected(found: Recommendation | Prediction) -> str:
    digits = next((each for each in (4, 6, 9) if number(found.low, each) != number(found.high, each)), 4)
    return f"{number(found.value)} (95 %: {number(found.low, digits)} to {number(found.high, digits)})"


def _health(findings: Sequence[Finding]) -> str:
    open_ones = [each for each in findings if each.level != "good"]
    good = [each for each in findings if each.level == "good"]
    fine = Finding("fine", "good", "Nothing to worry about", "All checks passed.")
    listed = "".join(map(_finding, open_ones or [fine]))
    body = f'<ul class="findings">{listed}</ul>'
    if good:
        summary = f"{len(good)} {'check' if len(good) == 1 else 'checks'} passed"
        body += (
            f'\n<details><summary>{summary}</summary><ul class="findings">{"".join(map(_finding, good))}</ul></details>'
        )
    return body


def _finding(found: Finding) -> str:
    mark = f'<i class="mark" aria-hidden="true">{LEVELS[found.level]}</i>'
    return f'<li class="{found.level}">{mark}<div><b>{_sentence(found.title)}.</b> {_sentence(found.text)}</div></li>'


def _sentence(text: str) -> str:
    """A text of ours that has names or errors in it, which may be longer than a name."""
    return html.escape(one_line(text), quote=True)


# -------------------------------------------------------------- recommendation


def _recommendation(content: Content, model: Model | None) -> str:
    if not content.complete:
        return _section("recommendation", "What to use", f'<p class="missing">{_sentence(content.no_model)}</p>')
    if model is None or model.advice is None:
        reason = content.no_model or "No trial of the present space is feasible, so nothing is recommended."
        return _section("recommendation", "What to use", f'<p class="missing">{_sentence(reason)}</p>')
    advice = model.advice
    ours, best, expected = advice.recommendation, advice.best, advice.expected
    measured = f"{short(ours.measured)}" + (f" (mean of {ours.evaluations})" if ours.evaluations > 1 else "")
    columns = [(f"recommended: trial {ours.number}", ours.params, _expected(ours), measured)]
    if advice.differs:
        there = "–" if expected is None else _expected(expected)
        columns.append((f"best seen: trial {best.number}", best.params, there, short(best.value)))
        why = f"The two differ: {_sentence(advice.reason or '')}."
    else:
        why = "The recommended trial is also the best one seen."
    body = f"<p>{why}</p>\n{_comparison(columns)}{_contenders(model)}{_gains(model)}"
    lead = "The evaluated configuration that the model expects most of. Under noise, the best value seen may be luck."
    if model.predictors[0].exact:
        lead = "The evaluated configuration with the best value: the values have no noise."
    return _section("recommendation", "What to use", body, lead)


def _comparison(columns: Sequence[tuple[str, Mapping[str, Any], str, str]]) -> str:
    names = list(dict.fromkeys(name for _, params, *_ in columns for name in params))
    rows = [["", *(title for title, *_ in columns)]]
    rows.append(["<b>the model expects</b>", *(expected for *_, expected, _ in columns)])
    rows.append(["<b>measured</b>", *(measured for *_, measured in columns)])
    rows += [
        [escaped(name), *(short(params[name]) if name in params else "" for _, params, *_ in columns)] for name in names
    ]
    return _table(rows, "facts")


def _contenders(model: Model) -> str:
    shown = model.contenders[:MOST_CONTENDERS]
    if len(shown) < 2:
        return ""
    text = ", ".join(f"trial {each.number} ({each.chance:.0%})" for each in shown)
    more = len(model.contenders) - len(shown)
    rest = f" and {more} more" if more else ""
    return f"\n<p>The chance, by the model, that no other evaluated configuration is clearly better: {text}{rest}.</p>"


def _gains(model: Model) -> str:
    if not model.gains:
        return ""
    parts = ", ".join(f"{number(gain, 2)} in the next {count}" for count, gain in model.gains.items())
    return (
        f"\n<p>The best value is expected to improve by {parts} trials: by the model, and by what earlier trials "
        "gained. On average this estimate is too large by a factor of two.</p>"
    )


# --------------------------------------------------------------------- pictures


def _course(content: Content) -> str:
    if not content.complete:
        return ""
    charts = "\n".join(
        f'<div class="chart" data-chart="course" data-objective="{j}"></div>' for j in range(len(content.objectives))
    )
    if len(content.objectives) > 1:
        charts = f'<div class="grid2">{charts}</div>'
    return _section("course", "The course", charts, "The value of each trial in the order of their numbers.")


def _explorer(content: Content, model: Model | None) -> str:
    if model is None:
        return _section("model", "The model", f'<p class="missing">{_sentence(content.no_model)}</p>')
    lead = (
        "Move a slider: the prediction (median and 95 % interval, without the noise of a measurement) and the curves "
        "follow. Each curve shows the model along one parameter, the others as the sliders say; dots are trials. "
        "The most important parameters come first."
    )
    if model.portable["constraints"]:
        lead += " The dashed line is the probability that all constraints hold; infeasible trials are crosses."
    body = f'<div id="explorer" class="explorer"></div>{_related(model)}{_subset(model)}'
    return _section("model", "The model", body, lead)


def _related(model: Model) -> str:
    if not model.related:
        return ""
    shown = ", ".join(f"{escaped(each.name)} ({each.share:.0%})" for each in model.related[:MOST_CONTENDERS])
    more = len(model.related) - MOST_CONTENDERS
    rest = f" and {more} more" if more > 0 else ""
    return (
        '\n<p class="fine">Earlier studies that the model has learned from, with the probability that this one is like '
        f"them: {shown}{rest}.</p>"
    )


def _subset(model: Model) -> str:
    rows = model.portable["rows"]
    if rows is None:
        return ""
    wider = max(model.portable["widening"] or 0.0, 0.0)
    return (
        f'\n<p class="fine">The median uses all {model.predictors[0].process.n} trials. To stay fast, the interval in '
        f"this page uses {len(rows)} of them, half of these the best ones: it is wider, by {wider:.1%} in the median "
        "over the space, and never narrower.</p>"
    )


def _importances(content: Content, model: Model) -> str:
    several = len(content.objectives) > 1
    lists = []
    for objective, shares in zip(content.objectives, model.importances, strict=True):
        largest = max(shares.values(), default=0.0) or 1.0
        bars = "".join(
            f'<li><span class="name">{escaped(name)}</span><span class="bar">'
            f'<i style="width:{100 * share / largest:.1f}%"></i></span><span>{_share(share)}</span></li>'
            for name, share in shares.items()
        )
        title = f"<h3>{escaped(objective)}</h3>" if several else ""
        lists.append(f'<div>{title}<ol class="bars">{bars}</ol></div>')
    lead = "The share of each parameter in the variation of the model over the space (Sobol's total effects)."
    return _section("importances", "Which parameters matter", "\n".join(lists), lead)


def _share(share: float) -> str:
    return "&lt; 1 %" if 0 < share < 0.01 else f"{100 * share:.0f} %"


def _parallel(content: Content, model: Model) -> str:
    better = "largest" if content.directions[0] == "maximize" else "smallest"
    lead = (
        f"Each line is a trial; the strongest have the {better} {escaped(content.objectives[0])}. "
        "Click one to load it into the model above."
    )
    if model.optimizer.space.dim > MOST_AXES:
        lead += f" Only the {MOST_AXES} most important parameters are shown."
    chart = f'<div class="chart" data-chart="parallel" data-most="{MOST_AXES}"></div>'
    return _section("parallel", "Trials side by side", chart, lead)


def _front(content: Content) -> str:
    best = {number: trial for trial in content.trials if (number := trial.number) in set(content.best)}
    trials = sorted(best.values(), key=lambda trial: trial.values)[:MOST_FRONT]
    names = list(dict.fromkeys(name for trial in trials for name in trial.params))
    head = ["trial", *map(escaped, content.objectives), *map(escaped, names)]
    rows = [head, *(_front_row(trial, names) for trial in trials)]
    left = f"<p>{len(best) - len(trials)} more trials are on the front.</p>" if len(best) > len(trials) else ""
    table = f'<details><summary>As a table</summary><div class="scroll">{_table(rows, "plain")}</div>{left}</details>'
    missing = "" if trials else '<p class="missing">No trial satisfies all constraints yet, so there is no front.</p>'
    lead = "Trials that no other is better than in all objectives."
    return _section(
        "front", "The front", f'{missing}<div class="chart" data-chart="front"></div>{table if trials else ""}', lead
    )


def _front_row(trial: FrozenTrial, names: Sequence[str]) -> list[str]:
    values = [short(value) for value in trial.values]
    return [str(trial.number), *values, *(short(trial.params[n]) if n in trial.params else "" for n in names)]


def _curves(content: Content) -> str:
    if content.curves is None:
        return ""
    lead = "What trials have reported, and where those that have not ended are expected to end."
    saved = ""
    if content.epochs is not None and content.epochs.stopped:
        found = content.epochs
        share = 1 - found.trained / found.in_full
        saved = (
            f"<p>{found.stopped} of {found.trainings} trainings were stopped early: {found.trained} of {found.in_full} "
            f"epochs were trained ({share:.0%} saved).</p>"
        )
    return _section("curves", "Learning curves", f'<div class="chart" data-chart="curves"></div>{saved}', lead)


def _quality(model: Model) -> str:
    known = [j for j, quality in enumerate(model.quality) if quality is not None]
    if not known:
        return ""
    charts = "\n".join(f'<div class="chart" data-chart="quality" data-objective="{j}"></div>' for j in known)
    lead = (
        "Each trial is predicted from all others, with the 95 % interval of a measurement. Near the diagonal the model "
        "is right."
    )
    if len(known) > 1:
        charts = f'<div class="grid2">{charts}</div>'
    return _section("quality", "How well the model predicts", charts, lead)


def _failures(failures: Sequence[Failures]) -> str:
    if not failures:
        return ""
    rows = [["count", "reason", "trials"]]
    for found in failures[:MOST_FAILURES]:
        numbers = ", ".join(map(str, found.numbers[-MOST_NUMBERS:]))
        more = "…, " if len(found.numbers) > MOST_NUMBERS else ""
        where = f'<br><span class="fine">{escaped(found.output)}</span>' if found.output else ""
        reason = html.escape(shortened(one_line(found.reason), REASON_LENGTH))
        rows.append([str(len(found.numbers)), f"<code>{reason}</code>{where}", more + numbers])
    left = len(failures) - MOST_FAILURES
    rest = f"<p>{left} more reasons are not shown.</p>" if left > 0 else ""
    return _section("failures", "Failures", _table(rows, "failures") + rest, "Failed trials, grouped by their errors.")


# ------------------------------------------------------------------------ helpers


def _table(rows: Sequence[Sequence[str]], kind: str) -> str:
    """A table of cells that are HTML already; the first row is the head."""
    head, *body = rows
    cells = "".join(f'<th scope="col">{cell}</th>' for cell in head)
    lines = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
    return f'<table class="{kind}"><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>'


def short(value: Any) -> str:
    """A value for people as HTML: floats with five digits."""
    return number(value) if isinstance(value, float) else escaped(value)


def number(value: float, digits: int = 5) -> str:
    """A number with so many digits: 1.2e-5 rather than 1.2e-05, and a real minus."""
    return re.sub(r"e([+-])0*", lambda found: "e-" if found[1] == "-" else "e", f"{value:.{digits}g}").replace("-", "−")


def _end(first: datetime, last: datetime) -> str:
    return f"{last:%H:%M}" if first.date() == last.date() else f"{last:%Y-%m-%d %H:%M}"


def _duration(span: timedelta) -> str:
    seconds = int(span.total_seconds())
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds} s"
