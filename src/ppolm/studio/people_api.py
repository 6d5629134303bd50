"""People as JSON, for the owner: who judged how much, how far they agree, and where a reward model says otherwise."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.routing import Route

from ppolm.errors import FeedbackError
from ppolm.feedback.people import AnnotatorFigures, gold_answers, people_figures
from ppolm.feedback.record import Record
from ppolm.feedback.study import all_studies, find_study
from ppolm.feedback.summary import KindSummary, summarise
from ppolm.studio.answers import NotFoundError, reads
from ppolm.studio.judge_words import bounded_content, bounded_text
from ppolm.studio.logged_scores import LoggedScores
from ppolm.studio.reward_gaps import Gap, reward_gaps
from ppolm.studio.studio import Studio

MOST_GAPS = 10
LEAST_GAP = 0.25
LONGEST_TEXT = 2000
MOST_PAIRS = 200
"""Pairs of annotators that are listed, those with most items in common."""


class PeopleAPI:
    """The answers about people."""

    def __init__(self, studio: Studio) -> None:
        self.studio, self.feedback = studio, studio.feedback
        self.scores = LoggedScores(studio.workspace)

    def people(self, request: Request) -> Any:
        """Everything about the annotators of a study, or of all judgements."""
        store = self.feedback.existing()
        if store is None:
            return {"people": [], "kinds": {}, "studies": [], "reward": None, "unnamed": 0}
        studies = all_studies(store)
        records = self._records(request.query_params.get("study", ""))
        gaps = reward_gaps(records, self.scores.of)
        return {
            "people": [_figures(one) for one in people_figures(records, gold_answers(store))],
            "unnamed": sum(record.judgement.annotator is None for record in records),
            "kinds": {kind: _kind(one) for kind, one in summarise(records).items() if one.judgements},
            "studies": [{"id": study.id, "name": study.name} for study in studies],
            "reward": _reward(gaps),
        }

    def _records(self, study: str) -> list[Record]:
        records = self.feedback.records()
        if not study:
            return records
        try:
            id_ = find_study(self.feedback.store(), study).id
        except FeedbackError as error:
            raise NotFoundError(str(error)) from None
        return [record for record in records if record.details.study == id_]


def _figures(one: AnnotatorFigures) -> dict[str, Any]:
    return asdict(one)


def _kind(one: KindSummary) -> dict[str, Any]:
    pairs = sorted(one.pairs, key=lambda pair: -pair.items)[:MOST_PAIRS]
    figures = ("judgements", "items", "overlap", "conflicts", "changed", "duplicates", "metric", "alpha")
    return {
        **{name: getattr(one, name) for name in figures},
        "alpha_interval": None if one.alpha_interval is None else asdict(one.alpha_interval),
        "pairs": [asdict(pair) for pair in pairs],
    }


def _reward(gaps: list[Gap]) -> dict[str, Any] | None:
    """How often the reward agrees, and the judgements that it contradicts most."""
    if not gaps:
        return None
    decided = [gap for gap in gaps if gap.record.kind == "preferences"]
    return {
        "judgements": len(gaps),
        "comparisons": len(decided),
        "agrees": sum(gap.gap < 0 for gap in decided) / len(decided) if decided else None,
        "most": [_gap(gap) for gap in gaps[:MOST_GAPS] if gap.gap > LEAST_GAP],
    }


def _gap(gap: Gap) -> dict[str, Any]:
    record = gap.record
    turns = bounded_content(record.judgement.prompt.content)
    return {
        "id": record.id,
        "kind": record.kind,
        "annotator": record.judgement.annotator,
        "verdict": record.verdict,
        "prompt": [{**turn, "text": bounded_text(turn["text"], LONGEST_TEXT)} for turn in turns],
        "responses": [bounded_text(text, LONGEST_TEXT) for text in record.judgement.answers.values()],
        "scores": gap.scores,
        "gap": gap.gap,
        "run": record.source.run,
        "step": record.source.step,
        "note": record.details.note,
    }


def routes(studio: Studio) -> list[Route]:
    """What the page of people asks for."""
    return [Route("/api/people", reads(PeopleAPI(studio).people))]
