"""Moved."""

from lazybo.study.store import with_retries as with_retries
