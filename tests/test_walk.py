"""docs/walk.md names functions in the order in which one run calls them."""

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import lazybo

PAGE = Path(__file__).parents[1] / "docs" / "walk.md"
PACKAGE = Path(lazybo.__file__).parent
NAMED = re.compile(r"`([\w.]+)`\s+\(`([\w/]+\.py)`\)")
Name = tuple[str, str]  # function, file


def called() -> list[Name]:
    """The functions of the package that a run calls, in this order."""
    names: list[Name] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(str(PACKAGE)):
            names.append((frame.f_code.co_qualname, Path(path).relative_to(PACKAGE).as_posix()))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        space = {"x": (0.0, 1.0), "n": (1, 100, "log")}
        lazybo.optimize(lambda p: (p["x"] - 0.3) ** 2 + p["n"] / 50, space, n_trials=12, seed=0, progress=False)
    finally:
        sys.setprofile(before)
    return names


def test_a_walk_names_functions_in_the_order_of_a_run() -> None:
    names = called()
    for section in PAGE.read_text().split("\n## ")[1:]:
        walk = NAMED.findall(section)
        assert len(walk) > 5
        # The last suggestion and the last value but one: the model has begun by then, and the walk goes on after it.
        starts = [i for i, name in enumerate(names) if name == walk[0]]
        at = starts[-2] if len(starts) > 1 else 0
        for name in walk:
            assert name in names[at:], f"{name} is not called after what comes before it in {section.splitlines()[0]!r}"
            at = names.index(name, at)
