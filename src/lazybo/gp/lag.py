"""The lag: when to learn the kernel parameters, decided from counts alone."""

from typing import Literal, TypeAlias

import numpy as np

from lazybo.gp.fit import MAX_POINTS

Lag: TypeAlias = int | Literal["auto"] | None

# The work model of `is_due`, in multiply-adds: to learn once takes about 20 evaluations of m³/2 and one factorisation
# of n³/6.
LEARNING_PER_POINT_CUBED = 10
# Each observation adds this to the budget for learning: a constant, which is small even for small problems, and some
# passes over the factor.
ALLOWANCE = 4_000_000
ALLOWANCE_PER_ENTRY = 8


def check_lag(lag: object) -> Lag:
    """``lag`` itself if it is one of 1, 2, …, None or "auto"."""
    if lag is None or (isinstance(lag, str) and lag == "auto"):
        return lag  # type: ignore[return-value]
    if isinstance(lag, int | np.integer) and not isinstance(lag, bool) and lag >= 1:
        return int(lag)
    raise ValueError(f'lag must be a positive whole number, None (never learn) or "auto", not {lag!r}')


def is_due(lag: Lag, learned_at: int, n: int) -> bool:
    """Whether to learn with n observations if the kernel was last learned at ``learned_at`` (0: never).

    - An integer l: every l observations; 1 is standard Bayesian optimisation.
    - None: never, the paper's fully lazy mode.
    - "auto": when the budget covers the work. Each observation since then adds `ALLOWANCE`, and `ALLOWANCE_PER_ENTRY`
      for each of the n² entries of K. That is every observation while n is small; later, learning costs O(n²) a step.
      No clock is used, so runs are repeatable.
    """
    lag = check_lag(lag)
    if lag is None or n < 2 or n <= learned_at:
        return False
    if lag == "auto":
        paid = ALLOWANCE * (n - learned_at) + ALLOWANCE_PER_ENTRY * (_sum_of_squares(n) - _sum_of_squares(learned_at))
        return paid >= learning_work(n)
    return learned_at == 0 or n - learned_at >= lag


def learning_work(n: int) -> int:
    """Multiply-adds to learn once with n observations, by the work model."""
    return LEARNING_PER_POINT_CUBED * min(n, MAX_POINTS) ** 3 + n**3 // 6


def _sum_of_squares(n: int) -> int:
    return n * (n + 1) * (2 * n + 1) // 6
