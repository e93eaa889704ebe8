"""Public names of `lazybo.search.acquisition`."""

from lazybo.search.acquisition import (
    ACQUISITIONS,
    Acquired,
    Acquisition,
    confidence_bound,
    expected_improvement,
    log_expected_improvement,
    probability_of_improvement,
)

__all__ = [
    "ACQUISITIONS",
    "Acquired",
    "Acquisition",
    "confidence_bound",
    "expected_improvement",
    "log_expected_improvement",
    "probability_of_improvement",
]
