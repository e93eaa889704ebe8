"""Make the tables and pictures of the benchmark pages from the recorded runs: ``python -m benchmarks.report``.

It prints the tables. With ``--write`` it writes them between the marks in docs/benchmarks*.md and README.md, and the
pictures into docs.

Optimisers are compared on the runs that all of them have (`benchmarks.records`).
"""

import argparse
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.stats import rankdata, wilcoxon

from benchmarks import noise
from benchmarks.notebook import STUCK
from benchmarks.optimizers import OPTIMIZERS
from benchmarks.paper.tables import insert, markdown
from benchmarks.records import OURS, Course, Run, Suite, load
from benchmarks.run import RESULTS
from benchmarks.runner import log10, read

ROOT = Path(__file__).parents[1]
DOCUMENTS = (*sorted((ROOT / "docs").glob("benchmarks*.md")), ROOT / "README.md")
BUDGETS = (25, 50, 100, 200)
SHORT, LONG = BUDGETS[:3], (10, *BUDGETS)
# Seconds of one evaluation, and the times to compare at, in evaluations.
COSTS = (0.1, 1.0, 10.0, 60.0)
TIMES = (25, 100)
FREE_SECONDS = (1.0, 10.0)


# ------------------------------------------------------------------- evaluations


def short(suites: Mapping[str, Suite], overhead: Path) -> str:
    """The optimisers with most runs in all suites: mean regrets, and milliseconds of a step."""
    groups = [suite.groups() for suite in suites.values()]
    if not all(groups):
        return ""
    names = [name for name in OPTIMIZERS if all(name in found[0][0] for found in groups)]
    steps = read(overhead) if overhead.exists() else []
    ms = {(row["optimizer"], int(row["n"]), int(row["parameters"])): row["ms"] for row in steps}
    rows = {name: [name] for name in names}
    for suite in suites.values():
        runs = suite.shared(names, 100) if suite.equal else suite.groups()[0][1]
        for name in names:
            rows[name] += [_mean(suite, name, n, runs, 3) for n in SHORT]
    for name in names:
        rows[name] += [ms.get((name, n, 5), "") for n in (100, 1000)]
    head = [f"{title}after {n}" for each in suites for n, title in zip(SHORT, (f"{each} ", "", ""), strict=True)]
    return markdown(["", *head, "ms at 100", "ms at 1,000"], rows.values())


def _mean(suite: Suite, name: str, n: int, runs: Sequence[Run], digits: int = 4) -> str:
    """The mean regret as a cell; empty if one is missing."""
    values = suite.regrets(name, n, runs)
    return "" if values is None else f"{suite.mean(runs, values):.{digits}f}"


def evaluations(suite: Suite) -> str:
    """Regret against evaluations."""
    means = [_mean_regret(suite, names, runs) for names, runs in suite.groups()]
    return "\n\n".join([*means, *_all_pairs(suite, BUDGETS)])


def details(suite: Suite) -> str:
    """The same in logarithms, by rank and by family."""
    parts = []
    for names, runs in suite.groups():
        parts += [_mean_logs(suite, names, runs), _ranks(suite, names, runs)]
    parts += [_family(suite, family) for family in _families(suite)]
    return "\n\n".join(parts)


def _mean_regret(suite: Suite, names: Sequence[str], runs: Sequence[Run]) -> str:
    title = f"mean regret ({len(suite.problems)} problems, {_seeds(runs)})"
    rows = [[name, *(_mean(suite, name, n, runs) for n in BUDGETS)] for name in names]
    return markdown([title, *map(str, BUDGETS)], rows)


def _seeds(runs: Sequence[Run]) -> str:
    seeds = len({seed for _, seed in runs})
    return f"{seeds} seed{'s' if seeds > 1 else ''}"


def _mean_logs(suite: Suite, names: Sequence[str], runs: Sequence[Run]) -> str:
    rows = []
    for name in names:
        found = [suite.regrets(name, n, runs) for n in BUDGETS]
        rows.append([name, *("" if values is None else f"{log10(values).mean():.2f}" for values in found)])
    return markdown([f"mean log10 regret, {_seeds(runs)}", *map(str, BUDGETS)], rows)


def _ranks(suite: Suite, names: Sequence[str], runs: Sequence[Run]) -> str:
    """Mean rank among the optimisers that have so many evaluations."""
    ranks: dict[str, list[str]] = {name: [] for name in names}
    for n in BUDGETS:
        found = {name: suite.regrets(name, n, runs) for name in names}
        there = {name: values for name, values in found.items() if values is not None}
        means = rankdata(np.array(list(there.values())), axis=0).mean(axis=1) if there else []
        mean_of = dict(zip(there, means, strict=True))
        for name in names:
            ranks[name].append(f"{mean_of[name]:.2f}" if name in mean_of else "")
    return markdown(
        [f"mean rank, {_seeds(runs)}", *map(str, BUDGETS)], [[name, *cells] for name, cells in ranks.items()]
    )


def _all_pairs(suite: Suite, budgets: Sequence[int]) -> list[str]:
    """Ours compared with each other optimiser, on the runs that both have: a table for each part of the verdict."""
    verdicts = {name: [_verdict(suite, name, n) for n in budgets] for name in suite.courses if name != OURS}
    titles = ("mean regret, ours / theirs", "won : lost (p)")
    return [
        markdown(
            [title, "runs", *map(str, budgets)],
            [
                [name, str(len(suite.shared([OURS, name], budgets[0]))), *(cell[i] for cell in cells)]
                for name, cells in verdicts.items()
                if any(text for text, _ in cells)
            ],
        )
        for i, title in enumerate(titles)
    ]


def _verdict(suite: Suite, other: str, n: int) -> tuple[str, str]:
    """Mean regrets; runs won and lost, with the p of Wilcoxon's paired test on log regrets."""
    shared = suite.shared([OURS, other], n)
    if len(shared) < 2 or (suite.equal and not suite.covered(shared)):
        return "", ""
    a, b = (np.array([suite.courses[name][run].regret[n] for run in shared]) for name in (OURS, other))
    difference = log10(a) - log10(b)
    p = wilcoxon(difference).pvalue if difference.any() else 1.0
    won, lost = int((difference < 0).sum()), int((difference > 0).sum())
    return f"{suite.mean(shared, a):.4f} / {suite.mean(shared, b):.4f}", f"{won} : {lost} ({p:.1g})"


def _family(suite: Suite, family: str) -> str:
    """Each optimiser over all its complete seeds, with their number."""
    rows = []
    members = [problem for problem, other in suite.families.items() if other == family]
    for name in suite.courses:
        seeds = sorted(suite.complete(name))
        runs = [(problem, seed) for problem in members for seed in seeds]
        found = [suite.regrets(name, n, runs) for n in BUDGETS]
        if seeds:
            rows.append([name, str(len(seeds)), *("" if v is None else f"{v.mean():.4f}" for v in found)])
    return markdown([f"{family} ({len(members)})", "seeds", *map(str, BUDGETS)], rows)


# --------------------------------------------------------------------- trainings


def trainings(suite: Suite) -> str:
    """Regret against evaluations, stuck runs and CPU seconds, then ours beside each of the others."""
    if not suite.groups():
        return ""
    ((names, runs),) = suite.groups()
    budgets = [n for n in LONG if suite.shared([OURS], n)]
    problems = len({problem for problem, _ in runs})
    head = [f"mean regret ({problems} problems, {len(runs)} runs)", *map(str, budgets)]
    rows = []
    for name in names:
        ends = [suite.courses[name][run] for run in runs]
        stuck = suite.mean(runs, [course.regret[100] > STUCK for course in ends])
        seconds = suite.mean(runs, [course.seconds[100] for course in ends])
        rows.append([name, *(_mean(suite, name, n, runs) for n in budgets), f"{100 * stuck:.0f} %", f"{seconds:.3g}"])
    means = markdown([*head, f"above {STUCK:g} at 100", "s to 100"], rows)
    return "\n\n".join([means, *_all_pairs(suite, budgets), managed(suite)])


def managed(suite: Suite) -> str:
    """How many runs each optimiser has for so many evaluations, and its mean CPU seconds for them."""
    rows = []
    for name, own in suite.courses.items():
        cells = []
        for n in SHORT:
            runs = suite.shared([name], n)
            seconds = [own[run].seconds[n] for run in runs if n in own[run].seconds]
            cells += [str(len(runs)), f"{np.mean(seconds):.3g}" if seconds else ""]
        rows.append([name, str(len({seed for _, seed in own})), str(len(_families_of(suite, own))), *cells])
    head = [cell for n in SHORT for cell in (f"runs to {n}", f"s to {n}")]
    return markdown(["what each could manage", "seeds", "families", *head], rows)


def _families_of(suite: Suite, runs: Iterable[Run]) -> set[str]:
    return {suite.families[problem] for problem, _ in runs}


def by_family(suite: Suite) -> str:
    """Mean regret in each family, with the number of its runs."""
    parts = []
    for names, runs in suite.groups():
        members = {family: [run for run in runs if suite.families[run[0]] == family] for family in _families(suite)}
        head = [f"{family} ({len(own)})" for family, own in members.items()]
        for n in SHORT:
            rows = [[name, *(_mean(suite, name, n, own, 3) for own in members.values())] for name in names]
            parts.append(markdown([f"after {n} (runs)", *head], rows))
    return "\n\n".join(parts)


def _families(suite: Suite) -> list[str]:
    return list(dict.fromkeys(suite.families.values()))


# ------------------------------------------------------------------------- clock


def timed(suite: Suite) -> tuple[list[str], list[Run]]:
    """The largest group in which the seconds at each checkpoint are known."""
    known = {
        name: {run: course for run, course in own.items() if BUDGETS[0] in course.seconds}
        for name, own in suite.courses.items()
    }
    names, runs = Suite({name: own for name, own in known.items() if own}, suite.families).groups()[-1]
    return names, runs


def clock(suite: Suite) -> str:
    """Mean regret by time."""
    names, runs = timed(suite)
    fast = [(seconds, 0.0) for seconds in FREE_SECONDS]
    fast += [(times * cost, cost) for cost in COSTS[:2] for times in TIMES]
    slow = [(times * cost, cost) for cost in COSTS[2:] for times in TIMES]
    return "\n\n".join(_clock(suite, names, runs, columns) for columns in (fast, slow))


def _clock(suite: Suite, names: Sequence[str], runs: Sequence[Run], columns: Sequence[tuple[float, float]]) -> str:
    head = [f"{cost:g} s: {_duration(seconds)}" for seconds, cost in columns]
    rows = [
        [name, *(_by_then([suite.courses[name][run] for run in runs], *column) for column in columns)] for name in names
    ]
    return markdown([f"an evaluation costs ({_seeds(runs)})", *head], rows)


def _by_then(courses: list[Course], seconds: float, cost: float) -> str:
    """The mean regret, with a ≤ if some runs had ended by then: longer runs could only improve it."""
    sign = "≤ " if any(course.end(cost) < seconds for course in courses) else ""
    return f"{sign}{np.mean([course.at(seconds, cost) for course in courses]):.4f}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:g} s"
    return f"{seconds / 60:.3g} min" if seconds < 6000 else f"{seconds / 3600:.3g} h"


# -------------------------------------------------------------------------- time


def time_per_step(path: Path) -> str:
    """Milliseconds of a step and memory, by the number of observations."""
    rows = read(path)
    sizes = list(dict.fromkeys((int(row["n"]), int(row["parameters"])) for row in rows))
    names = [name for name in OPTIMIZERS if any(row["optimizer"] == name for row in rows)]
    cells = {(row["optimizer"], int(row["n"]), int(row["parameters"])): row for row in rows}
    head = [f"{n:,}" + (f" ({dim}-D)" if dim != 5 else "") for n, dim in sizes]
    tables = []
    for title, key in (("median ms of a step, n =", "ms"), ("mean ms", "mean_ms"), ("peak MB", "peak_mb")):
        body = [
            [name, *(cells[name, *size][key] if (name, *size) in cells else "" for size in sizes)] for name in names
        ]
        tables.append(markdown([title, *head], body))
    return "\n\n".join(tables)


# --------------------------------------------------------------------- dimension


def by_problem(suite: Suite, budgets: Sequence[int]) -> str:
    """Mean regret on each problem, over all seeds of each optimiser: a table for each budget and function."""
    functions = dict.fromkeys(problem.split("-")[0] for problem in suite.problems)
    return "\n\n".join(
        _by_problem(suite, n, [problem for problem in suite.problems if problem.startswith(f"{function}-")])
        for n in budgets
        for function in functions
    )


def _by_problem(suite: Suite, n: int, problems: Sequence[str]) -> str:
    rows = []
    for name, own in suite.courses.items():
        cells = []
        for problem in problems:
            found = [course.regret[n] for (p, _), course in own.items() if p == problem and n in course.regret]
            cells.append(f"{np.mean(found):.3g}" if found else "")
        rows.append([f"{name} ({len({seed for _, seed in own})})", *cells])
    return markdown([f"regret after {n} (seeds)", *problems], rows)


# -------------------------------------------------------------------------- main


def both(folder: Path) -> dict[str, Suite]:
    """The two suites of the README."""
    return {"trainings": load(folder / "trainings.csv"), "test problems": load(folder / "open.csv")}


def tables(folder: Path = RESULTS) -> dict[str, str]:
    """The tables of all recorded runs, by their marks in the documents."""
    makers: dict[str, tuple[str, Callable[[Path], str]]] = {
        "short": ("open", lambda _: short(both(folder), folder / "overhead.csv")),
        "trainings": ("trainings", lambda path: trainings(load(path))),
        "trainings-families": ("trainings", lambda path: by_family(load(path))),
        "evaluations": ("open", lambda path: evaluations(load(path))),
        "clock": ("open", lambda path: clock(load(path))),
        "details": ("open", lambda path: details(load(path))),
        "time": ("overhead", time_per_step),
        "dimension": ("dimension", lambda path: by_problem(load(path), (50, 100))),
        "noise": ("noise_choice", lambda path: noise.overview(read(path))),
    }
    paths = {name: folder / f"{file}.csv" for name, (file, _) in makers.items()}
    made = {name: make(paths[name]) for name, (_, make) in makers.items() if paths[name].exists()}
    return {name: table for name, table in made.items() if table}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument(
        "--write", action="store_true", help="write the tables into the documents instead of printing them"
    )
    options = parser.parse_args()
    found = tables(options.results)
    if not options.write:
        print("\n\n".join(f"## {name}\n\n{table}" for name, table in found.items()))
        return
    from benchmarks.figures import draw_all

    for document in DOCUMENTS:
        document.write_text(insert(document.read_text(), found))
    for path in (*DOCUMENTS, *draw_all(options.results, ROOT / "docs")):
        print(path)


if __name__ == "__main__":
    main()
