"""Studies that are there already: found in a storage, or refused. Nothing is created."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import optuna
import typer
from optuna.storages import BaseStorage
from optuna.study import Study

from lazybo.cli.config import DEFAULT_STORAGE, read_settings
from lazybo.programs.placeholders import nearest
from lazybo.study.storage import open_storage

# What was tuned: the words of a command, or the name of a Python function.
COMMAND_KEY = "lazybo:command"
OBJECTIVE_KEY = "lazybo:objective"

StorageArgument = Annotated[
    str, typer.Argument(metavar="[STORAGE]", help="An SQLite file, a URL, or the TOML file of a study.")
]
StudyArgument = Annotated[
    str | None, typer.Argument(metavar="[STUDY]", help="The study's name; not needed where there is only one.")
]


@dataclass(frozen=True)
class Place:
    """A storage, and which study in it was meant."""

    storage: BaseStorage
    name: str
    study_name: str | None

    def study(self) -> Study:
        """The study that was meant, or the only one."""
        known = sorted(summary.study_name for summary in self.storage.get_all_studies())
        if not known:
            raise ValueError(f"there is no study in {self.name}")
        if self.study_name is None and len(known) > 1:
            raise ValueError(f"there are {len(known)} studies in {self.name}, say which: {', '.join(known)}")
        name = self.study_name or known[0]
        if name not in known:
            raise ValueError(
                f"there is no study {name!r} in {self.name}{nearest(name, known)}; it has {', '.join(known)}"
            )
        study = optuna.load_study(study_name=name, storage=self.storage)
        if len(study.directions) > 1:
            raise ValueError(f"the study {name!r} has {len(study.directions)} objectives; this shows studies with one")
        return study


def find(storage: str, study: str | None) -> Place:
    """An existing storage: a file, a URL, or what a TOML file says."""
    if storage.endswith(".toml"):
        settings: dict[str, Any] = read_settings(Path(storage))
        storage, study = settings.get("storage", DEFAULT_STORAGE), study or settings["study"]
    if "://" not in storage and not Path(storage).expanduser().exists():
        raise ValueError(f"there is no storage {storage!r}; give the file that lazybo tune wrote to with --storage")
    return Place(open_storage(storage), storage, study)
