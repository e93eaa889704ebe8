"""What a study says: facts, pictures and a page."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.report.facts import Facts as Facts
    from lazybo.report.facts import facts_of as facts_of
    from lazybo.report.figures import figures_of as figures_of
    from lazybo.report.html import write_report as write_report
    from lazybo.report.predictions import Advice as Advice
    from lazybo.report.predictions import importances as importances
    from lazybo.report.predictions import ranges as ranges
    from lazybo.report.predictions import recommend as recommend
    from lazybo.report.records import reason_of as reason_of
    from lazybo.report.records import table_of as table_of
else:
    __getattr__ = lazily(
        __name__,
        {
            "Advice": "predictions",  # the recommended trial beside the best one
            "Facts": "facts",  # everything that reports show about a study; its model only when asked
            "facts_of": "facts",  # the facts of a study
            "figures_of": "figures",  # pictures of a study, and their numbers
            "importances": "predictions",  # the share of each parameter in the variation
            "ranges": "predictions",  # where each parameter stays near the best
            "reason_of": "records",  # why a trial failed, in one line
            "recommend": "predictions",  # the configuration of a study to use
            "table_of": "records",  # all trials as rows
            "write_report": "html",  # a study as one HTML file
        },
    )
