"""Moved."""

from lazybo.study.definition import *  # noqa: F403
from lazybo.study.definition import (
    DEFAULT_NAME as DEFAULT_NAME,
)
from lazybo.study.definition import (
    REMEDY as REMEDY,
)
from lazybo.study.definition import (
    About as About,
)
from lazybo.study.definition import (
    Run as Run,
)
from lazybo.study.definition import (
    kept_run as kept_run,
)
from lazybo.study.definition import (
    open_study as open_study,
)
from lazybo.study.store import *  # noqa: F403
from lazybo.study.store import (
    database_url as database_url,
)
from lazybo.study.store import (
    explained as explained,
)
from lazybo.study.store import (
    open_storage as open_storage,
)
from lazybo.study.store import (
    repair_storage as repair_storage,
)
