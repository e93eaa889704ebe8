"""One BLAS thread while the optimiser works, and as many as before when it does not."""

import os
import subprocess
import sys

# In a process of its own, since the number of threads is settled when the libraries are loaded.
PROGRAM = """
import threading
from threadpoolctl import threadpool_info
from lazybo.blas import one_thread

def threads():
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

both, gone = threading.Barrier(2), threading.Event()

def first():
    with one_thread():
        both.wait(20)
    gone.set()

assert threads() == {2}, threads()
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
"""


def test_the_limit_holds_inside_and_ends_with_the_last_one() -> None:
    two = {**os.environ, "OPENBLAS_NUM_THREADS": "2", "OMP_NUM_THREADS": "2", "MKL_NUM_THREADS": "2"}
    subprocess.run([sys.executable, "-c", PROGRAM], env=two, check=True)
