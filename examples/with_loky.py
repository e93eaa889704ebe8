"""loky and concurrent.futures: any executor evaluates."""

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import loky

import lazybo


def loss(x, y):
    return (x - 1) ** 2 + (y + 2) ** 2


if __name__ == "__main__":
    space = {"x": (-5.0, 5.0), "y": (-5.0, 5.0)}
    for executor in (loky.get_reusable_executor(2), ProcessPoolExecutor(2), ThreadPoolExecutor(2)):
        with executor:
            study = lazybo.optimize(loss, space, n_trials=16, seed=0, executor=executor, n_parallel=2)
        assert len(study.trials) == 16
        assert study.best_value < 1
