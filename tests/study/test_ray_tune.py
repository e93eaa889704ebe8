"""Ray Tune takes any Optuna sampler; a real local Ray cluster runs the trials."""

import pytest

from lazybo.study.sampler import LazySampler


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
def test_ray_tunes_a_function() -> None:
    import ray
    from ray import tune
    from ray.tune.search.optuna import OptunaSearch

    def objective(config: dict) -> dict:
        return {"loss": (config["x"] - 1) ** 2 + (config["y"] + 2) ** 2}

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        settings = tune.TuneConfig(
            metric="loss",
            mode="min",
            search_alg=OptunaSearch(sampler=LazySampler(seed=0)),
            num_samples=14,
            max_concurrent_trials=2,
            reuse_actors=True,
        )
        space = {"x": tune.uniform(-5, 5), "y": tune.uniform(-5, 5)}
        results = tune.Tuner(objective, param_space=space, tune_config=settings).fit()
    finally:
        ray.shutdown()
    assert len(results) == 14
    assert results.num_errors == 0
    assert results.get_best_result().metrics["loss"] < 3.0
