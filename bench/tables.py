"""The comparison as Markdown tables."""

from __future__ import annotations

from typing import Any

PHASES = ("generation", "scoring", "optimisation", "total")


def markdown(head: list[str], rows: list[list[str]]) -> str:
    """A table in which all columns but the first hold numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def case_table(rows: list[dict[str, Any]]) -> str:
    """Seconds per step, ratios, memory, and ours as a share of the machine's limit."""
    head = ["case", "TRL s", "ours s", "ratio", "goal", "generation", "scoring", "update"]
    head += ["TRL GiB", "ours GiB", "estimated", "scoring of limit", "update of limit"]
    lines = []
    for row in rows:
        if "ratio" not in row:
            lines.append([row["case"], "failed", *[""] * (len(head) - 2)])
            continue
        ratio, shares = row["ratio"], row["limit_shares"]
        cells = [row["case"], f"{row['peer']['total']:.2f}", f"{row['ours']['total']:.2f}", f"**{ratio['total']:.2f}**"]
        cells += [str(row["target"]), *(f"{ratio[phase]:.2f}" for phase in PHASES[:3])]
        cells += [f"{row[name]:.1f}" for name in ("peer_gib", "ours_gib", "estimated_gib")]
        lines.append([*cells, *(f"{100 * shares[name]:.0f} %" for name in ("scoring", "training"))])
    return markdown(head, lines)


def generation_table(rows: list[dict[str, Any]]) -> str:
    """Tokens per second of the samplers."""
    head = ["generation", "ours tokens/s", "generate with adapter", "ratio", "generate without", "ratio"]
    lines = []
    for row in rows:
        if "ratio" not in row:
            lines.append([row["case"], "failed", *[""] * (len(head) - 2)])
            continue
        rates, ratio = row["tokens_per_second"], row["ratio"]
        cells = [row["case"], f"{rates['ours']:.0f}"]
        for name in ("generate", "generate, no adapter"):
            cells += [f"{rates[name]:.0f}", f"**{ratio[name]:.2f}**"]
        lines.append(cells)
    return markdown(head, lines)


def growth_table(curves: list[dict[str, Any]]) -> str:
    """Seconds per step along every curve, TRL's before ours."""
    lines = []
    for curve in curves:
        cells = []
        for point in curve["points"]:
            peer = f"{point['peer']:.2f} / " if "peer" in point else ""
            cells.append(
                f"{point['value']}: {peer}{point['ours']:.2f}" if "ours" in point else f"{point['value']}: failed"
            )
        lines.append([curve["name"], *cells])
    width = max(map(len, lines), default=1) - 1
    return markdown(["what grows", *["value: TRL s / ours s"] * width], lines)
