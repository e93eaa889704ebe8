"""The database behind a study: its file or URL, its trials, and the repair of values that cannot be read."""

import json
import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from optuna.distributions import json_to_distribution
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages._cached_storage import _CachedStorage, _StudyInfo
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, TrialState

from lazybo.study.retry import with_retries

if TYPE_CHECKING:
    from sqlalchemy import Connection

_logger = logging.getLogger("lazybo")


def database_of(storage: BaseStorage) -> RDBStorage | None:
    """The database behind a storage, if there is one."""
    storage = storage._backend if isinstance(storage, _CachedStorage) else storage
    return storage if isinstance(storage, RDBStorage) else None


def fill_cache(storage: BaseStorage, study_id: int) -> None:
    """Put all trials of a study into Optuna's cache, if it has none of them yet.

    Optuna itself makes an object of every row that it reads, which takes eight times as long.
    """
    database = database_of(storage)
    if database is None or not isinstance(storage, _CachedStorage):
        return
    with storage._lock:
        known = storage._studies.setdefault(study_id, _StudyInfo())
        if known.trials:
            return
        trials = read_trials(database, study_id)
        storage._add_trials_to_cache(study_id, trials)
        finished = [trial._trial_id for trial in trials if trial.state.is_finished()]
        known.unfinished_trial_ids = {trial._trial_id for trial in trials} - set(finished)
        known.last_finished_trial_id = max(finished, default=-1)


def read_trials(database: RDBStorage, study_id: int) -> list[FrozenTrial]:
    """All trials of a study as Optuna reads them, with one query for each table."""
    # SQLAlchemy and Optuna's tables take half a second to import, and only databases need them.
    from optuna.storages._rdb import models

    distribution_of = cache(json_to_distribution)
    with database.engine.connect() as connection:
        rows = partial(_rows, connection, study_id)
        # The trials come first: one that ends meanwhile is read again, since it is not finished here.
        found = rows(models.TrialModel, "number", "state", "datetime_start", "datetime_complete", order="trial_id")
        if not found:
            return []
        given = rows(models.TrialParamModel, "param_name", "param_value", "distribution_json", order="param_id")
        params = [(i, name, value, distribution_of(text)) for i, name, value, text in given]
        measured = rows(models.TrialValueModel, "objective", "value", "value_type")
        reported = rows(models.TrialIntermediateValueModel, "step", "intermediate_value", "intermediate_value_type")
        of_user, of_system = (
            _by_trial((i, key, json.loads(text)) for i, key, text in rows(model, "key", "value_json"))
            for model in (models.TrialUserAttributeModel, models.TrialSystemAttributeModel)
        )
    value, step_value = (
        models.TrialValueModel.stored_repr_to_value,
        models.TrialIntermediateValueModel.stored_repr_to_intermediate_value,
    )
    configurations = _by_trial((i, name, d.to_external_repr(number)) for i, name, number, d in params)
    spaces = _by_trial((i, name, d) for i, name, _, d in params)
    values = _by_trial((i, objective, value(number, kind)) for i, objective, number, kind in measured)
    curves = _by_trial((i, step, step_value(number, kind)) for i, step, number, kind in reported)
    return [
        FrozenTrial(
            number=number,
            state=state,
            value=None,
            values=[values[i][objective] for objective in sorted(values[i])] or None,
            datetime_start=_local(start),
            datetime_complete=_local(end),
            params=configurations[i],
            distributions=spaces[i],
            user_attrs=of_user[i],
            system_attrs=of_system[i],
            intermediate_values=curves[i],
            trial_id=i,
        )
        for i, number, state, start, end in found
    ]


def _rows(
    connection: "Connection", study_id: int, model: Any, *columns: str, order: str | None = None
) -> Sequence[Any]:
    """The rows of all trials of a study in one of Optuna's tables: the id of the trial, then these columns."""
    from optuna.storages._rdb.models import TrialModel
    from sqlalchemy import select

    trials, table = TrialModel.__table__, model.__table__
    of_study = select(trials.c.trial_id).where(trials.c.study_id == study_id)
    wanted = select(table.c.trial_id, *(table.c[name] for name in columns)).where(table.c.trial_id.in_(of_study))
    return connection.execute(wanted.order_by(table.c[order]) if order else wanted).all()


def _by_trial(entries: Iterable[tuple[int, Any, Any]]) -> dict[int, dict[Any, Any]]:
    """Entries of trials, (id, key, value), as a dict for each trial; an empty one for a trial that has none."""
    found: dict[int, dict[Any, Any]] = defaultdict(dict)
    for i, key, value in entries:
        found[i][key] = value
    return found


def _local(moment: datetime | None) -> datetime | None:
    """A naive time of UTC, as databases have it, as the naive local time that trials have."""
    return None if moment is None else moment.replace(tzinfo=UTC).astimezone().replace(tzinfo=None)


def drop_cache(storage: BaseStorage, study_id: int) -> None:
    """Read all trials of a study again: Optuna keeps finished ones in memory, and one of them was changed."""
    if isinstance(storage, _CachedStorage):
        with storage._lock:
            storage._studies.pop(study_id, None)


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
    if "uri" in url.query:  # as `sqlite_url` writes names that a plain URL cannot hold
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
    # SQLAlchemy 2.0 quotes nothing in file names, and Optuna takes braces for its own.
    if make_url(url).database != str(path) or re.search("[{}]", url):
        url = f"sqlite:///{path.as_uri()}?uri=true"
    return url


def repair_values(storage: BaseStorage) -> None:
    """Remove rows of final values that Optuna cannot read: they are marked as finite, but have no number.

    SQLite and MySQL have no NaN. If NaN was written as the value of a trial, Optuna cannot read any trial of the study.
    A pruned trial then has no value, and a completed one is failed, as Optuna itself does for NaN.
    """
    database = database_of(storage)
    if database is None:
        return
    # SQLAlchemy and Optuna's tables take half a second to import, and only databases need them.
    from optuna.storages._rdb import models
    from sqlalchemy import delete, select, update

    trials, values = models.TrialModel.__table__, models.TrialValueModel.__table__
    lost = values.c.value.is_(None) & (values.c.value_type == models.TrialValueModel.TrialValueType.FINITE)
    found = select(values.c.trial_id).where(lost)

    def is_damaged() -> bool:
        with database.engine.connect() as connection:
            return connection.execute(found.limit(1)).first() is not None

    def repair() -> int:
        with database.engine.begin() as connection:
            damaged = sorted(set(connection.execute(found).scalars()))
            complete = trials.c.trial_id.in_(damaged) & (trials.c.state == TrialState.COMPLETE)
            connection.execute(update(trials).where(complete).values(state=TrialState.FAIL))
            connection.execute(delete(values).where(lost))
            return len(damaged)

    if with_retries(is_damaged):
        count = with_retries(repair)
        which = f"{count} trial{'s' * (count != 1)}"
        _logger.warning(
            f"the storage {name_of(storage)!r} had NaN as the value of {which}, which made its studies "
            "unreadable; such trials are pruned or failed without a value now, and all others are unchanged"
        )
