"""Help and mistyped flags answer at once: no command imports torch or transformers before its flags are parsed."""

from __future__ import annotations

import subprocess
import sys

import pytest

from ppolm.cli.main import COMMANDS

SCRIPT = """
import sys
from ppolm.cli.main import run
try:
    run(sys.argv[1:])
except SystemExit:
    pass
print("loaded:", [name for name in ("torch", "transformers", "sqlalchemy", "pyarrow") if name in sys.modules])
"""


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_nothing_large(command: str) -> None:
    words = {"data": ["data", "check"], "feedback": ["feedback", "stats"]}.get(command, [command])
    answer = subprocess.run(
        [sys.executable, "-c", SCRIPT, *words, "--help"], capture_output=True, text=True, check=False
    )
    assert "--help" in answer.stdout, answer.stderr
    assert answer.stdout.splitlines()[-1] == "loaded: []"
