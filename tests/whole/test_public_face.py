"""The public face: the names of ``from ppolm import ...`` with signatures and descriptions, and ``python -m``."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import ppolm
from scripts import api_entries, api_page
from scripts.api_groups import GROUPS
from tests.conftest import ROOT

SOURCE = Path(ppolm.__file__)


def test_every_public_name_is_there_and_is_its_own() -> None:
    for name in api_page.public_names():
        assert getattr(ppolm, name).__name__ == name


def test_a_type_checker_sees_the_same_names_as_python() -> None:
    """The names are listed twice, once for each; this keeps the lists in sync."""
    tree = ast.parse(SOURCE.read_text(encoding="utf-8"))
    guarded = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {
        alias.name: node.module for node in guarded.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == ppolm._HOME


def test_a_signature_changes_only_on_purpose() -> None:
    """If it is intended: run ``python -m scripts.api_page`` and add a line to the CHANGELOG."""
    assert api_page.frozen() == api_page.FROZEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", api_page.signatures())
def test_every_public_name_is_described(name: str) -> None:
    assert len(api_page.signatures()[name][1].split()) > 1


def test_the_reference_is_up_to_date() -> None:
    written = {path.name: path.read_text(encoding="utf-8") for path in api_page.DOCS.glob("api*.md")}
    assert api_page.pages() == written, "run: python -m scripts.api_page (and remove pages that are gone)"


def test_every_public_name_is_on_one_page_of_the_reference() -> None:
    assert sorted(name for group in GROUPS for name in group.names) == api_page.public_names(), "scripts/api_groups.py"


@pytest.mark.parametrize("name", [name for name in api_page.public_names() if inspect.isclass(getattr(ppolm, name))])
def test_every_public_field_is_described(name: str) -> None:
    assert api_entries.undescribed(getattr(ppolm, name)) == []


def test_what_a_docstring_marks_is_marked_in_the_reference_and_nothing_else() -> None:
    assert api_entries.markdown("``a*b`` is *not* a <tag> of `x`") == "`a*b` is \\*not\\* a \\<tag> of `x`"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = ppolm.Nothing


def test_importing_the_package_loads_nothing_large() -> None:
    script = "import ppolm, sys; print([m for m in ('torch', 'transformers', 'numpy', 'yaml') if m in sys.modules])"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "[]"


def test_the_package_is_a_program_too() -> None:
    told = [
        subprocess.run([sys.executable, *words, "--help"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
        for words in (["-m", "ppolm"], ["-c", "import sys; from ppolm.cli.main import main; main(sys.argv[1:])"])
    ]
    assert told[0] == told[1]
    assert "ppolm COMMAND" in told[0]


def test_type_checkers_are_told_that_the_package_has_types() -> None:
    assert SOURCE.with_name("py.typed").is_file()
