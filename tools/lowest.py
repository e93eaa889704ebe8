"""The lowest versions that pyproject.toml allows, as constraints for pip.

``python tools/lowest.py [EXTRA ...]`` prints a line such as ``numpy==2.0`` for each dependency of lazybo and of these
extras. `make test-lowest` installs exactly these and runs tests with them.
"""

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(\[[\w,]+\])?>=(?P<version>[\w.]+)(,.*)?")


def lowest(extras: Sequence[str]) -> list[str]:
    """The constraints. Raises a ValueError if a requirement has no lower bound."""
    project = tomllib.loads(PYPROJECT.read_text())["project"]
    wanted = [*project["dependencies"], *(each for extra in extras for each in project["optional-dependencies"][extra])]
    found = {}
    for requirement in wanted:
        match = REQUIREMENT.fullmatch(requirement)
        if match is None:
            raise ValueError(f"{requirement!r} has no lower bound; write NAME>=VERSION")
        found[match["name"]] = match["version"]
    return [f"{name}=={version}" for name, version in found.items()]


if __name__ == "__main__":
    print("\n".join(lowest(sys.argv[1:])))
