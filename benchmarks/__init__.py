"""Measurements: ``python -m benchmarks.NAME`` prints a table of medians and ratios within one run, one BLAS thread."""

import os

# Set before NumPy is imported: otherwise we would measure threads that compete for two cores.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
