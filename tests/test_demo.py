"""What `make demo` shows."""

import re

import pytest

from lazybo import demo


def test_the_table_ends_with_the_best_value(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "EVALUATIONS", 50)
    monkeypatch.setattr(demo, "SIZES", (20,))
    demo.main()
    said = capsys.readouterr().out
    (best,) = re.findall(r"50/50  best (\S+)", said)
    rows = re.findall(r"^ +\d+ +(-?[\d.]+)$", said, re.M)
    assert rows[-1] == best
    assert float(best) > 0
