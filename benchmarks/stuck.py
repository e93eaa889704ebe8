"""What the model believes while a run is stuck: ``python -m benchmarks.stuck svm-wine --seed 1000001``.

For each suggestion after the startup points it prints, in units of the warped values:

- the best value so far, and the value of a good configuration that the search does not know (the one of `GOOD` best of
  `DRAWS` random configurations at which the model expects the largest improvement);
- what the model says about that configuration and about its own suggestion: mean, standard deviation, log EI;
- the power of the warping, and the kernel's parameters: length scales in the order of the space, then the rest.

Options are written as in `benchmarks.variants`.
"""

import argparse
import math
from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks import problems, trainings
from benchmarks.optimizers import Lazy, Params
from benchmarks.variants import make, parse
from lazybo.gp.process import Process
from lazybo.search.acquisition import log_expected_improvement
from lazybo.search.optimizer import Optimizer

GOOD, DRAWS = 100, 50_000


def good_configurations(name: str) -> list[dict[str, object]]:
    """The best of many random configurations."""
    training, rng = trainings.load(name), np.random.default_rng(0)
    rows = training.values(rng.random((DRAWS, len(training.space))))
    return [training.params(rows[i]) for i in np.argsort(training.errors(rows), kind="stable")[:GOOD]]


def expected(process: Process, optimizer: Optimizer, params: Sequence[Params], best: float) -> np.ndarray:
    """Mean, standard deviation and log EI of configurations, (3, m)."""
    rows = optimizer.space.as_rows(np.array([optimizer.space.encode(each) for each in params]))
    mean, variance = process.posterior(rows)
    std = np.sqrt(variance)
    return np.array([mean, std, log_expected_improvement(mean, std, best).value])


def beliefs(problem: problems.Problem, optimizer: Optimizer, budget: int) -> Iterator[str]:
    """Run, with a line for each suggestion of the model."""
    good = good_configurations(problem.name)
    lowest, startup = math.inf, max(5, len(problem.space))
    for n in range(budget):
        if n >= startup:
            params = optimizer.planner.propose(n)[0]
            process, warping = optimizer.model.surrogate()
            best = float(np.nanmin(process.smoothed()))
            there, here = (expected(process, optimizer, each, best) for each in (good, [params]))
            k = int(np.argmax(there[2]))
            target = float(warping(np.array([problem.objective(good[k])]))[0])
            numbers = " ".join(f"{value:.2g}" for value in process.kernel.values)
            yield (
                f"{n:3}  regret {lowest:.3f}  best {best:6.2f}, good {target:6.2f}: {_text(there[:, k])}  suggested: "
                f"{_text(here[:, 0])}  power {warping.power:5.2f}  kernel {numbers}"
            )
        suggestion = optimizer.ask()
        value = problem.objective(suggestion.params)
        optimizer.tell(suggestion, value)
        lowest = min(lowest, problem.regret(value))


def _text(found: np.ndarray) -> str:
    mean, std, log_ei = found
    return f"{mean:6.2f} ± {std:.3f} (log EI {log_ei:5.1f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("problem", help="a problem of the suite trainings")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--budget", type=int, default=60)
    parser.add_argument("--options", default="default", help="a variant, such as priors.length_scale_spread=2")
    options = parser.parse_args()
    problem = problems.load(options.problem, 1 + options.seed % 5)
    contestant = make(parse(options.options).options, "")(problem.space, options.seed, options.budget)
    assert isinstance(contestant, Lazy), "a variant is our own optimiser"
    for line in beliefs(problem, contestant.optimizer, options.budget):
        print(line, flush=True)


if __name__ == "__main__":
    main()
