"""A notebook as a page: its texts, its code, and what the code printed when it was last stored."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

STYLE = re.compile(r'<style.*?</style>| border="1" class="dataframe"| style="text-align: right;"', re.DOTALL)
"""What pandas says about the looks of a table: the site has its own."""
FENCE = "`" * 6


def notebook_page(path: Path) -> str:
    """The notebook as Markdown. Links in it are those of its own folder."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, _, rest = "".join(cells[0]["source"]).partition("\n")
    return "\n\n".join([title, rest.strip(), *(_cell(cell) for cell in cells[1:])]) + "\n"


def _cell(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    return "\n\n".join([_block("python", source), *(_output(one) for one in cell["outputs"])])


def _output(output: dict[str, Any]) -> str:
    """The richest form of an output that a page can show."""
    if output["output_type"] == "stream":
        return _block("{.text .output}", "".join(output["text"]))
    data = output["data"]
    if "image/png" in data:
        picture = "".join(data["image/png"]).replace("\n", "")
        said = html.escape("".join(data.get("text/plain", "a plot")))
        return f'<p><img alt="{said}" src="data:image/png;base64,{picture}"></p>'
    if "text/html" in data:
        table = STYLE.sub("", "".join(data["text/html"]))
        return "\n".join(line for line in table.splitlines() if line.strip())
    return _block("{.text .output}", "".join(data["text/plain"]))


def _block(language: str, text: str) -> str:
    return f"{FENCE} {language}\n{text.rstrip()}\n{FENCE}"
