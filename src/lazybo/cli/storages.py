"""Open storages and existing studies. No study is created."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import optuna
import typer
from optuna.storages import BaseStorage
from optuna.study import Study

from lazybo.cli.require import Requirement
from lazybo.cli.settings import DEFAULT_STORAGE, read_settings
from lazybo.core.text import without_password
from lazybo.programs.placeholders import nearest
from lazybo.study.attributes import REQUIRE_KEY
from lazybo.study.retry import with_retries
from lazybo.study.storage import database_url, open_storage

# Databases that Optuna supports, and what a valid storage looks like.
SCHEMES = ("sqlite", "postgresql", "mysql", "mariadb", "oracle", "mssql")
EXAMPLES = "a file such as study.db, or postgresql+psycopg://user@host/database"

StorageArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="STORAGE",
        help=f"An SQLite file, a URL, or the TOML file of a study (default: {DEFAULT_STORAGE}).",
    ),
]
StudyArgument = Annotated[
    str | None, typer.Argument(metavar="STUDY", help="The study's name; not needed if there is only one.")
]
StorageFlag = Annotated[str | None, typer.Option("--storage", help="The storage, as lazybo tune takes it.")]
StudyFlag = Annotated[str | None, typer.Option("--study", help="The study's name, as lazybo tune takes it.")]


@dataclass(frozen=True)
class Place:
    """A storage and the name of the study that the user asked for, if any."""

    storage: BaseStorage
    name: str
    study_name: str | None

    def study(self) -> Study:
        """The study that the user asked for, or the only one."""
        known = sorted(summary.study_name for summary in self.storage.get_all_studies())
        if not known:
            raise ValueError(f"there is no study in {self.name}")
        if self.study_name is None and len(known) > 1:
            raise ValueError(f"there are {len(known)} studies in {self.name}; give the name of one: {', '.join(known)}")
        name = self.study_name or known[0]
        if name not in known:
            raise ValueError(
                f"there is no study {name!r} in {self.name}{nearest(name, known)}; it has {', '.join(known)}"
            )
        return optuna.load_study(study_name=name, storage=self.storage)


def named_place(words: Sequence[str | None], storage: str | None, study: str | None) -> tuple[str, str | None]:
    """The storage and the study of a call: by position, STORAGE STUDY, or as --storage and --study."""
    left = [word for word in words if word is not None]
    if storage is None:
        storage = left.pop(0) if left else DEFAULT_STORAGE
    if study is None:
        study = left.pop(0) if left else None
    if left:
        raise ValueError(
            f"{left[0]!r} is one too many: the storage is {without_password(storage)!r} and the study {study!r}; give "
            "each once, STORAGE STUDY or --storage STORAGE --study STUDY"
        )
    return storage, study


def find(storage: str, study: str | None) -> Place:
    """Open an existing storage: a file, a URL, or the storage that a TOML file names."""
    if storage.endswith(".toml"):
        settings: dict[str, Any] = read_settings(Path(storage))
        storage, study = settings.get("storage", DEFAULT_STORAGE), study or settings["study"]
    if "://" not in storage and not Path(storage).expanduser().exists():
        raise ValueError(f"there is no storage {storage!r}; give the file that lazybo tune wrote to with --storage")
    return Place(open_checked(storage), without_password(storage), study)


def keep_requirement(study: Study, requirement: Requirement | None) -> None:
    """Keep the expressions that must hold with the study; `lazybo ask` reads them."""
    texts = list(requirement.texts) if requirement else None
    kept = with_retries(partial(study._storage.get_study_system_attrs, study._study_id)).get(REQUIRE_KEY)
    if texts != kept:
        with_retries(partial(study._storage.set_study_system_attr, study._study_id, REQUIRE_KEY, texts))


def open_checked(storage: str) -> BaseStorage:
    """Open a storage. An invalid URL raises a ValueError that says what is wrong with it."""
    if "://" not in storage:
        return open_storage(storage)
    scheme, _, place = database_url(storage).partition("://")
    database = scheme.partition("+")[0]
    if database not in SCHEMES:
        raise ValueError(
            f"the storage {without_password(storage)!r} begins with {scheme!r}{nearest(database, SCHEMES)}; "
            f"give {EXAMPLES} (databases: {', '.join(SCHEMES)})"
        )
    if database == "sqlite" and place and not place.startswith("/") and "@" not in place:
        raise ValueError(f"the storage {storage!r} needs a third slash: give 'sqlite:///{place}', or {place!r} alone")
    if place.partition("?")[0].count("@") > 1:
        # SQLAlchemy would take the text after the first @ as the host, and print it in messages.
        raise ValueError(f"the storage {without_password(storage)!r} has a password with an @; write %40 for it")
    try:
        return open_storage(storage)
    except ValueError as error:
        raise ValueError(_driver_error(str(error), database, scheme)) from error


def _driver_error(message: str, database: str, scheme: str) -> str:
    """SQLAlchemy's error about a missing driver, with what to do."""
    message = without_password(message)
    missing = re.search(r"No module named '(\w+)'", message)
    if missing and database != "postgresql":
        return f"the storage needs the package {missing[1]}, the driver of {scheme}: install it, or use another driver"
    if "Can't load plugin" in message:
        return f"SQLAlchemy does not know the driver in {scheme!r}; give {EXAMPLES}"
    return message
