"""A study made with LazySampler, in optuna-dashboard in a real browser, and in Optuna's own plots."""

import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

from lazybo import LazySampler
from tests.browser import FLAGS, chromium


@pytest.fixture
def study(tmp_path: Path) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        study_name="bowl-by-lazybo", storage=f"sqlite:///{tmp_path}/study.db", sampler=LazySampler(seed=0)
    )
    study.optimize(lambda t: (t.suggest_float("x", -5, 5) - 1) ** 2 + t.suggest_int("n", 1, 9), n_trials=15)
    return study


@pytest.fixture
def dashboard(study: optuna.Study, tmp_path: Path) -> Iterator[str]:  # noqa: ARG001 - the study must exist
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).parent / "lazybo"
    command = [str(program), "dashboard", f"{tmp_path}/study.db", "--port", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/dashboard/studies/1"
        for _ in range(240):
            try:
                urllib.request.urlopen(url)
                break
            except OSError:
                time.sleep(0.25)
        yield url
    finally:
        server.terminate()
        server.wait(20)


def browse(url: str, tmp_path: Path, *what: str) -> str:
    options = ["--window-size=1400,1000", "--virtual-time-budget=15000", f"--user-data-dir={tmp_path}/browser"]
    command = [chromium(), *FLAGS, *options, *what, url]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=180).stdout


@pytest.mark.extra
def test_the_dashboard_shows_the_study_and_its_best_value(study: optuna.Study, dashboard: str, tmp_path: Path) -> None:
    page = browse(dashboard, tmp_path, "--dump-dom")
    assert "bowl-by-lazybo" in page
    assert str(study.best_value) in page
    assert f"number={study.best_trial.number}" in page
    picture = tmp_path / "page.png"
    browse(dashboard, tmp_path, f"--screenshot={picture}")
    assert picture.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert picture.stat().st_size > 20_000, "more than an empty page"


@pytest.mark.extra
@pytest.mark.filterwarnings("ignore")
def test_optunas_plots_draw_the_study(study: optuna.Study) -> None:
    plots = optuna.visualization
    for plot in (
        plots.plot_optimization_history,
        plots.plot_param_importances,
        plots.plot_parallel_coordinate,
        plots.plot_slice,
        plots.plot_contour,
        plots.plot_edf,
        plots.plot_timeline,
    ):
        assert plot(study).data, plot.__name__
