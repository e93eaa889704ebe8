"""The lazybo command."""

from lazybo.core.checks import check_optuna

check_optuna()
