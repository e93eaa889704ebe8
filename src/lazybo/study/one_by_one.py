"""A known constraint in Optuna's studies, whose objectives ask for their parameters one by one.

The parameters of a study are known only from its trials. A predicate may ask for one that no trial has had yet.
"""

from collections.abc import Mapping
from typing import Any

import optuna

from lazybo.space.space import Predicate

_logger = optuna.logging.get_logger("optuna.samplers.lazybo")


class OneByOne:
    """A predicate of configurations that may be incomplete: true as long as a parameter that it needs is missing."""

    def __init__(self, predicate: Predicate, constants: Mapping[str, Any]) -> None:
        self._predicate = predicate
        self._constants = dict(constants)  # parameters with one value, which are no part of the model's space
        self._warned = False

    def __call__(self, params: Mapping[str, Any]) -> bool:
        """The predicate of a suggestion."""
        try:
            return self._predicate({**self._constants, **params})
        except KeyError as error:
            if not self._warned:
                self._warned = True
                _logger.warning(
                    f"feasible needs the parameter {error}, which is not among {sorted({*self._constants, *params})}; "
                    "suggestions without it count as feasible."
                )
            return True


def allows(predicate: Predicate, params: Mapping[str, Any]) -> bool:
    """Whether the parameters that a trial has so far may be part of a feasible configuration."""
    try:
        return bool(predicate(dict(params)))
    except Exception:  # what is missing may make the user's predicate fail in any way
        return True
