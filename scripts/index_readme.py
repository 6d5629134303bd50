"""The README as a package index shows it: there is no repository beside it, so links into one would lead nowhere.

Hatchling calls this when it builds the package. Links to files become the names of the files, links to headings their
words. A picture becomes the text that stands beside it (docs/pipeline.txt for docs/pipeline.png), or else the name of
its file. What is named comes with the package, and ``ppolm examples DIR`` copies it.
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
