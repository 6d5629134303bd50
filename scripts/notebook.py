"""Run examples/first-steps.ipynb from a clean state and store what its cells print, without dates and counters.

python -m scripts.notebook
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

NOTEBOOK = Path(__file__).resolve().parent.parent / "examples" / "first-steps.ipynb"
SECONDS = 600
"""How long a cell may take."""
NOISE = re.compile(r"Loading weights|TqdmWarning|autonotebook|\r")
"""Progress bars of libraries, and their wish for nicer ones, which names a folder of this machine."""


def run(path: Path = NOTEBOOK) -> Any:
    """The notebook with new outputs. A cell that fails raises ``CellExecutionError``."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs = []
    with tempfile.TemporaryDirectory() as folder:  # of its own, so that it is in nobody's way, nor anything in its
        NotebookClient(
            notebook,
            timeout=SECONDS,
            startup_timeout=SECONDS,
            resources={"metadata": {"path": folder}},
            extra_arguments=["--log-level=ERROR"],  # it warns that it talks to us through ports of this machine
        ).execute(env=os.environ | {"TMPDIR": folder})
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.update(metadata=NotebookNode(), execution_count=None, outputs=_kept(cell.outputs))
    notebook.metadata = NotebookNode(
        kernelspec=notebook.metadata["kernelspec"], language_info=NotebookNode(name="python")
    )
    return notebook


def _kept(outputs: list[Any]) -> list[Any]:
    """Outputs without counters and the progress of loading; what a cell prints is one text, however it came."""
    kept: list[Any] = []
    for output in outputs:
        if output.output_type != "stream":
            kept.append(output)
            if "execution_count" in output:
                output["execution_count"] = None
            continue
        text = "".join(line for line in output.text.splitlines(keepends=True) if not NOISE.search(line))
        if text and kept and kept[-1].output_type == "stream":
            kept[-1]["text"] += text
        elif text:
            output.update(name="stdout", text=text)
            kept.append(output)
    return kept


if __name__ == "__main__":
    nbformat.write(run(), NOTEBOOK)
    print(f"wrote {NOTEBOOK}")
