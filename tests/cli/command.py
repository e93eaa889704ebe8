"""The command ``lazybo`` as tests run it, in this process."""

from lazybo.cli.app import app

__all__ = ["app"]
