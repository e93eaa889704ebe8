"""PyTorch: a training that is paused when it looks unpromising, and goes on from its checkpoint."""

import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import lazybo

EPOCHS = 9
images, labels = load_digits(return_X_y=True)
arrays = train_test_split(images.astype("float32") / 16, labels, random_state=0)
X_train, X_test, y_train, y_test = map(torch.tensor, arrays)


def train(lr, units, dropout, checkpoint):
    torch.manual_seed(0)
    layers = torch.nn.Linear(64, units), torch.nn.ReLU(), torch.nn.Dropout(dropout), torch.nn.Linear(units, 10)
    model = torch.nn.Sequential(*layers)
    optimiser = torch.optim.Adam(model.parameters(), lr)
    saved, first = checkpoint / "state.pt", 1
    if saved.exists():
        weights, moments, first = torch.load(saved, weights_only=True)
        model.load_state_dict(weights)
        optimiser.load_state_dict(moments)
    for epoch in range(first, EPOCHS + 1):
        model.train()
        for rows in torch.randperm(len(X_train)).split(64):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(model(X_train[rows]), y_train[rows]).backward()
            optimiser.step()
        model.eval()
        torch.save((model.state_dict(), optimiser.state_dict(), epoch + 1), saved)
        yield (model(X_test).argmax(1) == y_test).float().mean().item()


space = {"lr": (1e-5, 1.0, "log"), "units": (4, 128, "log"), "dropout": (0.0, 0.8)}
study = lazybo.optimize(train, space, n_trials=20, direction="maximize", seed=0, max_steps=EPOCHS, progress=False)

assert study.best_value > 0.9
assert sum(len(trial.intermediate_values) for trial in study.trials) < 20 * EPOCHS
