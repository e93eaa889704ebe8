"""Trials in TensorBoard. The only module that imports tensorboardX (extra ``tensorboard``)."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from optuna.trial import FrozenTrial

from lazybo.track.tracker import TrackedRun, Tracker

try:
    from tensorboardX import SummaryWriter
    from tensorboardX.summary import hparams
except ImportError as error:
    raise ImportError(f"this tracker needs tensorboardX ({error}): pip install tensorboardX") from error


class TensorBoard(Tracker):
    """Writes each trial into ``folder/STUDY/trial-NUMBER``: show them with ``tensorboard --logdir folder``.

    Parameters and results are on the page "HParams".
    """

    def __init__(self, folder: str | Path) -> None:
        super().__init__()
        if not isinstance(folder, str | Path):
            raise TypeError(f"folder must be the path of a folder, such as 'runs', not {folder!r}")
        self._folder = Path(folder).expanduser()
        there = next(each for each in (self._folder, *self._folder.absolute().parents) if each.exists())
        if not there.is_dir():
            raise ValueError(f"{str(folder)!r} cannot be a folder, since {str(there)!r} is a file; name another one")

    def start(self, study: str, trial: FrozenTrial) -> TrackedRun:
        """A writer of the trial's folder."""
        return _BoardRun(self._folder / study.replace("/", "-") / f"trial-{trial.number:04}")


class _BoardRun:
    def __init__(self, folder: Path) -> None:
        self._params: dict[str, bool | int | float | str] = {}
        self._writer = SummaryWriter(str(folder))

    def describe(self, params: Mapping[str, Any]) -> None:
        self._params.update({name: _plain(value) for name, value in params.items()})

    def log(self, values: Mapping[str, float], step: int | None) -> None:
        if step is None:
            # `add_hparams` would open a second file, which has the same name if it is opened within the same second.
            for summary in hparams(self._params, dict(values)):
                self._writer.file_writer.add_summary(summary)
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def end(self, state: str) -> None:
        self._writer.add_text("state", state)
        self._writer.close()


def _plain(value: object) -> bool | int | float | str:
    return value if isinstance(value, bool | int | float | str) else str(value)
