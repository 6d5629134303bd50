"""Links of pages: written as they work in a checkout, changed to what they are called on the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

from scripts.docs_site.places import ROOT, file_of, has_page, page_of

FENCED = re.compile(r"^(?P<fence> *(?:`{3,}|~{3,}))[^\n]*\n.*?^(?P=fence)[ ]*$", re.MULTILINE | re.DOTALL)
CODE_OR_LINK = re.compile(
    r"(?P<code>(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))"
    r"|(?:(?<!!)\[(?P<name>[\w./-]+\.md))?\]\((?P<target>[^()\s]+)\)",
    re.DOTALL,
)
"""Code; or the end of a link, with its words if they are the name of a page."""
ELSEWHERE = re.compile(r"[a-z]+:|#|/")
"""Addresses, headings of the same page."""
LINE = re.compile(r"L(\d+)")


def targets(text: str) -> Iterator[str]:
    """Every link target of a page."""
    found: list[str] = []

    def keep(name: str, target: str) -> tuple[str, str]:
        found.append(target)
        return name, target

    _outside_code(text, keep)
    yield from found


def linked_file(page: str, target: str) -> str | None:
    """The file or folder of the checkout that a link of a page leads to."""
    if ELSEWHERE.match(target):
        return None
    shown = file_of(page)
    here = shown if (ROOT / shown).is_dir() else posixpath.dirname(shown)
    file = posixpath.normpath(posixpath.join(here, target.partition("#")[0]))
    return None if file.startswith("..") else file


def rewritten(page: str, text: str) -> str:
    """The text of a page with its links as the site needs them: their targets, and titles in place of file names."""

    def change(name: str, target: str) -> tuple[str, str]:
        file = linked_file(page, target)
        if file is None:
            return name, target
        goal = page_of(file) if has_page(file) else file.removeprefix("docs/")
        anchor = target.partition("#")[2]
        line = LINE.fullmatch(anchor)
        anchor = f"__codelineno-0-{line[1]}" if line else anchor
        address = posixpath.relpath(goal, posixpath.dirname(page) or ".")
        return title(file) or name, f"{address}#{anchor}" if anchor else address

    return _outside_code(text, change)


def title(file: str) -> str | None:
    """The first heading of a Markdown file, without markup."""
    path = ROOT / file
    if not path.is_file() or path.suffix != ".md":
        return None
    found = re.search(r"^# (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return re.sub(r"[`*]", "", found[1]) if found else None


def _outside_code(text: str, change: Callable[[str, str], tuple[str, str]]) -> str:
    """The text with the words (where they are the name of a page) and target of every link changed, but not in code."""

    def one(found: re.Match[str]) -> str:
        if found["code"]:
            return found[0]
        name, target = change(found["name"] or "", found["target"])
        return f"[{name}]({target})" if found["name"] else f"]({target})"

    parts, end = [], 0
    for block in FENCED.finditer(text):
        parts += [CODE_OR_LINK.sub(one, text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, CODE_OR_LINK.sub(one, text[end:])])
