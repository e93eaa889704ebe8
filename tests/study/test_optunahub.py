"""The package for OptunaHub, loaded as the hub loads it."""

import re
from pathlib import Path

import optuna
import pytest

HUB = Path(__file__).parents[2] / "hub" / "package"
FOLDER = HUB / "samplers" / "lazybo"


@pytest.mark.extra
@pytest.mark.filterwarnings("default")
def test_the_hub_loads_it_from_a_folder() -> None:
    import optunahub

    from lazybo import LazySampler

    module = optunahub.load_local_module("samplers/lazybo", registry_root=str(HUB))
    assert module.LazySampler is LazySampler
    study = optuna.create_study(sampler=module.LazySampler(seed=0), pruner=module.LazyPruner())
    study.optimize(lambda trial: (trial.suggest_float("x", -5, 5) - 1) ** 2, n_trials=12)
    assert study.best_value < 0.1


def test_it_has_what_the_hub_asks_for() -> None:
    assert {path.name for path in FOLDER.iterdir()} >= {"__init__.py", "README.md", "LICENSE", "requirements.txt"}
    front = re.match(r"---\n(.*?)\n---\n", (FOLDER / "README.md").read_text(), re.S)
    assert front, "the README begins with its front matter"
    entries = dict(line.split(": ", 1) for line in front[1].splitlines())
    assert list(entries) == ["author", "title", "description", "tags", "optuna_versions", "license"]
    assert entries["tags"].startswith("[sampler, ")


def test_the_example_of_its_readme_runs_with_the_installed_sampler() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", (FOLDER / "README.md").read_text(), re.S)
    assert 'optunahub.load_module(package="samplers/lazybo")' in example
    direct = example.replace("import optunahub\n", "import lazybo\n").replace(
        'optunahub.load_module(package="samplers/lazybo")', "lazybo"
    )
    exec(compile(direct, "README.md", "exec"), {})
