"""Moved."""

from lazybo.study.trial import (
    as_attributes as as_attributes,
)
from lazybo.study.trial import (
    best_trial as best_trial,
)
from lazybo.study.trial import (
    complete_trials as complete_trials,
)
from lazybo.study.trial import (
    constraints_of as constraints_of,
)
from lazybo.study.trial import (
    feasible_trials as feasible_trials,
)
from lazybo.study.trial import (
    front_of as front_of,
)
from lazybo.study.trial import (
    measured_constraints as measured_constraints,
)
from lazybo.study.trial import (
    names_of as names_of,
)
from lazybo.study.trial import (
    violates as violates,
)
