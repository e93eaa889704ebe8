"""Optuna's command: it creates a study that `lazybo tune` fills, and reads what is in it."""

import json
import subprocess

STUDY = "--storage sqlite:///study.db --study-name bowl"
TUNE = "lazybo tune --storage study.db --study bowl --seed 0 --float x=-5:5"
BOWL = "awk 'BEGIN {{print ({x} - 1)^2}}'"


def run(command):
    return subprocess.run(command, shell=True, check=True, capture_output=True, text=True).stdout


run(f"optuna create-study {STUDY} --direction minimize")
run(f"{TUNE} --trials 12 -- {BOWL}")
# Another sampler's trial in between: the model learns from it.
space = """{"x": {"name": "FloatDistribution", "attributes": {"low": -5.0, "high": 5.0}}}"""
asked = json.loads(run(f"optuna ask {STUDY} --sampler RandomSampler --search-space '{space}'"))
run(f"optuna tell {STUDY} --trial-number {asked['number']} --values 7")
run(f"{TUNE} --trials 16 -- {BOWL}")
trials = json.loads(run(f"optuna trials {STUDY} --format json"))
best = json.loads(run(f"optuna best-trial {STUDY} --format json"))

assert len(trials) == 16
assert best["value"] < 0.01
