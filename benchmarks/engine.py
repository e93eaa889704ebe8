"""Compare the Cholesky factor with plain BLAS and LAPACK: ``python -m benchmarks.engine [--json]``.

All ratios are of medians measured alternately in one process with one BLAS thread.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg import blas, lapack

from benchmarks.paper.levy import algorithm2
from benchmarks.timing import alternate
from lazybo import GrowingCholesky, LazyGP, Matern52
from lazybo.gp import Priors, Targets

NOISE = 1e-4
BLOCK = 20


def covariance(n: int) -> np.ndarray:
    points = np.random.default_rng(n).random((n, 5))
    k = Matern52(np.full(5, 0.5))(points)
    k[np.diag_indices_from(k)] += NOISE
    return k


def grown(k: np.ndarray, n: int) -> GrowingCholesky:
    factor = GrowingCholesky()
    factor.append(np.zeros((0, n)), k[:n, :n])
    return factor


def append_beside_dtrsv(n: int) -> dict[str, Any]:
    """Append one row or a block to a factor of n rows; compare with one triangular solve and with single appends."""
    k = covariance(n + BLOCK)
    factor = grown(k, n)
    dense = np.asfortranarray(factor.factor)
    right = k[:n, n].copy()

    def one() -> None:
        factor.append(right, k[n, n])
        factor.truncate(n)

    def block() -> None:
        factor.append(k[:n, n:], k[n:, n:])
        factor.truncate(n)

    def singles() -> None:
        for i in range(n, n + BLOCK):
            factor.append(k[:i, i], k[i, i])
        factor.truncate(n)

    contestants = {"dtrsv": lambda: blas.dtrsv(dense, right, lower=1), "one": one, "block": block, "singles": singles}
    t = alternate(contestants, 15 if n > 5000 else 41)
    return {
        "n": n,
        "dtrsv_ms": 1e3 * t["dtrsv"],
        "append_ms": 1e3 * t["one"],
        "append_over_dtrsv": t["one"] / t["dtrsv"],
        "block_ms": 1e3 * t["block"],
        "singles_over_block": t["singles"] / t["block"],
    }


def thousand_steps(steps: int = 1000) -> dict[str, Any]:
    """The time of factorisation in a run from 1 to ``steps`` observations: extended, or repeated at every step.

    Algorithm 2 is timed at a few sizes; its total is extrapolated with its operation count from the largest.
    """
    k = covariance(steps)
    factor = GrowingCholesky()
    lazy = full = 0.0
    for n in range(steps):
        start = time.perf_counter()
        factor.append(k[:n, n], k[n, n])
        lazy += time.perf_counter() - start
        anew = np.asfortranarray(k[: n + 1, : n + 1])
        start = time.perf_counter()
        lapack.dpotrf(anew, lower=1, overwrite_a=1)
        full += time.perf_counter() - start
    sizes = (75, 150, 300)
    loops = alternate({str(n): partial(_loops, k[:n, :n]) for n in sizes}, 3)
    per_operation = loops[str(sizes[-1])] / _loop_operations(sizes[-1])
    naive = per_operation * sum(_loop_operations(n) for n in range(1, steps + 1))
    return {
        "steps": steps,
        "lazy_s": lazy,
        "lapack_s": full,
        "algorithm2_s_extrapolated": naive,
        "lapack_over_lazy": full / lazy,
        "algorithm2_over_lazy": naive / lazy,
        "algorithm2_exponent": _exponent({n: loops[str(n)] for n in sizes}),
    }


def _loops(k: np.ndarray) -> None:
    algorithm2(k.tolist())


def _loop_operations(n: int) -> int:
    """Iterations of the inner loops of algorithm 2."""
    return n * (n - 1) * (n - 2) // 6 + n * (n - 1)


def growth(sizes: tuple[int, ...] = (1000, 2000, 4000)) -> dict[str, Any]:
    """Growth exponents of time between these sizes, for one append and one factorisation, and of counted work."""
    k = covariance(max(sizes) + 1)
    append, full, work = {}, {}, {}
    for n in sizes:
        factor = grown(k, n)
        anew = np.asfortranarray(k[:n, :n])
        before = factor.work
        factor.append(k[:n, n], k[n, n])
        work[n] = float(factor.work - before)
        factor.truncate(n)

        def one(factor: GrowingCholesky = factor, n: int = n) -> None:
            factor.append(k[:n, n], k[n, n])
            factor.truncate(n)

        append[n] = alternate({"append": one}, 41)["append"]
        full[n] = alternate({"dpotrf": partial(lapack.dpotrf, anew, lower=1)}, 3)["dpotrf"]
    return {
        "sizes": list(sizes),
        "append_exponent": _exponent(append),
        "append_work_exponent": _exponent(work),
        "lapack_exponent": _exponent(full),
    }


def _exponent(seconds: dict[int, float]) -> float:
    """Slope of log time over log n."""
    return float(np.polyfit(np.log(list(seconds)), np.log(list(seconds.values())), 1)[0])


def learning(sizes: tuple[int, ...] = (100, 1000, 5000)) -> list[dict[str, Any]]:
    """Seconds to learn the kernel parameters, with the factorisation afterwards."""
    rows = []
    for n in sizes:
        rng = np.random.default_rng(n)
        x = rng.random((n, 5))
        gp = LazyGP(*Priors().start(Matern52(np.ones(5))), transform=Targets.standardized)
        gp.append(x, np.sin(5 * x[:, 0]) + x[:, 1] ** 2 + 0.01 * rng.standard_normal(n))
        start = time.perf_counter()
        learned = gp.learn()
        rows.append({"n": n, "seconds": time.perf_counter() - start, "evaluations": learned.evaluations})
    return rows


def memory(n: int = 10_000) -> dict[str, Any]:
    """Peak memory, without imports, of a process that grows a LazyGP to n observations and predicts."""
    output = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "benchmarks.engine", "--grow", str(n)], check=True, capture_output=True, text=True
    )
    return dict(json.loads(output.stdout))


def grow(n: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    baseline = peak_gigabytes()
    gp = LazyGP(Matern52(np.full(5, 0.5)), NOISE, transform=Targets.standardized)
    for start, stop in pairwise((*range(0, n, 500), n)):
        x = rng.random((stop - start, 5))
        gp.append(x, x.sum(axis=1))
    x = rng.random((1, 5))
    gp.append(x, x.sum(axis=1))
    gp.posterior_gradient(rng.random((16, 5)))
    peak = peak_gigabytes()
    return {"n": gp.n, "peak_gb": peak - baseline, "process_peak_gb": peak, "triangle_gb": gp.n**2 * 4 / 1e9}


def peak_gigabytes() -> float:
    """Peak resident memory of this process; getrusage would include its parent's before the exec."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024 / 1e9  # type: ignore[index]


def show(results: dict[str, Any]) -> None:
    print(f"one row appended, beside a bare dtrsv on a contiguous factor; {BLOCK} rows as a block, beside one by one")
    print(f"{'n':>6} {'dtrsv':>10} {'append':>10} {'ratio':>6} {'block':>10} {'block faster by':>16}")
    for r in results["append"]:
        print(
            f"{r['n']:6} {r['dtrsv_ms']:7.3f} ms {r['append_ms']:7.3f} ms {r['append_over_dtrsv']:6.2f} "
            f"{r['block_ms']:7.3f} ms {r['singles_over_block']:15.1f}×"
        )
    t, g, m = results["thousand_steps"], results["growth"], results["memory"]
    print(f"\nfactorisation in a run from 1 to {t['steps']} observations")
    print(f"  extended (algorithm 3)                     {t['lazy_s']:9.3f} s")
    print(f"  LAPACK anew at every step                  {t['lapack_s']:9.3f} s {t['lapack_over_lazy']:10.0f}×")
    naive, ratio = t["algorithm2_s_extrapolated"], t["algorithm2_over_lazy"]
    print(f"  algorithm 2 as printed, in Python          {naive:9.0f} s {ratio:10.0f}×  (extrapolated)")
    print(f"\ngrowth exponents in time, n = {g['sizes'][0]} to {g['sizes'][-1]} (algorithm 2: 75 to 300)")
    print(f"  append {g['append_exponent']:.2f} (counted work {g['append_work_exponent']:.2f})", end="")
    print(f"   LAPACK {g['lapack_exponent']:.2f}   algorithm 2 {t['algorithm2_exponent']:.2f}")
    print("\nlearning the kernel parameters (5-D), factorisation included")
    for r in results["learning"]:
        print(f"{r['n']:6} {r['seconds']:8.2f} s {r['evaluations']:6} evaluations")
    print(f"\nmemory at n = {m['n']}: peak {m['peak_gb']:.2f} GB above the imports, ", end="")
    print(f"of which the triangle is {m['triangle_gb']:.2f} GB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--grow", type=int, metavar="N", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.grow:
        print(json.dumps(grow(options.grow)))
        return
    results = {
        "append": [append_beside_dtrsv(n) for n in (1000, 3000, 8000)],
        "thousand_steps": thousand_steps(),
        "growth": growth(),
        "learning": learning(),
        "memory": memory(),
    }
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)


if __name__ == "__main__":
    main()
