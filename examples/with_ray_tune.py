"""Ray Tune: `OptunaSearch` suggests with LazySampler, two trials at a time."""

import ray
from ray import tune
from ray.tune.search.optuna import OptunaSearch

import lazybo


def objective(config):
    return {"loss": (config["x"] - 1) ** 2 + (config["y"] + 2) ** 2}


ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
settings = tune.TuneConfig(
    metric="loss",
    mode="min",
    search_alg=OptunaSearch(sampler=lazybo.LazySampler(seed=0)),
    num_samples=14,
    max_concurrent_trials=2,
    reuse_actors=True,
)
space = {"x": tune.uniform(-5, 5), "y": tune.uniform(-5, 5)}
results = tune.Tuner(objective, param_space=space, tune_config=settings).fit()
ray.shutdown()

assert len(results) == 14
assert results.num_errors == 0
assert results.get_best_result().metrics["loss"] < 3.0
