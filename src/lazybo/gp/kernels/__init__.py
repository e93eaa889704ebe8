"""Covariance functions: the interface (`base`), and all kernels by name. A new kernel is added to `KERNELS`."""

from collections.abc import Sequence

import numpy as np

from lazybo.gp.kernels.additive import AdditiveMatern52
from lazybo.gp.kernels.base import Column, Kernel, Parameter, as_kernel
from lazybo.gp.kernels.matern import Matern52

__all__ = ["KERNELS", "AdditiveMatern52", "Column", "Kernel", "Matern52", "Parameter", "check_choice", "kernel_for"]

KERNELS: dict[str, type[Matern52] | type[AdditiveMatern52]] = {each.name: each for each in (Matern52, AdditiveMatern52)}


def check_choice(kernel: object) -> str | Kernel | None:
    """Return ``kernel`` if it is a name of `KERNELS`, a kernel, or None; raise a ValueError otherwise."""
    if kernel is None:
        return None
    if isinstance(kernel, str):
        if kernel not in KERNELS:
            raise ValueError(f"kernel must be one of {list(KERNELS)} or a kernel object, not {kernel!r}")
        return kernel
    return as_kernel(kernel)


def kernel_for(kernel: str | Kernel | None, columns: Sequence[Column]) -> Kernel:
    """A new kernel by name (None: "additive") with length scales 1, or a kernel object with these columns."""
    chosen = check_choice(kernel)
    if chosen is None or isinstance(chosen, str):
        make = KERNELS[chosen or AdditiveMatern52.name]
        return make(np.ones(max(len(columns), 1)), columns=columns)
    if tuple(chosen.columns) != tuple(columns):
        raise ValueError(f"the kernel must have the columns of the space: {columns}")
    return chosen
