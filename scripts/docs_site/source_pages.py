"""Pages that show a file or folder of the checkout, so that links to it work on the site too."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from scripts.docs_site.links import linked_file, targets
from scripts.docs_site.places import ROOT, has_page, page_of

LANGUAGES = {".py": "python", ".yaml": "yaml", ".toml": "toml", ".sh": "bash", ".sbatch": "bash", ".jsonl": "json"}
LONGEST = 400
"""Lines of a file that are shown: data files may be long."""
HEAD = "---\nsearch:\n  exclude: true\nhide: [navigation, toc]\n---\n"
HIDDEN = re.compile(r"__pycache__|\..*")


def source_pages(pages: Mapping[str, str]) -> dict[str, str]:
    """The pages for all files and folders that these pages link to, and for those that they link to in turn."""
    found: dict[str, str] = {}
    waiting = dict(pages)
    while waiting:
        page, text = waiting.popitem()
        for target in targets(text):
            file = linked_file(page, target)
            if file is None or not has_page(file):
                continue
            name = page_of(file)
            if name not in pages and name not in found:
                found[name] = waiting[name] = shown(ROOT / file)
    return found


def shown(path: Path) -> str:
    """The page of a file or folder."""
    name = path.relative_to(ROOT).as_posix()
    if path.is_dir():
        return f"{HEAD}# {name}/\n\n" + "".join(f"- [{one}]({one.rstrip('/')})\n" for one in _inside(path))
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        return f"{HEAD}# {name}\n\nNot a text: {path.stat().st_size:,} bytes.\n"
    if path.suffix == ".md":
        return text
    lines = text.splitlines()
    cut = f"\nThe first {LONGEST} of {len(lines)} lines.\n" if len(lines) > LONGEST else ""
    fence = "~" * 8
    language = LANGUAGES.get(path.suffix, "text")
    code = "\n".join(lines[:LONGEST] if cut else lines)
    return f'{HEAD}# {name}\n{cut}\n{fence} {{.{language} linenums="1"}}\n{code}\n{fence}\n'


def _inside(folder: Path) -> Iterator[str]:
    """Names in a folder, folders first and with a slash."""
    for path in sorted(folder.iterdir(), key=lambda one: (one.is_file(), one.name)):
        if not HIDDEN.fullmatch(path.name):
            yield path.name + "/" * path.is_dir()
