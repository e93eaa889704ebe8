"""The guard against the last release (benchmarks/release.py): an exact test, counts that repeat, checked input."""

import zipfile
from pathlib import Path

import numpy as np
import pytest

from benchmarks.release import PROBLEMS, Version, drawn, main, p_value, unpacked

SOURCE = Path(__file__).parents[1] / "src"


@pytest.mark.parametrize("seed", range(5))
def test_of_all_signs_of_the_differences_no_larger_share_than_alpha_raises_an_alarm(seed: int) -> None:
    """Whatever the sizes of the differences are: if both versions are alike, every choice of signs is as likely."""
    sizes = np.abs(np.random.default_rng(seed).standard_t(1.5, 8)).round(1)  # heavy tails, ties and zeros
    signs = 1.0 - 2.0 * ((np.arange(256)[:, None] >> np.arange(8)) & 1)
    p = np.array([p_value(sizes * each) for each in signs])
    for alpha in (0.01, 0.05, 0.2, 0.5):
        assert (p <= alpha).mean() <= alpha


def test_with_many_pairs_the_probability_is_nearly_the_exact_one() -> None:
    differences = np.r_[np.ones(14), -np.ones(6)]
    exact = sum(count for count in (38760, 15504, 4845, 1140, 190, 20, 1)) / 2**20  # at least 14 of 20 are positive
    assert p_value(differences.tolist()) == pytest.approx(exact, rel=0.05)
    assert p_value([0.0] * 20) == 1.0, "versions that are the same"
    assert p_value([1.0] * 60) < 1e-4


def test_counts_of_work_repeat() -> None:
    version = Version(SOURCE)
    try:
        first, second = (version.say({"work": 20}) for _ in range(2))
    finally:
        version.close()
    assert first == second
    assert min(first.values()) > 0


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_configuration_is_better_than_the_optimum(name: str) -> None:
    space, objective, optimum, _ = PROBLEMS[name]
    rng = np.random.default_rng(0)
    values = [objective({key: drawn(given, rng) for key, given in space.items()}) for _ in range(2000)]
    assert min(values) >= optimum - 1e-6


def test_a_wheel_is_unpacked_and_anything_else_is_refused(tmp_path: Path) -> None:
    wheel = tmp_path / "lazybo-9-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("lazybo/__init__.py", "")
    assert (unpacked(wheel, tmp_path / "here") / "lazybo" / "__init__.py").exists()
    assert unpacked(SOURCE, tmp_path) == SOURCE.resolve()
    (tmp_path / "text").write_text("no wheel")
    for wrong in (tmp_path / "text", tmp_path / "missing.whl"):
        with pytest.raises(SystemExit, match="cannot be read as a wheel"):
            unpacked(wrong, tmp_path / "there")
    with pytest.raises(SystemExit, match="does not contain the package lazybo"):
        unpacked(tmp_path, tmp_path)
    with pytest.raises(SystemExit):
        main([])
