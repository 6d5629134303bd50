"""The report of ``ppolm data check``: lengths, duplicates, label balance, traps, and leakage between splits."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np

from ppolm.data.tally import Seen, Tally

Report = dict[str, Any]
"""Plain values that can be written as JSON."""

ANNOTATORS_SHOWN = 10


def report_of(tally: Tally, context: int | None = None) -> Report:
    """The full report on one source."""
    report: Report = {
        "source": tally.name,
        "rows": tally.rows,
        "kinds": dict(tally.kinds.most_common()),
        "bad_rows": {"count": tally.bad, "first": tally.bad_reasons},
        "shapes": dict(tally.shapes.most_common()),
        "chat": tally.chats,
        "text": tally.rows - tally.chats,
        "other_columns": dict(tally.other_columns.most_common()),
        "words": {name: lengths_of(counts) for name, counts in tally.word_counts.items()},
        "duplicates": duplicates_of(tally),
    }
    if tally.row_tokens:
        report["tokens"] = {name: lengths_of(counts) for name, counts in tally.token_counts.items()}
        over = None if context is None else sum(number > context for number in tally.row_tokens)
        report["context"] = {"length": context, "rows_over": over, "longest_row": max(tally.row_tokens)}
    if tally.kinds["preferences"]:
        report["preferences"] = {"ties": tally.ties, "longer_wins": longer_wins(list(tally.pairs.values()))}
    if tally.scores:
        report["scores"] = scores_of(tally.scores, tally.score_words)
    if tally.thumbs:
        correlation = correlation_of(tally.thumbs, tally.thumb_words)
        report["thumbs"] = {"up": fmean(tally.thumbs), "length_correlation": correlation}
    if tally.annotators:
        most = dict(tally.annotators.most_common(ANNOTATORS_SHOWN))
        report["annotators"] = {"different": len(tally.annotators), "most": most}
    return report | {"warnings": warnings_of(tally)}


def lengths_of(counts: Sequence[int]) -> dict[str, float]:
    """Median, 95th percentile and maximum."""
    median, high, largest = np.quantile(counts, [0.5, 0.95, 1.0], method="higher")
    return {"median": int(median), "p95": int(high), "max": int(largest)}


def duplicates_of(tally: Tally) -> dict[str, Any]:
    """Counts of identical rows, contradictory judgements and repeated prompts."""
    counts = [seen.count for seen in tally.prompts.values()]
    return {
        "identical_rows": tally.rows - len(tally.different),
        "conflicts": sum(len(verdicts) > 1 for verdicts in tally.verdicts.values()),
        "different_prompts": len(counts),
        "repeated_prompts": sum(count > 1 for count in counts),
        "most_rows_of_a_prompt": max(counts, default=0),
    }


def longer_wins(prompts: Sequence[Sequence[float]]) -> dict[str, Any] | None:
    """How often the longer answer wins: averaged within each prompt, then over prompts, with an interval by prompt.

    ``prompts`` holds, for the judged pairs of each prompt, 1 (the longer answer won), 0, or 0.5 (equal length).
    """
    from ppolm.measures.intervals import share_interval  # importing its package takes seconds, and few files need it

    unequal = [[value for value in values if value != 0.5] for values in prompts]
    means = [fmean(values) for values in unequal if values]
    if not means:
        return None
    pairs, equal = sum(map(len, prompts)), sum(value == 0.5 for values in prompts for value in values)
    return {
        **dataclasses.asdict(share_interval(means, range(len(means)))),
        "prompts": len(means),
        "pairs": pairs - equal,
        "equal_length": equal,
        # Per pair, as accuracies are reported; 0.5, a guess, where lengths are equal.
        "baseline_accuracy": sum(map(sum, prompts)) / pairs,
    }


def scores_of(scores: Sequence[float], lengths: Sequence[int]) -> dict[str, Any]:
    """Range, mean and deviation of the scores, and their correlation with answer length."""
    return {
        "min": min(scores),
        "max": max(scores),
        "mean": float(np.mean(scores)),
        "deviation": float(np.std(scores)),
        "different": len(set(scores)),
        "length_correlation": correlation_of(scores, lengths),
    }


def correlation_of(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Pearson's correlation; None if either is constant."""
    if len(set(one)) < 2 or len(set(other)) < 2:
        return None
    value = float(np.corrcoef(one, other)[0, 1])
    return value if math.isfinite(value) else None


def leakage_of(tallies: Sequence[Tally]) -> list[Report]:
    """What each pair of sources has in common, as a share of the smaller one: usually the one to be held out."""
    return [
        {
            "sources": [one.name, other.name],
            "prompts": shared_of(one.prompts, other.prompts),
            "answers": shared_of(one.answers, other.answers),
        }
        for one, other in combinations(tallies, 2)
    ]


def shared_of(one: dict[bytes, Seen], other: dict[bytes, Seen]) -> dict[str, Any]:
    """How many distinct texts two sources have in common, and an example."""
    smaller, larger = sorted((one, other), key=len)
    shared = [seen.preview for key, seen in smaller.items() if key in larger]
    return {
        "count": len(shared),
        "share": len(shared) / len(smaller) if smaller else 0.0,
        "example": shared[0] if shared else None,
    }


def warnings_of(tally: Tally) -> list[str]:
    """Problems that only show across rows."""
    return [*_mixtures(tally), *_one_sided(tally)]


def _mixtures(tally: Tally) -> Iterator[str]:
    """Warnings about rows in different formats."""
    if len(tally.kinds) > 1:
        rarest = tally.kinds.most_common()[-1][0]
        yield (
            f"The rows are of several kinds. The first of the {rarest} is {tally.first_of_kind[rarest]}. "
            "Each command takes the kinds it can use and reports the others as bad rows."
        )
    if 0 < tally.chats < tally.rows:
        yield f"{tally.chats:,} of {tally.rows:,} prompts are chat messages, the others text. A model sees two formats."
    if tally.spaced[True] and tally.spaced[False]:
        total = tally.spaced.total()
        yield (
            f"{tally.spaced[True]:,} of {total:,} answers begin with a space, the others do not. Tokens differ with "
            "it, and a reward model can learn it. Write all of them one way."
        )
    if tally.prompts_end_in_space:
        yield (
            f"{tally.prompts_end_in_space:,} of {tally.rows:,} prompts end in white space. Most tokenizers join a "
            "space to the word after it, so the model sees tokens it seldom saw. Begin the answers with it instead."
        )
    if tally.prompts_end_empty:
        yield f"{tally.prompts_end_empty:,} conversations end in an empty message: there is nothing to answer."


def _one_sided(tally: Tally) -> Iterator[str]:
    """Warnings about judgements that teach nothing, or something unintended."""
    for name, texts in tally.columns.items():
        if len(texts) == 1 and len(tally.word_counts[name]) > 1:
            yield f"'{name}' is the same text in every row. A model can tell it without reading."
    preferences = tally.kinds["preferences"]
    if preferences and tally.ties == preferences:
        yield "Every preference is a tie: nothing says which answer is better."
    if len(set(tally.thumbs)) == 1:
        yield f"Every thumb points {'up' if tally.thumbs[0] else 'down'}: nothing says which answer is better."
    if len(tally.scores) > 1 and len(set(tally.scores)) == 1:
        yield f"Every score is {tally.scores[0]:g}: nothing says which answer is better."
