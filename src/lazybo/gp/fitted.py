"""What was learned about one output: immutable, so that saving, restoring and copying are one assignment."""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import numpy as np

from lazybo.core import checks
from lazybo.gp.earlier import Related
from lazybo.gp.kernels.base import Column, Kernel
from lazybo.gp.mixture import Particle
from lazybo.gp.priors import NOISY, Priors
from lazybo.gp.targets import Warping

# No study has more rows. A state that was edited may say so.
MAX_COUNT = 2**53
# Kernels with other parameters overflow.
SMALLEST, LARGEST = 1e-100, 1e100


@dataclass(frozen=True, slots=True)
class Fitted:
    """The learned parameters, and all that is needed to build the same process again, to the last bit.

    ``learned_at`` and ``warped_at`` are the numbers of values at that time. ``built_rows`` is the number of rows that
    the process was last built from at once; 0 means that it must be built. Known variances are in units of
    ``built_warping`` until it is built again. ``related`` says what the first ``related_at`` values have in common with
    earlier tasks. ``noise_range`` is the least and the most variance that noise may give to measured values.

    ``kernel`` and ``noise`` are the most probable ones. ``others`` are further particles; the weights of all of them
    are those when they were drawn, divided by the likelihood then (`Posterior`). ``log_prior`` belongs to the first.
    ``misfit`` is `Posterior.misfit` then.
    """

    kernel: Kernel
    noise: float
    learned_at: int = 0
    warping: Warping | None = None
    warped_at: int = 0
    built_rows: int = 0
    built_warping: Warping | None = None
    related: Related | None = None
    related_at: int = 0
    noise_range: tuple[float, float] | None = None
    log_prior: float = 0.0
    others: tuple[Particle, ...] = ()
    misfit: float = 0.0

    @classmethod
    def start(
        cls, kernel: str | Kernel | None, columns: Sequence[Column], noise: float | None, priors: Priors
    ) -> "Fitted":
        """What there is before learning: a kernel object as it was given, or one by name with the priors' medians."""
        chosen = Kernel.chosen(kernel, columns)
        median, median_noise = priors.start(chosen)
        first = usable(kernel) if isinstance(kernel, Kernel) else median
        return cls(first, median_noise if noise is None else checks.positive("noise", noise))

    @property
    def particles(self) -> list[Particle]:
        """All particles, the most probable one first."""
        return [Particle(self.kernel, self.noise, self.log_prior), *self.others]

    @property
    def is_noisy(self) -> bool:
        """Whether the model takes the values for noisy; not at the limit of values that are known to have no noise."""
        return self.noise > NOISY * (1.0 + 1e-9)

    def unbuilt(self, **changes: Any) -> "Fitted":
        """The same with changes, for a process that is built again, in units of the current warping."""
        return replace(self, built_rows=0, built_warping=None, **changes)

    def noise_limits(self) -> tuple[float, float]:
        """``noise_range`` in units of the targets²."""
        if self.noise_range is None or self.warping is None:
            return 0.0, np.inf
        least, most = self.warping.variances(np.array(self.noise_range)).tolist()
        return least, most

    def state(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {
            "kernel": self.kernel.name,
            "parameters": self.kernel.values.tolist(),
            "noise": self.noise,
            "learned_at": self.learned_at,
            "built_rows": self.built_rows,
            "built_warping": list(astuple(self.built_warping)) if self.built_warping else None,
            "warping": list(astuple(self.warping)) if self.warping else None,
            "warped_at": self.warped_at,
            **({} if self.related is None else {"related": self.related.state(), "related_at": self.related_at}),
            **({} if self.noise_range is None else {"noise_range": list(self.noise_range)}),
            **(
                {
                    "particles": [
                        [each.kernel.values.tolist(), each.noise, each.log_weight] for each in self.particles
                    ],
                    "misfit": self.misfit,
                }
                if self.others
                else {}
            ),
        }

    def parse(self, state: Mapping[str, Any]) -> "Fitted":
        """The inverse of `state`. The kernel gets the columns of this one."""
        if not isinstance(state, Mapping):
            raise ValueError(f"it must be a mapping, not {checks.shortened(state)}")
        if state["kernel"] != self.kernel.name:
            found = state["kernel"]
            raise ValueError(f"it has the kernel {found!r}, not {self.kernel.name!r}; give kernel={found!r}")
        counts = {
            name: checks.whole(name, state[name], 0, MAX_COUNT) for name in ("learned_at", "warped_at", "built_rows")
        }
        warpings = {name: Warping(*state[name]) if state[name] else None for name in ("warping", "built_warping")}
        if counts["built_rows"] and not warpings["built_warping"]:
            raise ValueError("its process was built, but there is no built_warping")
        kernel = usable(self.kernel.with_values(state["parameters"]))
        found = Fitted(kernel, checks.positive("noise", state["noise"]), **counts, **warpings)  # type: ignore[arg-type]
        if "noise_range" in state:
            least, most = (checks.positive("noise_range", each) for each in state["noise_range"])
            found = replace(found, noise_range=(least, most))
        if "particles" in state:
            leading, *others = (
                Particle(
                    usable(self.kernel.with_values(values)),
                    checks.positive("noise", noise),
                    checks.finite_number("log_weight", log_weight),
                )
                for values, noise, log_weight in state["particles"]
            )
            misfit = checks.finite_number("misfit", state.get("misfit", np.finfo(float).max))  # 0.1 has none
            found = replace(found, log_prior=leading.log_weight, others=tuple(others), misfit=misfit)
        if "related" not in state:
            return found
        return replace(
            found,
            related=Related.parse(state["related"]),
            related_at=checks.whole("related_at", state["related_at"], 0, MAX_COUNT),
        )


def usable(kernel: Kernel) -> Kernel:
    """The kernel itself; a ValueError if its parameters are so extreme that covariances overflow."""
    extreme = [value for value in kernel.values.tolist() if not SMALLEST <= value <= LARGEST]
    if extreme:
        raise ValueError(f"the parameters of the kernel must be from {SMALLEST:g} to {LARGEST:g}, not {extreme[0]}")
    return kernel
