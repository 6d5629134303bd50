"""The pages of docs/commands: one for each command, with its flags from the source and its outputs from real runs.

    python -m scripts.command_pages              the flags of all pages, in seconds; says what is missing
    python -m scripts.command_pages --outputs    also runs every command of every page, and puts in what it prints
    python -m scripts.command_pages --outputs runs tokens     those of some pages

Everything in a page is written by hand, and is edited there, except what stands between the marks of the flags and
below a ``<!-- printed -->``. For a new command this makes a page with a start, whose hand-written part it asks for.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ppolm.cli.main import COMMANDS
from scripts.command_flags import flags_section
from scripts.command_outputs import Sandbox, run_process, with_outputs

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "commands"
BEGIN, END = "<!-- flags: begin -->", "<!-- flags: end -->"
UNWRITTEN = "(to be written)"
START = f"""# ppolm {{command}}

{UNWRITTEN}: what it is for, in two sentences. The list of commands says: {{about}}.

## Use

{UNWRITTEN}: the two or three most useful invocations.

```bash
ppolm {{command}} --help
```

## What it writes

{UNWRITTEN}

## Exit status

{UNWRITTEN}

## Flags

{BEGIN}
{END}

## See also

{UNWRITTEN}
"""


def page_of(command: str) -> Path:
    """Where a command's page is."""
    return FOLDER / f"{command}.md"


def started(command: str) -> str:
    """A page without its hand-written part."""
    return START.format(command=command, about=COMMANDS[command])


def with_flags(text: str, command: str) -> str:
    """A page with the flags as they are now."""
    if text.count(BEGIN) != 1 or text.count(END) != 1:
        raise SystemExit(f"docs/commands/{command}.md needs the lines {BEGIN} and {END} once, for its flags.")
    section = f"{BEGIN}\n{flags_section(command)}\n{END}"
    return re.sub(f"{BEGIN}.*{END}", lambda _: section, text, flags=re.DOTALL)


def unwritten() -> list[str]:
    """The commands whose page lacks its hand-written part."""
    return [name for name in COMMANDS if not page_of(name).exists() or UNWRITTEN in page_of(name).read_text("utf-8")]


def write_outputs(commands: Sequence[str]) -> None:
    """Run the commands of pages, and put in what they print."""
    for command in commands:
        with tempfile.TemporaryDirectory() as folder:
            sandbox = Sandbox(Path(folder), run_process)
            sandbox.fill()
            text = with_outputs(page_of(command).read_text("utf-8"), sandbox)
            page_of(command).write_text(text, encoding="utf-8")
        print(f"ran docs/commands/{command}.md")


def main(argv: Sequence[str]) -> int:
    """Write all pages; the exit status is 1 if one lacks its hand-written part."""
    FOLDER.mkdir(exist_ok=True)
    for command in COMMANDS:
        page = page_of(command)
        text = page.read_text("utf-8") if page.exists() else started(command)
        page.write_text(with_flags(text, command), encoding="utf-8")
    if "--outputs" in argv:
        write_outputs(
            [name for name in argv if name in COMMANDS] or [one for one in COMMANDS if one not in unwritten()]
        )
    for command in unwritten():
        print(
            f"ppolm {command} lacks its hand-written part: replace every {UNWRITTEN!r} in docs/commands/{command}.md."
        )
    return 1 if unwritten() else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
