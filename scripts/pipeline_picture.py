"""Draws docs/pipeline.png, the architecture diagram of the design documents, and docs/pipeline.txt, the same as text.

    python -m scripts.pipeline_picture

The text replaces the picture where pictures cannot be shown, as on a package index.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch
from matplotlib.text import Text

DOCS = Path(__file__).resolve().parent.parent / "docs"
TITLE = "One PPO step"
INK, PALE, LINE, ADDED = "#22313f", "#f4f6f8", "#8795a1", "#9c3d00"
Rows = tuple[str, ...]


@dataclass(frozen=True)
class Stage:
    """One box of the picture: a stage's name, what it does, and the columns it adds to the table."""

    title: str
    lines: Rows
    place: tuple[float, float, float]
    """Left edge, middle of the height, and width, in a picture of 100 by 47."""
    color: str = "#dbe9f4"
    adds: Rows = ()

    @property
    def height(self) -> float:
        """Height of the box for all of its lines."""
        return 4.4 + 2.1 * (len(self.lines) + len(self.added))

    @property
    def added(self) -> list[str]:
        """The added columns, two per line."""
        pairs = [", ".join(self.adds[i : i + 2]) for i in range(0, len(self.adds), 2)]
        return [f"+ {pair}" for pair in pairs]

    def side(self, name: str, shift: float = 0.0) -> tuple[float, float]:
        """The middle of a side, or a point shifted along that side."""
        left, middle, width = self.place
        return {
            "left": (left - 0.2, middle + shift),
            "right": (left + width + 0.2, middle + shift),
            "top": (left + width / 2 + shift, middle + self.height / 2 + 0.2),
            "bottom": (left + width / 2 + shift, middle - self.height / 2 - 0.2),
        }[name]


ROLE, TABLE, SCORE, UPDATE, OUTSIDE = "#d5ecd9", "#dbe9f4", "#fbe3cf", "#e9dcf2", "#e8e8e8"
DATA = Stage("Input data", ("prompts", "datasets", "human feedback"), (1, 29, 12), OUTSIDE)
POLICY = Stage("Policy model", ("generate()", "log π(a|s)"), (16.8, 36.5, 12), ROLE)
SFT = Stage("SFT model", ("reference", "log π_ref(a|s)"), (16.8, 27, 12), ROLE)
TOKENIZER = Stage("Tokenizer", ("text to ids", "and back"), (16.8, 17.5, 12), ROLE)
PAIRS = Stage(
    "generate_sequences()",
    ("texts, and a table", "with a row for every", "generated token"),
    (31, 27, 16.5),
    adds=("state", "action", "logprob_policy", "logprob_ref"),
)
REWARD = Stage("Reward", ("compute_rewards()", "model, function,", "HTTP, people"), (51.2, 34.5, 13), SCORE)
KL = Stage("KL divergence", ("add_kl_to_sa_pairs()",), (51.2, 20.5, 13), SCORE, adds=("kl",))
ADJUST = Stage(
    "Reward adjustment",
    ("adjust_rewards_with_kl()", "score − β · KL"),
    (66.8, 34.5, 15),
    SCORE,
    adds=("score", "reward"),
)
VALUES = Stage("Value model", ("add_values_to_sa_pairs()", "V(s)"), (66.8, 20.5, 15), ROLE, adds=("value",))
ADVANTAGE = Stage(
    "Advantages",
    ("compute_td_errors()", "compute_gae_advantages()", "add_reward_to_go()"),
    (84, 27.5, 15.4),
    adds=("td_error", "advantage", "return", "reward_to_go"),
)
BUFFER = Stage("Experience buffer", ("store(): minibatches", "of whole sequences"), (83, 6.9, 16.4))
TRAIN = Stage("Model training", ("train_value_model(): MSE", "train_policy_model(): PPO-clip"), (57.7, 6.9, 20), UPDATE)
UPDATED = Stage("Updated models", ("policy and value model,", "ready for the next step"), (33.5, 6.9, 18), UPDATE)
EVALUATION = Stage("Evaluation", ("held-out prompts,", "judge, verdict"), (11, 6.9, 15), OUTSIDE)
GROUP = (15.4, 12.6, 33.4, 31.6)
STAGES = (
    *(DATA, POLICY, SFT, TOKENIZER, PAIRS, REWARD, KL, ADJUST, VALUES),
    *(ADVANTAGE, BUFFER, TRAIN, UPDATED, EVALUATION),
)
"""In the order of a step."""
ARROWS = (
    (DATA.side("right"), (15.2, 29)),
    (POLICY.side("right"), PAIRS.side("left", 3)),
    (SFT.side("right"), PAIRS.side("left")),
    (TOKENIZER.side("right"), PAIRS.side("left", -3)),
    ((49, 32.5), REWARD.side("left", -2)),
    ((49, 20.5), KL.side("left")),
    (REWARD.side("right"), ADJUST.side("left")),
    (KL.side("right"), ADJUST.side("left", -4)),
    (ADJUST.side("bottom"), VALUES.side("top")),
    (ADJUST.side("right"), ADVANTAGE.side("left", 3)),
    (VALUES.side("right"), ADVANTAGE.side("left", -3)),
    (ADVANTAGE.side("bottom"), BUFFER.side("top", 0.5)),
    (BUFFER.side("left"), TRAIN.side("right")),
    (TRAIN.side("left"), UPDATED.side("right")),
    (UPDATED.side("left"), EVALUATION.side("right")),
    (UPDATED.side("top", -6), (36.5, 12.5)),
)


def draw() -> tuple[Figure, list[tuple[Text, FancyBboxPatch]]]:
    """The picture, and every text with the box that it must fit into."""
    figure = pyplot.figure(figsize=(14, 6.58))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 100), ylim=(0, 47))
    axes.axis("off")
    group = _box(axes, GROUP, PALE)
    texts = [(_text(axes, GROUP[0] + GROUP[2] / 2, 42.6, "Generation & token attribution", 12, weight="bold"), group)]
    for stage in STAGES:
        left, middle, width = stage.place
        box = _box(axes, (left, middle - stage.height / 2, width, stage.height), stage.color)
        center, y = left + width / 2, middle + stage.height / 2 - 1.8
        texts.append((_text(axes, center, y, stage.title, 11.5, weight="bold"), box))
        for line in stage.lines:
            y -= 2.1
            texts.append((_text(axes, center, y - 0.2, line, 10), box))
        for line in stage.added:
            y -= 2.1
            texts.append((_text(axes, center, y - 0.3, line, 8.5, color=ADDED, family="monospace"), box))
    for start, end in ARROWS:
        style = {"arrowstyle": "-|>", "color": INK, "linewidth": 1.4, "shrinkA": 0, "shrinkB": 0}
        axes.annotate("", end, start, arrowprops=style)
    _text(axes, 50, 45.6, f"{TITLE}: ppo_step(prompts)", 14, weight="bold")
    note = "+ columns that a stage adds to the table of state-action pairs (SAPairs): one row per generated token"
    _text(axes, 50, 1, note, 10, color=ADDED)
    return figure, texts


def _box(axes: Axes, place: tuple[float, float, float, float], color: str) -> FancyBboxPatch:
    left, bottom, width, height = place
    style = "round,pad=0,rounding_size=0.8"
    box = FancyBboxPatch((left, bottom), width, height, style, facecolor=color, edgecolor=LINE, linewidth=1)
    axes.add_patch(box)
    return box


def _text(axes: Axes, x: float, y: float, words: str, size: float, **style: Any) -> Text:
    return axes.text(x, y, words, size=size, ha="center", va="center", **{"color": INK, **style})


ROWS = (
    *(((DATA,), "  "), ((POLICY, SFT, TOKENIZER), "  "), ((PAIRS,), "  "), ((REWARD, KL), "  ")),
    *(((ADJUST, VALUES), " ──▶ "), ((ADVANTAGE,), "  "), ((BUFFER, TRAIN), " ──▶ "), ((UPDATED, EVALUATION), " ──▶ ")),
)
"""The boxes of the text version, row by row, and what separates the boxes of a row."""


def as_text() -> str:
    """The picture as text, at most 78 columns wide."""
    rows = [_boxes_side_by_side(stages, between) for stages, between in ROWS]
    body = f"\n{'▼':^78}".rstrip().join(f"\n{row}" for row in rows)
    return (
        f"{TITLE}: ppo_step(prompts)\n{body}\n\n+ columns that a stage adds to the table, one row per generated token\n"
    )


def _boxes_side_by_side(stages: tuple[Stage, ...], between: str) -> str:
    height = max(1 + len(stage.lines) + len(stage.added) for stage in stages)
    boxes = [_box_of_letters(stage, height) for stage in stages]
    middle = 1 + height // 2
    lines = []
    for number, parts in enumerate(zip(*boxes, strict=True)):
        gap = between if number == middle else " " * len(between)
        lines.append(gap.join(parts).center(78).rstrip())
    return "\n".join(lines)


def _box_of_letters(stage: Stage, height: int) -> list[str]:
    lines = [stage.title, *stage.lines, *stage.added]
    width = max(map(len, lines)) + 2
    inside = [f"│{line:^{width}}│" for line in lines + [""] * (height - len(lines))]
    return [f"┌{'─' * width}┐", *inside, f"└{'─' * width}┘"]


def main() -> None:
    """Write both files."""
    figure, _ = draw()
    figure.savefig(DOCS / "pipeline.png", dpi=100)
    (DOCS / "pipeline.txt").write_text(as_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
