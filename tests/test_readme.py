"""The examples in the documentation run as they stand."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize(
    "name",
    [
        "README.md",
        "docs/running.md",
        "docs/objectives.md",
        "docs/constraints.md",
        "docs/cost.md",
        "docs/curves.md",
        "docs/report.md",
        "docs/sklearn.md",
    ],
)
def test_the_python_examples_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"```python\n(.*?)```", (ROOT / name).read_text(), re.S)
    assert examples
    namespace: dict[str, object] = {}
    for example in examples:
        exec(compile(example, name, "exec"), namespace)
