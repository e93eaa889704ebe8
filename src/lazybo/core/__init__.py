"""What every part of lazybo uses."""

from typing import TYPE_CHECKING

from lazybo.core import _checks as checks
from lazybo.core import _codec as codec
from lazybo.core import _text as texts
from lazybo.core._checks import Array, Direction, Lag
from lazybo.core._doors import lazily

if TYPE_CHECKING:
    from lazybo.core._blas import one_thread
else:
    __getattr__ = lazily(__name__, {"one_thread": "_blas"})  # loads SciPy

__all__ = [
    "Array",  # doubles in NumPy
    "Direction",  # "minimize" or "maximize"
    "Lag",  # when the model learns: after this many observations, None (never) or "auto"
    "checks",  # arguments: the value as lazybo uses it, or one clear ValueError
    "codec",  # files, written as a whole or not at all, and plain data that may be damaged
    "lazily",  # how a package shows its interface without importing all of itself
    "one_thread",  # one BLAS thread in every public function that does linear algebra
    "texts",  # text from programs, storages and users, made safe for a terminal, a picture or a notebook
]
