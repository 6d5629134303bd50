"""A report as one HTML file: everything inside it, nothing from a network, no script but ours.

The Content-Security-Policy of the file names each script by its hash, so that a browser runs no other, whatever texts
of models and people stand in the page; and it allows no connection at all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from ppolm import __version__
from ppolm.errors import ConfigError
from ppolm.runs.report_text import NAME, number_text, setting_text, visible
from ppolm.runs.run_figures import differing_settings
from ppolm.storage.atomic import write_file
from ppolm.studio.figure_rows import figure_cell, figure_rows, gain_cell
from ppolm.studio.plotly_file import plotly_script
from ppolm.studio.report_charts import chart_data
from ppolm.studio.report_run import ReportRun
from ppolm.studio.report_tokens import COLOURED

FOLDER = Path(__file__).parent
MARK = "<!-- ppolm report -->"
"""What a report begins with: only a file that does is replaced by another one."""
POLICY = "default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def report_html(runs: Sequence[ReportRun]) -> str:
    """The whole file."""
    scripts = [_script(plotly_script("ppolm report")), _script(FOLDER / "static" / "js" / "report.js")]
    styles = [(FOLDER / "static" / "css" / name).read_text(encoding="utf-8") for name in ("studio.css", "report.css")]
    environment = Environment(loader=FileSystemLoader(FOLDER / "templates"), autoescape=True)
    environment.filters |= {"figure": figure_cell, "gain": gain_cell, "setting": setting_text}
    environment.filters |= {"number": number_text, "plain": lambda text: visible(text, NAME, keep="")}
    settings = {str(index): run.settings for index, run in enumerate(runs)}
    return environment.get_template("report.html").render(
        mark=Markup(MARK),
        policy=POLICY.format(hashes=" ".join(_hash(script) for script in scripts)),
        scripts=[Markup(script) for script in scripts],
        styles=Markup("\n".join(styles)),
        charts=Markup(_json(chart_data([run.series for run in runs]))),
        runs=runs,
        several=len(runs) > 1,
        differing=differing_settings(settings) if len(runs) > 1 else {},
        figure_rows=list(figure_rows([run.figures for run in runs], [run.gains for run in runs])),
        coloured=COLOURED,
        version=__version__,
        now=f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC",
    )


def write_report(runs: Sequence[ReportRun], path: Path) -> int:
    """Write the file, whole; its size. A file that is no report is left alone."""
    if path.is_dir():
        raise ConfigError(f"{path} is a folder. Give --output a file such as {path / 'report.html'}.")
    if path.exists() and not _is_report(path):
        raise ConfigError(f"{path} is there already, and is no report of ppolm. Give --output another name.")
    page = report_html(runs).encode("utf-8", "replace")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, lambda temporary: temporary.write_bytes(page))
    return len(page)


def _is_report(path: Path) -> bool:
    with path.open("rb") as file:
        return MARK.encode() in file.read(200)


def _script(path: Path) -> str:
    """A script as it may stand inside a page: nothing in it ends the element, or looks to a parser like another."""
    text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
    if re.search(r"</script|<!--|\x00", text, re.IGNORECASE):
        raise ConfigError(f"{path} cannot be put inside a page: it holds what would end its element there.")
    return text


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _json(value: Any) -> str:
    """JSON that may stand inside a script element of any kind."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII, so no separator of lines is left either
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
