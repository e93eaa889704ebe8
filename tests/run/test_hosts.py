"""Several hosts, each with its own network: a short version of `python -m benchmarks.hosts`."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.namespaces import not_permitted

pytestmark = pytest.mark.extra
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module", autouse=True)
def permitted() -> None:
    reason = not_permitted()
    if reason is not None:
        pytest.skip(reason)


def test_no_law_is_broken_while_hosts_vanish_and_the_scheduler_restarts() -> None:
    faults = ["gone", "restart", "disk"]
    command = [sys.executable, "-m", "benchmarks.hosts", "--repeat", "1", "--trials", "12", "--faults", *faults]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert not left_over(), "hosts end with the program that made them"


def test_hosts_end_with_a_program_that_is_killed() -> None:
    program = (
        "from benchmarks.namespaces import *\n"
        "with Switch() as switch:\n"
        "    host = Host(switch, 'lazybo-killed', 9)\n"
        "    print(host.pid, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    first = Path("/proc") / done.stdout.strip()
    deadline = 200
    while first.exists() and deadline:
        deadline -= 1
        subprocess.run(["sleep", "0.1"], check=True)
    assert not first.exists()


def left_over() -> list[str]:
    """The processes of this test's programs that still run."""
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
    return [line for line in found if "benchmarks.hosts --drive" in line and str(ROOT) in line]
