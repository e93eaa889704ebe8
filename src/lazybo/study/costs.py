"""Moved."""

from lazybo.study.trial import (
    SECONDS as SECONDS,
)
from lazybo.study.trial import (
    check_returned as check_returned,
)
from lazybo.study.trial import (
    cost_of as cost_of,
)
from lazybo.study.trial import (
    is_cost as is_cost,
)
from lazybo.study.trial import (
    measured_seconds as measured_seconds,
)
from lazybo.study.trial import (
    seconds_of as seconds_of,
)
