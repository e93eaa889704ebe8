"""The lazybo command."""

from typing import TYPE_CHECKING

from lazybo.core import checks, lazily

checks.check_optuna()

if TYPE_CHECKING:
    from lazybo.cli.app import main as main
else:
    __getattr__ = lazily(__name__, {"main": "app"})
