"""The search: what to evaluate next in a space."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.search.acquisition import MIN_STD as MIN_STD
    from lazybo.search.acquisition import Acquisition as Acquisition
    from lazybo.search.curve_forecasts import MIN_COMPLETE as MIN_COMPLETE
    from lazybo.search.curve_forecasts import Curve as Curve
    from lazybo.search.curve_forecasts import CurveModel as CurveModel
    from lazybo.search.curve_forecasts import Forecast as Forecast
    from lazybo.search.earlier import EarlierStudy as EarlierStudy
    from lazybo.search.earlier import best_of as best_of
    from lazybo.search.earlier import earlier_studies as earlier_studies
    from lazybo.search.earlier import from_rows as from_rows
    from lazybo.search.earlier import from_study as from_study
    from lazybo.search.hypervolume import non_dominated as non_dominated
    from lazybo.search.optimizer import Optimizer as Optimizer
    from lazybo.search.optimizer import Suggestion as Suggestion
    from lazybo.search.options import Options as Options
    from lazybo.search.options import check_sources as check_sources
    from lazybo.search.predictions import BLOCK_POINTS as BLOCK_POINTS
    from lazybo.search.predictions import HALF_WIDTH as HALF_WIDTH
    from lazybo.search.predictions import INTERVAL as INTERVAL
    from lazybo.search.predictions import WIDENED as WIDENED
    from lazybo.search.predictions import Contender as Contender
    from lazybo.search.predictions import Evaluation as Evaluation
    from lazybo.search.predictions import Limit as Limit
    from lazybo.search.predictions import Prediction as Prediction
    from lazybo.search.predictions import Predictor as Predictor
    from lazybo.search.predictions import Recommendation as Recommendation
    from lazybo.search.queries import Relation as Relation
    from lazybo.search.records import pending_row as pending_row
    from lazybo.search.records import repeats as repeats
    from lazybo.search.results import PENDING as PENDING
    from lazybo.search.results import Values as Values
else:
    __getattr__ = lazily(
        __name__,
        {
            "Acquisition": "acquisition",
            "BLOCK_POINTS": "predictions",
            "Contender": "predictions",
            "Curve": "curve_forecasts",
            "CurveModel": "curve_forecasts",
            "EarlierStudy": "earlier",
            "Evaluation": "predictions",
            "Forecast": "curve_forecasts",
            "HALF_WIDTH": "predictions",
            "INTERVAL": "predictions",
            "Limit": "predictions",
            "MIN_COMPLETE": "curve_forecasts",
            "MIN_STD": "acquisition",
            "Optimizer": "optimizer",
            "Options": "options",
            "PENDING": "results",
            "Prediction": "predictions",
            "Predictor": "predictions",
            "Recommendation": "predictions",
            "Relation": "queries",
            "Suggestion": "optimizer",
            "Values": "results",
            "WIDENED": "predictions",
            "best_of": "earlier",
            "check_sources": "options",
            "earlier_studies": "earlier",
            "from_rows": "earlier",
            "from_study": "earlier",
            "non_dominated": "hypervolume",
            "pending_row": "records",
            "repeats": "records",
        },
    )
