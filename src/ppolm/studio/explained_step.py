"""The explanations of a stored step, and the step with other settings."""

from __future__ import annotations

import dataclasses
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import torch

from ppolm.explain.advantage_terms import StepTerms
from ppolm.explain.in_words import sentences
from ppolm.explain.settings import StepSettings
from ppolm.explain.what_if import differences, recompute
from ppolm.messages import printable
from ppolm.studio.response_view import numbers
from ppolm.studio.step_overview import gap, number_range
from ppolm.studio.step_table import Numbers, StepTable
from ppolm.token_attribution import SAPairs

MOST_TRIED = 4
"""Cached tables of "what if": a slider moves back and forth."""
ROUNDING = 1e-5
"""Largest difference that counts as no change."""


@dataclass(frozen=True)
class Tried:
    """A step with other settings."""

    table: SAPairs
    differences: dict[str, Numbers]


class ExplainedStep:
    """A stored step with its settings. Nothing is written."""

    def __init__(self, table: StepTable, settings: StepSettings) -> None:
        self.table, self.settings = table, settings
        columns = {name: torch.tensor(values) for name, values in table.columns.items() if name != "sequence"}
        self.pairs = SAPairs(columns, torch.tensor(table.offsets), torch.tensor(table.ended))
        self._tried: OrderedDict[StepSettings, Tried] = OrderedDict()
        self._lock = Lock()

    @cached_property
    def terms(self) -> StepTerms:
        """The shared part of all explanations of this step."""
        return StepTerms(self.pairs, self.settings)

    def explain(self, sequence: int, token: int) -> dict[str, Any]:
        """The terms of a token's advantage, with the texts of the tokens they come from, and in words."""
        start, end = int(self.table.offsets[sequence]), int(self.table.offsets[sequence + 1])
        explanation, texts = self.terms.explain(start + token), self.table.texts(start, end)
        found = dataclasses.asdict(explanation)
        found["contributions"] = [
            {**one, "text": texts[one["row"] - start], "token": one["row"] - start} for one in found["contributions"]
        ]
        said = sentences(explanation, printable(texts[token], keep=""))
        return {**found, "token": token, "text": texts[token], "sentences": said}

    def what_if(self, settings: StepSettings, sequence: int) -> dict[str, Any]:
        """A response with other settings, the differences, and what changes in the whole step."""
        found = self.tried(settings)
        start, end = int(self.table.offsets[sequence]), int(self.table.offsets[sequence + 1])
        return {
            "settings": settings.to_dict(),
            "sequence": sequence,
            "columns": {name: numbers(found.table.column(name)[start:end].numpy()) for name in found.differences},
            "differences": {name: numbers(values[start:end]) for name, values in found.differences.items()},
            "ranges": {name: number_range(values, diverging=True) for name, values in found.differences.items()},
            "largest": {name: gap(_largest(values)) for name, values in found.differences.items()},
            "changes_nothing": all(_largest(values) <= ROUNDING for values in found.differences.values()),
            "sign_changes": self._sign_changes(found),
        }

    def tried(self, settings: StepSettings) -> Tried:
        """The step with other settings; the last ones are kept."""
        with self._lock:
            if settings in self._tried:
                self._tried.move_to_end(settings)
                return self._tried[settings]
        table = recompute(self.pairs, settings)
        found = Tried(table, {name: values.numpy() for name, values in differences(self.pairs, table).items()})
        with self._lock:
            self._tried[settings] = found
            while len(self._tried) > MOST_TRIED:
                self._tried.popitem(last=False)
        return found

    def _sign_changes(self, found: Tried) -> float | None:
        """The share of tokens whose advantage changes its sign: what was encouraged is discouraged, or the reverse."""
        if "advantage" not in self.table.columns:
            return None
        before, after = self.table.columns["advantage"], found.table.column("advantage").numpy()
        return float(np.mean(before * after < 0))


def _largest(values: Numbers) -> float:
    finite = np.abs(values[np.isfinite(values)])
    return float(finite.max()) if len(finite) else 0.0
