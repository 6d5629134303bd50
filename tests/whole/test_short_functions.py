"""A function of the engine can be read at a glance."""

from __future__ import annotations

import ast
from pathlib import Path

import ppolm

ROOMS = ("kernels", "batches", "base_setup", "models", "rollout")
LONGEST = 40


def test_no_function_of_the_engine_is_longer_than_a_screen() -> None:
    root = Path(ppolm.__file__).parent
    found = {
        f"{path.relative_to(root)}: {node.name}": node.end_lineno - node.lineno + 1
        for room in ROOMS
        for path in (root / room).glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef) and node.end_lineno is not None
    }
    assert len(found) > 100
    assert {name: lines for name, lines in found.items() if lines > LONGEST} == {}
