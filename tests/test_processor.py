"""`make test-portable` really runs with the code of another processor."""

import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).parents[1] / "tools" / "processor.py"
# NumPy's names of features, in all versions.
AVX, AVX512 = "AVX|FMA|X86_V[34]", "AVX512|X86_V4"
pytestmark = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="there are no kinds to choose from"
)


def run_as(kind: str) -> tuple[str, str, list[str]]:
    """What is said of this machine and of the other processor, and what the command prints."""
    ours = ("OPENBLAS_CORETYPE", "NPY_DISABLE_CPU_FEATURES", "GLIBC_TUNABLES")
    done = subprocess.run(
        [sys.executable, TOOL, kind, sys.executable, "-c", "print('ran')"],
        env={name: value for name, value in os.environ.items() if name not in ours},
        capture_output=True,
        text=True,
        check=True,
    )
    here, there, *printed = done.stdout.splitlines()
    return here, there, printed


@pytest.mark.parametrize(("kind", "gone"), [("Prescott", AVX), ("Nehalem", AVX), ("Haswell", AVX512), ("Zen", AVX512)])
def test_libraries_take_the_code_of_another_processor(kind: str, gone: str) -> None:
    _, there, printed = run_as(kind)
    assert there.startswith(f"{kind}: BLAS ")
    assert not re.search(gone, there)
    assert printed == ["ran"]


def test_other_is_never_the_machines_own() -> None:
    here, there, _ = run_as("other")
    assert here.partition(": ")[2] != there.partition(": ")[2]
    assert here.split()[2] != there.split()[2], "OpenBLAS takes other kernels"


def test_an_unknown_processor_is_refused() -> None:
    done = subprocess.run([sys.executable, TOOL, "Z80", "true"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Z80 is none of Prescott" in done.stderr
