"""What comes from outside is checked here, once, at the door: arrays of doubles, or a ValueError that says why."""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[np.float64]


def as_array(name: str, value: ArrayLike, ndim: int) -> Array:
    """``value`` as doubles with ``ndim`` dimensions; entries are not looked at."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} must be an array of numbers: {error}") from None
    if array.ndim != ndim:
        raise ValueError(f"{name} must have {ndim} dimension(s), but has shape {array.shape}")
    return array


def as_shape(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    """``value`` as finite doubles of exactly this shape."""
    array = as_array(name, value, len(shape))
    if array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}, but has shape {array.shape}")
    return finite(name, array)


def finite(name: str, array: Array) -> Array:
    """``array`` itself, when no entry is NaN or infinite."""
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name} must be finite, but entry {where} is {array[where]}")
    return array


def positive(name: str, value: Any) -> float:
    """``value`` as a finite number above zero."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a positive number, not {value!r}") from None
    if not (np.isfinite(number) and number > 0):
        raise ValueError(f"{name} must be a positive finite number, not {value!r}")
    return number


def whole(name: str, value: object, least: int) -> int:
    """A whole number of at least ``least``; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {value!r}")
    return int(value)
