"""Optuna's databases: where they are, and all trials of a study in one pass.

SQLAlchemy and Optuna's tables take half a second to import and only databases need them, so they are imported inside
functions. `lazybo.study.store` retries what fails here.
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from optuna.distributions import BaseDistribution, json_to_distribution
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages._cached_storage import _CachedStorage, _StudyInfo
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

if TYPE_CHECKING:
    from sqlalchemy import Connection, Select


# Trials that are asked for by their ids in one statement. SQLite allows 32,766, other databases fewer.
MOST_IDS = 1000


def without_cache(storage: BaseStorage) -> BaseStorage:
    """The storage itself. Optuna wraps a database in a new cache each time that a study of it is opened."""
    return storage._backend if isinstance(storage, _CachedStorage) else storage


def database_of(storage: BaseStorage) -> RDBStorage | None:
    """The database behind a storage, if there is one."""
    storage = without_cache(storage)
    return storage if isinstance(storage, RDBStorage) else None


def file_of(storage: BaseStorage) -> Path | None:
    """The file behind a storage, if there is one."""
    if isinstance(storage, JournalStorage) and isinstance(storage._backend, JournalFileBackend):
        return Path(storage._backend._file_path)
    database = database_of(storage)
    if database is None or not database.url.startswith("sqlite"):
        return None
    from sqlalchemy import make_url

    url = make_url(database.url)
    name = url.database or ":memory:"
    if "uri" in url.query:  # `sqlite_url` writes names like this if a plain URL cannot hold them
        name = unquote(urlsplit(name).path)
    return Path(name) if name != ":memory:" and url.query.get("mode") != "memory" else None


def name_of(storage: BaseStorage) -> str:
    """The name of a storage for messages, without its password."""
    path, database = file_of(storage), database_of(storage)
    if path is not None or database is None:
        return str(path or type(storage).__name__)
    from sqlalchemy import make_url

    # Database drivers accept passwords as URL options too.
    return make_url(database.url).set(query={}).render_as_string(hide_password=True)


def sqlite_url(path: Path) -> str:
    """The URL of an SQLite file, whatever characters its name has."""
    from sqlalchemy import URL, make_url

    url = URL.create("sqlite", database=str(path)).render_as_string()
    # SQLAlchemy 2.0 quotes nothing in file names, and Optuna gives braces a meaning.
    if make_url(url).database != str(path) or re.search("[{}]", url):
        url = f"sqlite:///{path.as_uri()}?uri=true"
    return url


# ------------------------------------------------------------------- all trials


def all_trials(storage: BaseStorage, study_id: int) -> list[FrozenTrial]:
    """All trials of a study, by number, as Optuna's ``get_all_trials`` without copies.

    Those in Optuna's cache that had ended are not read again. Optuna itself makes an object of every row that it reads,
    which takes eight times as long.
    """
    database = database_of(storage)
    if database is None or not isinstance(storage, _CachedStorage):
        return storage.get_all_trials(study_id, deepcopy=False)
    with storage._lock:
        known = storage._studies.setdefault(study_id, _StudyInfo())
        trials = read_trials(database, study_id, known.last_finished_trial_id, known.unfinished_trial_ids)
        storage._add_trials_to_cache(study_id, trials)
        for trial in trials:
            if trial.state.is_finished():
                known.unfinished_trial_ids.discard(trial._trial_id)
                known.last_finished_trial_id = max(known.last_finished_trial_id, trial._trial_id)
            else:
                known.unfinished_trial_ids.add(trial._trial_id)
        return [known.trials[number] for number in sorted(known.trials)]


def read_trials(database: RDBStorage, study_id: int, after: int = -1, also: Collection[int] = ()) -> list[FrozenTrial]:
    """The trials of a study whose ids are above ``after``, and ``also`` these, with one query for each table.

    They are as Optuna reads them. Raises a KeyError if the study does not exist.
    """
    with database.engine.connect() as connection:
        return trials_within(connection, study_id, after, [i for i in also if i <= after])


def trials_within(
    connection: "Connection", study_id: int, after: int = -1, also: Collection[int] = ()
) -> list[FrozenTrial]:
    """The same, within a transaction."""
    from optuna.storages._rdb import models
    from sqlalchemy import select

    trials, studies = models.TrialModel.__table__, models.StudyModel.__table__
    wanted = trials.c.study_id == study_id
    if after >= 0 and len(also) <= MOST_IDS:
        wanted &= (trials.c.trial_id > after) | trials.c.trial_id.in_(also)
    rows = partial(_rows, connection, select(trials.c.trial_id).where(wanted))
    # Trials first: one that ends in the meantime is read again, since it is unfinished here.
    found = rows(models.TrialModel, "number", "state", "datetime_start", "datetime_complete", order="trial_id")
    if found:
        parts = _parts_of_trials(rows)
    elif connection.execute(select(studies.c.study_id).where(studies.c.study_id == study_id)).first() is None:
        raise KeyError(models.NOT_FOUND_MSG)
    return [
        FrozenTrial(
            number=number,
            state=state,
            value=None,
            datetime_start=_local(start),
            datetime_complete=_local(end),
            trial_id=i,
            **{part: of_trials[i] for part, of_trials in parts.items()},
        )
        for i, number, state, start, end in found
    ]


def _parts_of_trials(rows: Callable[..., Sequence[Any]]) -> dict[str, Mapping[int, Any]]:
    """What trials have in other tables: arguments of ``FrozenTrial``, by the ids of trials."""
    from optuna.storages._rdb import models

    value = models.TrialValueModel.stored_repr_to_value
    step_value = models.TrialIntermediateValueModel.stored_repr_to_intermediate_value
    given = rows(models.TrialParamModel, "param_name", "param_value", "distribution_json", order="param_id")
    params = [(i, name, number, _distribution(text)) for i, name, number, text in given]
    measured = rows(models.TrialValueModel, "objective", "value", "value_type")
    reported = rows(models.TrialIntermediateValueModel, "step", "intermediate_value", "intermediate_value_type")
    of_user, of_system = (
        _by_trial((i, key, json.loads(text)) for i, key, text in rows(model, "key", "value_json"))
        for model in (models.TrialUserAttributeModel, models.TrialSystemAttributeModel)
    )
    values = _by_trial((i, objective, value(number, kind)) for i, objective, number, kind in measured)
    in_order = {i: [each for _, each in sorted(found.items())] for i, found in values.items()}
    return {
        "params": _by_trial((i, name, d.to_external_repr(number)) for i, name, number, d in params),
        "distributions": _by_trial((i, name, d) for i, name, _, d in params),
        "values": defaultdict(lambda: None, in_order),
        "intermediate_values": _by_trial((i, step, step_value(number, kind)) for i, step, number, kind in reported),
        "user_attrs": of_user,
        "system_attrs": of_system,
    }


def _rows(
    connection: "Connection", ids: "Select[tuple[int]]", model: Any, *columns: str, order: str | None = None
) -> Sequence[Any]:
    """The rows of trials with these ids in one of Optuna's tables: the id of the trial, then these columns."""
    from sqlalchemy import select

    table = model.__table__
    wanted = select(table.c.trial_id, *(table.c[name] for name in columns)).where(table.c.trial_id.in_(ids))
    return connection.execute(wanted.order_by(table.c[order]) if order else wanted).all()


@lru_cache(1024)
def _distribution(text: str) -> BaseDistribution:
    return json_to_distribution(text)


def _by_trial(entries: Iterable[tuple[int, Any, Any]]) -> dict[int, dict[Any, Any]]:
    """Entries (trial id, key, value) as a dict for each trial."""
    found: dict[int, dict[Any, Any]] = defaultdict(dict)
    for i, key, value in entries:
        found[i][key] = value
    return found


def _local(moment: datetime | None) -> datetime | None:
    """A naive UTC time, as databases have it, as the naive local time that trials have."""
    return None if moment is None else moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=None)


def repair_values(database: RDBStorage) -> int:
    """Remove final values that Optuna cannot read, marked as finite but without a number; how many trials had one.

    SQLite and MySQL have no NaN. If NaN was written as the value of a trial, Optuna cannot read any trial of the study.
    Afterwards a pruned trial has no value and a completed one has failed, which is what Optuna itself does with NaN.
    """
    from optuna.storages._rdb import models
    from sqlalchemy import delete, select, update

    trials, values = models.TrialModel.__table__, models.TrialValueModel.__table__
    lost = values.c.value.is_(None) & (values.c.value_type == models.TrialValueModel.TrialValueType.FINITE)
    found = select(values.c.trial_id).where(lost)
    with database.engine.connect() as connection:
        if connection.execute(found.limit(1)).first() is None:
            return 0
    with database.engine.begin() as connection:
        damaged = sorted(set(connection.execute(found).scalars()))
        complete = trials.c.trial_id.in_(damaged) & (trials.c.state == TrialState.COMPLETE)
        connection.execute(update(trials).where(complete).values(state=TrialState.FAIL))
        connection.execute(delete(values).where(lost))
    return len(damaged)
