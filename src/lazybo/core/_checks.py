"""Validation of arguments: the value as lazybo uses it, or a ValueError that says what was expected."""

import difflib
import functools
import inspect
import math
import sys
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any, Literal, ParamSpec, TypeAlias, TypeGuard, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[np.float64]
Direction: TypeAlias = Literal["minimize", "maximize"]
Lag: TypeAlias = int | Literal["auto"] | None
DIRECTIONS = ("minimize", "maximize")
P = ParamSpec("P")
T = TypeVar("T")
# NumPy's own seeds have 128 bits too. Every storage and JSON can hold them.
MAX_SEED = 2**128 - 1
# The largest count that every storage can hold.
MAX_STORED = 2**31 - 1
# The cost that is a time. It is measured and need not be returned.
SECONDS = "seconds"
OLDEST_OPTUNA = 5


def as_array(name: str, value: ArrayLike, ndim: int) -> Array:
    """``value`` as doubles with ``ndim`` dimensions; the entries are not checked."""
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
    """``array`` itself if no entry is NaN or infinite."""
    bad = ~np.isfinite(array)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"{name} must be finite, but entry {where} is {array[where]}")
    return array


def as_number(name: str, value: Any) -> float:
    """``value`` as a double, infinite if it is too large for one. Text is rejected, even if it looks like a number."""
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
    double = math.nan if isinstance(value, bool) else as_number(name, value)
    if not (np.isfinite(double) and double > 0):
        raise ValueError(f"{name} must be a positive finite number, not {shortened(value)}")
    return double


def finite_number(name: str, value: object) -> float:
    """``value`` as a finite double; bools are rejected."""
    double = as_number(name, value) if is_number(value) else math.nan
    if not math.isfinite(double):
        raise ValueError(f"{name} must be a finite number, not {shortened(value)}")
    return double


def whole(name: str, value: object, least: int, most: int | None = None) -> int:
    """``value`` as an int of at least ``least`` and at most ``most``; bools are rejected."""
    if not is_whole(value) or value < least or (most is not None and value > most):
        allowed = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise ValueError(f"{name} must be a whole number {allowed}, not {shortened(value)}")
    return int(value)


def seconds(name: str, value: object) -> float:
    """``value`` as a positive number of seconds; infinite for None, and for more than a lock can wait (292 years)."""
    if value is None:
        return math.inf
    number = as_number(name, value) if is_number(value) else math.nan
    if not number > 0:
        raise ValueError(f"{name} must be a positive number of seconds, not {shortened(value)}")
    return number if number < threading.TIMEOUT_MAX else math.inf


def one_of(name: str, value: Any, choices: Sequence[str]) -> Any:
    """``value`` itself if it is one of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be one of {list(choices)}, not {shortened(value)}")
    return value


def check_directions(given: object) -> tuple[Direction, ...]:
    """The directions of all objectives: ``given`` is one, or a list of one for each."""
    if isinstance(given, str):
        return (one_of("direction", given, DIRECTIONS),)
    if not isinstance(given, Sequence) or not given:
        raise ValueError(f"direction must be 'minimize', 'maximize', or a list of them, not {shortened(given)}")
    return tuple(one_of("each direction", each, DIRECTIONS) for each in given)


def is_number(value: object) -> bool:
    """Whether ``value`` is a real number of Python or NumPy; bools are not."""
    return isinstance(value, Real) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether ``value`` is a whole number of Python or NumPy; bools are not."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def is_float_like(value: object) -> bool:
    """Whether ``value`` can be converted to a float without being a string or a bool: also decimals and tensors."""
    return hasattr(value, "__float__") and not isinstance(value, bool | np.bool_ | str | bytes)


def shortened(value: object, length: int = 80) -> str:
    """The repr of a value for a message, cut if it is long."""
    try:
        text = repr(value)
    except Exception:  # Python also refuses to print ints of more than 4,300 digits
        return f"a {type(value).__name__}"
    return text if len(text) <= length else f"{text[: length - 3]}..."


def warn(text: str) -> None:
    """Warn the code that called lazybo, with its own line."""
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "lazybo":
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)


def hinting(hints: Mapping[str, str]) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Say what to use instead of arguments that a function does not have: by ``hints``, or by a similar name."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        known = [name for name in inspect.signature(function).parameters if name != "self"]
        shown = function.__qualname__.removesuffix(".__init__")

        @functools.wraps(function)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> T:
            for name in kwargs:
                if name not in known:
                    near = difflib.get_close_matches(name, [*known, *hints], n=1, cutoff=0.75)
                    hint = hints.get(name) or f"it has {', '.join(known)}"
                    if near and name not in hints:
                        hint = hints.get(near[0]) or f"did you mean {near[0]}=?"
                    raise TypeError(f"{shown}() has no argument {name}=; {hint}")
            return function(*args, **kwargs)

        return wrapper

    return decorate


def hinting_class(hints: Mapping[str, str]) -> Callable[[type[T]], type[T]]:
    """The same for the arguments of a dataclass."""

    def decorate(cls: type[T]) -> type[T]:
        cls.__init__ = hinting(hints)(cls.__init__)  # type: ignore[method-assign]
        return cls

    return decorate


def check_optuna() -> None:
    """Raise an ImportError if the installed Optuna is too old; its names that are missing would not say so."""
    import optuna

    version = getattr(optuna, "__version__", "")
    major = version.partition(".")[0]
    if major.isdigit() and int(major) < OLDEST_OPTUNA:
        raise ImportError(
            f"lazybo needs Optuna {OLDEST_OPTUNA} or newer, but Optuna {version} is installed; "
            f"pip install --upgrade 'optuna>={OLDEST_OPTUNA}'"
        )


def check_seed(seed: int | None) -> int:
    """Validate a seed; None gives a random one."""
    if seed is None:
        return int(np.random.SeedSequence().generate_state(1)[0])
    number = whole("seed", seed, 0)
    if number > MAX_SEED:
        raise ValueError("seed must be below 2**128")
    return number


def check_lag(lag: object) -> Lag:
    """A validated lag: 1, 2, …, None or "auto"."""
    if lag is None or (isinstance(lag, str) and lag == "auto"):
        return lag  # type: ignore[return-value]
    if is_whole(lag) and lag >= 1:
        return int(lag)
    raise ValueError(f'lag must be a positive whole number, None (never learn) or "auto", not {lag!r}')


def check_cost(cost: object) -> str | None:
    """``cost`` itself if it is None or a name."""
    if cost is not None and not (isinstance(cost, str) and cost.strip()):
        raise ValueError(f"cost must be 'seconds' or the name of a metric, not {shortened(cost)}")
    return cost


def is_cost(metric: object) -> bool:
    """Whether a metric can be a cost: a positive finite number."""
    return is_number(metric) and math.isfinite(number := as_number("cost", metric)) and number > 0.0
