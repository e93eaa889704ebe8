"""A known constraint in Optuna's studies, whose objectives ask for their parameters one by one.

The parameters of a study are known only from its trials. A predicate may ask for one that no trial has had yet.
"""

from collections.abc import Mapping
from typing import Any

import optuna

from lazybo.search.feasibility import Predicate

_logger = optuna.logging.get_logger("optuna.samplers.lazybo")


class OneByOne:
    """A predicate of configurations that may be incomplete: true as long as a parameter that it needs is missing."""

    def __init__(self, predicate: Predicate) -> None:
        self.predicate = predicate
        self.constants: dict[str, Any] = {}  # parameters with one value, which are no part of the model's space
        self._warned = False

    def __call__(self, params: Mapping[str, Any]) -> bool:
        """The predicate of a suggestion."""
        try:
            return self.predicate({**self.constants, **params})
        except KeyError as error:
            if not self._warned:
                self._warned = True
                _logger.warning(
                    f"feasible needs the parameter {error}, which is not among {sorted({*self.constants, *params})}; "
                    "suggestions without it count as feasible."
                )
            return True

    def allows(self, params: Mapping[str, Any]) -> bool:
        """Whether the parameters that a trial has so far may be part of a feasible configuration."""
        try:
            return bool(self.predicate({**self.constants, **params}))
        except Exception:  # what is missing may make the user's predicate fail in any way
            return True
