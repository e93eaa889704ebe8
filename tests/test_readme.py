"""The examples in the README run as they stand."""

import re
from pathlib import Path


def test_the_python_examples_run() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", text, re.S)
    assert examples
    namespace: dict[str, object] = {}
    for example in examples:
        exec(compile(example, "README.md", "exec"), namespace)
