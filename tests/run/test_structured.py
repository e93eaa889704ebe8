"""Parameters with structure in every interface: the optimiser, runs, Optuna's studies, files and reports."""

from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest

import lazybo
from lazybo import Condition, Described, Graph, Mixture, Optimizer, Permutation, Space, Subset
from lazybo.study import StudyView

KINDS = {
    "order": Permutation(["a", "b", "c", "d"]),
    "inputs": Subset(["a", "b", "c", "d"], at_least=1, at_most=3),
    "recipe": Mixture(["x", "y", "z"], at_most=2),
    "cell": Graph(nodes=3, operations=["none", "skip", "conv"]),
    "solvent": Described({"w": [1.0, 2.0], "e": [2.0, 2.5], "d": [5.0, 0.0]}),
}
PARAMETERS = {"lr": (1e-4, 0.1, "log"), "opt": ["sgd", "adam"], **KINDS}
SPACE = Space(
    PARAMETERS,
    conditions={"order": Condition("opt", ("adam",))},
    feasible=lambda params: params["recipe"]["z"] <= 0.8,
)


def objective(params: dict[str, Any]) -> float:
    value = abs(np.log10(params["lr"]) + 2.5) + params.get("order", ["b"]).index("b") + 0.2 * len(params["inputs"])
    value += (params["recipe"]["x"] - 0.6) ** 2 - 0.3 * params["cell"].operations.count("conv")
    return float(value + (params["solvent"] == "d"))


def travelled(trial: Any) -> float:
    order = lazybo.suggest(trial, "order", KINDS["order"])
    recipe = lazybo.suggest(trial, "recipe", KINDS["recipe"])
    return float(order.index("b") + (recipe["x"] - 0.6) ** 2 + trial.suggest_float("lr", 0.0, 1.0))


@pytest.mark.parametrize("name", KINDS)
def test_the_optimiser_finds_the_best_value_of_each_kind(name: str) -> None:
    """Within 40 evaluations, the distance to a hidden value falls below that of nearly all random ones."""
    space = Space({name: KINDS[name]})
    points = space.points.sample(np.random.default_rng(5), 400)
    hidden = points[0]
    scale = np.linalg.norm(points - hidden, axis=1)
    optimizer = Optimizer(space, seed=0, deterministic=True)
    for _ in range(40):
        suggestion = optimizer.ask()
        point = space.points.encode(space.plain(suggestion.params))
        optimizer.tell(suggestion, float(np.linalg.norm(point - hidden)))
    assert optimizer.best.value <= np.quantile(scale[1:], 0.02)


def test_the_optimiser_speaks_in_values(tmp_path: Path) -> None:
    optimizer = Optimizer(SPACE, seed=0)
    for _ in range(8):
        suggestion = optimizer.ask()
        assert set(suggestion.params) <= set(PARAMETERS)
        optimizer.tell(suggestion, objective(suggestion.params))
    assert optimizer.best.params.keys() == optimizer.recommend().params.keys() & optimizer.best.params.keys()
    asked = optimizer.ask()
    assert optimizer.pending == [asked]
    assert optimizer.predict(asked.params) == optimizer.predict(SPACE.plain(asked.params))
    optimizer.tell(asked, 1.0)
    optimizer.correct(asked.params, 2.0)
    optimizer.save(tmp_path / "saved.json")
    again = Optimizer.load(tmp_path / "saved.json", feasible=SPACE.feasible)
    assert again.space == SPACE
    assert again.ask() == optimizer.ask()
    with pytest.raises(ValueError, match="order must be a list of"):
        optimizer.observe({**optimizer.best.params, "order": ["a"]}, 1.0)


def test_a_run_stores_ordinary_parameters_and_resumes(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/study.db"
    initial = [{"cell": KINDS["cell"].of(["conv", "none", "conv"]), "order": ["d", "c", "b", "a"]}]  # type: ignore[attr-defined]
    seen: list[dict[str, Any]] = []

    def recorded(params: dict[str, Any]) -> float:
        seen.append(params)
        return objective(params)

    for n in (7, 12):
        study = lazybo.optimize(recorded, SPACE, n_trials=n, seed=0, storage=storage, initial=initial)
    once = lazybo.optimize(objective, SPACE, n_trials=12, seed=0, initial=initial)
    assert [trial.params for trial in study.trials] == [trial.params for trial in once.trials]
    assert seen == [SPACE.values(trial.params) for trial in study.trials]
    assert str(seen[0]["cell"]) == "conv~0 + none~0|conv~1"
    assert seen[0]["order"] == ["d", "c", "b", "a"]
    assert study.trials[0].params["order[0]"] == "d"
    assert study.trials[0].params["cell[0>2]"] == "none"
    assert study.user_attrs["lazybo:kind:order"] == {"kind": "permutation", "items": ["a", "b", "c", "d"]}
    assert StudyView.of(study).model().space.kinds == KINDS
    assert all(params["recipe"]["z"] <= 0.8 and ("order" in params) == (params["opt"] == "adam") for params in seen)
    changed = SPACE.changed(parameters={**SPACE.parameters, "order": Permutation(["a", "b", "c"])})
    with pytest.raises(ValueError, match="has another space: there 'order' is"):
        lazybo.optimize(objective, changed, n_trials=13, storage=storage)


def test_the_model_of_a_study_knows_its_kinds_and_reports_it(tmp_path: Path) -> None:
    study = lazybo.optimize(objective, SPACE, n_trials=10, seed=0)
    model = StudyView.of(study).model()
    assert model.space.kinds == KINDS
    assert model.space.conditions == SPACE.conditions
    assert set(lazybo.importances(study)) == set(PARAMETERS)
    assert set(lazybo.recommend(study).params) <= set(PARAMETERS)
    lazybo.write_report(study, tmp_path / "report.html")
    assert "cell[0&gt;1]" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("sampler", [lazybo.LazySampler(seed=0), optuna.samplers.TPESampler(seed=0)])
def test_suggest_works_with_any_sampler(sampler: optuna.samplers.BaseSampler) -> None:
    study = optuna.create_study(sampler=sampler)
    study.optimize(travelled, n_trials=12)
    kinds = {name: KINDS[name] for name in ("order", "recipe")}
    order = lazybo.suggest(study.best_trial, "order", KINDS["order"])
    assert sorted(order) == ["a", "b", "c", "d"]
    assert StudyView.of(study).model().space.kinds == kinds
    if isinstance(sampler, lazybo.LazySampler):
        model = sampler.model(study)
        assert model is not None
        assert {*model.space.points.names} == {"lr", "order", "recipe"}


def test_a_name_has_one_kind_in_a_study() -> None:
    def objective(trial: Any) -> float:
        return float(lazybo.suggest(trial, "order", Permutation(list("abc")[: 2 + trial.number % 2]))[0] == "a")

    study = optuna.create_study(sampler=lazybo.LazySampler(seed=0))
    with pytest.raises(ValueError, match=r"'order' is Permutation\(items=\('a', 'b', 'c'\)\) here, but in an earlier"):
        study.optimize(objective, n_trials=2)
    assert study.user_attrs["lazybo:kind:order"]["items"] == ["a", "b"]


# ------------------------------------------------------------------- the user's own structure


def test_equivalent_configurations_are_never_paid_for_twice_and_inform_each_other() -> None:
    cell = Graph(nodes=3, operations=["none", "skip", "conv"])
    space = Space(
        {"cell": cell, "width": [1, 2]}, canonical=lambda params: (params["cell"].canonical(), params["width"])
    )
    optimizer, keys = Optimizer(space, seed=0, deterministic=True), set()
    different = {space.points.key(x) for x in space.points.listed()}
    for _ in range(len(different)):
        suggestion = optimizer.ask()
        keys.add((suggestion.params["cell"].canonical(), suggestion.params["width"]))
        optimizer.tell(suggestion, float(len(keys)))
    assert len(keys) == len(different)
    known = {"cell": cell.of(["conv", "skip", "none"]), "width": 1}
    same = {"cell": cell.of(["none", "skip", "conv"]), "width": 1}
    assert optimizer.predict(known) == optimizer.predict(same)


def test_a_configuration_stands_for_all_equivalent_ones() -> None:
    def ordered(params: dict[str, Any]) -> dict[str, Any]:
        return {"a": min(params.values()), "b": max(params.values())}

    optimizer = Optimizer(Space({"a": (0.0, 1.0), "b": (0.0, 1.0)}, canonical=ordered), seed=0)
    for _ in range(10):
        suggestion = optimizer.ask()
        assert suggestion.params["a"] <= suggestion.params["b"]
        optimizer.tell(suggestion, abs(suggestion.params["a"] * suggestion.params["b"] - 0.2))
    assert optimizer.predict({"a": 0.9, "b": 0.2}) == optimizer.predict({"a": 0.2, "b": 0.9})
    with pytest.raises(ValueError, match=r"canonical returned .* which is no configuration: unknown parameter 'c'"):
        Space({"a": (0.0, 1.0)}, canonical=lambda _: {"c": 1}).encode({"a": 0.5})


def test_the_model_sees_features(tmp_path: Path) -> None:
    """What depends on a feature alone is predicted where no parameter is near."""

    def rotated(params: dict[str, Any]) -> list[float]:
        return [1000.0 * sum(params.values())]

    errors = {}
    rng = np.random.default_rng(3)
    parameters = {f"x{i}": (0.0, 1.0) for i in range(6)}
    rows = [{name: float(x) for name, x in zip(parameters, rng.random(6), strict=True)} for _ in range(60)]
    truth = [float(np.sin(3 * sum(row.values()))) for row in rows]
    for features in (None, rotated):
        optimizer = Optimizer(Space(parameters, features=features), seed=0, deterministic=True)
        for row, value in zip(rows[:30], truth[:30], strict=True):
            optimizer.observe(row, value)
        predicted = [each.value for each in optimizer.predict(rows[30:])]
        errors[features] = float(np.mean((np.array(predicted) - truth[30:]) ** 2))
    assert errors[rotated] < 0.1 * errors[None]
    optimizer.ask()
    optimizer.save(tmp_path / "saved.json")
    with pytest.raises(ValueError, match="which no file can hold; give the same one again"):
        Optimizer.load(tmp_path / "saved.json")
    assert Optimizer.load(tmp_path / "saved.json", features=rotated).ask() == optimizer.ask()


def test_the_model_sees_features_instead_of_parameters(tmp_path: Path) -> None:
    """Configurations with equal features are the same to the model, whatever the parameters are."""

    def mass(params: dict[str, Any]) -> list[float]:
        return [float(sum(map(ord, params["name"])))]

    names = [a + b + c for a in "abcd" for b in "abcd" for c in "abcd"]
    space = Space({"rate": (0.0, 1.0), "name": names, "depth": (1, 4)}, features=mass, instead_of=["name", "depth"])
    assert [column.before for column in space.points.columns] == [0, 2]
    optimizer = Optimizer(space, seed=0)
    for _ in range(15):
        suggestion = optimizer.ask()
        value = (mass(suggestion.params)[0] - 294) ** 2 / 10 + abs(suggestion.params["rate"] - 0.3)
        optimizer.tell(suggestion, value)
    one, other = ({"rate": 0.5, "name": name, "depth": depth} for name, depth in (("abd", 1), ("dba", 4)))
    assert optimizer.predict(one) == optimizer.predict(other)
    assert optimizer.predict(one) != optimizer.predict(one | {"rate": 0.1})
    assert optimizer.predict(one) != optimizer.predict(one | {"name": "abc"})
    optimizer.save(tmp_path / "saved.json")
    loaded = Optimizer.load(tmp_path / "saved.json", features=mass)
    assert loaded.space.instead_of == ("name", "depth")
    assert loaded.ask() == optimizer.ask()


def test_features_and_canonical_forms_work_in_a_run() -> None:
    space = Space(
        {"order": KINDS["order"], "lr": (0.0, 1.0)},
        features=lambda params: [params["order"].index("b"), params["lr"]],
        canonical=lambda params: (params["order"].index("b"), params["lr"]),
    )
    study = lazybo.optimize(lambda params: params["order"].index("b") + params["lr"], space, n_trials=12, seed=0)
    keys = [space.points.key(space.points.encode(trial.params)) for trial in study.trials]
    assert len(set(keys)) == 12
    with pytest.raises(ValueError, match=r"features cannot be computed for \{'lr': .*KeyError: 'lost'"):
        lazybo.optimize(lambda lr: lr, Space({"lr": (0.0, 1.0)}, features=lambda params: params["lost"]), n_trials=1)
