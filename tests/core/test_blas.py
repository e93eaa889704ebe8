"""One BLAS thread while lazybo does linear algebra, in every thread, and as many as before when it does not."""

import os
import subprocess
import sys

# In processes of their own, since the number of threads is settled when the libraries are loaded.
START = """
import os, threading
import numpy as np
from threadpoolctl import ThreadpoolController
from lazybo.core._blas import one_thread

controller = ThreadpoolController().select(user_api="blas")

def threads():
    return {library.num_threads for library in controller.lib_controllers}

def in_a_thread(function):
    found = []
    def run():
        try:
            found.append(function())
        except BaseException as error:
            found.append(error)
    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]

def threads_inside():
    with one_thread():
        return threads()

assert threads() == {2}, threads()
"""


def run(program: str) -> None:
    two = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    two.pop("OMP_NUM_THREADS", None)
    subprocess.run([sys.executable, "-c", START + program], env=two, check=True, timeout=120)


def test_the_limit_holds_inside_and_ends_with_the_last_one() -> None:
    run("""
both, gone = threading.Barrier(2), threading.Event()

def first():
    with one_thread():
        both.wait(20)
    gone.set()

other = threading.Thread(target=first)
other.start()
with one_thread():
    both.wait(20)
    assert gone.wait(20)
    assert threads() == {1}, threads()
    with one_thread():
        assert threads() == {1}, threads()
    assert threads() == {1}, threads()
other.join()
assert threads() == {2}, threads()
""")


def test_the_last_one_to_leave_restores_whichever_thread_it_is() -> None:
    run("""
inside, leave = threading.Event(), threading.Event()

def last():
    with one_thread():
        inside.set()
        leave.wait(20)
    return threads()

with one_thread():
    other = threading.Thread(target=last)
    other.start()
    assert inside.wait(20)
assert threads() == {1}, "the other one is still inside"
leave.set()
other.join()
assert threads() == {2}, threads()
""")


def test_an_error_inside_ends_the_limit() -> None:
    run("""
@one_thread()
def fails():
    with one_thread():
        raise ZeroDivisionError

for attempt in (fails, lambda: in_a_thread(fails)):
    try:
        attempt()
    except ZeroDivisionError:
        pass
    assert threads() == {2}, threads()
""")


def test_a_fork_while_another_thread_is_inside_has_no_limit_left_over() -> None:
    run("""
inside, leave = threading.Event(), threading.Event()

def stay():
    with one_thread():
        inside.set()
        leave.wait(60)

other = threading.Thread(target=stay)
other.start()
inside.wait(20)
child = os.fork()
if child == 0:
    good = threads() == {2} and threads_inside() == {1} and threads() == {2}
    os._exit(0 if good else 1)
_, status = os.waitpid(child, 0)
leave.set()
other.join()
assert status == 0, status
""")


def test_every_entry_point_has_the_limit() -> None:
    """What BLAS would use when linear algebra begins, in each entry point, in a second thread."""
    run("""
import optuna
from optuna.distributions import FloatDistribution
import lazybo
from lazybo import GrowingCholesky, LazyGP, Matern52, Priors
from lazybo.report import facts_of, predictions
from lazybo.search.optimizer import Optimizer
from lazybo.sklearn import LazyGPRegressor
from lazybo.study.sampler import LazySampler

optuna.logging.set_verbosity(optuna.logging.ERROR)
seen = []

def watched(function):
    def look(*args, **kwargs):
        seen.append(frozenset(threads()))
        return function(*args, **kwargs)
    return look

for owner, names in {
    Matern52: ("features", "between", "with_slope", "pairs"),
    GrowingCholesky: ("append", "solve", "solve_lower", "solve_upper", "finish_solve", "inverse"),
}.items():
    for name in names:
        setattr(owner, name, watched(getattr(owner, name)))

rng = np.random.default_rng(0)
x, u = rng.random((12, 2)), rng.random((3, 2))
y = x.sum(axis=1)
kernel = Matern52(np.ones(2))  # no linear algebra yet
gp = LazyGP(*Priors().start(kernel))
regressor = LazyGPRegressor(random_state=0)
space = {"x": FloatDistribution(0, 1), "y": FloatDistribution(0, 1)}
optimizer = Optimizer(space, seed=0)
for a, b in x:
    optimizer.observe({"x": a, "y": b}, a + b)
studies = []

def ask_and_tell():
    suggestion = optimizer.ask()
    optimizer.tell(suggestion, sum(suggestion.params.values()))

def sampler():
    study = optuna.create_study(sampler=LazySampler(seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1) + trial.suggest_float("y", 0, 1), n_trials=8)
    studies.append(study)

def whole_run():
    lazybo.optimize(lambda params: params["x"] + params["y"], space, n_trials=8, seed=0, progress=False)

entry_points = {
    "gp.append": lambda: gp.append(x, y),
    "gp.posterior": lambda: gp.posterior(u),
    "gp.posterior_gradient": lambda: gp.posterior_gradient(u),
    "gp.posterior_covariance": lambda: gp.posterior_covariance(u),
    "gp.sample": lambda: gp.sample(u, 2, rng),
    "gp.replace_y": lambda: (gp.replace_y(y + 1), gp.log_marginal_likelihood()),
    "gp.append, pending": lambda: gp.append(u, np.full(3, np.nan)),
    "gp.set_parameters": lambda: gp.set_parameters(kernel, 0.1),
    "fit.learn": lambda: gp.learn(),
    "regressor.fit": lambda: regressor.fit(x, y),
    "regressor.partial_fit": lambda: regressor.partial_fit(u, u.sum(axis=1)),
    "regressor.predict": lambda: regressor.predict(u, return_std=True),
    "regressor.sample_y": lambda: regressor.sample_y(u),
    "regressor.log_marginal_likelihood": lambda: regressor.log_marginal_likelihood(regressor.kernel_.theta),
    "optimizer.ask": ask_and_tell,
    "optimizer.ask(2)": lambda: optimizer.ask(2),
    "planner.propose": lambda: optimizer.planner.propose(20),
    "planner.propose(2)": lambda: optimizer.planner.propose(20, 2),
    "model.maxima": lambda: optimizer.model.maxima(),
    "model.surrogate": lambda: optimizer.model.surrogate(),
    "optimizer.recommend": lambda: optimizer.recommend(),
    "optimizer.predict": lambda: optimizer.predict(optimizer.best.params),
    "sampler": sampler,
    "optimize": whole_run,
    "predictions.importances": lambda: predictions.importances(studies[0]),
    "predictions.slices": lambda: predictions.slices(studies[0]),
    "predictions.coordinates": lambda: predictions.coordinates(studies[0]),
    "recommend": lambda: lazybo.recommend(studies[0]),
    "advise": lambda: facts_of(studies[0]).advise(),
}
threads_inside()  # as the main thread of any program would have done
for name, call in entry_points.items():
    seen.clear()
    in_a_thread(call)
    assert set(seen) <= {frozenset({1})}, (name, set(seen))
    assert seen or name in ("predictions.coordinates", "model.surrogate"), f"{name} was not watched"
    assert threads() == {2}, name
""")
