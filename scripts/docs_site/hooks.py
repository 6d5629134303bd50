"""What mkdocs calls while it builds the site: pages from outside docs/, and links as they work in a checkout."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # mkdocs knows only this file's folder

from mkdocs.structure.files import File, Files, InclusionLevel

from scripts.docs_site.links import rewritten
from scripts.docs_site.notebook_page import notebook_page
from scripts.docs_site.places import NAMED, ROOT
from scripts.docs_site.source_pages import source_pages

ASSETS = Path(__file__).parent / "assets"
CELL = re.compile(r"<t[dh][ >].*?</t[dh]>", re.DOTALL)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that stand outside docs/, those for files that pages link to, and the site's own assets."""
    own = files.get_file_from_path("README.md")
    if own is not None:
        files.remove(own)  # mkdocs would make it the home page
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    added = {name: text_of(ROOT / place) for place, name in NAMED.items()}
    for name, text in added.items():
        files.append(File.generated(config, name, content=text))
    for name, text in source_pages(pages | added).items():
        files.append(File.generated(config, name, content=text, inclusion=InclusionLevel.NOT_IN_NAV))
    for asset in sorted(ASSETS.iterdir()):
        files.append(File.generated(config, f"assets/ppolm/{asset.name}", abs_src_path=str(asset)))
    return files


def text_of(place: Path) -> str:
    """A file as Markdown."""
    return notebook_page(place) if place.suffix == ".ipynb" else place.read_text(encoding="utf-8")


def on_page_content(content: str, **_: Any) -> str:
    """A bar in the code of a table's cell without the backslash that kept it from ending the cell."""
    return CELL.sub(lambda cell: cell[0].replace("\\|", "|"), content)


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of a page as the site needs them."""
    return rewritten(page.file.src_uri, markdown)
