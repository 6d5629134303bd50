"""A few rows in each shape of public datasets, with repeated prompts, and what they are converted to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

Row = dict[str, Any]
ASK, ANSWER = "user", "assistant"


def chat(*texts: str) -> list[dict[str, str]]:
    """Alternating messages of user and assistant."""
    return [{"role": (ASK, ANSWER)[i % 2], "content": text} for i, text in enumerate(texts)]


def transcript(*texts: str) -> str:
    return "".join(f"\n\n{('Human', 'Assistant')[i % 2]}: {text}" for i, text in enumerate(texts))


def _hh(i: int) -> list[Row]:
    talk = ("Hi there", "Hello!", f"Name colour {i}.")
    return [
        {"chosen": transcript(*talk, f"Blue {again}."), "rejected": transcript(*talk, f"A dog {again}.")}
        for again in range(2)
    ]


def _ultrafeedback(i: int) -> list[Row]:
    question = f"Name colour {i}."
    return [
        {
            "prompt": question,
            "prompt_id": f"{i}",
            "chosen": chat(question, f"Blue {again}."),
            "rejected": chat(question, f"A dog {again}."),
            "messages": chat(question, f"Blue {again}."),
            "score_chosen": 8.0,
            "score_rejected": 3.0 + again,
        }
        for again in range(2)
    ]


def _ultrachat(i: int) -> list[Row]:
    question = f"Name colour {i}."
    return [
        {"prompt": question, "prompt_id": f"{i}", "messages": chat(question, "Blue.", "Another?", f"Red {again}.")}
        for again in range(2)
    ]


def _post(i: int) -> Row:
    return {"id": f"t3_{i}", "subreddit": "advice", "title": f"Help {i}", "post": "She snooped.", "site": None}


def _tldr(i: int) -> list[Row]:
    texts = [{"text": f" I need help {i}.", "policy": "ref"}, {"text": " Dogs.", "policy": "sup"}]
    return [
        {
            "info": _post(i),
            "summaries": texts[:: 1 - 2 * choice],
            "choice": choice,
            "worker": f"w{choice}",
            "batch": "b",
        }
        for choice in (0, 1)
    ]


def _axes(i: int) -> list[Row]:
    return [
        {"info": _post(i), "summary": {"text": f" Help {i}.", "axes": {"overall": 3 + again}}, "worker": f"w{again}"}
        for again in range(2)
    ]


def _thumbs(i: int) -> list[Row]:
    ask = chat(f"Name colour {i}.")
    return [
        {"prompt": ask, "completion": [{"role": ANSWER, "content": text}], "label": liked}
        for text, liked in (("Blue.", True), ("A dog.", False))
    ]


def _plain(i: int) -> list[Row]:
    return [{"prompt": f"Name colour {i}:", "chosen": f" blue {again}", "rejected": " a dog"} for again in range(2)]


def _shown(i: int) -> list[Row]:
    return [{"prompt": f"Name colour {i}:", "completion": f" blue {again}"} for again in range(2)]


def _talks(i: int) -> list[Row]:
    return [{"messages": chat(f"Name colour {i}.", f"Blue {again}.")} for again in range(2)]


SHAPES: dict[str, Any] = {
    "Anthropic HH": (_hh, "preferences", chat("Hi there", "Hello!", "Name colour 0."), ["Blue 0.", "A dog 0."]),
    "UltraFeedback": (_ultrafeedback, "preferences", chat("Name colour 0."), ["Blue 0.", "A dog 0."]),
    "UltraChat": (_ultrachat, "demonstrations", chat("Name colour 0.", "Blue.", "Another?"), ["Red 0."]),
    "OpenAI TL;DR comparisons": (
        _tldr,
        "preferences",
        "SUBREDDIT: r/advice\nTITLE: Help 0\nPOST: She snooped.\nTL;DR:",
        [" I need help 0.", " Dogs."],
    ),
    "OpenAI TL;DR ratings": (
        _axes,
        "scores",
        "SUBREDDIT: r/advice\nTITLE: Help 0\nPOST: She snooped.\nTL;DR:",
        [" Help 0."],
    ),
    "KTO thumbs": (_thumbs, "thumbs", chat("Name colour 0."), ["Blue."]),
    "our own comparisons": (_plain, "preferences", "Name colour 0:", [" blue 0", " a dog"]),
    "our own demonstrations": (_shown, "demonstrations", "Name colour 0:", [" blue 0"]),
    "conversations": (_talks, "demonstrations", chat("Name colour 0."), ["Blue 0."]),
}
"""By name: rows of the i-th prompt, their kind, and prompt and answers of the first row."""


def rows_of(name: str, prompts: int) -> list[Row]:
    """Two rows for each of ``prompts`` prompts."""
    return [row for i in range(prompts) for row in SHAPES[name][0](i)]


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    """A file with these rows, one per line."""
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path
