import numpy as np
import pytest

from lazybo.core import checks
from lazybo.gp.fit import is_due, learning_work


def steps(lag: object, upto: int) -> list[int]:
    learned, at = [], 0
    for n in range(1, upto + 1):
        if is_due(checks.check_lag(lag), at, n):
            learned.append(n)
            at = n
    return learned


def test_lags_by_number() -> None:
    assert steps(1, 6) == [2, 3, 4, 5, 6]
    assert steps(3, 12) == [2, 5, 8, 11]
    assert steps(None, 100) == []


def test_auto_learns_always_at_first_and_then_as_the_work_is_paid_for() -> None:
    learned = steps("auto", 3000)
    assert learned[:59] == list(range(2, 61)), "at every observation up to 60"
    assert len([n for n in learned if n > 200]) < 60
    spent = sum(learning_work(n) for n in learned)
    assert spent <= 20 * 3000**3 / 3, "amortised, a step costs O(n²)"
    gaps = np.diff(learned)
    assert (gaps / learned[1:]).max() < 0.5, "the number of observations never doubles unlearned"


def test_auto_depends_on_counts_alone_and_a_block_may_pay_at_once() -> None:
    assert is_due("auto", 0, 10_000)
    assert not is_due("auto", 3000, 3001)
    assert not is_due("auto", 50, 50)
    assert not is_due("auto", 0, 1)


@pytest.mark.parametrize("lag", [0, -1, 1.5, True, "often", [1]])
def test_a_wrong_lag_is_refused(lag: object) -> None:
    with pytest.raises(ValueError, match="lag must be"):
        checks.check_lag(lag)
