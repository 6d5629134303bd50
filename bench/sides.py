"""Runs one side of a comparison in a process of its own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
UV = shlex.split(os.environ.get("UV", "uv"))
PEER = [*UV, "run", "--no-project", "--quiet", "--with", "trl==1.12.0", "--with", "peft", "--with", "torch"]
MODULES = {
    "ours": "bench.ours",
    "peer": "bench.trl_ppo",
    "generation": "bench.generation",
    "shared": "bench.shared_prefix",
}


def forked(main: Callable[[], None], flags: list[str]) -> dict[str, Any]:
    """The JSON line of ``main``, run in a fork of this process, because importing takes longer than running."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.dup2(write, sys.stdout.fileno())
            sys.argv[1:] = flags
            main()
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)  # whatever happens, the child must not continue as a second parent
    os.close(write)
    with os.fdopen(read) as answer:
        lines = answer.read().splitlines()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status:
        return {"failed": status}
    found: dict[str, Any] = json.loads(lines[-1])
    return found


def run(side: str, flags: list[str]) -> dict[str, Any]:
    """The JSON line of a program; its standard error is passed through."""
    command = [*PEER, "python"] if side == "peer" else [sys.executable]
    print(f"  {side} ...", file=sys.stderr, flush=True)
    answer = subprocess.run(
        [*command, "-m", MODULES[side], *flags], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
    )
    if answer.returncode:
        return {"failed": answer.returncode}
    found: dict[str, Any] = json.loads(answer.stdout.splitlines()[-1])
    return found
