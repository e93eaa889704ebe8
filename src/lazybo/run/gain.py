"""The limit `min_gain`: whether the model expects enough of the next evaluations to go on with the search."""

import math
from functools import partial

from optuna.study import Study

from lazybo.core.checks import finite_number
from lazybo.core.codec import as_object, readable
from lazybo.search.optimizer import Optimizer
from lazybo.study.attributes import GAIN_KEY, of_study
from lazybo.study.retry import with_retries

# The gain of so many evaluations is compared with the limit.
HORIZON = 10
# It is computed after FIRST values, then each time the number of values passes a multiple of EVERY.
FIRST, EVERY = 20, 5


class GainLimit:
    """Computes the expected gain now and then, and keeps the one that ended the search with the study."""

    def __init__(self, study: Study, optimizer: Optimizer, min_gain: float | None) -> None:
        self._study, self._optimizer, self._min_gain = study, optimizer, min_gain
        self._checked: int | None = None  # the number of values at the last check

    def is_reached(self, searched: int) -> bool:
        """Whether less than the limit is expected. ``searched`` trials that are no repeats have ended.

        A search that has ended is not continued with the same limit by a later run.
        """
        if self._min_gain is None:
            return False
        if self._checked is None and self._earlier(searched) < self._min_gain:
            return True
        if not self._is_due() or not self._optimizer.planner.n_feasible:
            return False
        gain = self._optimizer.model.expected_gain(HORIZON)
        if gain >= self._min_gain:
            return False
        kept = {"trials": searched, "gain": gain}
        with_retries(partial(self._study._storage.set_study_system_attr, self._study._study_id, GAIN_KEY, kept))
        return True

    def _is_due(self) -> bool:
        n = self._optimizer.planner.records.n_complete
        # A run that resumes at a multiple repeats that check: whether it was made before is not known.
        before = (n - 1 if n % EVERY == 0 else n) if self._checked is None else self._checked
        self._checked = n
        return n >= FIRST and n // EVERY > before // EVERY

    def _earlier(self, searched: int) -> float:
        """The expected gain that ended the search of an earlier run after as many trials; infinite if there is none."""
        attributes = with_retries(partial(self._study._storage.get_study_system_attrs, self._study._study_id))
        with readable(of_study(GAIN_KEY, self._study.study_name), "search without min_gain"):
            kept = as_object(attributes.get(GAIN_KEY, {}))
            return finite_number("gain", kept["gain"]) if kept.get("trials") == searched else math.inf
