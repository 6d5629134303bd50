"""Statistics of the rows of one source, kept as numbers and digests so that memory does not grow with text length."""

from __future__ import annotations

from array import array
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ppolm.data.dataset_shapes import shape_of
from ppolm.data.examples import KINDS, Demonstration, Example, Preference, Rating, Thumb, as_example
from ppolm.data.prompts import Prompt, preview
from ppolm.data.same_text import digest
from ppolm.embedded.world.rows import Row
from ppolm.errors import DataError
from ppolm.measures.words import words
from ppolm.messages import LONGEST_MESSAGE, cut

CountTokens = Callable[[Prompt, Sequence[str]], list[int]]
"""Counts the tokens of a prompt and of each answer."""

BAD_ROWS_KEPT = 5
COLUMNS: dict[type, set[str]] = {
    Preference: {"chosen", "rejected", "tie", "confidence", "margin", "annotator"},
    Rating: {"completion", "score", "confidence", "annotator"},
    Thumb: {"completion", "label", "confidence", "annotator"},
    Demonstration: {"completion"},
    Prompt: set(),
}
"""Columns that each kind of row uses, besides its prompt and reference."""


@dataclass(slots=True)
class Seen:
    """The beginning of a text, its length in words, and how often it occurs."""

    preview: str
    words: int
    count: int = 0


@dataclass
class Tally:
    """Statistics of the rows of one source. Texts count as the same if they differ only in white space."""

    name: str
    rows: int = 0
    bad: int = 0
    bad_reasons: list[str] = field(default_factory=list)
    """Reasons for the first few bad rows."""
    kinds: Counter[str] = field(default_factory=Counter)
    first_of_kind: dict[str, str] = field(default_factory=dict)
    shapes: Counter[str] = field(default_factory=Counter)
    """Public formats that rows were converted from."""
    chats: int = 0
    other_columns: Counter[str] = field(default_factory=Counter)
    word_counts: dict[str, array[int]] = field(default_factory=lambda: defaultdict(lambda: array("q")))
    token_counts: dict[str, array[int]] = field(default_factory=lambda: defaultdict(lambda: array("q")))
    row_tokens: array[int] = field(default_factory=lambda: array("q"))
    """Tokens of a prompt with its longest answer and EOS."""
    prompts: dict[bytes, Seen] = field(default_factory=dict)
    answers: dict[bytes, Seen] = field(default_factory=dict)
    columns: dict[str, set[bytes]] = field(default_factory=lambda: defaultdict(set))
    """Distinct texts in each answer column."""
    different: set[bytes] = field(default_factory=set)
    """Digests of distinct rows, including judgement and annotator."""
    verdicts: dict[bytes, set[bytes | bool]] = field(default_factory=lambda: defaultdict(set))
    """Winners of each pair, or labels given to each answer; more than one is a contradiction."""
    ties: int = 0
    pairs: dict[bytes, list[float]] = field(default_factory=lambda: defaultdict(list))
    """For each prompt and judged pair: 1 if the longer answer won, 0 if the shorter one did, 0.5 for equal lengths."""
    scores: array[float] = field(default_factory=lambda: array("d"))
    score_words: array[int] = field(default_factory=lambda: array("q"))
    thumbs: array[int] = field(default_factory=lambda: array("q"))
    thumb_words: array[int] = field(default_factory=lambda: array("q"))
    annotators: Counter[str] = field(default_factory=Counter)
    spaced: Counter[bool] = field(default_factory=Counter)
    """Number of answers that do and do not begin with white space."""
    prompts_end_in_space: int = 0
    prompts_end_empty: int = 0

    def add(self, example: Example, where: str, count_tokens: CountTokens | None = None) -> None:
        """Count one good row."""
        prompt = example if isinstance(example, Prompt) else example.prompt
        answers = {} if isinstance(example, Prompt) else example.answers
        tokens = count_tokens(prompt, list(answers.values())) if count_tokens else None  # first: it may refuse the row
        kind = KINDS[type(example)].split()[0]
        self.rows += 1
        self.kinds[kind] += 1
        self.first_of_kind.setdefault(kind, where.rstrip(","))
        used = COLUMNS[type(example)] | {"reference"}
        self.other_columns.update(name for name, value in prompt.columns.items() if name not in used and _says(value))
        keys = {"prompt": prompt.key} | {name: digest(text) for name, text in answers.items()}
        lengths = self._add_texts(prompt, answers, keys)
        if tokens is not None:
            for name, number in zip(("prompt", *answers), tokens, strict=True):
                self.token_counts[name].append(number)
            self.row_tokens.append(tokens[0] + (max(tokens[1:]) + 1 if answers else 0))
        self._add_judgement(example, list(keys.values()), lengths)

    def _add_texts(self, prompt: Prompt, answers: dict[str, str], keys: dict[str, bytes]) -> dict[str, int]:
        """Count the texts of a row; returns the length of each answer in words."""
        content = prompt.content
        self.chats += not isinstance(content, str)
        last = content if isinstance(content, str) else str(content[-1]["content"])
        self.prompts_end_in_space += isinstance(content, str) and last != last.rstrip()
        self.prompts_end_empty += not last.strip()
        whole = content if isinstance(content, str) else "\n".join(str(item["content"]) for item in content)
        self.word_counts["prompt"].append(remember(self.prompts, keys["prompt"], whole).words)
        lengths = {}
        for name, text in answers.items():
            lengths[name] = remember(self.answers, keys[name], text).words
            self.word_counts[name].append(lengths[name])
            self.columns[name].add(keys[name])
            self.spaced[text[:1].isspace()] += 1
        return lengths

    def _add_judgement(self, example: Example, keys: list[bytes], lengths: dict[str, int]) -> None:
        prompt, *texts = keys
        self.different.add(digest([*keys, type(example).__name__, *verdict_of(example)]))
        if isinstance(example, Preference):
            self.ties += example.tie
            if not example.tie:
                self.verdicts[digest([prompt, *sorted(texts)])].add(texts[0])
                longer = (lengths["chosen"] > lengths["rejected"]) - (lengths["chosen"] < lengths["rejected"])
                self.pairs[prompt].append((longer + 1) / 2)
        elif isinstance(example, Rating):
            self.scores.append(example.score)
            self.score_words.append(lengths["completion"])
        elif isinstance(example, Thumb):
            self.thumbs.append(example.label)
            self.thumb_words.append(lengths["completion"])
            self.verdicts[digest([prompt, *texts])].add(example.label)
        annotator = getattr(example, "annotator", None)
        if annotator is not None:
            self.annotators[annotator] += 1


def tally_rows(rows: Iterable[Row], name: str, count_tokens: CountTokens | None = None) -> Tally:
    """Go through the rows of a source one by one and collect what a report needs."""
    tally = Tally(name)
    for where, row in rows:
        try:
            if isinstance(row, DataError):
                raise row
            tally.add(as_example(row, where), where, count_tokens)
            tally.shapes.update(filter(None, [shape_of(row)]))
        except DataError as error:
            tally.bad += 1
            if tally.bad <= BAD_ROWS_KEPT:
                reason = cut(str(error), LONGEST_MESSAGE)
                tally.bad_reasons.append(reason if reason.startswith(where) else f"{where} {reason}")
    if not tally.rows and not tally.bad:
        raise DataError(f"{name} holds no rows. Give a file with at least one.")
    return tally


def remember(texts: dict[bytes, Seen], key: bytes, text: str) -> Seen:
    """Count an occurrence of a text; its words are counted only the first time."""
    if key not in texts:
        texts[key] = Seen(preview(text, 60), len(words(text)))
    texts[key].count += 1
    return texts[key]


def verdict_of(example: Example) -> list[str]:
    """The judgement of the answers and who made it, as text."""
    names = ("tie", "score", "label", "confidence", "margin", "annotator")
    return [repr(getattr(example, name, None)) for name in names]


def _says(value: Any) -> bool:
    return value is not None and value != ""
