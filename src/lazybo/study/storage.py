"""Moved."""

from lazybo.study.definition import DEFAULT_NAME, REMEDY, open_study
from lazybo.study.definition import Definition as About
from lazybo.study.definition import first_run as kept_run
from lazybo.study.store import database_url, explained, open_storage, repair_storage

__all__ = [
    "DEFAULT_NAME",
    "REMEDY",
    "About",
    "database_url",
    "explained",
    "kept_run",
    "open_storage",
    "open_study",
    "repair_storage",
]
