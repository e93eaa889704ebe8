"""The guard against the last release (benchmarks/release.py): an exact test, and counts that repeat."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks.release import Version, p_value

SOURCE = Path(__file__).parents[1] / "src"


@pytest.mark.parametrize("seed", range(5))
def test_of_all_signs_of_the_differences_no_larger_share_than_alpha_raises_an_alarm(seed: int) -> None:
    """Whatever the sizes of the differences are: if both versions are alike, every choice of signs is as likely."""
    sizes = np.abs(np.random.default_rng(seed).standard_t(1.5, 8)).round(1)  # heavy tails, ties and zeros
    signs = 1.0 - 2.0 * ((np.arange(256)[:, None] >> np.arange(8)) & 1)
    p = np.array([p_value(sizes * each) for each in signs])
    for alpha in (0.01, 0.05, 0.2, 0.5):
        assert (p <= alpha).mean() <= alpha


def test_counts_of_work_repeat() -> None:
    version = Version(SOURCE)
    try:
        first, second = (version.say({"work": 20}) for _ in range(2))
    finally:
        version.close()
    assert first == second
    assert min(first.values()) > 0
