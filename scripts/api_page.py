"""Write docs/api.md and the pages of the reference from docstrings; freeze the public signatures for the tests.

python -m scripts.api_page
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import FunctionType
from typing import Any

import ppolm
from scripts.api_groups import GROUPS, Group

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
FROZEN = ROOT / "tests" / "public_signatures.txt"
INTRODUCTION = """# Python interface

`from ppolm import PPOConfig, PPOTrainer`. The names below, with these signatures, are the package's promise: what is
not here may change without notice. A change of one of them is in the CHANGELOG.
"""
MADE = """Made by `python -m scripts.api_page` from the source; a test fails if it is out of date, if a public name,
method or field has no description, or if a signature changed without `tests/public_signatures.txt`.
"""


def public_names() -> list[str]:
    """Every public name of ``ppolm`` except the version."""
    return [name for name in ppolm.__all__ if not name.startswith("_")]


def public_methods(thing: Any) -> dict[str, Any]:
    """The public methods that a class, or one of its bases within ppolm, defines."""
    found: dict[str, Any] = {}
    for kind in reversed(inspect.getmro(thing)):
        if kind.__module__.startswith("ppolm."):
            found |= {
                name: member
                for name, member in vars(kind).items()
                if not name.startswith("_") and isinstance(member, (FunctionType, classmethod, staticmethod, property))
            }
    return dict(sorted(found.items()))


def signature(thing: Any) -> str:
    """The signature as text."""
    if isinstance(thing, property):
        return ""
    if isinstance(thing, (classmethod, staticmethod)):
        thing = thing.__func__
    try:
        shown = str(inspect.signature(thing)).replace("'", "")
        return re.sub(r"<function .*? at 0x[0-9a-f]+>", "...", shown)  # the repr of a default function has an address
    except ValueError:  # built-in constructors, of exceptions
        return "(*arguments)"


def summary(thing: Any) -> str:
    """The first paragraph of its docstring."""
    if isinstance(thing, (classmethod, staticmethod)):
        thing = thing.__func__
    return (inspect.cleandoc(thing.__doc__ or "").partition("\n\n")[0]).replace("\n", " ").replace("|", "\\|")


def signatures() -> dict[str, tuple[str, str]]:
    """Signature and summary of every public name and method."""
    found = {}
    for name in public_names():
        thing = getattr(ppolm, name)
        found[name] = (signature(thing), summary(thing))
        if inspect.isclass(thing):
            for method, member in public_methods(thing).items():
                found[f"{name}.{method}"] = (signature(member), summary(member))
    return found


def pages() -> dict[str, str]:
    """The text of every page of the reference, by file name."""
    from scripts.api_entries import entry

    found = {"api.md": overview()}
    for group in GROUPS:
        entries = [entry(name, getattr(ppolm, name)) for name in group.names]
        found[group.page] = "\n".join([f"# {group.title}\n\n{group.about}\n\n{MADE}", *entries])
    return found


def overview() -> str:
    """A table of names for each page."""
    return "\n".join([INTRODUCTION, MADE, *map(_names, GROUPS)])


def _names(group: Group) -> str:
    rows = [
        f"| [{name}]({group.page}#{name.lower()}) | {summary(getattr(ppolm, name)).replace('``', '`')} |"
        for name in group.names
    ]
    return "\n".join([f"## {group.title}\n", f"{group.about}\n", "| name | what it is |\n|---|---|", *rows, ""])


def frozen() -> str:
    """One line per name."""
    return "".join(f"{name}{called}\n" for name, (called, _) in signatures().items())


if __name__ == "__main__":
    for file, text in pages().items():
        (DOCS / file).write_text(text, encoding="utf-8")
    FROZEN.write_text(frozen(), encoding="utf-8")
    print(f"wrote {', '.join(pages())} in {DOCS}, and {FROZEN}")
