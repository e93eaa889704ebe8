"""Optuna's gRPC proxy: two processes share a study through a server, and no database port is open."""

import multiprocessing
import socket

import optuna
from optuna.storages import GrpcStorageProxy, RDBStorage, run_grpc_proxy_server

import lazybo


def serve(port):
    run_grpc_proxy_server(RDBStorage("sqlite:///study.db"), host="localhost", port=port)


def work(port):
    storage = GrpcStorageProxy(host="localhost", port=port)
    storage.wait_server_ready(timeout=60)
    sampler = lazybo.LazySampler(seed=0)
    study = optuna.create_study(study_name="shared", storage=storage, sampler=sampler, load_if_exists=True)
    study.optimize(lambda trial: (trial.suggest_float("x", -5, 5) - 1) ** 2, n_trials=8)


def work_in_a_run(port):
    storage = GrpcStorageProxy(host="localhost", port=port)
    lazybo.optimize(lambda x: (x - 1) ** 2, {"x": (-5.0, 5.0)}, n_trials=24, storage=storage, study_name="shared")


if __name__ == "__main__":
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    spawn = multiprocessing.get_context("spawn")
    server = spawn.Process(target=serve, args=[port], daemon=True)
    server.start()
    workers = [spawn.Process(target=work, args=[port]) for _ in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    work_in_a_run(port)
    server.terminate()

    study = optuna.load_study(study_name="shared", storage="sqlite:///study.db")
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert len(study.trials) == 24
    assert len({trial.params["x"] for trial in study.trials[:16]}) == 16
    assert study.best_value < 0.1
