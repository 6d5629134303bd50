"""Functions are short enough to be read at a glance."""

from __future__ import annotations

import ast
from pathlib import Path

import ppolm

LONGEST = 40

ALLOWED = {
    "ppo_trainer/ppo_trainer.py: PPOTrainer.__init__": "one argument and one assignment per component, in one list",
}
"""Longer functions, and why they are not split."""


def _lengths(tree: ast.AST, owner: str = "") -> dict[str, int]:
    """Lines of every function, including its docstring, by qualified name."""
    found: dict[str, int] = {}
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{owner}{node.name}"
            if not isinstance(node, ast.ClassDef) and node.end_lineno is not None:
                found[name] = max(found.get(name, 0), node.end_lineno - node.lineno + 1)
            found |= _lengths(node, f"{name}.")
        else:
            found |= _lengths(node, owner)
    return found


def test_no_function_is_longer_than_a_screen() -> None:
    root = Path(ppolm.__file__).parent
    found = {
        f"{path.relative_to(root).as_posix()}: {name}": lines
        for path in root.rglob("*.py")
        for name, lines in _lengths(ast.parse(path.read_text(encoding="utf-8"))).items()
    }
    assert len(found) > 1000
    assert {name for name, lines in found.items() if lines > LONGEST} == set(ALLOWED)
