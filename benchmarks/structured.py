"""Structured values: architectures, permutations, subsets and mixtures, ours and others.

    python -m benchmarks.structured run [--problems cells gnn-cora] [--optimizers lazybo local] [--seeds 20]
    python -m benchmarks.structured report [--write]

A run ends when it finds the optimum, or after its budget. Runs are recorded in `benchmarks/results/structured.csv` and
not run again. Configurations that an optimiser asks for twice count twice.
"""

import argparse
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from benchmarks.optimizers import Peer, gp_sampler, peer_command
from benchmarks.paper.tables import insert, markdown
from benchmarks.runner import append, read
from benchmarks.structures import PROBLEMS, Problem, Shares, Solution
from lazybo import Optimizer
from lazybo.core import texts

RESULTS = Path(__file__).parent / "results" / "structured.csv"
DOCUMENTS = [
    Path(__file__).parents[1] / "docs" / f"{name}.md" for name in ("architectures", "orders-subsets", "mixtures")
]
CHECKPOINTS = (25, 50, 100, 150, 300, 500)
# r: regret after so many evaluations; found: when the optimum was; seconds: CPU time of the optimiser in this process.
FIELDS = ("problem", "optimizer", "seed", "budget", "found", *(f"r{n}" for n in CHECKPOINTS), "seconds")
BUDGET = 500
# Regularised evolution: solutions that are alive, and how many of them compete to be the next parent.
POPULATION, TOURNAMENT = 30, 10

# A contestant yields solutions and is sent their values.
Contestant = Generator[Solution, float, None]


def random(problem: Problem, seed: int, _budget: int) -> Contestant:
    rng = np.random.default_rng(seed)
    while True:
        yield problem.shape.random(rng)


def local_search(problem: Problem, seed: int, _budget: int) -> Contestant:
    """First improvement: move to the first better neighbour; start again at random where there is none."""
    rng, known = np.random.default_rng(seed), dict[Any, float]()
    while True:
        here = problem.shape.random(rng)
        value = yield from _evaluate(problem, here, known)
        improved = True
        while improved:
            improved = False
            for other in problem.shape.neighbours(here, rng):
                found = yield from _evaluate(problem, other, known)
                if found < value:
                    here, value, improved = other, found, True
                    break


def _evaluate(problem: Problem, solution: Solution, known: dict[Any, float]) -> Generator[Solution, float, float]:
    """The value of a solution; an equivalent one is evaluated only once."""
    key = problem.key(solution)
    if key not in known:
        known[key] = yield solution
    return known[key]


def evolution(problem: Problem, seed: int, _budget: int) -> Contestant:
    """Regularised evolution (Real et al. 2019): the best of a few is edited once, and the oldest dies."""
    rng, alive = np.random.default_rng(seed), deque[tuple[float, Solution]](maxlen=POPULATION)
    while True:
        if len(alive) < POPULATION:
            child = problem.shape.random(rng)
        else:
            rivals = [alive[i] for i in rng.choice(POPULATION, TOURNAMENT, replace=False)]
            child = next(problem.shape.neighbours(min(rivals)[1], rng))
        value = yield child
        alive.append((value, child))


def ours(problem: Problem, seed: int, _budget: int) -> Contestant:
    """Our default with structured kinds."""
    return _lazybo(problem.shape.structured, problem.shape.from_structured, seed)


def ours_flat(problem: Problem, seed: int, _budget: int) -> Contestant:
    """Our default with unrelated parameters."""
    return _lazybo(problem.shape.flat, problem.shape.from_flat, seed)


def _lazybo(space: dict[str, Any], decode: Callable[[Any], Solution], seed: int) -> Contestant:
    optimizer = Optimizer(space, seed=seed)
    while True:
        (suggestion,) = optimizer.ask(1)
        value = yield decode(suggestion.params)
        optimizer.tell(suggestion, value)


def optuna_sampler(make: Callable[[int], optuna.samplers.BaseSampler]) -> "Make":
    """A sampler of Optuna on the flat parameters."""

    def play(problem: Problem, seed: int, _budget: int) -> Contestant:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        study = optuna.create_study(sampler=make(seed))
        while True:
            trial = study.ask(problem.shape.flat)
            value = yield problem.shape.from_flat(trial.params)
            study.tell(trial, value)

    return play


def nevergrad(problem: Problem, seed: int, budget: int) -> Contestant:
    """nevergrad's NGOpt on the flat parameters."""
    peer = Peer(peer_command("nevergrad", "nevergrad"), problem.shape.flat, seed, budget)
    while True:
        (asked,) = peer.ask(1)
        value = yield problem.shape.from_flat(asked.params)
        peer.tell(asked, value)


def baybe(problem: Problem, seed: int, budget: int) -> Contestant:
    """BayBE, with its own constraints on the shares of a mixture."""
    shape = problem.shape
    assert isinstance(shape, Shares), "BayBE takes part with mixtures only"
    peer = Peer(peer_command("baybe", "baybe"), shape.flat, seed, budget, at_most=shape.at_most)
    while True:
        (asked,) = peer.ask(1)
        value = yield tuple(asked.params.values())
        peer.tell(asked, value)


Make = Callable[[Problem, int, int], Contestant]
OPTIMIZERS: dict[str, Make] = {
    "lazybo": ours,
    "lazybo-flat": ours_flat,
    "local": local_search,
    "evolution": evolution,
    "optuna-tpe": optuna_sampler(lambda seed: optuna.samplers.TPESampler(seed=seed)),
    "optuna-gp": optuna_sampler(gp_sampler),
    "nevergrad": nevergrad,
    "baybe": baybe,
    "random": random,
}
# Those that need no peer environment and at most a few seconds for a run; their time is not known in other processes.
QUICK = ("lazybo", "lazybo-flat", "local", "evolution", "optuna-tpe", "random")
OUTSIDE = ("nevergrad", "baybe")
LABELS = {
    "lazybo": "lazybo",
    "lazybo-flat": "lazybo, unrelated choices",
    "local": "local search",
    "evolution": "regularised evolution",
    "optuna-tpe": "Optuna TPE",
    "optuna-gp": "Optuna GPSampler",
    "nevergrad": "nevergrad NGOpt",
    "baybe": "BayBE",
    "random": "random",
}


def play(problem: Problem, contestant: Contestant, budget: int) -> dict[str, Any]:
    """One run: the regrets, when the optimum was found, and the seconds of the contestant."""
    row: dict[str, Any] = {}
    best, seconds, value, begun = np.inf, 0.0, None, time.process_time()
    for n in range(1, budget + 1):
        solution = next(contestant) if value is None else contestant.send(value)
        seconds += time.process_time() - begun
        value = problem.value(solution)
        begun = time.process_time()
        best = min(best, value)
        solved = problem.solved(best)
        if n in CHECKPOINTS or solved:
            regret = f"{max(problem.regret(best), 0.0):.4g}"
            row |= {f"r{c}": regret for c in CHECKPOINTS if c == n or (solved and c >= n)}
        if solved:
            row["found"] = n
            break
    return {**row, "seconds": f"{seconds:.2f}"}


def run_all(
    path: Path, names: Iterable[str], optimizers: Iterable[str], seeds: Iterable[int], budget: int, limit: float
) -> None:
    """Run and record what is not recorded yet; start no run after ``limit`` seconds."""
    done = {(row["problem"], row["optimizer"], row["seed"]) for row in read(path)}
    names, optimizers, began = list(names), list(optimizers), time.monotonic()
    for seed in seeds:
        for name in names:
            for label in optimizers:
                if (name, label, str(seed)) in done:
                    continue
                if time.monotonic() - began > limit:
                    return
                problem = PROBLEMS[name]()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # peers announce experimental features
                    row = play(problem, OPTIMIZERS[label](problem, seed, budget), budget)
                append(path, FIELDS, {"problem": name, "optimizer": label, "seed": seed, "budget": budget, **row})


# ------------------------------------------------------------------------- report

Row = dict[str, str]
# Runs of each problem that an optimiser needs for the means of a family.
ENOUGH = 3


def evaluations(rows: Sequence[Row], budget: int) -> list[float]:
    """Evaluations to the optimum; a run that did not find it counts with the whole budget."""
    return [min(float(row["found"] or budget), budget) for row in rows]


def cells(problems: Sequence[Sequence[Row]], n: int) -> list[str]:
    """What is reported after n evaluations: the share of runs that found the optimum, and the regret, on average."""
    if not all(row[f"r{n}"] for rows in problems for row in rows):
        return ["", ""]
    found = [np.mean([float(row["found"] or np.inf) <= n for row in rows]) for rows in problems]
    regret = [np.mean([float(row[f"r{n}"]) for row in rows]) for rows in problems]
    return [texts.percent(np.mean(found)), f"{np.mean(regret):.4f}"]


def table(rows: Sequence[Row], problem: str) -> str:
    """The optimisers on one problem, as Markdown."""
    # BayBE takes many seconds for a suggestion, so it runs for 50 evaluations.
    after = (50, 150, 500) if problem.startswith("mixtures") else (150, 500)
    head = ["", "runs", *(f"{what} {n}" for n in after for what in ("found by", "regret after"))]
    lines = [[*head, f"evaluations needed (at most {after[-1]})", "ms"]]
    for name, label in LABELS.items():
        own = [row for row in rows if row["problem"] == problem and row["optimizer"] == name]
        if not own:
            continue
        complete = all(row["found"] or int(row["budget"]) >= after[-1] for row in own)
        needed = f"{np.mean(evaluations(own, after[-1])):.0f}" if complete else ""
        asked = sum(int(row["found"] or row["budget"]) for row in own)
        spent = "" if name in OUTSIDE else f"{1e3 * sum(float(row['seconds']) for row in own) / asked:.1f}"
        lines.append([label, str(len(own)), *(cell for n in after for cell in cells([own], n)), needed, spent])
    return markdown(lines[0], lines[1:])


def overview(rows: Sequence[Row], family: str) -> str:
    """The means over all problems of a family, of the optimisers with enough runs of each, as Markdown."""
    names = [name for name in PROBLEMS if name.startswith(f"{family}-")]
    lines = [["", *(f"{what} {n}" for n in (150, 500) for what in ("found by", "regret after")), "evaluations needed"]]
    for optimizer, label in LABELS.items():
        own = [[row for row in rows if (row["problem"], row["optimizer"]) == (name, optimizer)] for name in names]
        if min(map(len, own)) < ENOUGH:
            continue
        early, late = cells(own, 150), cells(own, 500)
        needed = f"{np.mean([np.mean(evaluations(part, BUDGET)) for part in own]):.0f}" if any(late) else ""
        lines.append([label, *early, *late, needed])
    return markdown(lines[0], lines[1:])


def families(path: Path, names: Iterable[str]) -> dict[str, str]:
    """The tables of each family: first the means over its problems, then one for each problem."""
    rows, found = read(path), dict[str, str]()
    for name in names:
        if any(row["problem"] == name for row in rows):
            family, _, data = name.partition("-")
            found.setdefault(family, f"Means over all problems:\n\n{overview(rows, family)}")
            found[family] += f"\n\n**{data}**\n\n{table(rows, name)}"
    return found


def chosen(words: Sequence[str]) -> list[str]:
    """The problems with these names or of these families."""
    found = [name for name in PROBLEMS if not words or name in words or name.partition("-")[0] in words]
    if not found:
        raise SystemExit(f"there is no problem of {', '.join(words)}; there are {', '.join(PROBLEMS)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--problems", nargs="+", default=[], help="problems or families instead of all")
    parser.add_argument("--optimizers", nargs="+", choices=list(OPTIMIZERS), default=list(QUICK))
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=BUDGET)
    parser.add_argument("--limit", type=float, default=float("inf"), help="start no run after so many seconds")
    parser.add_argument("--csv", type=Path, default=RESULTS)
    parser.add_argument("--write", action="store_true", help="write the tables into the documents")
    options = parser.parse_args()
    names = chosen(options.problems)
    if options.command == "run":
        run_all(options.csv, names, options.optimizers, range(options.seeds), options.budget, options.limit)
    found = families(options.csv, names)
    for name, text in found.items():
        print(f"## {name}\n\n{text}\n")
    if options.write:
        for document in DOCUMENTS:
            document.write_text(insert(document.read_text(), found))


if __name__ == "__main__":
    main()
