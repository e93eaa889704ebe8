"""What MkDocs does besides building pages: the page of the command, search without a server, nothing from a network."""

import math
import re
import tempfile
from collections import defaultdict
from enum import Enum
from html import escape
from pathlib import Path
from typing import Any

import optuna
import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from optuna.trial import Trial

from lazybo import LazySampler, write_report
from lazybo.cli.app import app
from lazybo.cli.console import word_of

COMMAND_PAGE = "cli.md"
EXAMPLE_REPORT = "example-report.html"
INTRODUCTION = """# The command: all options

This page is made from the command itself when the site is built. What the options mean for a program is in
[The command: settings and output](command.md).
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of the command, and the report that the landing page shows."""
    files.append(File.generated(config, COMMAND_PAGE, content=command_page()))
    files.append(File.generated(config, EXAMPLE_REPORT, content=example_report()))
    return files


def example_report() -> str:
    """A report to play with, of a study that is made when the site is built."""

    def loss(trial: Trial) -> float:
        lr, dropout = trial.suggest_float("lr", 1e-4, 0.1, log=True), trial.suggest_float("dropout", 0.0, 0.6)
        layers, optimiser = trial.suggest_int("layers", 1, 6), trial.suggest_categorical("optimiser", ["adam", "sgd"])
        ideal = -2.6 if optimiser == "adam" else -1.4
        slow, wide = (math.log10(lr) - ideal) ** 2, (layers - 4 + 3 * dropout) ** 2
        return 0.08 + 0.1 * slow / (1.0 + slow) + 0.01 * wide + 0.05 * (dropout - 0.2) ** 2

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(study_name="an example", sampler=LazySampler(seed=0))
    study.optimize(loss, n_trials=40)
    with tempfile.TemporaryDirectory() as folder:
        return Path(write_report(study, Path(folder) / "report.html")).read_text(encoding="utf-8")


def on_post_build(config: MkDocsConfig) -> None:
    """Write the search index as a script too: a page that is opened as a file may not read JSON."""
    folder = Path(config.site_dir) / "search"
    index = (folder / "search_index.json").read_text(encoding="utf-8")
    (folder / "search_index.js").write_text(f"var __index = {index}", encoding="utf-8")


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Refuse a page that loads something from another machine. Links to other sites are fine."""
    loaded = re.findall(r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"(?:https?:)?//[^\"]*\"", output)
    if loaded:
        raise PluginError(f"{page.file.src_uri} of {config.site_name} loads from a network: {loaded[0]}")
    return output


def command_page() -> str:
    """The help of all commands as Markdown."""
    root: Any = typer.main.get_command(app)
    return "\n".join([INTRODUCTION, *_parts(root, "lazybo")])


def _parts(group: Any, name: str) -> list[str]:
    parts = []
    for key, command in group.commands.items():
        if command.hidden:
            continue
        full = f"{name} {key}"
        if hasattr(command, "commands"):
            parts += [f"## {full}\n", f"{command.help}\n", *_parts(command, full)]
        else:
            parts += [f"{'##' if name == 'lazybo' else '###'} {full}\n", f"{_escaped(command.help)}\n"]
            parts += [f"```text\n{_usage(command, full)}\n```\n", *_tables(command), _epilogue(command.epilog)]
    return parts


def _usage(command: Any, name: str) -> str:
    arguments = [p for p in command.params if p.param_type_name == "argument"]
    options = any(p.param_type_name == "option" for p in command.params)
    words = [p.metavar or p.name.upper() for p in arguments]
    words = [word if p.required else f"[{word}]" for p, word in zip(arguments, words, strict=True)]
    return " ".join([name, *(["[OPTIONS]"] if options else []), *words])


def _tables(command: Any) -> list[str]:
    """A table of arguments and options for each panel of the help."""
    rows: dict[str, list[str]] = defaultdict(list)
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        panel = getattr(parameter, "rich_help_panel", None) or ""
        rows[panel].append(f"| {_name(parameter)} | {_meaning(parameter)} |")
    tables = []
    for panel, lines in rows.items():
        title = [f"**{panel}**\n"] if panel else []
        tables.append("\n".join([*title, "| option | meaning |", "|---|---|", *lines, ""]))
    return tables


def _name(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        return _code(parameter.metavar or parameter.name.upper())
    value = parameter.metavar or word_of(parameter)
    return ", ".join(_code(f"{option} {value}".strip()) for option in parameter.opts)


def _type(parameter: Any) -> Any:
    return parameter.type_descriptor.annotation


def _meaning(parameter: Any) -> str:
    said = _escaped(parameter.help or "")
    default, plain = parameter.default, isinstance(parameter.default, str | int | float)
    if plain and not isinstance(default, bool) and "default" not in said:
        said += f" Default: `{default}`."
    kind = _type(parameter)
    if isinstance(kind, type) and issubclass(kind, Enum):
        said += " One of " + ", ".join(f"`{choice.value}`" for choice in kind) + "."
    return _cell(said)


def _epilogue(text: str | None) -> str:
    """The examples of a help text as a block, and the paragraphs after them."""
    if not text:
        return ""
    paragraphs = [re.sub(r"\[/?bold\]", "", part) for part in text.split("\n\n")]
    examples = [part for part in paragraphs if part.startswith(("lazybo ", "sh -c"))]
    others = [_escaped(part) for part in paragraphs if part not in examples and part != "Examples"]
    block = "```text\n" + "\n".join(examples) + "\n```\n" if examples else ""
    return "\n\n".join([block, *others, ""])


def _escaped(text: str) -> str:
    """Text in which Markdown and HTML see no marks of their own."""
    return re.sub(r"([\\<>*_`{}\[\]])", r"\\\1", text).replace(r"\<", "&lt;").replace(r"\>", "&gt;")


def _code(text: str) -> str:
    """As HTML: in a table, Markdown would take a | in its own code for the end of the cell, and [a] [b] for a link."""
    return f"<code>{escape(text).replace('|', '&#124;').replace('[', '&#91;')}</code>"


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")
