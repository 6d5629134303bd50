"""A judgement with where it came from, and the digests by which responses and judgements are found again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from functools import cached_property
from typing import Any, Literal
from uuid import uuid4

from ppolm.data.examples import Judgement, Preference, Rating, Thumb

Kind = Literal["preferences", "scores", "thumbs"]
KINDS: dict[type[Judgement], Kind] = {Preference: "preferences", Rating: "scores", Thumb: "thumbs"}
Content = str | list[dict[str, Any]]
"""What is asked: text, or chat messages."""


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(timezone.utc)


@dataclass(frozen=True)
class Source:
    """Where a response was made, as far as it is known."""

    run: str | None = None
    step: int | None = None
    sequence: int | None = None
    """Its place among the responses of the step."""
    policy: str | None = None
    """Who gave it, such as runs/a/best or reference: a win rate is of one such label over another."""
    purpose: str | None = None
    """What a run asked it for: training or evaluation."""


REPEAT = 1
"""Asked a second time with the sides swapped: says how far an annotator agrees with himself."""
SECOND_LOOK = 2
"""Asked again because annotators differ; what they said first stays."""


@dataclass(frozen=True)
class Details:
    """How a judgement came about, and what was said besides the verdict."""

    study: str | None = None
    item: str | None = None
    """The question it answers: an item of the study, or responses of the queue."""
    seconds: float | None = None
    """How long the annotator was active on it."""
    chosen_first: bool | None = None
    """Of a comparison: whether the chosen response was shown first (of a tie, the one that stands as chosen)."""
    both_bad: bool = False
    """Of a comparison: neither response is acceptable. Its preference is a tie."""
    strength: int | None = None
    """Of a comparison: 1 slightly better, 2 better, 3 much better. Not the margin, which is in units of the reward."""
    axes: Mapping[str, float] | None = None
    """Scores by the names of a study's axes."""
    note: str | None = None
    repetition: int = 0
    """0: asked for the first time; REPEAT; SECOND_LOOK."""
    gold: bool = False
    """Whether the right answer was known beforehand."""


@dataclass(frozen=True)
class Record:
    """A judgement as the store keeps it. Its id is made once, so that storing it again changes nothing."""

    judgement: Judgement
    id: str = field(default_factory=lambda: uuid4().hex)
    time: datetime = field(default_factory=now)
    source: Source = Source()
    """Of the response; of a comparison, of the chosen one."""
    rejected_source: Source = Source()
    details: Details = Details()

    @property
    def kind(self) -> Kind:
        """Which of the three it is."""
        return KINDS[type(self.judgement)]

    @cached_property
    def response_ids(self) -> tuple[str, ...]:
        """The response that was judged; of a comparison, the chosen one and the other."""
        judged = self.judgement
        return tuple(response_id(judged.prompt.content, text) for text in judged.answers.values())

    @cached_property
    def item(self) -> tuple[str, ...]:
        """What was judged: judgements with the same item can agree or disagree. The order of a pair does not matter."""
        return (self.kind, *sorted(self.response_ids))

    @cached_property
    def verdict(self) -> float:
        """What was said of it: the score; 1 or -1 for a thumb, or for the first or second of the item; 0 for a tie.

        Which of a pair is the first is up to its digests, so that chance prefers neither.
        """
        judged = self.judgement
        if isinstance(judged, Preference):
            return 0.0 if judged.tie else 1.0 if self.response_ids[0] == self.item[1] else -1.0
        return judged.score if isinstance(judged, Rating) else 2.0 * judged.label - 1.0

    @property
    def judge(self) -> tuple[str, str]:
        """Who judged. Without a name it cannot be known, so every unnamed judgement counts as another annotator's."""
        name = self.judgement.annotator
        return ("unnamed", self.id) if name is None else ("named", name)


@dataclass(frozen=True)
class Wait:
    """A live run stands still for a response."""

    since: datetime
    until: datetime


@dataclass(frozen=True)
class Queued:
    """A response that is to be judged."""

    content: Content
    response: str
    source: Source = Source()
    time: datetime = field(default_factory=now)
    wait: Wait | None = None
    """Set while a run waits for it."""

    @cached_property
    def id(self) -> str:
        """The digest that judgements of this response carry."""
        return response_id(self.content, self.response)


def prompt_id(content: Content) -> str:
    """Digest of a prompt."""
    return digest(plain_content(content))


def response_id(content: Content, text: str) -> str:
    """Digest of a response together with its prompt."""
    return digest([plain_content(content), text])


def plain_content(content: Content) -> Content:
    """Messages without empty keys, which Parquet adds where other rows have them."""
    if isinstance(content, str):
        return content
    return [{key: value for key, value in message.items() if value is not None} for message in content]


def canonical(value: Any) -> str:
    """JSON in ASCII with sorted keys: the same for the same value, and with no character that a database refuses."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), default=str)


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON of a value."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()
