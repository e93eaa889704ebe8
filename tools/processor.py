"""Run a command as on another processor: ``python tools/processor.py KIND COMMAND...``.

OpenBLAS, NumPy and the C library choose their code by the processor, so results differ in their last bits. ``KIND`` is
Prescott or Nehalem (without AVX), Haswell or Zen (AVX2, without AVX-512), or ``other``: Haswell on a machine with
AVX-512, and Prescott on all others. The command gets environment variables; two lines say what they change.
"""

import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence

import numpy as np

WITHOUT_AVX, WITHOUT_AVX512 = ("Prescott", "Nehalem"), ("Haswell", "Zen")
AVX512 = re.compile("AVX512|X86_V4")
DISABLED = "NPY_DISABLE_CPU_FEATURES"
SHOW = """
import numpy, scipy.linalg, threadpoolctl
kernels = sorted({each.get("architecture", "unknown") for each in threadpoolctl.threadpool_info()})
found = numpy.show_config(mode="dicts")["SIMD Extensions"].get("found", [])
print("BLAS", *kernels, "NumPy", *found)
"""


def variables(kind: str) -> dict[str, str]:
    """The environment in which libraries take the code for this kind of processor."""
    # NumPy's names of features differ by version. It lists none that are disabled already.
    found = np.show_config(mode="dicts")["SIMD Extensions"].get("found", []) + os.environ.get(DISABLED, "").split()
    if kind == "other":
        kind = "Haswell" if any(map(AVX512.match, found)) else "Prescott"
    if kind in WITHOUT_AVX:
        tunables = "glibc.cpu.hwcaps=-AVX2,-FMA"
        return {"OPENBLAS_CORETYPE": kind, DISABLED: " ".join(found), "GLIBC_TUNABLES": tunables}
    if kind in WITHOUT_AVX512:
        return {"OPENBLAS_CORETYPE": kind, DISABLED: " ".join(filter(AVX512.match, found))}
    raise SystemExit(f"processor.py: {kind} is none of {', '.join((*WITHOUT_AVX, *WITHOUT_AVX512))}, other")


def main(arguments: Sequence[str]) -> None:
    """Become the command."""
    if len(arguments) < 2:
        raise SystemExit(__doc__)
    if platform.machine() not in ("x86_64", "AMD64"):
        raise SystemExit(f"processor.py: it knows kinds of x86-64, and this machine is {platform.machine()}")
    kind, *command = arguments
    environment = os.environ | variables(kind)
    for name, each in (("here", dict(os.environ)), (environment["OPENBLAS_CORETYPE"], environment)):
        shown = subprocess.run([sys.executable, "-c", SHOW], env=each, stdout=subprocess.PIPE, text=True, check=True)
        print(f"{name}: {shown.stdout}", end="", flush=True)
    os.execvpe(command[0], command, environment)  # noqa: S606 (the user's own command)


if __name__ == "__main__":
    main(sys.argv[1:])
