"""What `make demo` shows."""

import re

import pytest

from lazybo import demo


def test_the_table_ends_with_the_best_value(capsys: pytest.CaptureFixture[str]) -> None:
    demo.main(evaluations=50, sizes=(20,))
    said = capsys.readouterr().out
    (best,) = re.findall(r"50/50  best (\S+)", said)
    rows = re.findall(r"^ +\d+ +(-?[\d.]+)$", said, re.M)
    assert rows[-1] == best
    assert float(best) > 0
