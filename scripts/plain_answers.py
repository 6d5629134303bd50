"""What an export says in plain transformers, with nothing of ppolm: a program of its own, so that nothing can help.

    python scripts/plain_answers.py < REQUESTS

REQUESTS is a JSON list; each has ``folder``, ``gguf_file`` (or null), ``prompts``, ``given`` (token ids after each
prompt) and ``max_new_tokens``. Printed, for each: greedy ids and text for every prompt, and log π of the given ids.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer


def answers(request: dict[str, Any]) -> list[dict[str, Any]]:
    """What one folder says."""
    folder, options = request["folder"], {}
    if request["gguf_file"]:
        options = {"gguf_file": request["gguf_file"], "config": AutoConfig.from_pretrained(folder)}
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()
    return [
        answer(model, tokenizer, prompt, given, request["max_new_tokens"])
        for prompt, given in zip(request["prompts"], request["given"], strict=True)
    ]


@torch.no_grad()
def answer(model: Any, tokenizer: Any, prompt: str, given: list[int], longest: int) -> dict[str, Any]:
    """Greedy answer to one prompt, and log π of the given tokens after it."""
    ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
    count = ids.shape[1]
    eos = tokenizer.eos_token_id
    greedy = model.generate(ids, do_sample=False, max_new_tokens=longest, eos_token_id=eos, pad_token_id=eos)[0, count:]
    logits = model(torch.cat([ids, torch.tensor([given])], dim=1)).logits[0, count - 1 : -1].log_softmax(-1)
    logprobs = logits.gather(1, torch.tensor(given)[:, None])[:, 0]
    text = tokenizer.decode(greedy, skip_special_tokens=True)
    return {"prompt": ids[0].tolist(), "ids": greedy.tolist(), "text": text, "logprobs": logprobs.tolist()}


if __name__ == "__main__":
    found = [answers(request) for request in json.load(sys.stdin)]
    assert not any(name.partition(".")[0] == "ppolm" for name in sys.modules)
    print(json.dumps(found))
