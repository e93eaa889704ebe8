"""The examples run: notebooks show what they should, and programs check what other tools made with lazybo."""

from pathlib import Path

import pytest

from benchmarks.with_clients import CLIENTS, PAGE, Client, main, run

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.extra
@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.ipynb")))
def test_a_notebook_runs_from_top_to_bottom(name: str, tmp_path: Path) -> None:
    import nbclient
    import nbformat

    notebook = nbformat.read(EXAMPLES / name, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs for cell in code), "outputs depend on the machine and are not kept"
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", resources=resources).execute()
    shown = {cell.id: cell.outputs[-1]["data"] for cell in code if cell.outputs}
    assert "20 values" in shown["code-3"]["text/html"]
    assert "95 %" in shown["code-5"]["text/html"]
    assert float(shown["code-7"]["text/plain"]) < 12
    assert shown["code-9"]["text/plain"] == "True", "a loaded optimiser continues to the last bit"


def test_there_is_an_example() -> None:
    assert [path.name for path in EXAMPLES.glob("*.ipynb")] == ["ask-and-tell.ipynb"]


PROGRAMS = [client for client in CLIENTS if client.example.endswith(".py")]


@pytest.mark.extra
@pytest.mark.parametrize("client", PROGRAMS, ids=lambda client: client.name)
def test_a_client_works(client: Client) -> None:
    assert run(client) == "ok"


def test_every_client_is_in_the_table() -> None:
    page = PAGE.read_text()
    assert [client.name for client in CLIENTS if f"| {client.name} | " not in page] == []
    assert {client.example for client in PROGRAMS} == {f"examples/{path.name}" for path in EXAMPLES.glob("*.py")}


def test_a_page_is_run_as_a_client(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--only", "Optuna"]) == 0
    assert "| LazySampler | [optuna](optuna.md) | ok |" in capsys.readouterr().out
