import copy
import json
import logging
import math
import multiprocessing
import os
import pickle
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import optuna
import pytest
import sqlalchemy
from optuna.distributions import CategoricalDistribution, FloatDistribution
from optuna.samplers import PartialFixedSampler, TPESampler
from optuna.trial import FrozenTrial, TrialState, create_trial

from lazybo import Condition
from lazybo.study.attributes import Key
from lazybo.study.definition import infer_space
from lazybo.study.model import StudyModel
from lazybo.study.sampler import LazySampler
from lazybo.study.store import Store

optuna.logging.set_verbosity(optuna.logging.ERROR)


def bowl(trial: optuna.Trial) -> float:
    return (trial.suggest_float("x", -5, 5) - 1) ** 2 + (trial.suggest_float("y", -5, 5) + 2) ** 2


def branches(trial: optuna.Trial) -> float:
    """An SVM or a forest, each with parameters of its own; optimum 0 with a polynomial SVM."""
    if trial.suggest_categorical("model", ["forest", "svm"]) == "svm":
        c, gamma = trial.suggest_float("C", 1e-3, 1e3, log=True), trial.suggest_float("gamma", 1e-4, 1e1, log=True)
        off = math.log10(c / 30) ** 2 / 4 + math.log10(gamma / 0.02) ** 2 / 4
        if trial.suggest_categorical("kernel", ["rbf", "poly"]) == "poly":
            return 0.1 * off + 0.01 * (trial.suggest_int("degree", 1, 7) - 3) ** 2
        return 0.1 + 0.1 * off
    trees, depth = trial.suggest_int("trees", 10, 1000, log=True), trial.suggest_int("depth", 1, 20)
    return 0.15 + 0.1 * math.log10(trees / 500) ** 2 + 0.01 * abs(depth - 12)


def model_of(study: optuna.Study) -> StudyModel:
    """The model that the sampler of a study has of it."""
    assert isinstance(study.sampler, LazySampler)
    model = study.sampler.model(study)
    assert model is not None
    return model


def complete_in(model: StudyModel) -> int:
    """How many completed evaluations the model knows."""
    return sum(record["state"] == "COMPLETE" for record in model.optimizer.records())


def params_seen(study: optuna.Study) -> list[dict]:
    """The configurations that its optimiser knows."""
    return [row["params"] for row in model_of(study).optimizer.state()["rows"]]


def params_of(study: optuna.Study) -> list[dict]:
    return [trial.params for trial in study.trials]


def nearest_at_once(trials: list[FrozenTrial]) -> float:
    """The smallest distance of two trials that ran at the same time."""
    nearest = math.inf
    for i, one in enumerate(trials):
        for other in trials[i + 1 :]:
            if other.datetime_start < one.datetime_complete and one.datetime_start < other.datetime_complete:
                nearest = min(
                    nearest, math.dist((one.params["x"], one.params["y"]), (other.params["x"], other.params["y"]))
                )
    return nearest


# ------------------------------------------------------------------- it works


def test_nothing_else_changes_for_a_study() -> None:
    study = optuna.create_study(sampler=LazySampler(seed=0))
    study.optimize(bowl, n_trials=30)
    assert study.best_value < 1e-2


def test_the_process_grows_and_is_not_rebuilt() -> None:
    sampler = LazySampler(seed=0, lag=None)
    study = optuna.create_study(sampler=sampler)
    study.optimize(bowl, n_trials=40)
    gp, _ = model_of(study).optimizer.model.surrogate()
    assert gp.n == 40, "the last trial is pending"
    assert gp.rebuilds == 0


# ----------------------------------------------------------------- it goes on


def test_a_resumed_study_goes_on_as_if_it_had_not_stopped(tmp_path: Path) -> None:
    whole = optuna.create_study(sampler=LazySampler(seed=3))
    whole.optimize(bowl, n_trials=20)
    storage = f"sqlite:///{tmp_path}/parts.db"
    optuna.create_study(study_name="parts", storage=storage)
    for trials in (9, 1, 6, 4):
        optuna.load_study(study_name="parts", storage=storage, sampler=LazySampler(seed=3)).optimize(bowl, trials)
    parts = optuna.load_study(study_name="parts", storage=storage)
    assert params_of(parts) == params_of(whole), "to the last bit"


@pytest.mark.parametrize("version", ["now", "0.1.0"])
def test_the_texts_of_very_many_choices_are_not_written_with_every_trial(version: str) -> None:
    """0.1.0 wrote them, and what it has learned counts."""
    distributions = {"c": CategoricalDistribution(range(1000)), "x": FloatDistribution(0, 1)}

    def objective(trial: optuna.Trial) -> float:
        return trial.suggest_categorical("c", range(1000)) / 1000 + trial.suggest_float("x", 0, 1)

    study = optuna.create_study(sampler=LazySampler(seed=3))
    study.optimize(objective, n_trials=12)
    texts = [trial.system_attrs[f"{Key.SUGGESTION}:0"] for trial in study.trials[7:]]
    assert max(map(len, texts)) < 2000
    copied = optuna.create_study(sampler=LazySampler(seed=3))
    for trial in study.trials:
        written = json.loads(trial.system_attrs.get(f"{Key.SUGGESTION}:0", "{}"))
        if version == "0.1.0" and "columns" in written:
            written["columns"] = [[name, str(each)] for name, each in distributions.items()]
            trial.system_attrs[f"{Key.SUGGESTION}:0"] = json.dumps(written)
        copied.add_trial(trial)
    assert copied.ask(distributions).params == study.ask(distributions).params


@pytest.mark.parametrize("local_after", [None, 8])
def test_with_trials_running_the_next_suggestion_after_a_resumption_is_the_same(
    local_after: int | None,
) -> None:
    space = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}

    def opened(storage: optuna.storages.BaseStorage) -> optuna.Study:
        sampler = LazySampler(seed=3, lag=5, local_after=local_after)
        return optuna.create_study(study_name="s", storage=storage, sampler=sampler, load_if_exists=True)

    def copied() -> optuna.Study:
        copy = optuna.storages.InMemoryStorage()
        optuna.copy_study(from_study_name="s", from_storage=storage, to_storage=copy)
        return opened(copy)

    storage = optuna.storages.InMemoryStorage()
    study, rng, running = opened(storage), random.Random(0), []
    for number in range(30):
        if number > 8 and number % 3 == 0:
            proposed = [copied().ask(space).params for _ in range(2)]
            running.append(study.ask(space))
            assert proposed == [running[-1].params] * 2
        else:
            running.append(study.ask(space))
        if len(running) > 3:
            trial = running.pop(rng.randrange(len(running)))
            fails = rng.random() < 0.2
            study.tell(trial, None if fails else bowl(trial), state=TrialState.FAIL if fails else None)


def test_what_was_learned_but_cannot_be_read_is_learned_anew(caplog: pytest.LogCaptureFixture) -> None:
    whole = optuna.create_study(sampler=LazySampler(seed=0))
    whole.optimize(bowl, n_trials=10)
    study = optuna.create_study(sampler=LazySampler(seed=0))
    for trial in whole.trials:
        for key, text in trial.system_attrs.items():
            trial.system_attrs[key] = text.replace('"parameters": [', '"parameters": ["?", ')
        study.add_trial(trial)
    optuna.logging.enable_propagation()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    with caplog.at_level(logging.WARNING):
        study.optimize(bowl, n_trials=10)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    optuna.logging.disable_propagation()
    assert any("cannot be used" in record.message for record in caplog.records)
    assert len(study.trials) == 20
    written = json.loads(study.trials[-1].system_attrs[f"{Key.SUGGESTION}:0"])
    assert all(isinstance(number, float) for number in written["model"]["parameters"]), "and written anew"


def test_a_database_sees_no_more_commits_than_with_optunas_own_sampler(tmp_path: Path) -> None:
    def commits(sampler: optuna.samplers.BaseSampler, file: str) -> int:
        storage, seen = optuna.storages.RDBStorage(f"sqlite:///{tmp_path}/{file}.db"), []
        study = optuna.create_study(storage=storage, sampler=sampler)
        storage.engine.dispose()
        sqlalchemy.event.listen(storage.engine, "connect", lambda raw, _: raw.set_trace_callback(seen.append))
        study.optimize(bowl, n_trials=20)
        return seen.count("COMMIT")

    ours = commits(LazySampler(seed=0, n_startup_trials=10), "lazy")
    assert ours <= commits(TPESampler(seed=0, n_startup_trials=10), "tpe")
    assert 20 * 4 <= ours <= 20 * 4 + 10, "the trial, two parameters, the end; and once what was learned"


@pytest.mark.parametrize("kernel", ["rbf", 3])
def test_what_is_no_kernel_is_refused_at_once(kernel: object) -> None:
    with pytest.raises(ValueError, match="kernel"):
        LazySampler(kernel=kernel)  # type: ignore[arg-type]


# ------------------------------------------------------------------- conditions


def regrets(sampler: Callable[[int], optuna.samplers.BaseSampler], seeds: range, trials: int) -> list[float]:
    values = []
    for seed in seeds:
        study = optuna.create_study(sampler=sampler(seed))
        study.optimize(branches, n_trials=trials)
        values.append(study.best_value)
    return values


def test_branches_are_modelled_better_than_by_tpe() -> None:
    ours = regrets(lambda seed: LazySampler(seed=seed), range(4), 40)
    theirs = regrets(lambda seed: TPESampler(seed=seed), range(4), 40)
    assert np.mean(ours) < 0.7 * np.mean(theirs)


def test_conditions_are_found_out_from_trials() -> None:
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0))
    study.optimize(branches, n_trials=40)
    space = {name: d for trial in study.trials for name, d in trial.distributions.items()}
    structure = infer_space(space, study.trials)
    assert structure.conditions == {
        "C": Condition("model", ("svm",)),
        "gamma": Condition("model", ("svm",)),
        "kernel": Condition("model", ("svm",)),
        "degree": Condition("kernel", ("poly",)),
        "trees": Condition("model", ("forest",)),
        "depth": Condition("model", ("forest",)),
    }
    assert structure.optional == frozenset()


def test_a_parameter_that_is_there_for_no_reason_is_optional() -> None:
    def odd(trial: optuna.Trial) -> float:
        value = bowl(trial)
        return value + abs(trial.suggest_float("z", 0, 1) - 0.5) if trial.number % 2 else value

    sampler = LazySampler(seed=1)
    study = optuna.create_study(sampler=sampler)
    study.optimize(odd, n_trials=30)
    model = model_of(study)
    assert model.space.optional == {"z"}
    assert complete_in(model) == 29
    assert study.best_value < 0.5


# -------------------------------------------------------------------- parallel


def test_processes_on_one_file_suggest_no_near_duplicates(tmp_path: Path) -> None:
    storage = f"sqlite:///{tmp_path}/shared.db"
    optuna.create_study(study_name="shared", storage=storage)
    program = f"""
import time
import optuna
from lazybo.study.sampler import LazySampler
optuna.logging.set_verbosity(optuna.logging.ERROR)
study = optuna.load_study(study_name="shared", storage={storage!r}, sampler=LazySampler(seed=0))
def objective(trial):
    value = (trial.suggest_float("x", -5, 5) - 1) ** 2 + (trial.suggest_float("y", -5, 5) + 2) ** 2
    time.sleep(0.05)
    return value
study.optimize(objective, n_trials=8)
"""
    workers = [subprocess.Popen([sys.executable, "-c", program]) for _ in range(3)]
    assert [worker.wait(300) for worker in workers] == [0, 0, 0]
    study = optuna.load_study(study_name="shared", storage=storage)
    assert len(study.trials) == 24
    assert 1e-4 < nearest_at_once(study.trials) < 10


def test_a_sampler_does_not_wait_for_its_own_trials(monkeypatch: pytest.MonkeyPatch) -> None:
    study = optuna.create_study(sampler=LazySampler(seed=0))
    study.optimize(bowl, n_trials=2)
    study.ask()  # runs, and has no parameters yet
    monkeypatch.setattr(time, "sleep", pytest.fail)
    study.ask({"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)})


def test_a_suggestion_waits_for_an_earlier_trial_of_another_process(tmp_path: Path) -> None:
    """The earlier trial announces its parameters while the later one is being sampled, which then avoids them."""
    space = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}
    storage = f"sqlite:///{tmp_path}/s.db"
    study = optuna.create_study(study_name="s", storage=storage, sampler=LazySampler(seed=0))
    study.optimize(bowl, n_trials=7)
    late = optuna.load_study(study_name="s", storage=storage, sampler=LazySampler(seed=0))
    earlier_id = Store(study).storage.create_new_trial(Store(study).study_id)
    text = json.dumps({"params": {"x": 1.0, "y": -2.0}})
    announced = {f"{Key.SUGGESTION}:0": text}
    announce = threading.Timer(0.3, Store(study).set_trial_attributes, (earlier_id, announced))
    announce.start()
    late.ask(space)
    announce.join()
    pending = model_of(late).optimizer.pending
    assert {"x": 1.0, "y": -2.0} in [suggestion.params for suggestion in pending]


def test_a_suggestion_is_announced_while_trials_of_others_run() -> None:
    """Without others, and if nothing was learned, an attribute would be a commit for nothing."""
    study = optuna.create_study(sampler=LazySampler(seed=0, lag=None))
    study.optimize(bowl, n_trials=8)

    def announced() -> bool:
        trial = study.ask(study.trials[0].distributions)
        return f"{Key.SUGGESTION}:0" in Store(study).storage.get_trial(trial._trial_id).system_attrs

    announced()  # what the last values changed
    assert not announced()
    done = study.trials[0]
    running = create_trial(state=TrialState.RUNNING, params=done.params, distributions=done.distributions)
    Store(study).add(running)
    assert announced()


def test_a_trial_that_runs_elsewhere_is_pending() -> None:
    space = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}
    study = optuna.create_study(sampler=LazySampler(seed=0))
    study.optimize(bowl, n_trials=12)
    waiting = study.ask(space)
    other = LazySampler(seed=0)
    study.sampler = other
    study.ask(space)
    pending = model_of(study).optimizer.pending
    assert pending[0].params == pytest.approx(waiting.params)
    assert len(pending) == 2


# ---------------------------------------------------- failures, pruning, infinity


def test_failed_trials_are_avoided() -> None:
    def crashes(trial: optuna.Trial) -> float:
        value = bowl(trial)
        if trial.params["x"] > 1.5:
            raise RuntimeError("out of memory")
        return value

    study = optuna.create_study(sampler=LazySampler(seed=1))
    study.optimize(crashes, n_trials=50, catch=RuntimeError)
    late = [trial for trial in study.trials[25:] if trial.state == TrialState.FAIL]
    assert len(late) <= 8
    assert study.best_value < 0.1


def test_pruned_trials_teach() -> None:
    def learns(trial: optuna.Trial) -> float:
        value = bowl(trial)
        for step in range(5):
            trial.report(value + 10 / (step + 1), step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return value

    sampler = LazySampler(seed=1)
    study = optuna.create_study(sampler=sampler, pruner=optuna.pruners.MedianPruner(n_startup_trials=3))
    study.optimize(learns, n_trials=40)
    pruned = [trial for trial in study.trials if trial.state == TrialState.PRUNED]
    assert pruned
    optimizer = model_of(study).optimizer
    assert sum(record["state"] == "PRUNED" for record in optimizer.records()) >= len(pruned) - 1
    assert study.best_value < 0.05
    complete = [
        trial.value for trial in study.trials[:-1] if trial.state == TrialState.COMPLETE
    ]  # the last is not read yet
    assert optimizer.best.value == min(complete), "a pruned trial is never the best"


# ------------------------------------------------------------------ Optuna's ways


def test_enqueued_and_added_trials_count() -> None:
    sampler = LazySampler(seed=0)
    study = optuna.create_study(sampler=sampler)
    space = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}
    study.add_trial(create_trial(params={"x": 3.0, "y": 3.0}, distributions=space, value=29.0))
    study.enqueue_trial({"x": 1.0, "y": -2.0})
    study.optimize(bowl, n_trials=10)
    assert study.best_value == 0.0
    assert model_of(study).optimizer.best.value == 0.0
    assert complete_in(model_of(study)) == 10


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_partly_fixed_and_single_valued_parameters() -> None:
    sampler = PartialFixedSampler({"y": -2.0}, LazySampler(seed=0))
    study = optuna.create_study(sampler=sampler)
    study.optimize(lambda trial: bowl(trial) + trial.suggest_int("one", 1, 1), n_trials=20)
    assert all(trial.params["y"] == -2.0 for trial in study.trials)
    assert study.best_value < 1.01


def test_copies_and_pickles_go_on() -> None:
    study = optuna.create_study(sampler=LazySampler(seed=0))
    study.optimize(bowl, n_trials=12)
    copies = copy.deepcopy(study.sampler), pickle.loads(pickle.dumps(study.sampler))
    study.sampler.reseed_rng()
    space = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}
    trial = study.ask(space)
    for same in copies:
        frozen = Store(study).storage.get_trial(trial._trial_id)
        assert same.sample_relative(study, frozen, space) == trial.params


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_process_that_is_forked_while_a_thread_samples_goes_on() -> None:
    parent, blocks, blocked, goes_on = os.getpid(), False, threading.Event(), threading.Event()

    def feasible(_: dict) -> bool:
        if blocks and os.getpid() == parent:
            blocked.set()
            goes_on.wait()
        return True

    space = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}
    study = optuna.create_study(sampler=LazySampler(seed=0, feasible=feasible))
    study.optimize(bowl, n_trials=6)
    blocks = True
    thread = threading.Thread(target=study.ask, args=(space,))
    thread.start()
    blocked.wait()
    child = multiprocessing.get_context("fork").Process(target=study.ask, args=(space,))
    child.start()
    child.join(timeout=60)
    goes_on.set()
    thread.join()
    child.kill()
    assert child.exitcode == 0, "it waits for a lock that nobody gives back"


def test_a_study_under_the_number_of_a_deleted_one_is_another(tmp_path: Path) -> None:
    sampler = LazySampler(seed=0)
    storage = optuna.storages.get_storage(f"sqlite:///{tmp_path}/s.db")
    ids = set()
    for _ in range(2):
        study = optuna.create_study(study_name="s", storage=storage, sampler=sampler)
        ids.add(Store(study).study_id)
        study.optimize(bowl, n_trials=8)
        assert params_seen(study)[:7] == params_of(study)[:7]
        optuna.delete_study(study_name="s", storage=storage)
    assert len(ids) == 1, "SQLite gives the number again"


@pytest.mark.parametrize("shared", [False, True])
def test_studies_in_turn_keep_their_models(shared: bool) -> None:
    sampler = LazySampler(seed=0)
    storage = optuna.storages.InMemoryStorage() if shared else None
    studies = [optuna.create_study(sampler=sampler, storage=storage) for _ in range(3)]
    kept: list[StudyModel] = []
    for _ in range(2):
        for study in studies:
            study.optimize(bowl, n_trials=8)
            kept.append(model_of(study))
    assert len({id(model) for model in kept}) == 3
    assert [id(model) for model in kept[:3]] == [id(model) for model in kept[3:]]


@pytest.mark.parametrize(
    "wrong", [{"lag": 0}, {"n_startup_trials": -1}, {"acquisition": "best"}, {"seed": -1}, {"seed": "x"}]
)
def test_wrong_arguments_are_refused_at_once(wrong: dict) -> None:
    with pytest.raises(ValueError, match="must be"):
        LazySampler(**wrong)


@pytest.mark.parametrize("wrong", ["random", TPESampler, 3])
def test_an_independent_sampler_that_is_none_is_refused_at_once(wrong: object) -> None:
    with pytest.raises(TypeError, match="independent_sampler must be one of"):
        LazySampler(independent_sampler=wrong)  # type: ignore[arg-type]


def test_an_enqueued_trial_is_pending_with_its_own_parameters() -> None:
    space = {"x": FloatDistribution(-5, 5), "y": FloatDistribution(-5, 5)}
    sampler = LazySampler(seed=0)
    study = optuna.create_study(sampler=sampler)
    study.optimize(bowl, n_trials=8)
    study.enqueue_trial({"x": 4.0})
    trial = study.ask(space)
    assert trial.params["x"] == 4.0
    pending = model_of(study).optimizer.pending
    assert [suggestion.params for suggestion in pending] == [trial.params]
