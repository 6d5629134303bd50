"""Write docs/api.md: every public name with signature and description; and freeze the signatures for the tests.

python -m scripts.api_page
"""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import FunctionType
from typing import Any

import ppolm

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "api.md"
FROZEN = ROOT / "tests" / "public_signatures.txt"
INTRODUCTION = """# Python interface

`from ppolm import PPOConfig, PPOTrainer`. These names, with these signatures, are the package's promise: what is not
here may change without notice. A change of one of them is in the CHANGELOG.

Made by `python -m scripts.api_page` from the source; a test fails if it is out of date, if a public name has no
description, or if a signature changed without `tests/public_signatures.txt`.
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


def page() -> str:
    """The whole page: one section per name, one line per method."""
    parts = [INTRODUCTION]
    for name, (called, about) in signatures().items():
        if "." not in name:
            home = getattr(ppolm, name).__module__.replace(".", "/")
            parts.append(f"\n## {name}\n\n{about} ([source](../src/{home}.py))\n")
            if not called.startswith("(*"):
                parts.append(f"```python\n{name}{_folded(called)}\n```\n")
        else:
            parts.append(f"- `{name.partition('.')[2]}{called}`: {about}")
    return "\n".join(parts) + "\n"


def _folded(called: str) -> str:
    """A long signature with one line per argument."""
    if len(called) < 100:
        return called
    inside, _, after = called[1:].rpartition(")")
    depth, parts, start = 0, [], 0
    for i, sign in enumerate(inside):
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth == 0:
            parts.append(inside[start:i].strip())
            start = i + 1
    return "(\n" + "".join(f"    {part},\n" for part in [*parts, inside[start:].strip()]) + f"){after}"


def frozen() -> str:
    """One line per name."""
    return "".join(f"{name}{called}\n" for name, (called, _) in signatures().items())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    FROZEN.write_text(frozen(), encoding="utf-8")
    print(f"wrote {PAGE} and {FROZEN}")
