"""Writes what `ppolm plan` prints into docs/scaling.md, below each of the commands that stand there.

    python -m scripts.scaling_page

A test compares the page with what this would write, so that it cannot go out of date. Only computed figures are
written: commands with `--hardware this` are left alone.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from ppolm.cli.plan_command import parse_plan, plan_told

PAGE = Path(__file__).resolve().parent.parent / "docs" / "scaling.md"
BLOCK = re.compile(r"```text\n\$ ppolm plan (?P<flags>(?:[^\n]*\\\n)*[^\n]*)\n.*?```", re.DOTALL)


def rewritten(page: str) -> str:
    """The page with every plan printed anew."""
    return BLOCK.sub(_block, page)


def _block(found: re.Match[str]) -> str:
    flags = found["flags"]
    words = shlex.split(flags.replace("\\\n", " "))
    return f"```text\n$ ppolm plan {flags}\n{plan_told(*parse_plan(words)).text()}\n```"


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
