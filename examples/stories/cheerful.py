"""A judge with one rule, who stands in for a person: the more cheerful story is better."""

from __future__ import annotations

import re
from collections.abc import Sequence

GOOD = re.compile(r"\b(happy|love[ds]?|fun|laughed|smiled|nice|friends?|pretty|beautiful|best)\b")
BAD = re.compile(r"\b(sad|scared|cry|cried|hungry|angry|bad|wrong|tired|dirty|bored|mean|hurt)\b")


def cheerful(prompts: Sequence[str], responses: Sequence[str]) -> list[float]:
    """Cheerful words minus sad ones."""
    said = [response.lower() for response in responses]
    return [float(len(GOOD.findall(text)) - len(BAD.findall(text))) for text in said]
