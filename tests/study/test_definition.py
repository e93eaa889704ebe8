"""Whatever opens the model of a study gets the one that its last run or sampler would continue with."""

import json
import logging
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import FloatDistribution

from lazybo import Column, LazySampler, Matern52, Optimizer, Priors, Space, optimize, write_report
from lazybo.search import EarlierStudy, Options
from lazybo.study.attributes import Key
from lazybo.study.definition import keep_options, options_of, reporting_of, stored_options
from lazybo.study.model import model_of
from lazybo.study.store import Store
from tests.damaged import DAMAGE, DEPTH, MISSING, NESTED, damaged, places

optuna.logging.set_verbosity(optuna.logging.ERROR)

SPACE = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}
OPTIONS: list[dict[str, Any]] = [
    {"lag": None, "kernel": Matern52([0.1, 0.2]), "noise": 1e-3},
    {"lag": 7, "kernel": "additive", "value_transform": "scaled"},
    {"priors": Priors(length_scale=0.2, noise=1e-2), "acquisition": "ucb"},
]


def bowl(params: dict[str, Any]) -> float:
    return (params["x"] - 1) ** 2 + abs(params["y"] + 2)


def suggested(trial: optuna.Trial) -> float:
    return bowl({name: trial.suggest_float(name, -5, 5) for name in SPACE})


def replayed(study: optuna.Study, **options: Any) -> Optimizer:
    """An optimiser that asks and is told as the run was, without any storage."""
    optimizer = Optimizer(SPACE, **options)
    for trial in study.trials:
        optimizer.tell(optimizer.ask(), trial.value)
    assert [row["params"] for row in optimizer.state()["rows"]] == [trial.params for trial in study.trials]
    return optimizer


def assert_same(one: Optimizer, other: Optimizer) -> None:
    """Both see the same model, to the last bit."""
    points = np.random.default_rng(0).random((8, one.space.points.dim))
    (gp, warping), (gp_other, warping_other) = one.model.surrogate(), other.model.surrogate()
    assert gp.kernel.name == gp_other.kernel.name
    assert gp.kernel.values.tolist() == gp_other.kernel.values.tolist()
    assert gp.noise == gp_other.noise
    assert warping == warping_other
    assert gp.posterior(points).mean.tolist() == gp_other.posterior(points).mean.tolist()
    if one.options.seed == other.options.seed:  # a sampler keeps its seed when it first writes for another reason
        assert one.planner.propose(99)[0] == other.planner.propose(99)[0]


# ----------------------------------------------------------- the same model


@pytest.mark.parametrize("options", OPTIONS)
def test_reports_show_the_model_of_the_run_also_after_a_resume(options: dict[str, Any], tmp_path: Path) -> None:
    storage = tmp_path / "s.db"
    for trials in (9, 14):
        optimize(bowl, SPACE, n_trials=trials, seed=3, storage=storage, progress=False, sampler=LazySampler(**options))
        study = optuna.load_study(study_name="lazybo", storage=f"sqlite:///{storage}")
        assert_same(model_of(study, study.trials).optimizer, replayed(study, seed=3, **options))


@pytest.mark.parametrize("trials", [3, 12])
@pytest.mark.parametrize(
    "options", [{}, {"lag": None, "kernel": Matern52([0.1, 0.2])}, {"kernel": "additive", "n_startup_trials": 3}]
)
def test_reports_show_the_model_of_the_sampler(options: dict[str, Any], trials: int) -> None:
    sampler = LazySampler(seed=5, **options)
    study = optuna.create_study(sampler=sampler)
    study.optimize(suggested, n_trials=trials)
    shown = model_of(study, study.trials)
    trial = study.ask(dict(SPACE))
    theirs = sampler.model(study)
    assert theirs is not None
    (pending,) = theirs.optimizer.pending
    assert pending.params == trial.params
    theirs.optimizer.forget(pending)
    assert_same(shown.optimizer, theirs.optimizer)
    assert trials == 3 or shown.optimizer.options.seed == 5


def test_the_latest_options_count() -> None:
    study = optimize(bowl, SPACE, n_trials=8, seed=3, sampler=LazySampler(lag=5), progress=False)
    lags: list[Any] = [model_of(study, study.trials).optimizer.options.lag]
    for sampler in (LazySampler(seed=3, lag=7), LazySampler(seed=3)):
        study.sampler = sampler
        study.optimize(suggested, n_trials=2)
        lags.append(model_of(study, study.trials).optimizer.options.lag)
    optimize(bowl, SPACE, n_trials=14, storage=Store(study).storage, sampler=LazySampler(lag=5), progress=False)
    lags.append(model_of(study, study.trials).optimizer.options.lag)
    assert lags == [5, 7, "auto", 5]


def test_a_sampler_writes_its_options_once(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/s.db"
    for _ in range(2):
        sampler = LazySampler(seed=5, lag=3)
        optuna.create_study(study_name="s", storage=storage, load_if_exists=True, sampler=sampler).optimize(
            suggested, 8
        )
    study = optuna.load_study(study_name="s", storage=storage)
    texts = [trial.system_attrs.get(f"{Key.SUGGESTION}:0", "{}") for trial in study.trials]
    assert ["options" in json.loads(text) for text in texts] == [i == 1 for i in range(16)]


def test_a_run_writes_its_options_again_only_if_they_changed(tmp_path: Path) -> None:
    storage, texts = tmp_path / "s.db", []
    for trials, lag in ((3, 5), (6, 5), (9, 7)):
        study = optimize(bowl, SPACE, n_trials=trials, storage=storage, sampler=LazySampler(lag=lag), progress=False)
        texts.append(Store(study).attributes()[f"{Key.OPTIONS}:0"])
    assert texts[0] == texts[1] != texts[2]
    assert json.loads(texts[2])["lag"] == 7


# ---------------------------------------------------------------- plain data


@pytest.mark.parametrize(
    "options",
    [
        Options(seed=0),
        Options(
            seed=2**100, lag=None, acquisition="ei", batch="maxima", n_startup=4, noise=1e-3, value_transform="centred"
        ),
        Options(seed=1, priors=Priors(share=0.3), kernel="additive", cost="dollars", deterministic=True),
        Options(seed=1, local_after=None, earlier=(EarlierStudy("a", ({"x": 0.5},), ((1.0,),)),)),
        Options(seed=1, lag=np.int64(3), n_startup=np.int64(2), noise=np.float64(0.5)),
    ],
)
def test_options_are_stored_with_a_study(options: Options) -> None:
    study = optuna.create_study()
    keep_options(study, options, Space(SPACE), [])
    assert options_of(study, []) == (options, Space(SPACE))


def test_options_are_stored_in_the_format_of_the_first_version() -> None:
    study = optuna.create_study()
    keep_options(study, Options(seed=3, priors=Priors(noise=1e-3)), Space(SPACE), [])
    kept = stored_options(study, [])[0]
    always = {"seed", "lag", "acquisition", "batch", "n_startup", "kernel", "noise", "priors", "value_transform"}
    assert kept.keys() == {*always, "not kept", "structure", "trials"}
    assert kept["priors"]["noise"] == 1e-3
    assert "like" not in kept["priors"]


def own_acquisition(mean: np.ndarray, std: np.ndarray, best: float) -> tuple[np.ndarray, ...]:
    """Of a user: the mean alone, and its derivatives."""
    return best - mean, -np.ones_like(mean), np.zeros_like(std)


class OwnKernel(Matern52):
    """A kernel of a user."""


def test_what_cannot_be_restored_is_named(caplog: pytest.LogCaptureFixture) -> None:
    kernel = OwnKernel(np.array([0.1, 0.1]), columns=(Column(), Column()))
    study = optimize(
        bowl,
        SPACE,
        n_trials=7,
        seed=0,
        progress=False,
        sampler=LazySampler(kernel=kernel, acquisition=own_acquisition),
    )
    assert "own_acquisition" in stored_options(study, study.trials)[0]["not kept"]["acquisition"]
    assert "OwnKernel" in stored_options(study, study.trials)[0]["not kept"]["kernel"]
    optuna.logging.enable_propagation()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with caplog.at_level(logging.WARNING):
        model = model_of(study, study.trials)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.logging.disable_propagation()
    assert any("OwnKernel" in record.message and "cannot be restored" in record.message for record in caplog.records)
    assert model.optimizer.best.value == study.best_value


# ---------------------------------------------------------- edited attributes


def stored(study: optuna.Study) -> dict[str, Any]:
    return Store(study).attributes()


def edited(study: optuna.Study, key: str, value: Any, number: int | None = None) -> optuna.Study:
    """A copy of a study in which an attribute, of the study or of a trial, was edited."""
    copy = optuna.create_study(study_name=study.study_name, storage=optuna.storages.InMemoryStorage())
    for trial in study.trials:
        if trial.number == number:
            trial.system_attrs[key] = value
        copy.add_trial(trial)
    for name, kept in {**stored(study), **({} if number is not None else {key: value})}.items():
        Store(copy).set_attributes({name: kept})
    if f"{key[:-2]}:length" in stored(study) and isinstance(value, str):
        Store(copy).set_attributes({f"{key[:-2]}:length": len(value)})
    return copy


@cache
def measured() -> optuna.Study:
    """A run with costs, constraints, an earlier study and an initial configuration, and trials of a sampler."""
    study = optimize(
        lambda x, y: {"value": bowl({"x": x, "y": y}), "memory": abs(x)},
        SPACE,
        n_trials=8,
        seed=0,
        sampler=LazySampler(cost="seconds", earlier=[[({"x": i / 2, "y": 0.0}, i / 9) for i in range(10)]]),
        constraints={"memory": 4.0},
        initial=[{"x": 1.0, "y": 1.0}],
        progress=False,
    )
    study.sampler = LazySampler(seed=0, lag=3)
    study.optimize(suggested, n_trials=2)
    return study


def continue_run(study: optuna.Study) -> None:
    optimize(
        lambda x, y: {"value": bowl({"x": x, "y": y}), "memory": abs(x)},
        SPACE,
        n_trials=len(study.trials) + 1,
        storage=Store(study).storage,
        study_name=study.study_name,
        sampler=LazySampler(cost="seconds"),
        constraints={"memory": 4.0},
        initial=[{"x": 1.0, "y": 1.0}],
        progress=False,
    )


def texts_of(attributes: Mapping[str, Any]) -> dict[str, str]:
    return {key: value for key, value in attributes.items() if isinstance(value, str) and value.startswith("{")}


def all_places() -> st.SearchStrategy[tuple[str, int | None, str, Any]]:
    """Every part of every text that is kept with the study or a trial, and the attributes as wholes (no path)."""
    study = measured()
    owners = [(None, stored(study)), *((trial.number, trial.system_attrs) for trial in study.trials)]
    parts = [
        (key, number, text, path)
        for number, attributes in owners
        for key, text in texts_of(attributes).items()
        for path in places(json.loads(text))
    ]
    wholes = [(key, number, "", ()) for number, attributes in owners for key in attributes if "heartbeat" not in key]
    return st.sampled_from(parts) | st.sampled_from(wholes)


@settings(max_examples=80)
@given(where=st.deferred(all_places), damage=st.sampled_from(DAMAGE), use=st.sampled_from([continue_run, "model"]))
def test_what_was_edited_works_or_is_one_error_that_names_the_attribute(where: Any, damage: Any, use: Any) -> None:
    key, number, text, path = where
    whole = "[" * DEPTH if damage == NESTED else "{" if damage == MISSING else damage
    study = edited(measured(), key, damaged(text, path, damage) if path else whole, number)
    complaint = ""
    try:
        if use == "model":
            model_of(study, study.trials).optimizer.planner.propose(99)[0]
        else:
            use(study)
    except ValueError as error:
        complaint = str(error)
    attribute = key.rsplit(":", 1)[0]
    named = f"the attribute '{attribute}' of .* cannot be read: .*; |the study 'lazybo' has (another|other) "
    assert not complaint or re.match(named, complaint)


@pytest.mark.parametrize("text", ["{", '{"lag": 3}', '{"structure": {"space": 3}}', "[1]", "[" * DEPTH])
def test_options_that_cannot_be_read_are_named_and_written_again_by_the_next_run(text: str, tmp_path: Path) -> None:
    study = edited(
        optimize(bowl, SPACE, n_trials=6, seed=0, sampler=LazySampler(lag=5), progress=False), f"{Key.OPTIONS}:0", text
    )
    named = r"the attribute 'lazybo:options' of the study 'lazybo' cannot be read: .*; continue the study with optimize"
    with pytest.raises(ValueError, match=named):
        model_of(study, study.trials)
    write_report(study, tmp_path / "study.html")
    assert re.search(named.replace("'", "(&#x27;|')"), (tmp_path / "study.html").read_text())
    optimize(bowl, SPACE, n_trials=7, storage=Store(study).storage, sampler=LazySampler(lag=5), progress=False)
    assert model_of(study, study.trials).optimizer.options.lag == 5


@pytest.mark.parametrize("value", [7, "{", "[1]", '{"space": {"x": 1}, "seed": 0}', '{"space": {}, "seed": true}'])
def test_a_run_that_cannot_be_read_is_named_before_anything_is_written(value: Any) -> None:
    study = edited(optimize(bowl, SPACE, n_trials=3, seed=0, progress=False), f"{Key.RUN}:0", value)
    before = stored(study)
    with pytest.raises(
        ValueError, match=r"the attribute 'lazybo:run' of the study 'lazybo' cannot be read: .*; use an"
    ):
        optimize(bowl, SPACE, n_trials=4, storage=Store(study).storage, progress=False)
    assert stored(study) == before
    assert len(study.trials) == 3


@pytest.mark.parametrize("value", ["first", -1, 2, True, None, [0]])
def test_an_objective_that_is_reported_must_be_one_of_the_study(value: Any) -> None:
    study = optuna.create_study(directions=["minimize", "maximize"])
    Store(study).set_attributes({Key.REPORTS: value})
    with pytest.raises(ValueError, match=r"the attribute 'lazybo:reports' of the study .* cannot be read: .*; set it"):
        reporting_of(study)


@pytest.mark.parametrize("value", ["x", [], None, 1e400, -1.0, pytest.param(10**400, id="huge")])
def test_a_variance_that_cannot_be_read_is_none(value: Any) -> None:
    study = edited(measured(), Key.VARIANCE, value, 2)
    assert len(model_of(study, study.trials).optimizer.records()) == 10
