"""Moved."""

from lazybo.search.options import Options as ModelOptions
from lazybo.study.definition import keep_options, options_of, reporting_of
from lazybo.study.definition import stored_options as kept_options
from lazybo.study.model import model_of, open_model
from lazybo.study.trial import directions_of

__all__ = [
    "ModelOptions",
    "directions_of",
    "keep_options",
    "kept_options",
    "model_of",
    "open_model",
    "options_of",
    "reporting_of",
]
