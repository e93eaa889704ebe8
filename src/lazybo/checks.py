"""What comes from outside is checked here, once, at the door: arrays of doubles, or a ValueError that says why."""

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[np.float64]


def as_array(name: str, value: ArrayLike, ndim: int) -> Array:
    """``value`` as doubles with ``ndim`` dimensions; entries are not looked at."""
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
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


def as_number(name: str, value: Any) -> float:
    """``value`` as a double, infinite where it is too large for one; text is no number, even if it looks like one."""
    try:
        if isinstance(value, str | bytes | bytearray):
            raise TypeError
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
    except (TypeError, ValueError):
        raise ValueError(f"{name} must be a number, not {shortened(value)} ({type(value).__name__})") from None


def positive(name: str, value: Any) -> float:
    """``value`` as a finite number above zero."""
    double = as_number(name, value)
    if not (np.isfinite(double) and double > 0):
        raise ValueError(f"{name} must be a positive finite number, not {shortened(value)}")
    return double


def whole(name: str, value: object, least: int) -> int:
    """A whole number of at least ``least``; a truth value is none."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise ValueError(f"{name} must be a whole number of at least {least}, not {shortened(value)}")
    return int(value)


def shortened(value: object, length: int = 80) -> str:
    """What was given, for a message: not all of a large array, text or number."""
    try:
        text = repr(value)
    except Exception:  # also Python's refusal to write an int of 5,000 digits
        return f"a {type(value).__name__}"
    return text if len(text) <= length else f"{text[: length - 3]}..."
