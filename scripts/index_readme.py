"""The README for a package index, without links into the repository, which would be broken there.

Hatchling calls this when it builds the package. Links to files become file names, links to headings plain text. A
picture is replaced by the text file beside it (docs/pipeline.txt for docs/pipeline.png), or else by its file name. All
files named come with the package, and ``ppolm examples DIR`` copies them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

NOTE = """> The documents, examples and configs named below come with the package: `ppolm examples DIR` copies them, and
> this page, into a folder. `make` targets and `.venv` belong to a checkout of the source.
"""
ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://)([^)]*)\)")


def index_readme(text: str) -> str:
    """The text without links to files or headings, and with a note on where the files are."""
    title, _, rest = LINK.sub(_plain, text).partition("\n\n")
    return f"{title}\n\n{NOTE}\n{rest}"


def _plain(link: re.Match[str]) -> str:
    picture, words, target = link.groups()
    if target.startswith("#"):
        return words
    name = f"`{target.removeprefix('src/').rstrip('/')}`"
    if picture:
        drawing = (ROOT / target).with_suffix(".txt")
        if drawing.is_file():
            return f"```\n{drawing.read_text(encoding='utf-8').rstrip()}\n```"
        return f"({words}: {name})"
    bare = words.strip("`")
    return name if target.rstrip("/").endswith(bare.rstrip("/")) else f"{words} ({name})"


class CustomMetadataHook(MetadataHookInterface):
    """Puts the text into the package's metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Called by hatchling."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": index_readme(text)}
