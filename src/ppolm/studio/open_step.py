"""A stored step that is being viewed: its overview, computed once. Torch is imported only for explanations."""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property
from pathlib import Path
from threading import Lock, Timer
from typing import TYPE_CHECKING, Any

from ppolm.config import PPOConfig
from ppolm.config.yaml_io import read_yaml
from ppolm.errors import PpolmError, RunFolderError
from ppolm.explain.settings import StepSettings
from ppolm.studio.step_overview import Overview, column_ranges, overview, take_me_to
from ppolm.studio.step_table import StepTable
from ppolm.studio.token_pieces import TokenPieces, find_pieces
from ppolm.studio.token_tables import TokenTables

if TYPE_CHECKING:
    from ppolm.studio.explained_step import ExplainedStep

MOST_OPEN = 6
WARM_SECONDS = 2.0
"""Until torch is imported: it would slow down the requests of the first view."""


class OpenStep:
    """A step and what pages request of it repeatedly. Nothing is written."""

    def __init__(self, table: StepTable, config: PPOConfig | PpolmError) -> None:
        self.table, self._config = table, config
        self._lock = Lock()
        self._explained: ExplainedStep | None = None

    @property
    def value_target(self) -> str:
        """The column that the run trains its value model on."""
        rewards = isinstance(self._config, PPOConfig) and self._config.value_target == "reward_to_go"
        return "reward_to_go" if rewards else "return"

    @cached_property
    def overview(self) -> Overview:
        """A row per response."""
        return overview(self.table, self.value_target)

    @cached_property
    def ranges(self) -> dict[str, dict[str, Any]]:
        """Of every column."""
        return column_ranges(self.table)

    @cached_property
    def places(self) -> dict[str, dict[str, Any] | None]:
        """Where "take me to" leads."""
        return take_me_to(self.table, self.overview, self.value_target)

    @cached_property
    def pieces(self) -> TokenPieces:
        """Bytes of tokens."""
        return find_pieces(self._config.model_name) if isinstance(self._config, PPOConfig) else TokenPieces()

    @cached_property
    def settings(self) -> StepSettings:
        """The settings of the step; an error says why they are not known."""
        if isinstance(self._config, PpolmError):
            raise self._config
        return StepSettings.of(self._config, self.table.notes)

    @property
    def explained(self) -> ExplainedStep:
        """Its explanations and "what if"."""
        from ppolm.studio.explained_step import ExplainedStep

        with self._lock:
            if self._explained is None:
                self._explained = ExplainedStep(self.table, self.settings)
            return self._explained


class OpenSteps:
    """The most recently viewed steps."""

    def __init__(self) -> None:
        self.tables = TokenTables()
        self._open: OrderedDict[tuple[Path, int], OpenStep] = OrderedDict()
        self._lock = Lock()
        self._warmed = False

    def get(self, run: Path, step: int) -> OpenStep:
        """A step; one whose file was replaced is opened again. ``RunFolderError`` if its table cannot be read."""
        table = self.tables.load(run, step)
        with self._lock:
            known = self._open.get((run, step))
            if known is not None and known.table is table:
                self._open.move_to_end((run, step))
                return known
        opened = OpenStep(table, _config_of(run))
        with self._lock:
            self._open[run, step] = opened
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
        return opened

    def warm(self) -> None:
        """Import torch in the background, which takes seconds, while the first response is being viewed."""
        with self._lock:
            if not self._warmed:
                self._warmed = True
                later = Timer(WARM_SECONDS, _load)
                later.daemon = True
                later.start()


def _load() -> None:
    import ppolm.studio.explained_step  # noqa: F401


def _config_of(run: Path) -> PPOConfig | PpolmError:
    """The settings of a run, or why they cannot be read; its tokens can be shown without them."""
    try:
        return PPOConfig.from_stored(read_yaml(run / "config.yaml"))
    except (PpolmError, OSError, TypeError) as error:
        return RunFolderError(f"The run's config.yaml cannot be used, so nothing can be explained: {error}")
