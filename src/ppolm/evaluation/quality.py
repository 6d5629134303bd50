"""Automated quality metrics of generated texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ppolm.measures.words import ngrams, repetition, words


def distinct(texts: Sequence[str], n: int) -> float:
    """Share of distinct n-grams among those of all texts together: low when every answer says the same."""
    runs = [run for text in texts for run in ngrams(words(text), n)]
    return len(set(runs)) / len(runs) if runs else 0.0


def rouge_n(text: str, reference: str, n: int = 1) -> float:
    """F1 of the n-grams shared with a reference (Lin 2004), without stemming."""
    ours, theirs = Counter(ngrams(words(text), n)), Counter(ngrams(words(reference), n))
    return f1((ours & theirs).total(), ours.total(), theirs.total())


def rouge_l(text: str, reference: str) -> float:
    """F1 of the longest common subsequence of words with a reference (Lin 2004), without stemming."""
    ours, theirs = words(text), words(reference)
    row = [0] * (len(theirs) + 1)
    for word in ours:
        above = row
        row = [0]
        for j, other in enumerate(theirs):
            row.append(above[j] + 1 if word == other else max(above[j + 1], row[j]))
    return f1(row[-1], len(ours), len(theirs))


def f1(shared: int, ours: int, theirs: int) -> float:
    """Harmonic mean of precision shared/ours and recall shared/theirs."""
    return 2 * shared / (ours + theirs) if shared else 0.0


def quality_metrics(texts: Sequence[str], references: Sequence[str | None]) -> dict[str, float]:
    """Repetition and diversity of the texts, and ROUGE against the references where there are any."""
    metrics = {
        "repetition": sum(map(repetition, texts)) / len(texts),
        "distinct_1": distinct(texts, 1),
        "distinct_2": distinct(texts, 2),
    }
    pairs = [(text, reference) for text, reference in zip(texts, references, strict=True) if reference]
    if pairs:
        metrics["rouge_1"] = sum(rouge_n(*pair) for pair in pairs) / len(pairs)
        metrics["rouge_l"] = sum(rouge_l(*pair) for pair in pairs) / len(pairs)
    return metrics
