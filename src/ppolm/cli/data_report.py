"""The findings of ``ppolm data check`` as text, at most 100 columns wide."""

from __future__ import annotations

import textwrap
from typing import Any

from ppolm.data.examples import KINDS

WIDTH = 100
LABEL = 16
COLUMNS = {kind.split()[0]: kind for kind in KINDS.values()}
"""The name of each kind of row, with its columns."""


def text_of(found: dict[str, Any]) -> str:
    """All files, one after the other, then what they share."""
    parts = [file_text(report) for report in found["files"]]
    return "\n\n".join([*parts, *([leakage_text(found["leakage"])] if found["leakage"] else [])])


def file_text(report: dict[str, Any]) -> str:
    """The report on one file."""
    lines = [report["source"], *_rows(report)]
    if report["rows"]:
        lines += [*_lengths(report), *_duplicates(report), *_balance(report)]
    lines += [line for warning in report["warnings"] for line in _line("warning", warning)]
    return "\n".join(lines)


def _line(label: str, text: str) -> list[str]:
    """A label and its text, wrapped beside it."""
    indent = " " * (LABEL + 2)
    wrapped = textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)
    wrapped = wrapped or [indent]  # a column may have an empty name
    wrapped[0] = f"  {label:<{LABEL}}" + wrapped[0].removeprefix(indent)
    return wrapped


def _rows(report: dict[str, Any]) -> list[str]:
    rows, bad = report["rows"], report["bad_rows"]
    kinds = [f"{count:,} {COLUMNS[kind]}" for kind, count in report["kinds"].items()]
    form = "chat" if report["chat"] == rows else "text" if not report["chat"] else "chat and text"
    lines = _line("rows", f"{'; '.join(kinds)}; {form}" if rows else "none that can be used")
    if report["shapes"]:
        lines += _line("read as", "; ".join(f"{count:,} {shape}" for shape, count in report["shapes"].items()))
    others = [name if count == rows else f"{name} ({count:,})" for name, count in report["other_columns"].items()]
    if others:
        lines += _line("other columns", ", ".join(others))
    lines += _line("bad rows", f"{bad['count']:,} of {rows + bad['count']:,}" if bad["count"] else "none")
    for reason in bad["first"]:
        lines += _line("", reason)
    if bad["count"] > len(bad["first"]):
        lines += _line("", f"... and {bad['count'] - len(bad['first']):,} more")
    return lines


def _lengths(report: dict[str, Any]) -> list[str]:
    """A table: words, and tokens if there is a tokenizer."""
    units = [unit for unit in ("words", "tokens") if unit in report]
    head = "".join(f"{unit}: median{'95 %':>9}{'max':>9}    " for unit in units)
    lines = _line("lengths", head)
    for name in report["words"]:
        cells = [
            f"{report[unit][name]['median']:>{len(unit) + 8},}{report[unit][name]['p95']:>9,}"
            f"{report[unit][name]['max']:>9,}"
            for unit in units
        ]
        lines.append(f"    {name:<{LABEL - 2}}{'    '.join(cells)}")
    context = report.get("context")
    if context:
        over, longest = context["rows_over"], context["longest_row"]
        limit = f"{over:,} rows exceed" if over else "every row fits"
        known = f"{limit} the model's context of {context['length']:,}" if context["length"] else "unknown"
        lines += _line("context", f"{known}; the longest row has {longest:,} tokens with its EOS")
    return lines


def _duplicates(report: dict[str, Any]) -> list[str]:
    found = report["duplicates"]
    repeated, most = found["repeated_prompts"], found["most_rows_of_a_prompt"]
    returning = f"{repeated:,} of them in several rows (at most {most:,})" if repeated else "each in one row"
    lines = _line("prompts", f"{found['different_prompts']:,} different, {returning}")
    copies = found["identical_rows"]
    parts = [f"{copies:,} row{'s' * (copies > 1)} repeat{'s' * (copies == 1)} an earlier one" if copies else "none"]
    if found["conflicts"]:
        times = "1 time" if found["conflicts"] == 1 else f"{found['conflicts']:,} times"
        parts.append(f"{times} the same answers to the same prompt were judged both ways")
    return lines + _line("duplicates", "; ".join(parts))


def _balance(report: dict[str, Any]) -> list[str]:
    lines = []
    preferences = report.get("preferences")
    if preferences:
        lines += _line("ties", f"{preferences['ties']:,}" if preferences["ties"] else "none")
        first, *rest = longer_text(preferences["longer_wins"])
        lines += _line("longer wins", first) + [line for text in rest for line in _line("", text)]
    if "scores" in report:
        found = report["scores"]
        lines += _line(
            "scores",
            f"{found['min']:g} to {found['max']:g}, mean {found['mean']:.3g}, deviation {found['deviation']:.3g}, "
            f"{found['different']:,} different; {correlation_text(found['length_correlation'])}",
        )
    if "thumbs" in report:
        found = report["thumbs"]
        lines += _line("thumbs", f"{percent(found['up'])} up; {correlation_text(found['length_correlation'])}")
    if "annotators" in report:
        found = report["annotators"]
        names = ", ".join(f"{name} {count:,}" for name, count in found["most"].items())
        more = ", ..." if found["different"] > len(found["most"]) else ""
        lines += _line("annotators", f"{found['different']:,}: {names}{more}")
    return lines


def longer_text(found: dict[str, Any] | None) -> list[str]:
    """How often the longer answer wins, how that was measured, and what it means."""
    if found is None:
        return ["no pair with a winner has answers of different length"]
    low, high = (f"{100 * found[name]:.1f}" for name in ("low", "high"))
    several = found["prompts"] > 1
    interval = f" [{low}, {high}]" if several else ""
    equal = f", {found['equal_length']:,} of equal length aside" if found["equal_length"] else ""
    right = max(found["baseline_accuracy"], 1 - found["baseline_accuracy"])
    guess = "longer" if found["baseline_accuracy"] >= 0.5 else "shorter"
    return [
        f"{percent(found['mean'])}{interval} of {found['pairs']:,} {'pair' if found['pairs'] == 1 else 'pairs'}{equal}",
        f"(95 % interval by prompt: pairs are averaged within each of {found['prompts']:,} prompts first)"
        if several
        else "(one prompt only: too few for an interval)",
        f"Choosing the {guess} is right in {percent(right)} of pairs: a reward model must beat that.",
    ]


def percent(share: float) -> str:
    """A share as a percentage."""
    return f"{100 * share:.1f} %"


def correlation_text(value: float | None) -> str:
    """The correlation of judgements with length."""
    return "no correlation with length can be measured" if value is None else f"correlation with length {value:+.2f}"


def leakage_text(pairs: list[dict[str, Any]]) -> str:
    """What the files share."""
    lines = ["leakage between the files"]
    for pair in pairs:
        lines += textwrap.wrap(" and ".join(pair["sources"]), WIDTH, initial_indent="  ", subsequent_indent="  ")
        for what in ("prompts", "answers"):
            found = pair[what]
            shared = f"{found['count']:,} shared, {percent(found['share'])} of those in the smaller file, such as "
            lines += _line(f"  {what}", f"{shared}{found['example']}" if found["count"] else "none shared")
    return "\n".join(lines)
