"""Validation of arguments: what passes, and what the error says."""

import math
import re
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from lazybo.core._checks import (
    check_optuna,
    finite_number,
    hinting,
    is_float_like,
    is_number,
    one_of,
    seconds,
    shortened,
    whole,
)


@pytest.mark.parametrize(
    ("value", "number", "float_like"),
    [
        (1, True, True),
        (0.5, True, True),
        (np.float32(0.5), True, True),
        (np.int64(3), True, True),
        (Fraction(1, 2), True, True),
        (Decimal("0.5"), False, True),
        (np.array(0.5), False, True),
        (True, False, False),
        (np.bool_(True), False, False),
        ("1", False, False),
        (b"1", False, False),
        (None, False, False),
        (1j, False, False),
    ],
)
def test_what_is_a_number(value: Any, number: bool, float_like: bool) -> None:
    assert is_number(value) is number
    assert is_float_like(value) is float_like


@pytest.mark.parametrize(("value", "expected"), [(None, math.inf), (3, 3.0), (1e300, math.inf), (10**400, math.inf)])
def test_seconds_that_nobody_can_wait_are_no_limit(value: Any, expected: float) -> None:
    assert seconds("timeout", value) == expected


@pytest.mark.parametrize("value", [0, -1, math.nan, True, "3", [3]])
def test_seconds_must_be_positive(value: Any) -> None:
    with pytest.raises(ValueError, match="timeout must be a positive number of seconds, not "):
        seconds("timeout", value)


@pytest.mark.parametrize("value", [math.inf, math.nan, True, "3", 10**400])
def test_a_finite_number_is_no_text_no_bool_and_fits_a_double(value: Any) -> None:
    assert finite_number("target", 3) == 3.0
    with pytest.raises(ValueError, match="target must be a finite number, not "):
        finite_number("target", value)


@pytest.mark.parametrize("value", [True, 0, 1.0, "3", None])
def test_whole_numbers_have_a_least_value(value: Any) -> None:
    assert whole("n", np.int64(3), 1) == 3
    with pytest.raises(ValueError, match="n must be a whole number of at least 1, not "):
        whole("n", value, 1)


def test_one_of_names_the_choices() -> None:
    assert one_of("batch", "auto", ("auto", "maxima")) == "auto"
    with pytest.raises(ValueError, match=r"batch must be one of \['auto', 'maxima'\], not 'all'"):
        one_of("batch", "all", ("auto", "maxima"))


def test_an_unknown_argument_is_an_error_with_a_hint() -> None:
    @hinting({"old": "use new="})
    def made(*, new: int = 0, other: int = 0) -> int:
        return new + other

    assert made(new=3) == 3
    for given, hint in (("old", "use new="), ("othr", "did you mean other=?"), ("zzz", "it has new, other")):
        with pytest.raises(TypeError, match=re.escape(f"() has no argument {given}=; {hint}")):
            made(**{given: 1})


def test_long_values_are_cut_in_messages() -> None:
    assert shortened("short") == "'short'"
    assert len(shortened("x" * 1000)) == 80
    assert shortened(10**5000) == "a int"


@pytest.mark.parametrize("version", ["2.10.1", "3.6.2", "4.5.0", "5.0.0", "12.1", "unknown"])
def test_only_an_old_optuna_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = ModuleType("optuna")
    installed.__version__ = version  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "optuna", installed)
    if version[0] not in "234":
        check_optuna()
        return
    with pytest.raises(ImportError, match=f"needs Optuna 5 or newer, but Optuna {version} is installed; pip "):
        check_optuna()


@pytest.mark.parametrize(
    "code",
    [
        "import lazybo; lazybo.optimize",
        "from lazybo import LazySampler",
        "import lazybo.sklearn",
        "import runpy; runpy.run_module('lazybo', run_name='__main__')",
    ],
)
def test_an_old_optuna_is_one_clear_error_at_every_entry(code: str, tmp_path: Path) -> None:
    (tmp_path / "optuna").mkdir()
    (tmp_path / "optuna" / "__init__.py").write_text("__version__ = '4.5.0'")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode != 0
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("ImportError: lazybo needs Optuna 5 or newer, but Optuna 4.5.0 is installed; pip ")


def test_what_needs_no_optuna_works_with_an_old_one(tmp_path: Path) -> None:
    (tmp_path / "optuna").mkdir()
    (tmp_path / "optuna" / "__init__.py").write_text("__version__ = '2.0'")
    program = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); from lazybo import LazyGP"
    subprocess.run([sys.executable, "-c", program], check=True)
