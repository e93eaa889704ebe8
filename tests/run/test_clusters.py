"""optimize() on real engines: Dask with a worker that is killed, Ray, MPI with three ranks."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.distributions import FloatDistribution
from optuna.trial import TrialState

from lazybo import RunFailed, optimize
from lazybo.run.trial import Trial

pytestmark = pytest.mark.extra

SPACE = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}
PROGRAMS = Path(__file__).parents[1] / "programs"


def bowl(params: dict[str, Any]) -> float:
    return float((params["x"] - 1) ** 2 + params["y"] ** 2)


def check(study: optuna.Study, n_trials: int) -> None:
    assert [t.state for t in study.trials] == [TrialState.COMPLETE] * n_trials
    assert all(t.value == pytest.approx(bowl(t.params)) for t in study.trials)
    assert len({tuple(t.params.values()) for t in study.trials}) == n_trials


@pytest.fixture(scope="module")
def dask_client() -> Iterator[Any]:
    import distributed

    with (
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def slow(params: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.05)
    return {"value": bowl(params), "pid": os.getpid()}


def test_a_dask_worker_that_is_killed_costs_nothing(dask_client: Any, tmp_path: Path) -> None:
    def kill_one() -> None:
        time.sleep(0.7)
        (pid, *_) = dask_client.run(os.getpid).values()
        os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_one)
    killer.start()
    study = optimize(slow, SPACE, n_trials=40, executor=dask_client, storage=tmp_path / "s.db", seed=0)
    killer.join()
    check(study, 40)


def test_an_evaluation_that_kills_its_dask_workers_fails_and_the_run_goes_on(dask_client: Any) -> None:
    def objective(params: dict[str, Any], trial: Trial) -> float:
        if trial.number == 3:
            os._exit(1)
        return bowl(params)

    study = optimize(objective, SPACE, n_trials=10, executor=dask_client, seed=0)
    states = [t.state for t in study.trials]
    assert states[3] == TrialState.FAIL
    assert "worker died" in study.trials[3].system_attrs["fail_reason"]
    assert states.count(TrialState.COMPLETE) == 9


def test_workers_that_a_dask_cluster_gives_up_are_replaced(tmp_path: Path) -> None:
    import dask
    import distributed

    died = tmp_path / "died"

    def objective(params: dict[str, Any]) -> float:
        if not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return bowl(params)

    # No worker starts so quickly, so the cluster closes the nanny of the one that died.
    with (
        dask.config.set({"distributed.deploy.lost-worker-timeout": "1ms"}),
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=":0") as cluster,
        distributed.Client(cluster) as client,
    ):
        (lost,) = cluster.workers.values()
        check(optimize(objective, SPACE, n_trials=3, executor=client, seed=0), 3)
        assert lost.status == distributed.Status.closed


def test_dask_workers_report_and_are_pruned(dask_client: Any) -> None:
    def objective(params: dict[str, Any], trial: Trial) -> float:
        for step in range(4):
            trial.report(bowl(params) + 4 - step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return bowl(params)

    pruner = optuna.pruners.MedianPruner(n_startup_trials=3)
    study = optimize(objective, SPACE, n_trials=20, executor=dask_client, seed=0, pruner=pruner)
    assert {t.state for t in study.trials} == {TrialState.COMPLETE, TrialState.PRUNED}
    assert all(len(t.intermediate_values) == 4 for t in study.trials if t.state == TrialState.COMPLETE)


def hang() -> None:
    time.sleep(3600)


def suspend() -> None:
    """Like a program that holds Python's lock for ever, this process does not even hear that it should exit."""
    os.kill(os.getpid(), signal.SIGSTOP)


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[Any]:
    import ray

    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield ray
    ray.shutdown()


def test_ray_evaluates_and_survives_a_worker_that_dies(ray_cluster: Any, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    marks.mkdir()

    def objective(params: dict[str, Any], trial: Trial) -> float:
        first = not (marks / str(trial.number)).exists()
        (marks / str(trial.number)).touch()
        if trial.number == 4 and first:
            os._exit(1)
        trial.report(0.0, 0)
        return bowl(params)

    study = optimize(objective, SPACE, n_trials=16, executor="ray", storage=tmp_path / "s.db", seed=0)
    check(study, 16)
    assert study.trials[4].system_attrs["lazybo:attempts"] == 1
    assert ray_cluster.is_initialized()


def test_mpi_ranks_evaluate_and_report(mpirun: Callable[..., str], tmp_path: Path) -> None:
    verdict = json.loads(mpirun(3, PROGRAMS / "mpi_study.py", tmp_path / "s.db"))
    assert verdict["states"] == ["COMPLETE"] * 20
    assert verdict["ranks"] == [1, 2]  # rank 0 drives
    assert verdict["reports"] == 20
    assert verdict["best"] < 1.0


@contextmanager
def dask_processes(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A scheduler and a worker in processes of their own: the scheduler, and where it is."""
    contact = folder / "scheduler.json"
    options = ["--scheduler-file", contact, "--no-dashboard"]
    dask = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", *options]
    with subprocess.Popen(dask) as scheduler:
        until(contact.exists)
        worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1", *options]
        with subprocess.Popen(worker, start_new_session=True) as workers:
            try:
                yield scheduler, json.loads(contact.read_text())["address"]
            finally:
                os.killpg(workers.pid, signal.SIGKILL)
                scheduler.kill()


def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "it does not happen"
        time.sleep(0.02)


def test_a_dask_scheduler_that_is_killed_ends_the_run_with_what_to_do_and_it_goes_on(tmp_path: Path) -> None:
    import dask
    import distributed  # noqa: F401 (brings its settings)

    storage = tmp_path / "s.db"
    with dask.config.set({"distributed.comm.timeouts.connect": "2s"}), dask_processes(tmp_path) as (scheduler, address):

        def kill(_: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
            if trial.number == 2:
                scheduler.kill()

        with pytest.raises(RunFailed, match=rf"scheduler at {address} does not answer.*\n?.*'lazybo' in {storage}"):
            optimize(
                slow,
                SPACE,
                n_trials=8,
                seed=0,
                executor=address.replace("tcp", "dask"),
                n_parallel=2,
                storage=storage,
                callbacks=[kill],
            )
    study = optimize(bowl, SPACE, n_trials=8, seed=0, storage=storage)
    check(study, 8)
