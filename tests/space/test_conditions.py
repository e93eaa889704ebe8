"""Conditions: wrong ones are one clear error."""

from typing import Any

import pytest

from lazybo import Condition, Space


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ({"y": ("x", 1)}, r"the condition of 'y' must be lazybo.Condition\(parent, values\)"),
        (5, "conditions must be a dict"),
        (["x"], "conditions must be a dict"),
        ({"z": Condition("x", (1,))}, "conditions: .* no parameter 'z'; this space has"),
        ({"y": Condition("z", (1,))}, "conditions: .* no parameter 'z'; this space has"),
        ({"y": Condition(["x"], (1,))}, "conditions: .*: there is no parameter"),  # type: ignore[arg-type]
        ({"y": Condition("x", 1)}, "conditions: .*'y' must have a list of values, not 1"),  # type: ignore[arg-type]
        ({"y": Condition("x", "a")}, "conditions: .*'y' must have a list of values, not 'a'"),  # type: ignore[arg-type]
        ({"y": Condition("x", {1})}, "conditions: .*'y' must have a list of values"),  # type: ignore[arg-type]
        ({"y": Condition("x", ())}, "conditions: .*'y' has no values"),
    ],
)
def test_wrong_conditions_are_refused(conditions: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Space({"x": (-5.0, 5.0), "y": (-5.0, 5.0)}, conditions=conditions)
