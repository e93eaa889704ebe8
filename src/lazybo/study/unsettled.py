"""Which trials of a study have to be read again: those that are new, and those that had not finished."""

from collections.abc import Sequence

from optuna.trial import FrozenTrial


class Unsettled:
    """The trials that may have changed since they were last read.

    A trial that runs for long, or whose process died, costs no more than itself: the finished trials after it are not
    read again.
    """

    def __init__(self) -> None:
        self._read = 0  # how many trials there were
        self._unfinished: list[int] = []  # the positions of those of them that had not finished

    def among(self, trials: Sequence[FrozenTrial]) -> list[FrozenTrial]:
        """The trials to read again, in their order. ``trials`` are all trials of the study, in the order of numbers."""
        return [*(trials[position] for position in self._unfinished), *trials[self._read :]]

    def note(self, trials: Sequence[FrozenTrial], except_number: int = -1) -> None:
        """Note that all of these have been read, but not the one with this number."""
        positions = [*self._unfinished, *range(self._read, len(trials))]
        self._unfinished = [
            position
            for position in positions
            if not trials[position].state.is_finished() or trials[position].number == except_number
        ]
        self._read = len(trials)
