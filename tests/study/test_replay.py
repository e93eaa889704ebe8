"""Every suggestion again, from the study alone: bit for bit, whatever was killed; and what is missing otherwise."""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock
from optuna.study import Study
from optuna.trial import TrialState
from typer.testing import CliRunner

import lazybo
from benchmarks import replay as benchmark
from lazybo.study.attributes import Key
from lazybo.study.journal import open_journal
from lazybo.study.memory import Opening, Seen, read_seen
from lazybo.study.replaying import Replayed, replay
from lazybo.study.store import Store
from tests.cli.command import app
from tests.spaces import Problem, spaces

SPACE = {"x": (-1.0, 1.0), "k": ["a", "b"]}


def bowl(params: dict[str, Any]) -> float:
    return float(params["x"] ** 2 + (params["k"] == "a"))


def run(path: Path, objective: Callable[..., Any] = bowl, n_trials: int = 14, **more: Any) -> Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    arguments = {"seed": 0, "progress": False, "storage": path / "study.db", **more}
    return lazybo.optimize(objective, SPACE, n_trials=n_trials, **arguments)


def reasons(found: list[Replayed]) -> set[str]:
    return {each.missing for each in found if each.missing}


# ------------------------------------------------------------------------ events

NUMBERS = st.integers(0, 10**6)
EVENTS = st.lists(
    st.one_of(
        st.builds("{}{}".format, st.sampled_from("af"), st.integers(0, 5)),
        st.builds("{}{}.{}".format, st.sampled_from("pwq"), NUMBERS, NUMBERS),
        st.builds("b{!r}".format, st.floats(0, 1)),
        st.sampled_from(["t", "u", "x", "c3"]),
    )
)


@given(st.lists(EVENTS, min_size=1), st.none() | st.tuples(st.sampled_from(["", "3f2a"]), NUMBERS), NUMBERS)
def test_what_is_written_is_read(parts: list[list[str]], recalled: tuple[str, int] | None, known: int) -> None:
    opening = Opening(recalled, "options", known, predicate=bool(known % 2))
    seen, found = Seen(opening), []
    for events in parts:
        for event in events:
            seen.note(event)
        part = read_seen(seen.attributes())
        assert part is not None
        found.append(part)
        seen.written()
    assert [part.events for part in found] == parts
    assert [part.opening for part in found] == [opening] + [None] * (len(parts) - 1)
    assert seen.count == sum(map(len, parts))


def test_nothing_is_noted_before_a_session_is_opened() -> None:
    seen = Seen()
    seen.note("a0")
    assert seen.attributes() == {}


# ------------------------------------------------------------------------ replay


@pytest.mark.parametrize("kind", list(benchmark.KINDS))
def test_every_suggestion_is_made_again(kind: str, tmp_path: Path) -> None:
    """With four workers; the run is stopped and continued in between."""
    for trials in (8, 16):
        benchmark.drive(
            schedule := benchmark.Schedule(str(tmp_path), 5, kind, 4, trials, 0, 1, "threads", "study.db", False)
        )
    study = optuna.load_study(study_name="lazybo", storage=schedule.open())
    found = list(replay(study))
    assert not reasons(found)
    assert [each.again for each in found] == [each.params for each in found]
    # Three of one kind were given, and a final check ends as soon as one contender leads.
    assert len(found) >= (8 if kind == "confirmed" else 13)


@pytest.mark.filterwarnings("ignore:the space has only")
@settings(max_examples=6)
@given(spaces(functions=False))
def test_every_suggestion_is_made_again_in_any_space(space: lazybo.Space) -> None:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    problem = Problem(space)
    study = lazybo.optimize(problem.value, space, n_trials=9, seed=0, progress=False)
    found = list(replay(study))
    assert len(found) == 9
    assert not reasons(found)
    assert [each.again for each in found] == [each.params for each in found]


def test_structure_that_is_not_last_stays_where_it_is(tmp_path: Path) -> None:
    space = {"o": lazybo.Permutation([*"abcd"]), "x": (0.0, 1.0)}
    study = lazybo.optimize(
        Problem(lazybo.Space(space)).value, space, n_trials=14, seed=1, progress=False, storage=tmp_path / "study.db"
    )
    assert not any(each.differs or each.missing for each in replay(study))


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")  # of fork()
@pytest.mark.parametrize("seed", [0, 9])
def test_also_after_kills_and_with_several_drivers(seed: int, tmp_path: Path) -> None:
    schedule = benchmark.Schedule.draw(seed, str(tmp_path))
    found = list(replay(benchmark.run(schedule)[0]))
    assert len(found) == schedule.trials
    assert not any(each.differs or each.missing for each in found)


@pytest.mark.filterwarnings("ignore:JournalFileSymlinkLock:UserWarning")  # about its short grace period
@pytest.mark.parametrize("wanted", [5, 7])
def test_a_trial_that_was_written_late_has_another_number_and_its_own_suggestion(
    wanted: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process was suspended in the middle of the write; another one took over the lock, and ran two trials."""
    path, write = tmp_path / "journal", os.write
    JournalFileBackend(str(path))
    run(tmp_path, n_trials=3, storage=open_journal(str(path)))

    def suspended(file: int, text: bytes) -> int:
        if b'"op_code":4,' in text:
            monkeypatch.setattr(os, "write", write)
            run(tmp_path, n_trials=5, storage=open_journal(str(path), JournalFileSymlinkLock(str(path), 3)))
        return write(file, text)

    monkeypatch.setattr(os, "write", suspended)
    study = run(tmp_path, n_trials=wanted, storage=path)
    states = [trial.state for trial in study.trials]
    assert states[:wanted] == [TrialState.COMPLETE] * wanted
    assert states[wanted:] in ([], [TrialState.WAITING]), "a trial that is not needed is not evaluated"
    assert len(states) > 5
    assert not any(each.differs or each.missing for each in replay(study))


def test_a_value_that_was_changed_behind_our_back_is_noticed(tmp_path: Path) -> None:
    study = run(tmp_path, n_parallel=1)
    with closing(sqlite3.connect(tmp_path / "study.db")) as database:
        database.execute("UPDATE trial_values SET value = value + 1 WHERE trial_id = 6")
        database.commit()
    study = optuna.load_study(study_name="lazybo", storage=f"sqlite:///{tmp_path / 'study.db'}")
    found = {each.number: each for each in replay(study)}
    assert not any(found[number].differs for number in range(6))
    assert any(each.differs for each in found.values())


def test_a_recorded_trial_is_small(tmp_path: Path) -> None:
    for trial in run(tmp_path, executor="threads", n_parallel=3).trials[1:]:
        kept = {key: each for key, each in trial.system_attrs.items() if key.startswith(Key.SEEN)}
        assert sum(len(key) + len(each) for key, each in kept.items()) < 100


# ----------------------------------------------------------------- what is missing


def test_trials_of_a_sampler_were_not_recorded() -> None:
    study = optuna.create_study(sampler=lazybo.LazySampler(seed=0))
    study.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    assert reasons(list(replay(study))) == {"what its suggestion had seen was not recorded"}


def test_known_results_are_missing(tmp_path: Path) -> None:
    study = run(tmp_path, warm_start=[{"x": 0.5, "k": "a", "value": 1.25}])
    (reason,) = reasons(list(replay(study)))
    assert "1 known results" in reason


def test_other_options_are_missing(tmp_path: Path) -> None:
    run(tmp_path, n_trials=8)
    study = run(tmp_path, n_trials=16, sampler=lazybo.LazySampler(lag=3))
    found = {each.number: each for each in replay(study)}
    assert all("other options" in found[number].missing for number in range(8))


def test_a_predicate_is_missing_unless_it_is_given() -> None:
    def predicate(params: dict[str, Any]) -> bool:
        return bool(params["x"] > -0.5)

    study = lazybo.optimize(bowl, lazybo.Space(SPACE, feasible=predicate), n_trials=10, seed=0, progress=False)
    assert "predicate" in reasons(list(replay(study))).pop()
    assert not any(each.differs or each.missing for each in replay(study, predicate))


def test_another_version_may_suggest_something_else_and_says_so(tmp_path: Path) -> None:
    """The run of an older version, whose suggestions were others: values changed behind its back stand for that."""
    run(tmp_path)
    with closing(sqlite3.connect(tmp_path / "study.db")) as database:
        database.execute("UPDATE trial_values SET value = value + 1 WHERE trial_id = 6")
        changed = "UPDATE trial_system_attributes SET value_json = replace(value_json, ?, ',0.0.9;') WHERE key LIKE ?"
        assert database.execute(changed, (f",{lazybo.__version__};", f"{Key.SEEN}%")).rowcount > 0
        database.commit()
    found = {
        each.number: each
        for each in replay(optuna.load_study(study_name="lazybo", storage=f"sqlite:///{tmp_path / 'study.db'}"))
    }
    assert not any(each.differs for each in found.values())
    assert reasons(list(found.values())) == {
        f"it was suggested by lazybo 0.0.9, and {lazybo.__version__} suggests something else"
    }
    # As long as suggestions are the same, nothing is missing.
    assert not any(found[number].missing for number in range(6))


def test_studies_of_the_first_release_say_what_is_missing(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).parents[1] / "data" / "0.1" / "studies.db", tmp_path)
    storage = Store.open(tmp_path / "studies.db")
    for summary in storage.get_all_studies():
        found = list(replay(optuna.load_study(study_name=summary.study_name, storage=storage)))
        assert found
        assert all("not recorded" in each.missing for each in found)


# ----------------------------------------------------------------------- command


def test_the_command_compares_and_says_what_differs(tmp_path: Path) -> None:
    run(tmp_path)
    path = str(tmp_path / "study.db")
    done = CliRunner().invoke(app, ["replay", path])
    assert (done.exit_code, done.stdout) == (0, "14 of 14 suggestions are the same\n")
    with closing(sqlite3.connect(path)) as database:
        database.execute("UPDATE trial_values SET value = value + 1 WHERE trial_id = 6")
        database.commit()
    done = CliRunner().invoke(app, ["replay", path, "--json"])
    said = json.loads(done.stdout)
    assert done.exit_code == 1
    assert said["same"] + len(said["differ"]) == 14
    assert "is suggested" in CliRunner().invoke(app, ["replay", path]).stdout
