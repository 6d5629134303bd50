"""How often one policy's answer is preferred to another's, with a 95 % interval by prompt. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ppolm.data.examples import Preference
from ppolm.feedback.record import Record, prompt_id
from ppolm.feedback.resolve import latest
from ppolm.measures.intervals import Interval, share_interval

REFERENCE = "reference"


@dataclass(frozen=True)
class WinRate:
    """One policy against another in one study."""

    study: str | None
    """The id of the study; None: comparisons that belong to none."""
    policy: str
    opponent: str
    comparisons: int
    prompts: int
    ties: int
    """Among the comparisons, with those where both were bad."""
    rate: Interval
    """Share that the policy won; a tie counts as half a win."""


def win_rates(records: Iterable[Record]) -> list[WinRate]:
    """A win rate per study and pair of policies: of what each annotator last said, repeats left out."""
    groups: dict[tuple[str, str, str], list[tuple[float, str]]] = {}
    for record in latest(records):
        chosen, rejected = record.source.policy, record.rejected_source.policy
        if not isinstance(record.judgement, Preference) or chosen is None or rejected is None or chosen == rejected:
            continue
        policy, opponent = sorted((chosen, rejected), key=lambda label: (label == REFERENCE, label))
        won = 0.5 if record.judgement.tie else float(chosen == policy)
        key = (record.details.study or "", policy, opponent)
        groups.setdefault(key, []).append((won, prompt_id(record.judgement.prompt.content)))
    return [_rate(*key, groups[key]) for key in sorted(groups)]


def _rate(study: str, policy: str, opponent: str, votes: list[tuple[float, str]]) -> WinRate:
    numbers: dict[str, int] = {}
    clusters = [numbers.setdefault(prompt, len(numbers)) for _, prompt in votes]
    values = [won for won, _ in votes]
    rate = share_interval(values, clusters)
    return WinRate(study or None, policy, opponent, len(votes), len(numbers), values.count(0.5), rate)
