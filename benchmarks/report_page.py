"""The page of `lazybo report`: its size, how long it takes to write, to open and to answer a slider, and its exactness.

    python -m benchmarks.report_page [--trials 100 1000] [--picture docs/report.png]

Needs Chromium. A study has ten parameters: eight numbers, an integer and a choice, with noise. Its model is learned
when the page is written. *Exact* is the largest difference to `Optimizer.predict` over 1,000 random points, of the
median and of both ends of the interval, as a share of the range of the values. *Opened* is the time from the
navigation until the median is shown, *ready* until the intervals are. *Slider* is the median time from the event of a
slider to the new text, *curves* that until the curves of all parameters are drawn, too.
"""

import argparse
import json
import math
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import create_trial

from lazybo import LazySampler, write_report
from lazybo.study import StudyView
from tests.browser import Page, open_page

POINTS = 1000
READY = """new Promise((done) => {
  const look = () => (window.lazyboReport.model.ready ? done(performance.now()) : setTimeout(look, 1));
  look();
})"""
SLIDER = """(async () => {
  const slider = document.querySelector('.panel input[type=range]'), { explorer } = window.lazyboReport;
  const texts = [], curves = [];
  for (let i = 0; i < 40; i++) {
    slider.value = 25 * i;
    const start = performance.now();
    slider.dispatchEvent(new Event('input'));
    texts.push(performance.now() - start);
    cancelAnimationFrame(explorer.waiting);
    const before = performance.now();
    explorer.panels.forEach((panel) => explorer.drawPanel(panel));
    curves.push(performance.now() - before);
  }
  return [texts, curves].map((times) => times.sort((a, b) => a - b)[20]);
})()"""


def study_of(n: int) -> optuna.Study:
    study, rng = optuna.create_study(study_name=f"{n} trials"), np.random.default_rng(0)
    space: dict[str, BaseDistribution] = {f"x{i}": FloatDistribution(0, 1) for i in range(8)}
    space |= {"k": IntDistribution(1, 20), "c": CategoricalDistribution(["a", "b", "c"])}
    for _ in range(n):
        params: dict[str, Any] = {f"x{i}": float(rng.random()) for i in range(8)}
        params |= {"k": int(rng.integers(1, 21)), "c": "abc"[rng.integers(3)]}
        value = sum((params[f"x{i}"] - 0.5) ** 2 * (i + 1) for i in range(8)) + 0.1 * abs(params["k"] - 7)
        value += 0.3 * (params["c"] == "a") + 0.02 * float(rng.standard_normal())
        study.add_trial(create_trial(params=params, distributions=space, value=value))
    return study


def exactness(page: Page, study: optuna.Study) -> float:
    optimizer = StudyView.of(study).model().optimizer
    optimizer.learn()  # as the report does: what was learned decides whether local models take over
    points = optimizer.space.points.sample(np.random.default_rng(1), POINTS)
    found = page.run(
        f"""(() => {{
          const {{ model }} = window.lazyboReport;
          return {json.dumps(points.tolist())}.map((x) => {{
            const {{ value, low, high }} = model.predict(model.objectives[0], x);
            return [value, low, high];
          }});
        }})()"""
    )
    predictions = optimizer.predict([optimizer.space.points.decode(x) for x in points])
    expected = np.array([(each.value, each.low, each.high) for each in predictions])
    values = [trial.value for trial in study.trials if trial.value is not None]
    return float(np.abs(np.array(found) - expected).max() / np.ptp(values))


def measure(n: int) -> None:
    study = study_of(n)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        started = time.perf_counter()
        path = write_report(study, Path(folder) / "report.html")
        written, size = time.perf_counter() - started, path.stat().st_size
        with open_page(path, Path(folder)) as page:
            opened = page.run("performance.timing.loadEventEnd - performance.timing.navigationStart")
            ready = page.run(READY)
            text, curves = page.run(SLIDER)
            exact = exactness(page, study)
            assert page.problems == [], page.problems
            assert len(page.requests) == 1, page.requests
    times = f"{written:.1f} s | {opened:.0f} ms | {ready:.0f} ms | {text:.2f} ms | {curves:.0f} ms"
    print(f"| {n:,} | {size / 1e3:.0f} kB | {times} | {exact:.0e} |", flush=True)


def demo_study() -> optuna.Study:
    """The study of the picture in docs/report.md: a network's settings, with noise and some failures."""
    rng = np.random.default_rng(3)
    study = optuna.create_study(study_name="digits", direction="maximize", sampler=LazySampler(seed=1))
    study.set_metric_names(["accuracy"])

    def objective(trial: optuna.Trial) -> float:
        optimizer = trial.suggest_categorical("optimizer", ["sgd", "adam", "rmsprop"])
        rate = trial.suggest_float("learning rate", 1e-5, 1, log=True)
        momentum = trial.suggest_float("momentum", 0, 0.99) if optimizer == "sgd" else 0.5
        width = trial.suggest_int("width", 16, 512, log=True)
        dropout = trial.suggest_float("dropout", 0, 0.5)
        if rate > 0.5 and optimizer != "adam":
            raise FloatingPointError
        value = 0.96 - 0.05 * (math.log10(rate) + 2.5) ** 2 - 0.02 * abs(math.log(width / 200))
        value -= 0.05 * (momentum - 0.9) ** 2 * (optimizer == "sgd") + 0.03 * (optimizer == "rmsprop")
        return value - (dropout - 0.2) ** 2 + 0.004 * float(rng.standard_normal())

    study.optimize(objective, n_trials=60, catch=(FloatingPointError,))
    return study


def picture(path: Path) -> None:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        report = write_report(demo_study(), Path(folder) / "report.html")
        with open_page(report, Path(folder), 1120, 740) as page:
            page.run(READY)
            page.run("document.getElementById('model').scrollIntoView()")
            page.run("new Promise((done) => setTimeout(done, 500))")
            page.screenshot(path, whole=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, nargs="*", default=[100, 1000])
    parser.add_argument("--picture", type=Path, help="write the picture of docs/report.md instead")
    arguments = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if arguments.picture:
        picture(arguments.picture)
        return
    print("| trials | size | written in | opened | ready | slider | curves | exact |\n|" + "---:|" * 8)
    for n in arguments.trials:
        measure(n)


if __name__ == "__main__":
    main()
