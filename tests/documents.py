"""The code of the documentation: which blocks a page has, and running them as a reader would.

The blocks of a page run in their order, in one empty folder:

- ``python`` is executed, all blocks of a page in one namespace; ``sh`` is run by bash.
- ``console`` has commands after ``$`` and what they print, standard error included; it is compared as ``output`` is.
- A block with a title, ``c title="train.c"``, is written to that file.
- ``output`` is what the block before it prints. Lines are compared up to their first number, in any order, since
  numbers differ between machines; a line ``…`` says that lines were left out. ``python -m tests.documents PAGE…``
  writes what is printed today into the page.
- ``text`` and blocks without a language are only shown.

A comment before a block changes that: ``<!-- not run: REASON -->``, or ``<!-- needs: dask -->`` for a block that runs
only where this is installed (the tests marked ``extra``).
"""

import contextlib
import io
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
RUN = ("python", "sh", "console")
SHOWN = ("", "text", "rooms")
# Blocks that need these show the code of another tool, which may warn.
OTHER_TOOLS = {"ax", "hyperopt", "skopt"}

_FENCE = re.compile(
    r"(?:^[ \t]*<!-- (?P<note>not run|needs): (?P<why>[^\n]*?) -->\n+)?"
    r"^(?P<indent>[ \t]*)```(?P<language>[\w-]*)(?: title=\"(?P<title>[^\"]+)\")?[^\n]*\n(?P<text>.*?)^(?P=indent)```$",
    re.M | re.S,
)
_NUMBER = re.compile(r"[-+]?\b\d")
# Lines of `lazybo show` that depend on the numbers.
SOMETIMES = ("probability of being the best (ties count for both)", "recommended trial", "trial")


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str
    span: tuple[int, int]  # of the text, in the page
    title: str | None = None
    not_run: str | None = None  # the reason
    needs: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        return f"{self.page}, line {self.line}"

    def runs(self, *, everything: bool) -> bool:
        """Whether the block is executed, here or, with ``everything``, where all that blocks need is installed."""
        return self.not_run is None and (everything or not self.needs)


def blocks_of(path: Path) -> list[Block]:
    text = path.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        indent, why = match["indent"], match["why"] or ""
        inner = re.sub(rf"^{indent}", "", match["text"], flags=re.M) if indent else match["text"]
        found.append(
            Block(
                page=str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name,
                line=text.count("\n", 0, match.start("text")),
                language=match["language"],
                text=inner,
                span=match.span("text"),
                title=match["title"],
                not_run=why if match["note"] == "not run" else None,
                needs=tuple(why.replace(",", " ").split()) if match["note"] == "needs" else (),
            )
        )
    return found


def run(blocks: Sequence[Block], *, everything: bool = False) -> Iterator[tuple[Block, str]]:
    """Run the blocks in the current folder; gives each ``output`` block with what was really printed."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    printed: str | None = None
    for block in blocks:
        if block.language == "output":
            if printed is not None:
                yield block, printed
        elif not block.runs(everything=everything):
            printed = None
        elif block.title:
            Path(block.title).parent.mkdir(exist_ok=True)
            Path(block.title).write_text(block.text, encoding="utf-8")
        elif block.language == "python":
            printed = _python(block, namespace)
        elif block.language == "sh":
            printed = _shell(block.text, block.place)
        elif block.language == "console":
            commands, shown = _transcript(block.text)
            yield replace(block, text=shown), "".join(_shell(command, block.place, both=True) for command in commands)


def _python(block: Block, namespace: dict[str, object]) -> str:
    # Padded, so that a traceback has the line of the page.
    code = compile("\n" * block.line + block.text, block.page, "exec")
    with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings():
        if not OTHER_TOOLS.isdisjoint(block.needs):
            warnings.simplefilter("ignore")
        exec(code, namespace)
    return out.getvalue()


def _transcript(text: str) -> tuple[list[str], str]:
    """The commands after ``$``, which may continue after a backslash, and all other lines."""
    pattern = re.compile(r"^\$ ((?:.*\\\n)*.*)\n", re.M)
    return pattern.findall(text), pattern.sub("", text)


def _shell(text: str, place: str, *, both: bool = False) -> str:
    # The folder of the interpreter has `python` and `lazybo`. Open MPI refuses root, and more ranks than cores.
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
        "MPLBACKEND": "agg",
        "COLUMNS": "100",
    }
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", text],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if both else subprocess.PIPE,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{place} exits with {done.returncode}:\n{done.stdout}{done.stderr or ''}"
    return done.stdout


def same(shown: str, printed: str) -> bool:
    """Whether all lines that a page shows were printed: up to their first number, in any order, among others."""
    return not Counter(_beginnings(shown)) - Counter(_beginnings(printed))


def _beginnings(text: str) -> list[str]:
    lines = (" ".join(_NUMBER.split(line)[0].split()) for line in text.splitlines())
    return [line for line in lines if line not in ("", "…") and not line.startswith(SOMETIMES)]


def differences(blocks: Sequence[Block], *, everything: bool = False) -> list[str]:
    """Run the blocks in the current folder; where a page shows what is not printed."""
    return [
        f"{shown.place} shows\n{shown.text}but the code prints\n{printed}"
        for shown, printed in run(blocks, everything=everything)
        if not same(shown.text, printed)
    ]


def rewrite(path: Path) -> None:
    """Run a page and write what its blocks print into its ``output`` blocks; those with a … stay."""
    text = path.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        found = [
            pair
            for pair in run(blocks_of(path), everything=True)
            if pair[0].language == "output" and "…" not in pair[0].text
        ]
    for block, printed in reversed(found):
        lines = "".join(f"{line.rstrip()}\n" for line in printed.rstrip().splitlines())
        text = text[: block.span[0]] + lines + text[block.span[1] :]
    path.write_text(text, encoding="utf-8")


def count() -> None:
    """Print how many blocks each page has, and why some are not run."""
    total: Counter[str] = Counter()
    pages = 0
    for path in PAGES:
        blocks = [block for block in blocks_of(path) if block.language not in (*SHOWN, "output")]
        kinds = Counter("not run" if b.not_run else "extra" if b.needs else "run" for b in blocks)
        total += kinds
        pages += kinds["run"] + kinds["extra"] > 0
        print(f"{path.relative_to(ROOT)!s:26}" + "".join(f"{kinds[k]:4} {k}" for k in ("run", "extra", "not run")))
        for block in blocks:
            if block.not_run:
                print(f"    line {block.line}: {block.not_run}")
    print(f"{len(PAGES)} pages, {pages} with code that runs; blocks: {dict(total)}")


if __name__ == "__main__":
    for name in sys.argv[1:]:
        rewrite(Path(name).resolve())
    if not sys.argv[1:]:
        count()
