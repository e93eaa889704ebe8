"""Hugging Face's Trainer: `hyperparameter_search` of a small BERT."""

import tempfile

import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

import lazybo

# Sequences of ten words; the label says whether the word 1 is among them.
words = torch.randint(1, 20, (240, 10), generator=torch.Generator().manual_seed(0))
data = [{"input_ids": row, "labels": int((row == 1).any())} for row in words]


def model_init():
    torch.manual_seed(0)
    size = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    return BertForSequenceClassification(BertConfig(vocab_size=20, **size))


def space(trial):
    return {
        "learning_rate": trial.suggest_float("learning_rate", 1e-5, 1e-1, log=True),
        "per_device_train_batch_size": trial.suggest_categorical("per_device_train_batch_size", [16, 32]),
    }


with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder,
        num_train_epochs=2,
        eval_strategy="epoch",
        save_strategy="no",
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    trainer = Trainer(args=arguments, model_init=model_init, train_dataset=data[:180], eval_dataset=data[180:])
    best = trainer.hyperparameter_search(
        hp_space=space,
        compute_objective=lambda metrics: metrics["eval_loss"],
        n_trials=8,
        direction="minimize",
        backend="optuna",
        sampler=lazybo.LazySampler(seed=0),
    )

assert best.objective < 0.7
assert best.hyperparameters.keys() == {"learning_rate", "per_device_train_batch_size"}
