"""Earlier studies by name, and how they are kept with a study.

`optimize()`, `LazySampler` and the command take studies as ``name@storage``, names of CSV files, and what
`lazybo.search.earlier_studies` takes. Their results are kept with the options of the model, so that a resumed study and reports
need neither the other storages nor the files.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import BaseStorage
from optuna.study import Study

from lazybo.core.checks import Direction, finite_number, shortened
from lazybo.core.codec import as_object, from_json, readable
from lazybo.core.text import without_password
from lazybo.search.earlier_studies import EarlierStudy, earlier_studies, from_rows, from_study
from lazybo.space.tables import csv_rows
from lazybo.study.storage import open_storage

Storage = str | Path | BaseStorage | None
# What was packed is not longer than this. A short text that was edited may unpack to any length.
MOST_BYTES = 1 << 28


def read_earlier(
    sources: Any, directions: Sequence[Direction], storage: Storage = None, study_name: str | None = None
) -> tuple[EarlierStudy, ...]:
    """The results of earlier studies. A study that is named without a storage is in ``storage``.

    ``study_name`` is the new study, which cannot be an earlier one.
    """
    if isinstance(sources, str | bytes | Mapping | Study) or not isinstance(sources, Iterable):
        raise ValueError(f"earlier must be a list of studies, names of studies and tables, not {shortened(sources)}")
    named = [
        _read(str(each), directions, storage, study_name) if isinstance(each, str | Path) else each for each in sources
    ]
    return earlier_studies(named, directions)


def _read(name: str, directions: Sequence[Direction], storage: Storage, study_name: str | None) -> EarlierStudy:
    """A study, ``name@storage`` or ``name``, or a CSV file."""
    if name.lower().endswith(".csv"):
        return from_rows(csv_rows(name, f"the earlier table {name!r}", {}), name, directions)
    title, at, place = name.partition("@")
    if at:
        return from_study(_study(title, place, without_password(place)), len(directions))
    if storage is None:
        raise ValueError(f"the earlier study {name!r} needs a storage: give 'NAME@STORAGE', or the study itself")
    if name == study_name:
        raise ValueError(f"the study {name!r} is the one to run, not an earlier one; its own trials count anyway")
    shown = without_password(str(storage)) if isinstance(storage, str | Path) else "the storage"
    return from_study(_study(name, storage, shown), len(directions))


def _study(name: str, storage: str | Path | BaseStorage, shown: str) -> Study:
    """An existing study; nothing is created."""
    is_file = not isinstance(storage, BaseStorage) and "://" not in str(storage)
    if is_file and not Path(str(storage)).expanduser().exists():
        raise ValueError(f"there is no earlier study {name!r}: there is no storage {shown!r}")
    opened = open_storage(storage)
    known = sorted(each.study_name for each in opened.get_all_studies())
    if name not in known:
        there = f"it has {', '.join(map(repr, known))}" if known else "it has no study"
        raise ValueError(f"there is no earlier study {name!r} in {shown!r}: {there}")
    return optuna.load_study(study_name=name, storage=opened)


def pack(studies: Sequence[EarlierStudy]) -> str:
    """The results of earlier studies as a short text. Choices that JSON does not have become texts."""
    plain = [[each.name, list(map(dict, each.configurations)), each.values] for each in studies]
    return base64.b85encode(zlib.compress(json.dumps(plain, default=str).encode())).decode()


def unpack(text: str) -> tuple[EarlierStudy, ...]:
    """The inverse of `pack`. Raises a ValueError if the text is damaged."""
    with readable("the earlier studies"):
        unpacker = zlib.decompressobj()
        plain = from_json(unpacker.decompress(base64.b85decode(text), MOST_BYTES))
        if unpacker.unconsumed_tail:
            raise ValueError(f"they are longer than {MOST_BYTES} bytes")
        return tuple(_parsed(name, params, values) for name, params, values in plain)


def _parsed(name: Any, params: Any, values: Any) -> EarlierStudy:
    numbers = tuple(tuple(finite_number("a value", each) for each in row) for row in values)
    if len(params) != len(numbers) or len({len(row) for row in numbers}) > 1:
        raise ValueError("each configuration must have a value for each objective")
    return EarlierStudy(str(name), tuple(as_object(each) for each in params), numbers)
