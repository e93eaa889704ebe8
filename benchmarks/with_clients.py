"""Other tools with lazybo: ``python -m benchmarks.with_clients`` prints the table of docs/works-with.md.

Each client runs an example for real, in a process and an empty folder of its own: a program in ``examples/``, which
checks its outcome itself, or the code of a page of the documentation, whose printed lines are compared. Needs
``pip install . --group clients``, a C compiler and bash.

``--only XGBoost Dask`` runs some of them, ``--write`` puts the table into the page. The exit status is 1 if one failed.
"""

import argparse
import ast
import os
import platform
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.paper.tables import insert, markdown

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "works-with.md"
# Seconds that an example may take: long, since only one that hangs should exceed it.
DEADLINE = 300.0


@dataclass(frozen=True)
class Client:
    """A tool that is used together with lazybo, and the example that shows how."""

    name: str
    packages: tuple[str, ...]  # whose versions are shown; after a $, programs
    interface: str
    example: str  # a program in examples/, or a page in docs/
    does: str = ""  # of a page; a program says it in its first line
    needs: str | None = None  # of a page: only its blocks without needs, and those that need this

    def what(self) -> str:
        """What the example does, in a few words."""
        if self.does:
            return self.does
        line = (ast.get_docstring(ast.parse((ROOT / self.example).read_text())) or "").splitlines()[0]
        return line.partition(": ")[2].rstrip(".") or line

    def versions(self) -> str:
        """The versions of its packages, the first one without its name; raises if one is not installed."""
        found = [(name, _version(name)) for name in self.packages]
        return ", ".join([found[0][1], *(f"{name.lstrip('$')} {number}" for name, number in found[1:])])


CLIENTS = [
    Client(
        "Optuna",
        ("optuna",),
        "LazySampler",
        "docs/optuna.md",
        "scripts, conditional parameters, a study of another sampler goes on",
    ),
    Client("Optuna's command", ("optuna",), "command", "examples/with_optuna_command.py"),
    Client("Optuna's gRPC storage", ("optuna", "grpcio"), "LazySampler, optimize", "examples/with_grpc.py"),
    Client("Optuna's journal storage", ("optuna",), "optimize, LazySampler", "examples/with_journal.py"),
    Client("Optuna's Terminator", ("optuna", "torch"), "optimize", "examples/with_terminator.py"),
    Client("optuna-dashboard", ("optuna-dashboard",), "optimize", "examples/with_dashboard.py"),
    Client("XGBoost", ("xgboost", "optuna-integration"), "LazySampler, LazyPruner", "examples/with_xgboost.py"),
    Client("LightGBM", ("lightgbm", "optuna-integration"), "optimize", "examples/with_lightgbm.py"),
    Client("PyTorch", ("torch",), "optimize", "examples/with_pytorch.py"),
    Client("Lightning", ("lightning", "optuna-integration"), "LazySampler, LazyPruner", "examples/with_lightning.py"),
    Client("Hugging Face's Trainer", ("transformers",), "LazySampler", "examples/with_hugging_face.py"),
    Client(
        "scikit-learn", ("scikit-learn",), "LazySearchCV, LazyGPRegressor", "docs/sklearn.md", "pipelines, sub-spaces"
    ),
    Client(
        "scikit-learn, combined", ("scikit-learn", "xgboost", "lightgbm"), "LazySearchCV", "examples/with_sklearn.py"
    ),
    Client("Ray Tune", ("ray",), "LazySampler", "examples/with_ray_tune.py"),
    Client(
        "Ray Tune's schedulers", ("ray",), "LazyScheduler", "docs/curves.md", "it stops and pauses trainings", "ray"
    ),
    Client("Ray", ("ray",), "optimize", "docs/cluster.md", "a local cluster evaluates", "ray"),
    Client("Dask", ("distributed",), "optimize", "docs/cluster.md", "a local cluster evaluates", "dask"),
    Client("loky, concurrent.futures", ("loky",), "optimize", "examples/with_loky.py"),
    Client("MLflow", ("mlflow-skinny",), "tracker", "examples/with_mlflow.py"),
    Client("Weights & Biases", ("wandb",), "tracker", "examples/with_wandb.py"),
    Client("TensorBoard", ("tensorboard", "tensorboardX"), "tracker", "examples/with_tensorboard.py"),
    Client(
        "Hydra",
        ("hydra-core", "hydra-joblib-launcher"),
        "sweeper",
        "docs/hydra.md",
        "sweeps with two jobs at a time, and pruning",
        "hydra",
    ),
    Client(
        "C, shell",
        ("$cc", "$bash"),
        "command",
        "docs/program.md",
        "programs that print a number, pruning, two at once",
        "cc",
    ),
    Client("Python programs", ("$python",), "command", "docs/command.md", "settings in a file, resumed; all reports"),
]


def _version(name: str) -> str:
    if name == "$python":
        return platform.python_version()
    if name.startswith("$"):
        done = subprocess.run([name[1:], "--version"], check=True, capture_output=True, text=True)  # noqa: S603
        return re.findall(r"\d+(?:\.\d+)+", done.stdout)[0]
    return version(name)


def run(client: Client) -> str:
    """Run the example of a client; "ok", or what went wrong in one line."""
    path = ROOT / client.example
    program = [str(path)] if path.suffix == ".py" else ["-m", __spec__.name, "--page", client.name]
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",  # for `lazybo` and `optuna`
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "WANDB_SILENT": "true",
    }
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            done = subprocess.run(  # noqa: S603 - our own examples
                [sys.executable, *program], cwd=folder, env=environment, capture_output=True, text=True,
                timeout=DEADLINE, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return f"not finished after {DEADLINE:.0f} s"
    return (
        "ok" if done.returncode == 0 else (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    )


def run_page(client: Client) -> None:
    """Run the code of a client's page in the current folder."""
    from tests.documents import blocks_of, differences

    blocks = [block for block in blocks_of(ROOT / client.example) if set(block.needs) <= {client.needs}]
    wrong = differences(blocks, everything=True)
    if wrong:
        sys.exit("\n".join(wrong))


def row(client: Client) -> list[str]:
    """The line of a client in the table."""
    try:
        versions, outcome = client.versions(), run(client)
    except PackageNotFoundError as error:
        versions, outcome = "–", f"{error.name} is not installed: pip install --group clients"
    example = (
        f"`{client.example}`"
        if client.example.endswith(".py")
        else f"[{Path(client.example).stem}]({Path(client.example).name})"
    )
    return [client.name, versions, client.what(), client.interface, example, outcome.replace("|", "\\|")]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [client.name for client in CLIENTS]
    parser.add_argument("--only", nargs="+", choices=names, metavar="CLIENT", default=names)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--page", choices=names, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.page:
        run_page(next(client for client in CLIENTS if client.name == options.page))
        return 0
    rows = []
    for client in CLIENTS:
        if client.name in options.only:
            rows.append(row(client))
            print(f"{client.name}: {rows[-1][-1]}", file=sys.stderr, flush=True)
    table = markdown(["client", "version", "what was done", "interface", "example", "result"], rows)
    print(table)
    if options.write:
        PAGE.write_text(insert(PAGE.read_text(), {"clients": table}))
    return int(any(each[-1] != "ok" for each in rows))


if __name__ == "__main__":
    sys.exit(main())
