"""Files of earlier versions: today's code reads the same from them, and continues them (tests/compatibility.py).

What was recorded never changes. What the model says of it is there, too, but may change with the model.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.compatibility import EXPECTED, READERS, said

VERSIONS = sorted(path for path in (Path(__file__).parent / "data").iterdir() if path.is_dir())
# Another machine may round otherwise. A chance is a share of random draws, and one draw may fall on the other side.
TOLERANCE, OF_CHANCE = 1e-6, 2e-3
# What the model says: predictions, and what a continued study suggests next.
OF_MODEL = {"contenders", "expected_gain", "importances", "next", "predicted", "recommended", "share"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    level = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    yield
    optuna.logging.set_verbosity(level)


def differences(before: Any, now: Any, place: str = "") -> Iterator[str]:
    """Where plain data differ; numbers may differ by a rounding, and later versions may say more."""
    if isinstance(before, dict) and isinstance(now, dict) and before.keys() <= now.keys():
        for key in before.keys() - OF_MODEL:
            yield from differences(before[key], now[key], f"{place}/{key}")
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for i, (a, b) in enumerate(zip(before, now, strict=True)):
            yield from differences(a, b, f"{place}/{i}")
    elif isinstance(before, float) and isinstance(now, float):
        rough = OF_CHANCE if place.endswith("chance") else 1e-9
        if not math.isclose(before, now, rel_tol=TOLERANCE, abs_tol=rough):
            yield f"{place}: {before!r} before, {now!r} now"
    elif before != now:
        yield f"{place}: {before!r} before, {now!r} now"


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("folder", VERSIONS, ids=lambda folder: folder.name)
def test_files_of_earlier_versions_say_the_same_and_are_continued(folder: Path, name: str) -> None:
    expected, found = json.loads((folder / EXPECTED).read_text())[name], said(folder, name)
    for each in (expected, found):  # how a trial ends that is suggested today depends on the suggestion
        if "continued" in each:
            each["states"] = each["states"][: -each["continued"]]
    assert list(differences(expected, found)) == []
