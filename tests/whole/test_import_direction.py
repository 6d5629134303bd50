"""Rooms import downwards: the package can be read, and changed, from the bottom up."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.import_graph import ROOMS, Import, cycles, homeless, imports, modules, room_edges, room_of, upward


@pytest.fixture(scope="module")
def edges() -> list[Import]:
    return imports()


def test_a_room_imports_only_rooms_below_it(edges: list[Import]) -> None:
    wrong = upward(edges)
    assert not wrong, "\n".join(
        [
            "Upward imports (order of the rooms: ROOMS in scripts/import_graph.py):",
            *(f"  {edge}: {room_of(edge.imported)} stands above {room_of(edge.importer)}" for edge in wrong),
            "Pass what is needed as an argument, name it by a protocol in the lower room, or move the code up.",
        ]
    )


def test_no_modules_import_each_other(edges: list[Import]) -> None:
    wrong = cycles(edges)
    assert not wrong, "\n".join(
        [
            "Cycles:",
            *(f"  {' <-> '.join(group)}" for group in wrong),
            "Move what they share into a module that imports neither of them.",
        ]
    )


def test_every_module_stands_in_a_room() -> None:
    assert not homeless(), (
        f"{', '.join(homeless())} stand outside of all rooms. Move them into one, or add their room to ROOMS in "
        "scripts/import_graph.py, to FLOORS in scripts/architecture_picture.py and to a table of docs/architecture.md."
    )


def test_kernels_import_no_other_room_and_the_lowest_ones_nothing(edges: list[Import]) -> None:
    below = room_edges(edges)
    assert [below[room] for room in ("kernels", "errors", "messages", "names", "measures")] == [[]] * 5


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """A small package with upward imports (deferred, type-checking, relative), a cycle, and a module without a room."""
    files = {
        "__init__.py": '__version__ = "1"\n',
        "errors.py": "def fail():\n    from ppolm.cli import main\n",
        "config/__init__.py": "",
        "config/one.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from ppolm.data.rows import Row\n",
        "data/__init__.py": "from ..cli import main\nimport ppolm.errors\n",
        "data/rows.py": "from ppolm.data import other\nfrom ppolm.errors import fail\n",
        "data/other.py": "def late():\n    from .rows import Row\n",
        "base_setup/__init__.py": "",
        "base_setup/model_setup.py": "import ppolm.models\n",
        "base_setup/base_setup.py": "import torch, ppolm.models\n",
        "models/__init__.py": "",
        "cli/__init__.py": "",
        "cli/main.py": "from ppolm import __version__\nfrom ppolm.data.rows import Row\n",
        "attic.py": "",
    }
    for name, text in files.items():
        path = tmp_path / "ppolm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "ppolm"


def test_every_kind_of_upward_import_is_found(house: Path) -> None:
    found = [str(edge) for edge in upward(imports(house))]
    assert found == [
        "ppolm.base_setup.base_setup (line 1) imports ppolm.models",
        "ppolm.config.one (line 3) imports ppolm.data.rows",
        "ppolm.data (line 1) imports ppolm.cli.main",
        "ppolm.errors (line 2) imports ppolm.cli.main",
    ]


def test_a_cycle_is_found_also_where_an_import_is_deferred(house: Path) -> None:
    (group,) = cycles([edge for edge in imports(house) if edge not in upward(imports(house))])
    assert group == ["ppolm.data.other", "ppolm.data.rows"]


def test_a_module_without_a_room_is_found_and_the_face_needs_none(house: Path) -> None:
    assert homeless(house) == ["ppolm.attic"]
    assert room_of("ppolm") == "ppolm"
    assert room_of("ppolm.base_setup.model_setup") == "base_setup.model_setup"
    assert room_of("ppolm.base_setup.lora_setup") == "base_setup"


def test_the_order_names_no_room_twice_and_all_that_exist() -> None:
    assert len(set(ROOMS)) == len(ROOMS)
    assert {room_of(module) for module in modules()} <= {*ROOMS, "ppolm"}
