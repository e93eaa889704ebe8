"""A study as one HTML file that needs no network, no server and no other file.

Texts and tables are HTML (`report.sections`). The page's own script (`page/`) draws the pictures, and computes the
predictions from the numbers of the model (`report.portable`). Everything from outside (names, errors, choices) is
escaped, and a content security policy allows only the script of this module, by its hash, and no connection.
"""

import base64
import hashlib
from importlib import resources
from pathlib import Path

from optuna.study import Study

from lazybo.core.checks import shortened
from lazybo.core.codec import write_whole
from lazybo.report.content import Content, content_of
from lazybo.report.data import as_json, data_of
from lazybo.report.sections import escaped, footer, header, sections

# The files of the page, in this order.
SCRIPTS = ("model.js", "charts.js", "explorer.js", "page.js")
STYLE = "report.css"


def write_report(study: Study, path: str | Path) -> Path:
    """Write a report of a study as one HTML file, and return its path.

    The file needs no network and no server. It has the course of the study, what is recommended and how sure the model
    is, health checks in words, the model with a slider for each parameter, importances, learning curves, the front of
    several objectives, and failures. A study without any value has a report too, which says what is missing.
    """
    if not isinstance(study, Study):
        raise ValueError(f"study must be an Optuna study, not {shortened(study)}")
    file = Path(path)
    write_whole(file, page_of(content_of(study)))
    return file


def page_of(content: Content) -> str:
    """The whole page."""
    script = "\n".join(_resource(name) for name in SCRIPTS)
    script = f'"use strict";\n(() => {{\n{script}\n}})();'
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        f"script-src 'sha256-{digest}'"
    )
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{escaped(content.name)} · lazybo report</title>
<style>
{_resource(STYLE)}</style>
</head>
<body>
{header(content)}
<main>
{sections(content)}
</main>
{footer()}
<script type="application/json" id="data">{as_json(data_of(content))}</script>
<script>{script}</script>
</body>
</html>
"""


def _resource(name: str) -> str:
    return (resources.files("lazybo.report") / "page" / name).read_text(encoding="utf-8")
