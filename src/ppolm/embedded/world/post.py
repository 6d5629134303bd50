"""Posts in the form SUBREDDIT / TITLE / POST / TL;DR, written from facts and parsed back into them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from ppolm.embedded.world import grammar
from ppolm.embedded.world.facts import SLOTS, Facts, other_value
from ppolm.errors import DataError

DETAILS = {
    "time": grammar.TIMES,
    "day": grammar.DAYS,
    "age": grammar.AGES,
    "place": grammar.PLACES,
    "weather": grammar.WEATHER,
    "meal": grammar.MEALS,
}
"""Values of details, which are not key facts."""


@dataclass(frozen=True)
class Post:
    """A post and the facts it was written from."""

    text: str
    facts: Facts


def write_post(facts: Facts, random: Random) -> Post:
    """Write a post that states all the facts once in its body, among irrelevant sentences.

    Some of these mention other people and other problems, so that a summary has to select, not just copy.
    """
    values = facts.as_dict() | {
        "other": other_value("who", facts.who, random),
        "distraction": other_value("problem", facts.problem, random),
        "Question": sentence(facts.question),
    }

    def fill(templates: Sequence[str]) -> str:
        details = {name: random.choice(options) for name, options in DETAILS.items()}
        return random.choice(templates).format(**values, **details)

    distractors = random.sample(grammar.DISTRACTORS, k=2)
    middle = [fill(grammar.COMPLAINTS), fill(grammar.ATTEMPTS)]
    for template in distractors:
        middle.insert(random.randrange(len(middle) + 1), fill([template]))
    body = " ".join([fill(grammar.OPENINGS), *middle, fill(grammar.ENDINGS)])
    subreddit = next(name for name, people in grammar.WHO.items() if facts.who in people)
    title = fill(grammar.TITLES)
    return Post(f"SUBREDDIT: r/{subreddit}\nTITLE: {title}\nPOST: {body}\nTL;DR:", facts)


def sentence(text: str) -> str:
    """The text with its first letter capitalised."""
    return text[0].upper() + text[1:]


def parse_post(text: str) -> Post:
    """Read the facts back from a post of this world; any other text is an error."""
    body = re.search(r"\nPOST: (.*)\nTL;DR:\s*$", text, re.DOTALL)
    found: dict[str, str] = {}
    for pattern in SENTENCES if body else ():
        if match := pattern.search(body[1]):  # type: ignore[index]
            found |= {slot: SPELLING[value.lower()] for slot, value in match.groupdict().items()}
    if set(found) != set(SLOTS):
        raise DataError(
            f"This is not a post of the embedded world, so its facts cannot be read: {text!r:.80}. "
            "Use prompts: embedded, or another reward than gold."
        )
    return Post(text, Facts(**found))


def _sentence_pattern(template: str) -> re.Pattern[str]:
    """A pattern for sentences made from a template, at the beginning of a text or after another sentence."""
    parts = re.split(r"\{(\w+)\}", template.replace("{Question}", "{question}"))
    words = "".join(_slot_pattern(part) if i % 2 else re.escape(part) for i, part in enumerate(parts))
    return re.compile(rf"(?:^|(?<=[.?] )){words}", re.IGNORECASE)


def _slot_pattern(name: str) -> str:
    """A pattern for any value: of a fact as a group named after it, of a detail without a group."""
    values = "|".join(map(re.escape, SLOTS.get(name) or DETAILS[name]))
    return f"(?P<{name}>{values})" if name in SLOTS else f"(?:{values})"


SENTENCES = [_sentence_pattern(line) for line in (*grammar.COMPLAINTS, *grammar.ATTEMPTS, *grammar.ENDINGS)]
"""Patterns of the sentences that state facts."""

SPELLING = {value.lower(): value for values in SLOTS.values() for value in values}
