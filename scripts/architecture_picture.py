"""Draws docs/architecture.png from the import graph: the rooms of ppolm on four floors, and which imports which.

    python -m scripts.architecture_picture

The graph is stored in the picture's metadata, so that a test can tell when the picture is out of date.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.text import Text

from scripts.import_graph import FACE, ROOMS, imports, room_edges

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "architecture.png"
INK, LINE, WRONG = "#22313f", "#8795a1", "#d1495b"


@dataclass(frozen=True)
class Floor:
    """Rooms that serve the same purpose."""

    name: str
    color: str
    rooms: dict[str, str]
    """What each room is, in a few words and at most two lines."""


FLOORS = (
    Floor("What people touch", "#e9dcf2", {"cli": "the ppolm command", "studio": "the pages\nin a browser"}),
    Floor(
        "The workflow",
        "#fbe3cf",
        {
            "data": "files and datasets,\nchecked rows",
            "embedded": "the tiny model\nand its world",
            "feedback": "judgements\nof people",
            "rewards": "where scores\ncome from",
            "supervised": "SFT and reward-\nmodel training",
            "readiness": "can a reward model\nbe trusted?",
            "hooks": "callbacks\nand loggers",
            "evaluation": "held-out prompts,\nverdict",
            "runs": "the run folder\nand its loop",
            "estimate": "memory and time\nof a run, before it",
            "planning": "a step on hardware\nthat is not here",
            "storage": "whole files,\none writer",
            "export": "a policy for\nother programs",
            "chat": "talking to policy\nand reference",
            "studies": "what people\nare to compare",
        },
    ),
    Floor(
        "The documents' data flow",
        "#dbe9f4",
        {
            "ppo_trainer": "ppo_step: a line\nper arrow",
            "components": "protocols of\nthe components",
            "training": "PPO-clip and\nvalue losses",
            "experience_buffer": "recent tables,\nminibatches",
            "explain": "why an advantage,\nand what if",
            "advantage": "TD errors, GAE,\nreturns",
            "reward_kl": "KL, and rewards\nof tokens",
            "token_attribution": "SAPairs: a row\nper token",
            "engines": "what samples: local,\nMLX or vLLM",
            "models": "the four roles",
            "base_setup.model_setup": "puts the roles\non the base",
            "base_setup": "one base model,\nits adapters",
        },
    ),
    Floor(
        "The engine below",
        "#d5ecd9",
        {
            "rollout": "samplers",
            "kernels": "attention, blocks,\nLoRA, log-probs",
            "batches": "sequences packed\ninto microbatches",
            "measures": "words, intervals",
            "ranks": "the processes\nof a job",
            "config": "every setting,\nchecked",
            "names": "shared words",
            "state": "what a checkpoint\nkeeps",
            "http_call": "one HTTP request,\nbounded",
            "messages": "text in errors",
            "errors": "what is raised",
        },
    ),
)
PER_ROW = 5
WIDE, HIGH = 18.0, 6.0
"""Size of a room's box, in units of 1/100 of the picture's width."""


def floors(rooms: dict[str, list[str]]) -> list[Floor]:
    """The floors with the rooms that exist; a room on no floor is an error."""
    known = {room for floor in FLOORS for room in floor.rooms}
    unknown = set(rooms) - known - {FACE}
    if unknown:
        raise ValueError(
            f"{', '.join(sorted(unknown))} stand on no floor: add them to FLOORS in {Path(__file__).name}."
        )
    return [
        Floor(one.name, one.color, {room: words for room, words in one.rooms.items() if room in rooms})
        for one in FLOORS
    ]


def graph() -> dict[str, list[str]]:
    """The rooms that each room imports, read from the current source; the public face is not drawn."""
    return {room: below for room, below in room_edges(imports()).items() if room != FACE}


def draw(rooms: dict[str, list[str]]) -> tuple[Figure, list[tuple[Text, FancyBboxPatch]]]:
    """The picture, and every text with the box that it must fit into."""
    shown = floors(rooms)
    rows = sum(-(-len(floor.rooms) // PER_ROW) for floor in shown)
    height = rows * (HIGH + 1) + len(shown) * 4.2 + 4
    figure = pyplot.figure(figsize=(13, 0.13 * height + 9.6))
    share = 0.13 * height / (0.13 * height + 9.6)
    axes = figure.add_axes((0, 1 - share, 1, share))
    axes.set(xlim=(0, 100), ylim=(0, height))
    axes.axis("off")
    texts = _draw_floors(axes, shown, height)
    matrix = figure.add_axes((0.18, (1 - share) * 0.2, 0.8, (1 - share) * 0.73))
    _draw_matrix(matrix, rooms, {room: floor.color for floor in shown for room in floor.rooms})
    return figure, texts


def _draw_floors(axes: Axes, shown: list[Floor], height: float) -> list[tuple[Text, FancyBboxPatch]]:
    _text(axes, 50, height - 2, "The rooms of ppolm, on four floors", 15, weight="bold")
    texts, y = [], height - 4
    for floor in shown:
        rows = -(-len(floor.rooms) // PER_ROW)
        below = y - rows * (HIGH + 1) - 3.4
        band = _box(axes, (1, below, 98, y - below), floor.color, alpha=0.45)
        texts.append((_text(axes, 50, y - 1.7, floor.name, 12, weight="bold"), band))
        for number, (room, words) in enumerate(floor.rooms.items()):
            row, column = divmod(number, PER_ROW)
            in_row = min(PER_ROW, len(floor.rooms) - row * PER_ROW)
            left = 50 + (column - in_row / 2) * (WIDE + 1) + 0.5
            bottom = y - 3.4 - (row + 1) * (HIGH + 1) + 1
            box = _box(axes, (left, bottom, WIDE, HIGH), floor.color)
            title = room.replace("base_setup.model_setup", "base_setup/model_setup")
            texts.append((_text(axes, left + WIDE / 2, bottom + HIGH - 1.2, title, 10.5, weight="bold"), box))
            texts.append((_text(axes, left + WIDE / 2, bottom + HIGH / 2 - 1, words, 9.5), box))
        y = below - 0.8
    return texts


def _draw_matrix(axes: Axes, rooms: dict[str, list[str]], colors: dict[str, str]) -> None:
    """A dot in a room's row for each room that it imports: all of them must lie to the left of the diagonal."""
    order = [room for room in ROOMS if room in rooms]
    for row, room in enumerate(order):
        axes.add_patch(Rectangle((-0.5, row - 0.5), len(order), 1, facecolor=colors[room], alpha=0.35, linewidth=0))
        axes.add_patch(Rectangle((row - 0.5, row - 0.5), 1, 1, facecolor=LINE, linewidth=0))
        for column in map(order.index, rooms[room]):
            axes.plot(column, row, "o", color=INK if column < row else WRONG, markersize=7)
    labels = [room.replace("base_setup.model_setup", "base_setup/model_setup") for room in order]
    axes.set(xlim=(-0.5, len(order) - 0.5), ylim=(-0.5, len(order) - 0.5))
    axes.set_xticks(range(len(order)), labels, rotation=60, ha="right", rotation_mode="anchor", size=10)
    axes.set_yticks(range(len(order)), labels, size=10)
    axes.set_title(
        "Each room (row) imports rooms (dots) that stand below it, never above", size=13, weight="bold", pad=10
    )
    axes.set_axisbelow(True)
    axes.grid(color="#d5dbe0", linewidth=0.6)
    axes.tick_params(length=0, pad=6)
    for spine in axes.spines.values():
        spine.set_visible(False)


def _box(axes: Axes, place: tuple[float, float, float, float], color: str, alpha: float = 1.0) -> FancyBboxPatch:
    left, bottom, width, height = place
    style = "round,pad=0,rounding_size=0.8"
    edge = LINE if alpha == 1 else "none"
    box = FancyBboxPatch((left, bottom), width, height, style, facecolor=color, edgecolor=edge, alpha=alpha)
    axes.add_patch(box)
    return box


def _text(axes: Axes, x: float, y: float, words: str, size: float, **style: Any) -> Text:
    return axes.text(x, y, words, size=size, ha="center", va="center", **{"color": INK, **style})


def main() -> None:
    """Write the picture."""
    rooms = graph()
    figure, _ = draw(rooms)
    figure.savefig(PICTURE, dpi=100, metadata={"Description": json.dumps(rooms)})


if __name__ == "__main__":
    main()
