"""Which length scales do real trainings have? ``python -m benchmarks.priors`` learns priors from the suite `trainings`.

For each kind of number (real or whole, on a linear or logarithmic scale) the first table has the median length scale
in each family, as a share of √d, learned from random configurations with a prior that hardly matters. The second one
has the gain of the log evidence of a few random configurations if the prior knows these medians, in nats for each
task, with the medians of all *other* families: a prior that only fits the families it was made from gains nothing.
"""

import argparse
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from benchmarks import trainings
from benchmarks.paper.tables import markdown
from lazybo import Column, Priors, Space
from lazybo.core import Array
from lazybo.gp import Kernel, Learner, Warping

# Configurations of a task for the first table, and for the second one.
MANY, FEW = 50, 25
WIDE = Priors(length_scale_spread=2.0, noisy_odds=0.0)
USUAL = Priors(noisy_odds=0.0)
STRENGTHS = (0.5, 1.0)

Kind = tuple[bool, bool]  # whole, on a logarithmic scale
KINDS: dict[Kind, str] = {
    (False, False): "real",
    (False, True): "real, log",
    (True, False): "whole",
    (True, True): "whole, log",
}


Data = tuple[Array, Array, Array]  # points, targets, known variances


def kind_of(distribution: object) -> Kind | None:
    """The kind of a parameter; None for choices."""
    name = type(distribution).__name__
    return None if name == "CategoricalDistribution" else (name == "IntDistribution", bool(distribution.log))  # type: ignore[attr-defined]


def tasks(count: int, draws: int) -> Iterator[tuple[str, list[Kind | None], Space, Data]]:
    """The family, the kinds of the parameters, and random configurations of each training with their targets."""
    for name in trainings.names():
        training, rng = trainings.load(name), np.random.default_rng(0)
        space, kinds = Space(training.space), [kind_of(each) for each in training.space.values()]
        for _ in range(draws):
            rows = training.values(rng.random((count, len(training.space))))
            errors = training.errors(rows)
            if np.ptp(errors) > 0:
                points = np.array([space.points.encode(training.params(row)) for row in rows])
                data = points, Warping.fit("warped", errors)(errors), np.zeros(count)
                yield name.partition("-")[0], kinds, space, data


def length_scales(draws: int) -> dict[Kind, dict[str, float]]:
    """The median length scale of each kind in each family, as a share of √d."""
    found: dict[Kind, dict[str, list[float]]] = {kind: defaultdict(list) for kind in KINDS}
    for family, kinds, space, data in tasks(MANY, draws):
        kernel, noise = WIDE.start(Kernel.chosen(None, [Column(each.categories) for each in space.points.columns]))
        learned = Learner(WIDE).best(kernel, noise, *data, first=True)
        for kind, scale in zip(kinds, learned.kernel.length_scales / np.sqrt(space.points.dim), strict=True):
            if kind is not None:
                found[kind][family].append(float(scale))
    return {kind: {family: float(np.median(each)) for family, each in by.items()} for kind, by in found.items()}


def middle(scales: Mapping[str, float], without: str = "") -> float:
    """The geometric mean over families, which all count the same, without one of them."""
    return float(np.exp(np.mean([np.log(scale) for family, scale in scales.items() if family != without])))


def gains(scales: Mapping[Kind, Mapping[str, float]], draws: int) -> dict[float, dict[str, list[float]]]:
    """By how much the log evidence of each task rises, by strength: the power to which the ratios are taken."""
    found: dict[float, dict[str, list[float]]] = {strength: defaultdict(list) for strength in STRENGTHS}
    for family, kinds, space, data in tasks(FEW, draws):
        plain = [Column(each.categories) for each in space.points.columns]
        before = log_posterior(plain, data)
        for strength, by_family in found.items():
            typical = {kind: middle(scales[kind], without=family) ** strength for kind in KINDS}
            pairs = zip(plain, kinds, strict=True)
            columns = [column if kind is None else replace(column, typical=typical[kind]) for column, kind in pairs]
            by_family[family].append(log_posterior(columns, data) - before)
    return found


def log_posterior(columns: list[Column], data: Data) -> float:
    """The log evidence at the most probable parameters, with the volume of their mode (Laplace)."""
    kernel, noise = USUAL.start(Kernel.chosen(None, columns))
    return Learner(USUAL).best(kernel, noise, *data, first=True).log_posterior


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--draws", type=int, default=2, help="random sets of configurations for each training")
    options = parser.parse_args()
    scales = length_scales(options.draws)
    families = list(dict.fromkeys(name.partition("-")[0] for name in trainings.names()))
    rows = [
        [KINDS[kind], *(f"{by[family]:.2f}" if family in by else "" for family in families), f"{middle(by):.2f}"]
        for kind, by in scales.items()
    ]
    print(markdown(["length scale / √d", *families, "all"], rows), end="\n\n")
    gained = gains(scales, options.draws)
    rows = [
        [
            f"ratios to the power {strength:g}",
            *(f"{np.mean(by[family]):.2f}" for family in families),
            f"{np.mean([np.mean(by[family]) for family in families]):.2f}",
        ]
        for strength, by in gained.items()
    ]
    print(markdown(["nats per task", *families, "all"], rows))


if __name__ == "__main__":
    main()
