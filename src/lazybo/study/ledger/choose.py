"""The ledger that suits a storage."""

from collections.abc import Mapping

from optuna.distributions import BaseDistribution
from optuna.study import Study

from lazybo.study.databases import database_of
from lazybo.study.ledger.base import Ledger
from lazybo.study.ledger.database import DatabaseLedger
from lazybo.study.ledger.storage import StorageLedger


def open_ledger(study: Study, space: Mapping[str, BaseDistribution], driver: str | None) -> Ledger:
    """The ledger of a study for the driver with this name; None for people, whose trials nobody takes over."""
    database = database_of(study._storage)
    if database is not None:
        return DatabaseLedger(study, database, space, driver)
    return StorageLedger(study, space, driver)
