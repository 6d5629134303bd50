"""Which room of ppolm imports which: every import, read from the source and compared with the order of the rooms.

    python -m scripts.import_graph          prints the edges between rooms, and what is wrong with them

A room is a folder or a single file of src/ppolm. It may import only rooms that come before it in ``ROOMS``: then the
package can be read from the bottom up, and a change affects only the rooms above it. Imports inside functions and under
TYPE_CHECKING count like all others, since a reader has to follow them just the same. The one exception is an import for
annotations inside a room, which may close a cycle: a helper names the class that it helps.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "ppolm"
ROOMS = (
    *("errors", "messages", "names", "state", "http_call", "config", "measures", "ranks", "batches", "kernels"),
    *("embedded", "data", "rollout"),
    *("base_setup", "models", "engines", "base_setup.model_setup", "token_attribution", "reward_kl", "advantage"),
    *("explain", "experience_buffer", "training", "feedback", "rewards", "storage", "supervised", "components"),
    *("hooks", "evaluation", "readiness", "runs", "export", "estimate", "planning", "ppo_trainer", "studies", "chat"),
    *("studio", "cli"),
)
"""Lowest first. Rooms that do not exist (yet) are skipped.

``base_setup.model_setup`` is the one file that stands above its folder: it builds the four roles of ``models`` on the
base, and the design documents place that in ``base_setup/``.
"""
FACE = "ppolm"
"""``ppolm/__init__.py`` and ``__main__.py``, the public face: it may import everything, and the package imports
nothing from it but the version."""


@dataclass(frozen=True, order=True)
class Import:
    """One module that imports another."""

    importer: str
    imported: str
    line: int
    """Line in the importing file."""
    for_annotations: bool = False
    """Whether it is under TYPE_CHECKING and never executed."""

    def __str__(self) -> str:
        return f"{self.importer} (line {self.line}) imports {self.imported}"


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Every module of the package by name, such as ``ppolm.data`` for ``ppolm/data/__init__.py``."""
    found = {}
    for path in sorted(package.rglob("*.py")):
        parts = [package.name, *path.relative_to(package).with_suffix("").parts]
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room_of(module: str) -> str | None:
    """The room of a module, the public face for the package itself, or None for a module outside all rooms."""
    name = module.partition(".")[2]
    if name in ("", "__main__"):
        return FACE
    inside = [room for room in ROOMS if name == room or name.startswith(f"{room}.")]
    return max(inside, key=len, default=None)


def imports(package: Path = PACKAGE) -> list[Import]:
    """Every import of one module of the package by another, each pair once."""
    known = modules(package)
    found: dict[tuple[str, str], Import] = {}
    for importer, path in known.items():
        here = importer if path.name == "__init__.py" else importer.rpartition(".")[0]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        typed = _under_type_checking(tree)
        for node in sorted(ast.walk(tree), key=lambda node: node in typed):
            for imported in _targets(node, here, known):
                if imported != importer:
                    edge = Import(importer, imported, getattr(node, "lineno", 0), node in typed)
                    found.setdefault((importer, imported), edge)
    return sorted(found.values())


def _under_type_checking(tree: ast.AST) -> set[ast.AST]:
    """All nodes under ``if TYPE_CHECKING:``."""
    blocks = (node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
    return {inner for block in blocks for statement in block.body for inner in ast.walk(statement)}


def _targets(node: ast.AST, here: str, known: dict[str, Path]) -> list[str]:
    """The modules of the package that a statement imports; ``here`` is the package that relative imports start from."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names if alias.name in known]
    if not isinstance(node, ast.ImportFrom):
        return []
    base = node.module or ""
    if node.level:
        above = here.split(".")[: len(here.split(".")) - node.level + 1]
        base = ".".join([*above, base]).rstrip(".")
    if base not in known:
        return []
    names = [f"{base}.{alias.name}" for alias in node.names if alias.name != "__version__"]
    return sorted({name if name in known else base for name in names})


def upward(edges: list[Import]) -> list[Import]:
    """Imports of a room above the importing one."""
    height = {room: number for number, room in enumerate((*ROOMS, FACE))}
    rooms = ((edge, room_of(edge.importer), room_of(edge.imported)) for edge in edges)
    return [edge for edge, importer, imported in rooms if importer and imported and height[imported] > height[importer]]


def homeless(package: Path = PACKAGE) -> list[str]:
    """Modules outside all rooms."""
    return [module for module in modules(package) if room_of(module) is None]


def cycles(edges: list[Import]) -> list[list[str]]:
    """Groups of modules that import each other, directly or indirectly; imports for annotations do not count."""
    after: dict[str, set[str]] = {}
    for edge in edges:
        if not edge.for_annotations:
            after.setdefault(edge.importer, set()).add(edge.imported)
    reached = {module: _reached(module, after) for module in after}
    groups = {
        tuple(sorted(other for other in reached[module] if module in reached.get(other, ())))
        for module in reached
        if module in reached[module]
    }
    return [list(group) for group in sorted(groups)]


def _reached(start: str, after: dict[str, set[str]]) -> set[str]:
    """The modules that a module imports, directly or indirectly."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = after.get(waiting.pop(), set()) - seen
        seen |= new
        waiting += new
    return seen


def room_edges(edges: list[Import]) -> dict[str, list[str]]:
    """The rooms that each room imports, lowest first."""
    order = (*ROOMS, FACE)
    found: dict[str, set[str]] = {room: set() for room in order if any(room_of(name) == room for name in modules())}
    for edge in edges:
        above, below = room_of(edge.importer), room_of(edge.imported)
        if above and below and above != below:
            found[above].add(below)
    return {room: sorted(below, key=order.index) for room, below in found.items()}


def main() -> None:
    """Print what each room imports, then every violation."""
    edges = imports()
    for room, below in room_edges(edges).items():
        print(f"{room:24} {' '.join(below)}")
    for edge in upward(edges):
        print(f"upward: {edge}")
    for group in cycles(edges):
        print(f"cycle: {', '.join(group)}")
    for module in homeless():
        print(f"outside of all rooms: {module}")


if __name__ == "__main__":
    main()
