"""The same prompt over the steps of a run: which stored steps answered it."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock

import pyarrow as pa
import pyarrow.parquet as parquet

from ppolm.names import TABLE_META
from ppolm.studio.step_table import StepTable, file_key
from ppolm.studio.token_tables import logged_steps, table_path

MOST_STEPS = 2000
"""Only the newest stored steps are searched."""
MOST_KEPT = 300_000
"""Cached prompts of all tables."""


def prompt_key(ids: Sequence[int], text: str) -> str:
    """A key that identifies a prompt in any step: a digest of its token ids, or of its text if no ids were stored."""
    content = ",".join(map(str, ids)) if ids else text
    return hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def key_of(table: StepTable, prompt: int) -> str:
    """The key of a prompt of a table."""
    ids = table.prompt_ids[prompt] if 0 <= prompt < len(table.prompt_ids) else ()
    text = table.prompt_texts[prompt] if 0 <= prompt < len(table.prompt_texts) else ""
    return prompt_key(ids, text)


class PromptHistory:
    """The prompts of stored steps, read from the metadata of their tables without reading any row."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Path, tuple[tuple[int, int, int], dict[str, int]]] = OrderedDict()
        self._lock = Lock()

    def steps_with(self, run: Path, key: str) -> list[tuple[int, int]]:
        """Every stored step with this prompt, and the prompt's number in that step. Damaged tables are skipped."""
        found = []
        for step in logged_steps(run)[-MOST_STEPS:]:
            prompts = self._prompts(table_path(run, step))
            if key in prompts:
                found.append((step, prompts[key]))
        return found

    def _prompts(self, path: Path) -> dict[str, int]:
        try:
            with path.open("rb") as file:
                stamp = file_key(file)
                with self._lock:
                    if path in self._kept and self._kept[path][0] == stamp:
                        return self._kept[path][1]
                prompts = dict(_numbered(parquet.read_schema(file)))
        except (pa.ArrowException, OSError, ValueError, KeyError, TypeError, RecursionError):
            return {}
        with self._lock:
            self._kept[path] = (stamp, prompts)
            while len(self._kept) > 1 and sum(len(one) for _, one in self._kept.values()) > MOST_KEPT:
                self._kept.popitem(last=False)
        return prompts


def _numbered(schema: pa.Schema) -> Iterator[tuple[str, int]]:
    meta = json.loads((schema.metadata or {})[TABLE_META])
    ids, texts = meta.get("prompt_ids") or [], meta.get("prompt_texts") or []
    for number in range(max(len(ids), len(texts))):
        yield (
            prompt_key(ids[number] if number < len(ids) else (), texts[number] if number < len(texts) else ""),
            number,
        )
