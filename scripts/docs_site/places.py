"""Which file of the checkout is which page of the site."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]
NAMED = {
    "README.md": "index.md",
    "docs/README.md": "all-pages.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "examples/first-steps.ipynb": "first-steps.md",
}
"""Files outside docs/ that are pages of their own, and the index of docs/, which is not the home page."""
SOURCE = "source"
"""Folder of the pages that show files and folders which other pages link to."""


def page_of(file: str) -> str:
    """The page that shows a file or folder of the checkout, both as relative paths."""
    if file in NAMED:
        return NAMED[file]
    if file.startswith("docs/"):
        return file.removeprefix("docs/")
    if (ROOT / file).is_dir():
        return f"{SOURCE}/{file}/index.md"
    return f"{SOURCE}/{file}" if file.endswith(".md") else f"{SOURCE}/{file}.md"


def file_of(page: str) -> str:
    """The file or folder of the checkout that a page shows: the inverse of ``page_of``."""
    for file, named in NAMED.items():
        if named == page:
            return file
    if not page.startswith(f"{SOURCE}/"):
        return f"docs/{page}"
    inside = page.removeprefix(f"{SOURCE}/")
    if (ROOT / inside).is_file():
        return inside
    path = PurePosixPath(inside)
    return path.parent.as_posix() if path.name == "index.md" else inside.removesuffix(".md")


def has_page(file: str) -> bool:
    """Whether a link to this file leads to a page, and not to a picture or nowhere."""
    return (ROOT / file).exists() and not (file.startswith("docs/") and not file.endswith(".md"))
