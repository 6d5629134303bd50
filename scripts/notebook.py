"""Run examples/first-steps.ipynb from a clean state and store what its cells print, without dates and counters.

python -m scripts.notebook
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).resolve().parent.parent / "examples" / "first-steps.ipynb"
SECONDS = 600
"""How long a cell may take."""
NOISE = re.compile(r"Loading weights|\r")
"""Progress bars of libraries."""


def run(path: Path = NOTEBOOK) -> Any:
    """The notebook with new outputs. A cell that fails raises ``CellExecutionError``."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    NotebookClient(notebook, timeout=SECONDS, resources={"metadata": {"path": str(path.parent)}}).execute()
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.update(metadata={}, execution_count=None, outputs=[one for one in map(_kept, cell.outputs) if one])
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"], "language_info": {"name": "python"}}
    return notebook


def _kept(output: Any) -> Any:
    """An output without counters; None for the progress of loading."""
    if output.output_type == "stream":
        lines = [line for line in output.text.splitlines(keepends=True) if not NOISE.search(line)]
        return output | {"text": "".join(lines)} if lines else None
    return output | {"execution_count": None} if "execution_count" in output else output


if __name__ == "__main__":
    nbformat.write(run(), NOTEBOOK)
    print(f"wrote {NOTEBOOK}")
