"""The notebook runs from a clean state, and what it says it learned it has learned."""

from __future__ import annotations

import ast
import re
from typing import Any

import nbformat
import pytest

from scripts import notebook
from tests.conftest import ROOT


@pytest.fixture(scope="module")
def stored() -> Any:
    return nbformat.read(notebook.NOTEBOOK, as_version=4)


def test_the_notebook_is_stored_with_its_outputs_and_without_counters(stored: Any) -> None:
    nbformat.validate(stored)
    code = [cell for cell in stored.cells if cell.cell_type == "code"]
    assert all(cell.execution_count is None and not cell.metadata for cell in code)
    assert not [output for cell in code for output in cell.outputs if output.output_type == "error"]
    assert sum(bool(cell.outputs) for cell in code) >= len(code) - 1
    assert notebook.NOTEBOOK.stat().st_size < 120_000
    assert not re.search(r"/(tmp|home|root|usr)/", notebook.NOTEBOOK.read_text(encoding="utf-8")), (
        "a folder of a machine"
    )


def test_links_of_the_notebook_lead_to_files(stored: Any) -> None:
    from scripts.docs_site.links import targets

    links = [link for cell in stored.cells if cell.cell_type == "markdown" for link in targets(cell.source)]
    assert len(links) > 3
    assert [link for link in links if not (ROOT / "examples" / link.partition("#")[0]).exists()] == []


def test_the_notebook_runs_from_a_clean_state() -> None:
    """A cell that fails raises. The outputs of other processors differ in digits, not in what they show."""
    ran = notebook.run()
    printed = "".join(
        output.get("text", "") for cell in ran.cells if cell.cell_type == "code" for output in cell.outputs
    )
    line = next(line for line in printed.splitlines() if line.startswith("change "))
    change, low, high = ast.literal_eval(line.removeprefix("change ").replace(" [", ", ").rstrip("]"))
    assert 0 < low < change < high
    assert "improved" in next(line for line in printed.splitlines() if line.startswith("Verdict: "))
