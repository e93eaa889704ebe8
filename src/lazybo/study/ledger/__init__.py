"""What `optimize()` writes to a study, and in which order: `Ledger`.

A trial is in the study with all its parameters before its evaluation starts, and has its value there before the
optimiser learns it. In a database each of the two is one transaction. Other storages are written through Optuna.

Several processes may write to one study. Each proposes for the number that it expects its trial to get. If another
trial took that number, the process reads the new trials and proposes again, so no two trials evaluate the same.
"""

from collections.abc import Mapping

from optuna.distributions import BaseDistribution
from optuna.study import Study

from lazybo.study.ledger.ledger import Entry, Ledger, Params, Result, was_enqueued
from lazybo.study.store import Store

__all__ = ["Entry", "Ledger", "Params", "Result", "open_ledger", "was_enqueued"]


def open_ledger(study: Study, space: Mapping[str, BaseDistribution], driver: str | None) -> Ledger:
    """The ledger of a study for the driver with this name; None for people, whose trials nobody takes over."""
    return Ledger(Store(study), space, driver)
