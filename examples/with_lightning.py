"""Lightning: its Trainer with Optuna's callback, which prunes after each epoch."""

import logging

import lightning
import optuna
import torch
from optuna_integration import PyTorchLightningPruningCallback
from sklearn.datasets import load_digits

import lazybo

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
images, labels = load_digits(return_X_y=True)
data = torch.utils.data.TensorDataset(torch.tensor(images.astype("float32") / 16), torch.tensor(labels))
train, valid = torch.utils.data.random_split(data, [0.7, 0.3], torch.Generator().manual_seed(0))


class Classifier(lightning.LightningModule):
    def __init__(self, lr, units):
        super().__init__()
        self.lr = lr
        self.model = torch.nn.Sequential(torch.nn.Linear(64, units), torch.nn.ReLU(), torch.nn.Linear(units, 10))

    def training_step(self, batch, _index):
        return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])

    def validation_step(self, batch, _index):
        self.log("accuracy", (self.model(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), self.lr)


def objective(trial):
    lightning.seed_everything(0, verbose=False)
    model = Classifier(trial.suggest_float("lr", 1e-5, 1.0, log=True), trial.suggest_int("units", 4, 128, log=True))
    trainer = lightning.Trainer(
        max_epochs=4,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[PyTorchLightningPruningCallback(trial, monitor="accuracy")],
    )
    batches = torch.utils.data.DataLoader(train, batch_size=64, shuffle=True)
    trainer.fit(model, batches, torch.utils.data.DataLoader(valid, batch_size=256))
    return trainer.callback_metrics["accuracy"].item()


sampler, pruner = lazybo.LazySampler(seed=0), lazybo.LazyPruner(max_step=3)
study = optuna.create_study(direction="maximize", sampler=sampler, pruner=pruner)
study.optimize(objective, n_trials=12)

assert study.best_value > 0.8
assert all(trial.intermediate_values for trial in study.trials)
