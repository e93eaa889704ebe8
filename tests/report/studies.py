"""Studies of all kinds for the tests of reports; made from trials, so that they take no time."""

import math
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import TrialState, create_trial

import lazybo
from lazybo import LazySampler

NASTY = [
    "</script><b>",
    "<!--<script>",
    'it\'s "quoted" & <i>',
    "a" * 150,
    "\u202eright to left",
    "two\nlines",
    "<img src=x onerror=alert(1)>",
]
MIXED: dict[str, BaseDistribution] = {
    "lr": FloatDistribution(1e-4, 0.1, log=True),
    "layers": IntDistribution(1, 5),
    "opt": CategoricalDistribution(["sgd", "adam", "rmsprop"]),
    "dropout": FloatDistribution(0.0, 0.6, step=0.05),
    "batch": IntDistribution(8, 512, log=True),
    "shift": FloatDistribution(-3.0, 7.0),
}
# Parameters with very many choices.
MANY: dict[str, BaseDistribution] = {"data": CategoricalDistribution(range(200)), **MIXED}
MOMENTUM, NESTEROV = FloatDistribution(0.0, 0.99), CategoricalDistribution([True, False])


def drawn(distribution: BaseDistribution, rng: np.random.Generator) -> Any:
    """A random value, as a study has it."""
    if isinstance(distribution, CategoricalDistribution):
        return distribution.choices[rng.integers(len(distribution.choices))]
    assert isinstance(distribution, FloatDistribution | IntDistribution)
    low, high = (math.log(x) if distribution.log else x for x in (distribution.low, distribution.high))
    value = rng.uniform(low, high)
    value = math.exp(value) if distribution.log else value
    if distribution.step is None:
        return float(value)
    value = distribution.low + round((value - distribution.low) / distribution.step) * distribution.step
    return int(value) if isinstance(distribution, IntDistribution) else round(float(value), 10)


def configuration(
    rng: np.random.Generator, *, conditional: bool, many: bool = False
) -> tuple[dict[str, Any], dict[str, BaseDistribution]]:
    """Random parameters; if conditional, momentum only with sgd, and nesterov only with much momentum's parent."""
    distributions = dict(MANY if many else MIXED)
    params = {name: drawn(distribution, rng) for name, distribution in distributions.items()}
    if conditional and params["opt"] == "sgd":
        distributions |= {"momentum": MOMENTUM, "nesterov": NESTEROV}
        params |= {"momentum": drawn(MOMENTUM, rng), "nesterov": drawn(NESTEROV, rng)}
    if many and params["opt"] == "adam":
        distributions["part"] = MANY["data"]
        params["part"] = int(rng.integers(5))
    return params, distributions


def value_of(params: dict[str, Any], rng: np.random.Generator, noise: float) -> float:
    value = (math.log10(params["lr"]) + 2) ** 2 + 0.3 * abs(params["layers"] - 3) + 0.2 * (params["opt"] == "adam")
    value += params["dropout"] ** 2 + 0.5 * (params.get("momentum", 0.9) - 0.9) ** 2
    return value + noise * float(rng.standard_normal())


def mixed_study(
    n: int,
    *,
    conditional: bool = False,
    direction: str = "minimize",
    noise: float = 0.02,
    constrained: bool = False,
    many: bool = False,
) -> optuna.Study:
    """A study of a mixed space. Every ninth trial fails; the constraint bounds the batch; ``many`` choices."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(study_name="mixed", direction=direction)
    rng, sign = np.random.default_rng(0), 1.0 if direction == "minimize" else -1.0
    for number in range(n):
        params, distributions = configuration(rng, conditional=conditional, many=many)
        failed = number % 9 == 8
        limit = {"constraints:memory": params["batch"] / 256 - 1} if constrained and not failed else {}
        study.add_trial(
            create_trial(
                state=TrialState.FAIL if failed else TrialState.COMPLETE,
                value=None if failed else sign * value_of(params, rng, noise),
                params=params,
                distributions=distributions,
                system_attrs={"fail_reason": f"CUDA out of memory <{number % 2}>"} if failed else limit,
            )
        )
    return study


def with_earlier(n: int = 8, *, many: bool = False) -> optuna.Study:
    """A study whose sampler knew an earlier one, of a similar problem in other units."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    old = mixed_study(40, many=many)
    rng = np.random.default_rng(5)
    study = optuna.create_study(study_name="new", sampler=LazySampler(seed=0, earlier=[old]))

    def objective(trial: optuna.Trial) -> float:
        space = MANY if many else MIXED
        params = {name: trial._suggest(name, distribution) for name, distribution in space.items()}
        return 7.0 * value_of(params, rng, 0.02) + 3.0

    study.optimize(objective, n_trials=n)
    return study


def two_objectives(n: int = 30) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(study_name="two", directions=["minimize", "maximize"])
    rng = np.random.default_rng(1)
    for _ in range(n):
        params, distributions = configuration(rng, conditional=False)
        values = [value_of(params, rng, 0.0), math.log(params["batch"]) - params["layers"] ** 0.5]
        study.add_trial(create_trial(values=values, params=params, distributions=distributions))
    return study


def nasty_study(n: int = 24) -> optuna.Study:
    """Names, choices, errors and the study itself try to break out of the page."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(study_name="</title></script><script>window.broken = 1</script>")
    rng = np.random.default_rng(2)
    choices = CategoricalDistribution(["</option><b>", "<script>window.broken = 2</script>", "c" * 90, None, True])
    space: dict[str, BaseDistribution] = {**{name: FloatDistribution(0, 1) for name in NASTY}, "</select>": choices}
    for number in range(n):
        params = {name: drawn(distribution, rng) for name, distribution in space.items()}
        failed = number % 6 == 5
        error = "</code><script>window.broken = 3</script>\x1b[31m at sqlite://user:secret@host\nline 2"
        study.add_trial(
            create_trial(
                state=TrialState.FAIL if failed else TrialState.COMPLETE,
                value=None if failed else params[NASTY[0]] + float(rng.standard_normal()),
                params=params,
                distributions=space,
                intermediate_values={1: 0.5, 2: math.nan, 3: 0.25},
                system_attrs={"fail_reason": error} if failed else {},
            )
        )
    return study


def structured_study(n: int = 40) -> optuna.Study:
    """A study whose parameters have structure; one of them is only active with the others' ``kind``."""
    space = lazybo.Space(
        {
            "lr": (1e-4, 0.1, "log"),
            "order": lazybo.Permutation(["crop", "flip", "<b>jitter"]),
            "recipe": lazybo.Mixture(["water", "ethanol", "dmso"], at_most=2),
            "kind": ["plain", "cell"],
            "cell": lazybo.Graph(nodes=3, operations=["none", "skip", "conv"]),
            "solvent": lazybo.Described({"water": [78.4, 1.0], "ethanol": [24.5, 0.79], "dmso": [46.7, 1.1]}),
        },
        conditions={"cell": lazybo.Condition("kind", ("cell",))},
    )

    def loss(trial: Any) -> float:
        params = trial.params
        wrong = params["order"].index("flip") + abs(params["recipe"].get("water", 0.0) - 0.4)
        cell = 0.3 * str(params.get("cell", "")).count("conv") if params["kind"] == "cell" else 0.5
        return float((math.log10(params["lr"]) + 2) ** 2 + wrong - cell + 0.1 * (params["solvent"] == "dmso"))

    return lazybo.optimize(loss, space, n_trials=n, seed=0)
