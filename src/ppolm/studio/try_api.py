"""Trying a run's policy: what there is to try, its answers beside the reference's, and answers sent to the judges."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.routing import Route

from ppolm.config import PPOConfig
from ppolm.data.prompts import as_prompt
from ppolm.errors import PpolmError
from ppolm.feedback.record import Queued, Source
from ppolm.feedback.store import FeedbackStore
from ppolm.messages import brief
from ppolm.runs.chat_prompts import trained_on_chats
from ppolm.runs.run_overview import read_settings
from ppolm.runs.run_status import read_object
from ppolm.storage.atomic import standing_names
from ppolm.storage.prompt_record import read_held_out
from ppolm.studio.answers import BadRequestError, reads, writes
from ppolm.studio.model_answers import asks_model
from ppolm.studio.studio import Studio
from ppolm.studio.token_pieces import BROKEN, find_pieces
from ppolm.studio.worker_process import ModelChoice

ASKED = ("prompt", "chat", "temperature", "top_k", "top_p", "max_new_tokens", "seed", "greedy")
SAMPLING = ("temperature", "top_k", "top_p", "max_new_tokens")
MOST_PROMPTS = 200
MOST_LETTERS = 400_000
"""Held-out prompts, and letters of them, that a page is sent."""
LONGEST_SENT = 200_000
REFERENCE = "reference"
"""What answers of the reference are called, as studies of two policies call them."""
CHECKPOINT = re.compile(r"step-\d{1,12}")


def routes(studio: Studio) -> list[Route]:
    """What there is to ask about trying a run."""
    workspace = studio.workspace

    def what_there_is(request: Request) -> Any:
        return describe(workspace.run(request.path_params["run"]))

    async def answer(request: Request, body: dict[str, Any]) -> Any:
        run = await run_in_threadpool(workspace.run, request.path_params["run"])
        asked = {name: body[name] for name in ASKED if name in body}
        answers = await studio.models.ask(ModelChoice("policy", run, policy_name(body)), asked)
        return await run_in_threadpool(with_bytes, run, answers)

    def send_to_judges(request: Request, body: dict[str, Any]) -> Any:
        run = workspace.run(request.path_params["run"])
        items = queued(run, body)
        store = FeedbackStore(studio.store)
        try:
            store.ask(items)
        finally:
            store.close()
        return {"queued": len(items)}

    def loaded(_: Request) -> Any:
        hidden = ("folder", "pid")
        return {"models": [without(model, hidden) for model in studio.models.loaded()]}

    async def unload(_: Request, __: dict[str, Any]) -> Any:
        return {"unloaded": await studio.models.unload()}

    return [
        Route("/api/try/{run}", reads(what_there_is)),
        Route("/api/try/{run}/answer", asks_model(studio, answer), methods=["POST"]),
        Route("/api/try/{run}/judge", writes(send_to_judges), methods=["POST"]),
        Route("/api/models", reads(loaded)),
        Route("/api/models/unload", asks_model(studio, unload), methods=["POST"]),
    ]


def without(record: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """A record without some of its entries."""
    return {name: value for name, value in record.items() if name not in names}


def describe(run: Path) -> dict[str, Any]:
    """Policies of a run that can be tried, its settings of sampling, and prompts it held out."""
    names = sorted(name for name in standing_names(run / "checkpoints") if CHECKPOINT.fullmatch(name))
    best = read_object(run / "best" / "best.json") if (run / "best").is_dir() else None
    choices = [{"which": name, "step": int(name[5:])} for name in reversed(names)]
    if best is not None:
        choices.insert(0, {"which": "best", "step": best.get("step") if isinstance(best.get("step"), int) else None})
    settings = read_settings(run)
    try:
        config = PPOConfig.from_stored(settings)
        sampling, problem = {name: getattr(config, name) for name in SAMPLING}, None
    except PpolmError as error:
        sampling, problem = {}, f"Its settings cannot be used: {error}"
    prompts, total = held_out(run)
    return {
        "name": run.name,
        "choices": choices,
        "sampling": sampling,
        "model_name": settings.get("model_name"),
        "chat": trained_on_chats(run / "best"),
        "prompts": prompts,
        "held_out": total,
        "problem": problem,
    }


def with_bytes(run: Path, answers: dict[str, Any]) -> dict[str, Any]:
    """Answers whose tokens say their bytes where they are only a part of a character."""
    pieces = find_pieces(str(read_settings(run).get("model_name")))
    for side in ("policy", REFERENCE):
        answer = answers.get(side) or {"token_ids": [], "pieces": []}
        tokens = zip(answer["token_ids"], answer["pieces"], strict=True)
        contents = [pieces.of(token, text).content if text == "" or BROKEN in text else None for token, text in tokens]
        answer["bytes"] = [None if content is None else content.hex() for content in contents]
    return answers


def held_out(run: Path) -> tuple[list[Any], int]:
    """Prompts that a run held out, as many as a page can take, and how many there are."""
    try:
        found = read_held_out(run)
    except PpolmError:
        return [], 0
    contents, letters = [], 0
    for prompt in found[:MOST_PROMPTS]:
        letters += len(prompt.content) if isinstance(prompt.content, str) else len(str(prompt.content))
        if letters > MOST_LETTERS:
            break
        contents.append(prompt.content)
    return contents, len(found)


def queued(run: Path, body: Mapping[str, Any]) -> list[Queued]:
    """Responses for the judges, out of what a page sent: the text of each side, and which policy it was."""
    content, texts, step = as_prompt(body.get("prompt"), "The prompt").content, body.get("responses"), body.get("step")
    if not isinstance(texts, dict) or not texts or not texts.keys() <= {"policy", REFERENCE}:
        raise BadRequestError(f"responses is {brief(texts)}, expected the text of policy, reference or both.")
    if not all(isinstance(text, str) and len(text) <= LONGEST_SENT for text in texts.values()):
        raise BadRequestError(f"A response is no text, or longer than {LONGEST_SENT:,} characters.")
    if step is not None and (not isinstance(step, int) or isinstance(step, bool) or not 0 <= step < 2**31):
        raise BadRequestError(f"step is {brief(step)}, expected a whole number.")
    which = policy_name(body)
    label = f"{run.name}/{which}" if which in ("best", "last") else f"{run.name}/checkpoints/{which}"
    sources = {
        "policy": Source(run=run.name, step=step, policy=label),
        REFERENCE: Source(run=run.name, step=0, policy=REFERENCE),
    }
    return [Queued(content, text, sources[side]) for side, text in texts.items()]


def policy_name(body: Mapping[str, Any]) -> str:
    """Which policy of a run is meant, by a name that is no path."""
    which = body.get("which", "best")
    if not isinstance(which, str) or (which not in ("best", "last") and not CHECKPOINT.fullmatch(which)):
        raise BadRequestError(f"which is {brief(which)}, expected best, last or the name of a checkpoint.")
    return which
