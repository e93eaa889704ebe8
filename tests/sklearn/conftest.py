import pytest


# Before pytest's own hook, which deselects by marks.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark scikit-learn's checks of array API input: they need torch and a variable, so they run in test-extra."""
    for item in items:
        check = getattr(item, "callspec", None) and item.callspec.params.get("check")  # type: ignore[attr-defined]
        if "array_api" in getattr(getattr(check, "func", check), "__name__", ""):
            item.add_marker(pytest.mark.array_api)
