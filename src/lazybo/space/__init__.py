"""Search spaces: parameters, configurations, and points of the unit cube."""
