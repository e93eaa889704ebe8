"""Make the tables and pictures of the benchmark pages from the recorded runs: ``python -m benchmarks.report``.

It prints the tables. With ``--write`` it writes them between the marks in docs/benchmarks*.md and README.md, and the
pictures into docs.

A run is a problem with a seed. Optimisers are compared on the runs that all of them have. The number of seeds of an
optimiser is the number of seeds with which it has run every problem of the suite.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.stats import rankdata, wilcoxon

from benchmarks import noise, parallel
from benchmarks.optimizers import OPTIMIZERS
from benchmarks.problems import SUITES
from benchmarks.run import RESULTS
from benchmarks.runner import CHECKPOINTS, log10, read
from lazybo.paper.tables import insert, markdown

ROOT = Path(__file__).parents[1]
DOCUMENTS = (*sorted((ROOT / "docs").glob("benchmarks*.md")), ROOT / "README.md")
OURS = "lazybo"
BUDGETS = (25, 50, 100, 200)
# Seconds of one evaluation, and the times to compare at, in evaluations.
COSTS = (0.1, 1.0, 10.0, 60.0)
TIMES = (25, 100)
FREE_SECONDS = (1.0, 10.0)

Run = tuple[str, int]  # problem, seed


@dataclass(frozen=True)
class Course:
    """Regret and the optimiser's seconds by the number of evaluations."""

    regret: dict[int, float]
    seconds: dict[int, float]

    def end(self, cost: float) -> float:
        """The time of the last evaluation."""
        last = max(self.seconds)
        return self.seconds[last] + last * cost

    def at(self, clock: float, cost: float) -> float:
        """The regret after ``clock`` seconds, if an evaluation takes ``cost`` seconds.

        Logarithms are interpolated between checkpoints. The regret starts at 1, that of the median random point.
        """
        known = [n for n in self.regret if n in self.seconds]
        times = [0.0, *(self.seconds[n] + n * cost for n in known)]
        logs = [0.0, *log10([self.regret[n] for n in known])]
        return float(10 ** np.interp(clock, times, logs))


@dataclass(frozen=True)
class Suite:
    """All recorded runs of a suite."""

    courses: dict[str, dict[Run, Course]]  # by optimiser
    families: dict[str, str]  # of the problems

    @property
    def problems(self) -> list[str]:
        return list(self.families)

    def complete(self, name: str, n: int = BUDGETS[0]) -> set[int]:
        """The seeds with which an optimiser has run all problems for at least n evaluations."""
        own = self.courses[name]
        seeds = {seed for _, seed in own}
        return {s for s in seeds if all((p, s) in own and n in own[p, s].regret for p in self.problems)}

    def regrets(self, name: str, n: int, runs: Iterable[Run]) -> np.ndarray | None:
        """Regrets after n evaluations in these runs; None if one is missing."""
        own = self.courses[name]
        found = [own[run].regret.get(n) if run in own else None for run in runs]
        return None if None in found or not found else np.array(found, dtype=float)

    def groups(self) -> list[tuple[list[str], list[Run]]]:
        """Groups of optimisers, with the runs that all of them have: first those with the most seeds."""
        seeds = {name: self.complete(name) for name in self.courses}
        sizes = sorted({len(found) for found in seeds.values() if found}, reverse=True)
        groups = []
        for size in sizes:
            names = [name for name, found in seeds.items() if len(found) >= size]
            shared = set.intersection(*(seeds[name] for name in names))
            groups.append((names, [(problem, seed) for problem in self.problems for seed in sorted(shared)]))
        return groups


def load(path: Path) -> Suite:
    """Load a file of `benchmarks.run`, with optimisers and problems in their usual order."""
    found: dict[str, dict[Run, Course]] = defaultdict(dict)
    families: dict[str, str] = {}
    for row in read(path):
        families[row["problem"]] = row["family"]
        numbers = [{n: float(row[f"{kind}{n}"]) for n in CHECKPOINTS if row[f"{kind}{n}"]} for kind in "rs"]
        found[row["optimizer"]][row["problem"], int(row["seed"])] = Course(*numbers)
    # In the order of the suite that has all problems; other files keep their own order.
    usual = next((names for names in SUITES.values() if set(families) <= set(names)), list(families))
    families = {name: families[name] for name in usual if name in families}
    return Suite({name: found[name] for name in OPTIMIZERS if name in found}, families)


# ------------------------------------------------------------------- evaluations


def short(suite: Suite, overhead: Path) -> str:
    """Optuna's samplers and ours: mean regrets, and milliseconds of a step."""
    names, runs = suite.groups()[0]
    steps = read(overhead) if overhead.exists() else []
    ms = {(row["optimizer"], int(row["n"]), int(row["parameters"])): row["ms"] for row in steps}
    rows = []
    for name in names:
        found = [suite.regrets(name, n, runs) for n in BUDGETS]
        regrets = ("" if values is None else f"{values.mean():.3f}" for values in found)
        rows.append([name, *regrets, *(ms.get((name, n, 5), "") for n in (100, 1000))])
    head = [*(f"after {n}" for n in BUDGETS), "ms at 100", "ms at 1,000"]
    return markdown(["", *head], rows)


def evaluations(suite: Suite) -> str:
    """Regret against evaluations."""
    means = [_mean_regret(suite, names, runs) for names, runs in suite.groups()]
    return "\n\n".join([*means, _pairs(suite, "mean regret, ours / theirs", 0), _pairs(suite, "won : lost (p)", 1)])


def details(suite: Suite) -> str:
    """The same in logarithms, by rank and by family."""
    parts = []
    for names, runs in suite.groups():
        title = f"mean log10 regret, {_seeds(runs)}"
        parts.append(_means(suite, title, names, runs, lambda v: f"{log10(v).mean():.2f}"))
        parts.append(_ranks(suite, names, runs))
    parts += [_family(suite, family) for family in dict.fromkeys(suite.families.values())]
    return "\n\n".join(parts)


def _mean_regret(suite: Suite, names: Sequence[str], runs: Sequence[Run]) -> str:
    title = f"mean regret ({len(suite.problems)} problems, {_seeds(runs)})"
    return _means(suite, title, names, runs, lambda values: f"{values.mean():.4f}")


def _seeds(runs: Sequence[Run]) -> str:
    seeds = len({seed for _, seed in runs})
    return f"{seeds} seed{'s' if seeds > 1 else ''}"


def _means(
    suite: Suite, title: str, names: Sequence[str], runs: Sequence[Run], cell: Callable[[np.ndarray], str]
) -> str:
    rows = []
    for name in names:
        found = [suite.regrets(name, n, runs) for n in BUDGETS]
        rows.append([name, *("" if values is None else cell(values) for values in found)])
    return markdown([title, *map(str, BUDGETS)], rows)


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


def _pairs(suite: Suite, title: str, part: int) -> str:
    """Ours compared with each other optimiser, on the runs that both have: one part of the verdict."""
    others = (name for name in suite.courses if name != OURS)
    return markdown([title, *map(str, BUDGETS)], [[o, *(_verdict(suite, o, n)[part] for n in BUDGETS)] for o in others])


def _verdict(suite: Suite, other: str, n: int) -> tuple[str, str]:
    """Mean regrets; runs won and lost, with the p of Wilcoxon's paired test on log regrets."""
    ours, theirs = suite.courses[OURS], suite.courses[other]
    shared = [run for run in theirs if run in ours and n in theirs[run].regret and n in ours[run].regret]
    if len(shared) < 2:
        return "", ""
    a = np.array([ours[run].regret[n] for run in shared])
    b = np.array([theirs[run].regret[n] for run in shared])
    difference = log10(a) - log10(b)
    p = wilcoxon(difference).pvalue if difference.any() else 1.0
    won, lost = int((difference < 0).sum()), int((difference > 0).sum())
    return f"{a.mean():.4f} / {b.mean():.4f}", f"{won} : {lost} ({p:.1g})"


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


def tables(folder: Path = RESULTS) -> dict[str, str]:
    """The tables of all recorded runs, by their marks in the documents."""
    makers: dict[str, tuple[str, Callable[[Path], str]]] = {
        "short": ("open", lambda path: short(load(path), folder / "overhead.csv")),
        "evaluations": ("open", lambda path: evaluations(load(path))),
        "clock": ("open", lambda path: clock(load(path))),
        "details": ("open", lambda path: details(load(path))),
        "time": ("overhead", time_per_step),
        "parallel": ("parallel", parallel.times_to_target),
        "dimension": ("dimension", lambda path: by_problem(load(path), (50, 100))),
        "noise": ("noise_choice", lambda path: noise.overview(read(path))),
    }
    paths = {name: folder / f"{file}.csv" for name, (file, _) in makers.items()}
    return {name: make(paths[name]) for name, (_, make) in makers.items() if paths[name].exists()}


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
