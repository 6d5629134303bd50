"""Links of pages: written as they work in a checkout, changed to what they are called on the site."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterator

from scripts.docs_site.places import ROOT, file_of, has_page, page_of

FENCED = re.compile(r"^(?P<fence> *(?:`{3,}|~{3,}))[^\n]*\n.*?^(?P=fence)[ ]*$", re.MULTILINE | re.DOTALL)
CODE_OR_LINK = re.compile(r"(?P<code>(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`))|\]\((?P<target>[^()\s]+)\)", re.DOTALL)
ELSEWHERE = re.compile(r"[a-z]+:|#|/")
"""Addresses, headings of the same page."""
LINE = re.compile(r"L(\d+)")


def _outside_code(text: str, change: Callable[[str], str]) -> str:
    """The text with every link target changed, but for what stands in code."""

    def one(found: re.Match[str]) -> str:
        return found[0] if found["code"] else f"]({change(found['target'])})"

    parts, end = [], 0
    for block in FENCED.finditer(text):
        parts += [CODE_OR_LINK.sub(one, text[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*parts, CODE_OR_LINK.sub(one, text[end:])])


def targets(text: str) -> Iterator[str]:
    """Every link target of a page."""
    found: list[str] = []

    def keep(target: str) -> str:
        found.append(target)
        return target

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
    """The text of a page with its links as the site needs them."""

    def change(target: str) -> str:
        file = linked_file(page, target)
        if file is None:
            return target
        goal = page_of(file) if has_page(file) else file.removeprefix("docs/")
        anchor = target.partition("#")[2]
        line = LINE.fullmatch(anchor)
        anchor = f"__codelineno-0-{line[1]}" if line else anchor
        return posixpath.relpath(goal, posixpath.dirname(page) or ".") + (f"#{anchor}" if anchor else "")

    return _outside_code(text, change)
