"""TensorBoard: each trial is a run, with its curve and a line of the page "HParams"."""

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import lazybo
from lazybo.track.tensorboard import TensorBoard


def train(lr, trial):
    for epoch in range(1, 4):
        loss = abs(lr - 0.01) + 1 / epoch
        trial.report(loss, epoch)
    return loss


study = lazybo.optimize(
    train, {"lr": (1e-4, 1.0, "log")}, n_trials=3, seed=0, study_name="tuned", callbacks=[TensorBoard("runs")]
)

for trial in study.trials:  # `tensorboard --logdir runs` shows them
    events = EventAccumulator(f"runs/tuned/trial-{trial.number:04}")
    events.Reload()
    assert [event.step for event in events.Scalars("value")] == list(trial.intermediate_values)
    assert "_hparams_/session_start_info" in events.summary_metadata
