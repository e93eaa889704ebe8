"""The search: what to evaluate next in a space."""

from typing import TYPE_CHECKING

from lazybo.core import lazily

if TYPE_CHECKING:
    from lazybo.search.earlier import EarlierStudy as EarlierStudy
    from lazybo.search.hypervolume import non_dominated as non_dominated
    from lazybo.search.optimizer import Optimizer as Optimizer
    from lazybo.search.optimizer import Suggestion as Suggestion
    from lazybo.search.options import Options as Options
    from lazybo.search.predictions import Contender as Contender
    from lazybo.search.predictions import Evaluation as Evaluation
    from lazybo.search.predictions import Prediction as Prediction
    from lazybo.search.predictions import Predictor as Predictor
    from lazybo.search.predictions import Recommendation as Recommendation
else:
    __getattr__ = lazily(
        __name__,
        {
            "Contender": "predictions",  # an evaluated configuration that may be the best one, and its chance
            "EarlierStudy": "earlier",  # results of a related problem, from studies and tables
            "Evaluation": "predictions",  # an evaluation that may be recommended or repeated
            "Optimizer": "optimizer",  # ask, tell, predict, save; `model` has queries, `planner` proposes
            "Options": "options",  # how the model works: checks, help and plain data of each option
            "Prediction": "predictions",  # what the model expects at a configuration, with an interval
            "Predictor": "predictions",  # the model of one objective, as it was when it was asked for
            "Recommendation": "predictions",  # the configuration to use
            "Suggestion": "optimizer",  # a configuration to evaluate, and its number
            "non_dominated": "hypervolume",  # which of some vectors of values no other one dominates
        },
    )
