"""What a study shows: records of numbers, and pictures of them."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.report.facts import Facts as Facts
    from lazybo.report.facts import ModelFacts as ModelFacts
    from lazybo.report.facts import equal_values_of as equal_values_of
    from lazybo.report.facts import facts_of as facts_of
    from lazybo.report.facts import model_facts_of as model_facts_of
    from lazybo.report.facts import unless_missing as unless_missing
    from lazybo.report.good_ranges import Ranges as Ranges
    from lazybo.report.good_ranges import in_words as in_words
    from lazybo.report.html import write_report as write_report
    from lazybo.report.predictions import MOST_SHOWN as MOST_SHOWN
    from lazybo.report.predictions import Advice as Advice
    from lazybo.report.predictions import advise as advise
    from lazybo.report.predictions import chances_shown as chances_shown
    from lazybo.report.predictions import importances as importances
    from lazybo.report.predictions import ranges as ranges
    from lazybo.report.predictions import recommend as recommend
    from lazybo.report.records import reason_of as reason_of
else:
    __getattr__ = lazily(
        __name__,
        {
            "Advice": "predictions",
            "Facts": "facts",
            "MOST_SHOWN": "predictions",
            "ModelFacts": "facts",
            "Ranges": "good_ranges",
            "advise": "predictions",
            "chances_shown": "predictions",
            "equal_values_of": "facts",
            "facts_of": "facts",
            "importances": "predictions",
            "in_words": "good_ranges",
            "model_facts_of": "facts",
            "ranges": "predictions",
            "reason_of": "records",
            "recommend": "predictions",
            "unless_missing": "facts",
            "write_report": "html",
        },
    )
