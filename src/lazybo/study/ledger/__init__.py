"""What `optimize()` writes to a study, and in which order: `Ledger`.

A trial is in the study with all its parameters before its evaluation starts, and has its value there before the
optimiser learns it. In a database each of the two is one transaction. Other storages are written through Optuna.

Several processes may write to one study. Each proposes for the number that it expects its trial to get. If another
trial took that number, the process reads the new trials and proposes again, so no two trials evaluate the same.
"""

from lazybo.study.ledger.base import Entry, Ledger, Params, Result, read, was_enqueued
from lazybo.study.ledger.choose import open_ledger
from lazybo.study.ledger.database import DatabaseLedger
from lazybo.study.ledger.storage import StorageLedger

__all__ = [
    "DatabaseLedger",
    "Entry",
    "Ledger",
    "Params",
    "Result",
    "StorageLedger",
    "open_ledger",
    "read",
    "was_enqueued",
]
