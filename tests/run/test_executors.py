"""One suite for all engines, and what is special to one of them.

Tasks are calls of builtins with source code, so that every engine can ship them by plain pickle. The suite needs no
pytest: as a program (`python -m mpi4py.futures`) this file runs it on MPI and prints what became of each test.
"""

import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from lazybo.run.engines import Engine, EngineBroken, WorkerDied, make_engine

# Against hanging only: nothing here depends on how long something takes.
DEADLINE = 60.0
LOCAL = ["serial", "threads", "processes", "foreign threads", "foreign processes"]
EXTRA = ["dask", "ray"]
# Those whose tasks can wait, and those whose workers can be replaced.
QUEUES = [*LOCAL[1:], *EXTRA]
STOPS = ["processes", *EXTRA]


def kinds(*names: str) -> list[Any]:
    return [pytest.param(name, marks=pytest.mark.extra if name in EXTRA else ()) for name in names]


@contextmanager
def opened(kind: str, workers: int) -> Iterator[Engine]:
    """An engine on something that, but for the first three, is open before and after."""
    with ExitStack() as stack:
        given: object = kind
        n_parallel: int | None = None
        if kind == "foreign threads":
            given = stack.enter_context(ThreadPoolExecutor(workers))
        elif kind == "foreign processes":
            given = stack.enter_context(ProcessPoolExecutor(workers, mp_context=get_context("spawn")))
        elif kind == "dask":
            given = stack.enter_context(dask_client(workers))
        elif kind == "ray":
            given = stack.enter_context(ray_cluster(workers))
        elif kind != "serial":
            n_parallel = workers
        engine = make_engine(given, n_parallel)
        yield engine
        engine.shutdown(cancel_futures=True)


@contextmanager
def dask_client(workers: int) -> Iterator[Any]:
    import dask
    import distributed

    with (
        # Each death of a worker costs its restart: two are enough.
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        distributed.LocalCluster(
            n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextmanager
def ray_cluster(workers: int) -> Iterator[Any]:
    import ray

    ray.init(address="local", num_cpus=workers, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        yield ray
    finally:
        ray.shutdown()


# One for all tests, so that each also shows that an engine goes on after what the tests before have done to it.
@pytest.fixture(scope="class", params=kinds(*LOCAL, *EXTRA))
def engine(request: pytest.FixtureRequest) -> Iterator[Engine]:
    with opened(request.param, 2) as engine:
        yield engine


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, "it never happened"
        time.sleep(0.01)


def hold(directory: Path, name: str) -> str:
    """A program that says that it has begun, and ends when it may."""
    return textwrap.dedent(f"""
        import pathlib, time
        pathlib.Path({str(directory / name)!r}).touch()
        while not pathlib.Path({str(directory / "go")!r}).exists():
            time.sleep(0.01)
    """)


def hang(directory: Path, name: str) -> str:
    """A program that says that it has begun, and does not end."""
    return f"import pathlib, time; pathlib.Path({str(directory / name)!r}).touch(); time.sleep(3600)"


def meet(directory: Path, name: str, n: int) -> str:
    """A program that ends when ``n`` of its kind run at the same time."""
    return textwrap.dedent(f"""
        import pathlib, time
        pathlib.Path({str(directory)!r}, "meet-" + {name!r}).touch()
        while len(list(pathlib.Path({str(directory)!r}).glob("meet-*"))) < {n}:
            time.sleep(0.01)
    """)


def check_that_all_workers_work(engine: Engine, directory: Path) -> None:
    futures = [engine.submit(exec, meet(directory, str(i), engine.workers)) for i in range(engine.workers)]
    assert [future.result(DEADLINE) for future in futures] == [None] * engine.workers


def is_alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def stop(engine: Engine, future: Future[Any]) -> bool:
    return engine.stop(future)


# -- The suite ---------------------------------------------------------------------------------------------------------


class TestEveryEngine:
    def test_ten_times_more_tasks_than_workers_and_each_result_belongs_to_its_task(self, engine: Engine) -> None:
        futures = [engine.submit(pow, i, 2) for i in range(10 * engine.workers)]
        assert [future.result(DEADLINE) for future in futures] == [i**2 for i in range(10 * engine.workers)]

    def test_all_workers_work_at_once(self, engine: Engine, tmp_path: Path) -> None:
        check_that_all_workers_work(engine, tmp_path)

    def test_an_exception_keeps_its_type_and_message(self, engine: Engine) -> None:
        future = engine.submit(int, "no number")
        error = future.exception(DEADLINE)
        assert type(error) is ValueError
        assert str(error) == "invalid literal for int() with base 10: 'no number'"
        assert engine.submit(int, "7").result(DEADLINE) == 7

    def test_an_argument_that_cannot_be_pickled_is_its_own_task_s_problem(self, engine: Engine) -> None:
        future = engine.submit(list, (i for i in range(3)))
        if engine.remote:
            error = future.exception(DEADLINE)
            assert isinstance(error, Exception)
            assert "pickle" in str(error) or "serializ" in str(error)
            assert not isinstance(error, WorkerDied | EngineBroken)
        else:
            assert future.result(DEADLINE) == [0, 1, 2]
        assert engine.submit(pow, 2, 5).result(DEADLINE) == 32

    @pytest.mark.parametrize("engine", kinds(*QUEUES), indirect=True, scope="class")
    @pytest.mark.parametrize("cancel", [stop, lambda _, future: future.cancel()], ids=["stop", "cancel"])
    def test_a_task_that_waits_can_be_taken_back(
        self, engine: Engine, tmp_path: Path, cancel: Callable[[Engine, Future[Any]], bool]
    ) -> None:
        holders = [engine.submit(exec, hold(tmp_path, f"holder-{i}")) for i in range(engine.workers)]
        until(lambda: all((tmp_path / f"holder-{i}").exists() for i in range(engine.workers)))
        waiting = [engine.submit(os.mkdir, str(tmp_path / f"waiting-{i}")) for i in range(4 * engine.workers)]
        # Pools may hand the first ones on to their workers, whence they cannot be taken back.
        kept, cancelled = waiting[: engine.workers + 1], waiting[engine.workers + 1 :]
        assert all(cancel(engine, future) for future in reversed(cancelled))
        assert all(future.cancelled() for future in cancelled)
        assert wait(cancelled, DEADLINE).not_done == set()
        (tmp_path / "go").touch()
        assert {future.result(DEADLINE) for future in holders + kept} == {None}
        assert engine.submit(pow, 2, 5).result(DEADLINE) == 32
        assert len(list(tmp_path.glob("waiting-*"))) == len(kept)

    @pytest.mark.parametrize("engine", kinds(*QUEUES), indirect=True, scope="class")
    def test_a_task_that_runs_can_be_stopped(self, engine: Engine, tmp_path: Path) -> None:
        program = hang(tmp_path, "begun") if engine.can_stop else hold(tmp_path, "begun")
        future = engine.submit(exec, program)
        until((tmp_path / "begun").exists)
        assert engine.stop(future) is engine.can_stop
        assert future.cancelled()
        assert wait([future], DEADLINE).done == {future}
        if not engine.can_stop:
            (tmp_path / "go").touch()
        check_that_all_workers_work(engine, tmp_path)

    @pytest.mark.parametrize("engine", kinds(*STOPS), indirect=True, scope="class")
    def test_stopping_one_task_leaves_the_others_alone(self, engine: Engine, tmp_path: Path) -> None:
        assert engine.can_stop
        victim = engine.submit(exec, hang(tmp_path, "victim"))
        other = engine.submit(exec, hold(tmp_path, "other"))
        until(lambda: (tmp_path / "victim").exists() and (tmp_path / "other").exists())
        behind = engine.submit(pow, 2, 5)
        assert engine.stop(victim)
        assert behind.result(DEADLINE) == 32
        (tmp_path / "go").touch()
        assert other.result(DEADLINE) is None

    def test_a_task_that_has_ended_cannot_be_stopped_and_its_worker_is_free(self, engine: Engine) -> None:
        future = engine.submit(pow, 2, 5)
        assert future.result(DEADLINE) == 32
        assert engine.stop(future)
        assert future.result() == 32

    def test_whatever_is_stopped_when_every_future_ends_and_no_result_is_lost(self, engine: Engine) -> None:
        futures = [engine.submit(pow, i, 2) for i in range(30)]
        stopped = set(range(0, 30, 3))
        for i in stopped:
            engine.stop(futures[i])
        assert wait(futures, DEADLINE).not_done == set()
        for i, future in enumerate(futures):
            assert (i in stopped and future.cancelled()) or future.result() == i**2

    @pytest.mark.parametrize("engine", kinds("ray"), indirect=True, scope="class")
    def test_a_task_that_dies_with_a_stopped_one_is_sent_again(self, engine: Engine, tmp_path: Path) -> None:
        victim = engine.submit(exec, hang(tmp_path, "victim"))
        until((tmp_path / "victim").exists)
        assert engine.stop(victim)
        # Dies the first time, as a task that Ray gave to the victim's worker.
        path = str(tmp_path / "died")
        program = f"import os, pathlib\nif not os.path.exists({path!r}): pathlib.Path({path!r}).touch(); os._exit(1)"
        assert engine.submit(exec, program).result(DEADLINE) is None
        assert (tmp_path / "died").exists()

    @pytest.mark.parametrize("engine", kinds(*STOPS), indirect=True, scope="class")
    @pytest.mark.parametrize("death", ["os._exit(1)", "os.kill(os.getpid(), signal.SIGKILL)"])
    def test_a_worker_that_dies_takes_only_its_own_task_with_it(
        self, engine: Engine, tmp_path: Path, death: str
    ) -> None:
        assert engine.can_stop
        other = engine.submit(exec, hold(tmp_path, "other"))
        until((tmp_path / "other").exists)
        future = engine.submit(exec, f"import os, signal; {death}")
        error = future.exception(DEADLINE)
        assert type(error) is WorkerDied
        # Dask tries twice; Ray again if it has stopped a task shortly before.
        assert error.attempts in {"DaskEngine": {2}, "RayEngine": {1, 2, 3}}.get(type(engine).__name__, {1})
        (tmp_path / "go").touch()
        assert other.result(DEADLINE) is None
        check_that_all_workers_work(engine, tmp_path)


# -- Beginning and end -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", kinds(*LOCAL, *EXTRA))
def test_one_worker_runs_tasks_in_the_order_in_which_they_come(kind: str) -> None:
    with opened(kind, 1) as engine:
        assert engine.workers == 1
        # One clock for all processes of a machine.
        times = [engine.submit(time.monotonic_ns) for _ in range(8)]
        began = [future.result(DEADLINE) for future in times]
    assert began == sorted(began)


@pytest.mark.parametrize("kind", kinds("foreign threads", "foreign processes", *EXTRA))
def test_what_the_caller_opened_stays_open(kind: str) -> None:
    with ExitStack() as stack:
        opener: dict[str, Callable[[], Any]] = {
            "foreign threads": lambda: ThreadPoolExecutor(1),
            "foreign processes": lambda: ProcessPoolExecutor(1, mp_context=get_context("spawn")),
            "dask": lambda: dask_client(1),
            "ray": lambda: ray_cluster(1),
        }
        given = stack.enter_context(opener[kind]())
        for cancel in (False, True):
            engine = make_engine(given, 3)
            assert engine.workers == 3
            futures = [engine.submit(pow, i, 2) for i in range(3)]
            engine.shutdown(cancel_futures=cancel)
            if not cancel:
                assert [future.result() for future in futures] == [0, 1, 4]
            assert wait(futures, DEADLINE).not_done == set()
            with pytest.raises(RuntimeError, match="shut down"):
                engine.submit(pow, 2, 5)
        assert make_engine(given, None).submit(pow, 2, 5).result(DEADLINE) == 32


@pytest.mark.parametrize("kind", kinds("processes", *EXTRA))
@pytest.mark.parametrize("cancel", [False, True])
def test_what_was_opened_here_is_closed_and_no_process_is_left(kind: str, cancel: bool, tmp_path: Path) -> None:
    before = children()
    engine = make_engine(kind, 2)
    if cancel:
        futures = [engine.submit(exec, hang(tmp_path, f"hangs-{i}")) for i in range(2)]
        until(lambda: len(list(tmp_path.glob("hangs-*"))) == 2)
    else:
        futures = [engine.submit(pow, i, 2) for i in range(4)]
    workers = children() - before
    assert len(workers) >= 2
    engine.shutdown(cancel_futures=cancel)
    assert all(future.cancelled() if cancel else future.done() for future in futures)
    if kind == "processes":
        assert not [pid for pid in workers if is_alive(pid)]
    until(lambda: not [pid for pid in workers if is_alive(pid)])


def children() -> set[int]:
    """The processes that descend from this one, without the helpers that Python itself keeps until it ends."""
    found, parents = set(), [os.getpid()]
    while parents:
        tasks = Path(f"/proc/{parents.pop()}/task").glob("*/children")
        born = [int(pid) for task in tasks for pid in task.read_text().split()]
        parents += born
        found |= {pid for pid in born if b"resource_tracker" not in Path(f"/proc/{pid}/cmdline").read_bytes()}
    return found


def test_an_interrupt_in_this_thread_is_not_swallowed() -> None:
    engine = make_engine("serial", None)
    with pytest.raises(KeyboardInterrupt):
        engine.submit(exec, "raise KeyboardInterrupt")
    future = engine.submit(exec, "raise SystemExit(3)")
    assert isinstance(future.exception(), SystemExit)
    engine.shutdown()


# -- Processes ---------------------------------------------------------------------------------------------------------


DRIVER = """
import pathlib, signal, sys, time
from lazybo.run.engines import make_engine

if __name__ == "__main__":
    signal.signal(signal.SIGINT, lambda *_: None)
    engine = make_engine("processes", 2)
    futures = [engine.submit(exec, program) for program in sys.argv[2:]]
    pathlib.Path(sys.argv[1]).touch()
    errors = [future.exception() for future in futures]
    engine.shutdown()
    sys.exit(str(errors) if any(errors) else 0)
"""


@contextmanager
def driver(directory: Path, *programs: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process, the first of its group, that runs programs in two workers."""
    script = directory / "driver.py"
    script.write_text(DRIVER)
    command = [sys.executable, str(script), str(directory / "submitted"), *programs]
    process = subprocess.Popen(command, start_new_session=True)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_workers_end_when_the_driver_is_killed(tmp_path: Path) -> None:
    links = [tmp_path / f"worker-{i}" for i in range(2)]
    # A link appears at once with all that it says.
    programs = [f"import os, time; os.symlink(str(os.getpid()), {str(link)!r}); time.sleep(3600)" for link in links]
    with driver(tmp_path, *programs) as process:
        until(lambda: all(link.is_symlink() for link in links))
        pids = [int(str(link.readlink())) for link in links]
        assert all(is_alive(pid) for pid in pids)
        process.kill()
        until(lambda: not any(is_alive(pid) for pid in pids))


def test_ctrl_c_is_left_to_the_driver_by_workers_that_start_and_that_run(tmp_path: Path) -> None:
    def interrupt() -> None:
        os.killpg(process.pid, signal.SIGINT)
        time.sleep(0.01)

    with driver(tmp_path, hold(tmp_path, "begun-0"), hold(tmp_path, "begun-1")) as process:
        until((tmp_path / "submitted").exists)
        until(lambda: interrupt() or len(list(tmp_path.glob("begun-*"))) == 2)
        interrupt()
        (tmp_path / "go").touch()
        assert process.wait(DEADLINE) == 0


# -- The caller's executors --------------------------------------------------------------------------------------------


def test_a_pool_whose_worker_died_is_reported_with_a_remedy() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        engine = make_engine(pool, None)
        for task in ("import os; os._exit(1)", "pass"):
            with pytest.raises(EngineBroken, match="executor='processes'"):
                engine.submit(exec, task).result(DEADLINE)


# -- Choosing ----------------------------------------------------------------------------------------------------------


def test_without_an_executor_tasks_run_here_or_in_processes() -> None:
    for n_parallel, workers, remote in [(None, 1, False), (1, 1, False), (3, 3, True)]:
        with make_engine(None, n_parallel) as engine:
            assert (engine.workers, engine.remote) == (workers, remote)


@pytest.mark.parametrize("n_parallel", [0, -1, True, 2.0, "2"])
def test_a_number_of_tasks_that_makes_no_sense_is_refused(n_parallel: Any) -> None:
    with pytest.raises(ValueError, match="n_parallel"):
        make_engine("threads", n_parallel)


@pytest.mark.parametrize("executor", ["", "process", "dask:/x", 3, [], time, ThreadPoolExecutor])
def test_what_is_no_executor_is_refused_with_a_list_of_what_is(executor: object) -> None:
    with pytest.raises((ValueError, TypeError), match=r"'threads', 'processes', 'dask'.*; got"):
        make_engine(executor, None)


@pytest.mark.parametrize("address", ["dask://", "dask://host", "dask://:8786", "dask://host:x", "ray://host"])
def test_an_address_without_a_host_or_a_port_is_refused_in_one_line(address: str) -> None:
    with pytest.raises(ValueError, match="executor must have a host and a port, such as dask:"):
        make_engine(address, None)


@pytest.mark.parametrize(
    ("name", "package"),
    [("dask", "distributed"), ("dask://localhost:1", "distributed"), ("ray", "ray"), ("mpi", "mpi4py.futures")],
)
def test_a_missing_package_is_named(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = name.partition(":")[0]
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"lazybo.run.engines.{extra}", raising=False)
    with pytest.raises(ImportError, match=f"pip install {package.partition('.')[0]}"):
        make_engine(name, None)


# -- Dask --------------------------------------------------------------------------------------------------------------


@pytest.mark.extra
def test_dask_is_reached_by_address() -> None:
    with dask_client(2) as client:
        engine = make_engine(client.scheduler.address.replace("tcp://", "dask://"), None)
        assert (engine.workers, engine.host, engine.remote) == (2, "127.0.0.1", True)
        assert engine.submit(pow, 2, 5).result(DEADLINE) == 32
        engine.shutdown()
        assert client.submit(pow, 2, 6).result(DEADLINE) == 64


@pytest.mark.extra
def test_a_dask_worker_that_holds_data_is_not_restarted(tmp_path: Path) -> None:
    with dask_client(1) as client:
        data = client.scatter([1, 2, 3])
        engine = make_engine(client, None)
        future = engine.submit(exec, hold(tmp_path, "begun"))
        until((tmp_path / "begun").exists)
        assert not engine.stop(future)
        assert future.cancelled()
        (tmp_path / "go").touch()
        assert client.gather(data) == [1, 2, 3]


@pytest.mark.extra
def test_a_dask_cluster_that_is_restarted_or_lost(tmp_path: Path) -> None:
    with dask_client(1) as client:
        engine = make_engine(client, None)
        future = engine.submit(exec, hang(tmp_path, "begun"))
        until((tmp_path / "begun").exists)
        client.restart()
        assert type(future.exception(DEADLINE)) is WorkerDied
        future = engine.submit(exec, hang(tmp_path, "again"))
        until((tmp_path / "again").exists)
        client.cluster.close()
        assert type(future.exception(DEADLINE)) is EngineBroken
        client.close()
        assert type(engine.submit(pow, 2, 5).exception(DEADLINE)) is EngineBroken


@pytest.mark.extra
def test_an_asynchronous_dask_client_is_refused() -> None:
    import asyncio

    import distributed

    async def offer() -> None:
        async with (
            distributed.LocalCluster(
                n_workers=1, processes=False, dashboard_address=None, asynchronous=True, silence_logs=50
            ) as cluster,
            distributed.Client(cluster, asynchronous=True, set_as_default=False) as client,
        ):
            with pytest.raises(ValueError, match="asynchronous=False"):
                make_engine(client, None)

    asyncio.run(offer())


# -- Ray ---------------------------------------------------------------------------------------------------------------


# -- MPI ---------------------------------------------------------------------------------------------------------------

MPI_SUITE = [
    TestEveryEngine.test_ten_times_more_tasks_than_workers_and_each_result_belongs_to_its_task,
    TestEveryEngine.test_all_workers_work_at_once,
    TestEveryEngine.test_an_exception_keeps_its_type_and_message,
    TestEveryEngine.test_an_argument_that_cannot_be_pickled_is_its_own_task_s_problem,
    TestEveryEngine.test_a_task_that_waits_can_be_taken_back,
    TestEveryEngine.test_a_task_that_runs_can_be_stopped,
    TestEveryEngine.test_a_task_that_has_ended_cannot_be_stopped_and_its_worker_is_free,
    TestEveryEngine.test_whatever_is_stopped_when_every_future_ends_and_no_result_is_lost,
]


@pytest.mark.extra
@pytest.mark.parametrize("given", ["name", "pool"])
def test_mpi_passes_the_suite(given: str, mpirun: Callable[..., str]) -> None:
    verdict = json.loads(mpirun(3, Path(__file__), given))
    assert verdict["workers"] == 2
    assert verdict["failures"] == {}
    assert verdict["passed"] == len(MPI_SUITE)


def run_suite(engine: Engine) -> dict[str, Any]:
    failures, passed = {}, 0
    for test in MPI_SUITE:
        with tempfile.TemporaryDirectory() as directory:
            arguments = {"self": TestEveryEngine(), "engine": engine, "tmp_path": Path(directory), "cancel": stop}
            try:
                test(**{name: arguments[name] for name in inspect.signature(test).parameters})
                passed += 1
            except BaseException:
                failures[test.__name__] = traceback.format_exc()
    return {"workers": engine.workers, "failures": failures, "passed": passed}


def main(given: str) -> None:
    from mpi4py.futures import MPIPoolExecutor

    if given == "order":
        with make_engine("mpi", None) as engine:
            times = [engine.submit(time.monotonic_ns) for _ in range(8)]
            began = [future.result(DEADLINE) for future in times]
        verdict: dict[str, Any] = {"workers": engine.workers, "ordered": began == sorted(began)}
    elif given == "name":
        with make_engine("mpi", None) as engine:
            verdict = run_suite(engine)
    else:
        with MPIPoolExecutor() as pool:
            engine = make_engine(pool, None)
            verdict = run_suite(engine)
            engine.shutdown()
            assert pool.submit(pow, 2, 5).result(DEADLINE) == 32, "the caller's pool stays open"
    print(json.dumps(verdict))


if __name__ == "__main__":
    main(sys.argv[1])
