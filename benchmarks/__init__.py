"""Measurements: ``python -m benchmarks.NAME`` prints a table. Ratios within one run, medians, one BLAS thread."""

import os

# Before NumPy is imported: threads that fight over two cores would be what is measured.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"
