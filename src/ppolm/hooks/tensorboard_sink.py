"""TensorBoard: event files in the run folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ppolm.hooks.callback import RunDone
from ppolm.hooks.log_sink import LoggedRun, ending_texts, sample_columns


class TensorBoardSink:
    """Writes events into ``tensorboard/``. After a resume, those of later steps are no longer shown."""

    def __init__(self, run: LoggedRun) -> None:
        from torch.utils.tensorboard import SummaryWriter

        # Without it events of steps that are taken again would be shown beside the new ones.
        self._writer: Any = SummaryWriter(str(run.folder / "tensorboard"), purge_step=run.step + 1)
        if not run.step:
            lines = (f"    {name}: {value}" for name, value in run.settings.items())
            self._writer.add_text("settings", "\n".join(lines), 0)

    def numbers(self, kind: str, step: int, numbers: Mapping[str, float]) -> None:
        """A scalar for each."""
        for name, value in numbers.items():
            self._writer.add_scalar(f"{kind}/{name}", value, step)

    def samples(self, step: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """A table in Markdown."""
        columns = sample_columns(rows)
        lines = [list(columns), ["---"] * len(columns), *zip(*columns.values(), strict=True)]
        text = "\n".join("| " + " | ".join(_cell(str(cell)) for cell in line) + " |" for line in lines)
        self._writer.add_text("samples", text, step)

    def close(self, end: RunDone) -> None:
        """The verdict, and what is still buffered."""
        for name, text in ending_texts(end).items():
            self._writer.add_text(name, text, end.step)
        self._writer.close()


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", "<br>")
