"""The lines of Python that load an export, for its card."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from ppolm.config import ModelSettings

HERE = "path/to/this/folder"
BASE = "path/to/the/base"


def loading_code(
    kind: str, files: Sequence[str], base: str, config: ModelSettings, hub_name: str | None
) -> Iterator[str]:
    """Plain transformers (and peft for an adapter); nothing of ppolm."""
    classes = ["AutoModelForCausalLM", "AutoTokenizer"]
    if kind == "gguf":
        classes = ["AutoConfig", *classes]
    if kind == "adapter":
        yield "from peft import PeftModel"
    yield f"from transformers import {', '.join(classes)}"
    yield ""
    yield f"folder = {json.dumps(hub_name or HERE)}"
    trust = ", trust_remote_code=True" if config.trust_remote_code else ""
    if kind == "adapter":
        yield f"base = {json.dumps(base if '/' in base else BASE)}"
        yield f"tokenizer = AutoTokenizer.from_pretrained(base{trust})"
        yield f'model = AutoModelForCausalLM.from_pretrained(base, dtype="auto"{trust})'
        yield "model = PeftModel.from_pretrained(model, folder)"
    else:
        yield f"tokenizer = AutoTokenizer.from_pretrained(folder{trust})"
        if kind == "gguf":
            (file,) = [name for name in files if name.endswith(".gguf")]
            yield "config = AutoConfig.from_pretrained(folder)"
            yield f"model = AutoModelForCausalLM.from_pretrained(folder, gguf_file={json.dumps(file)}, config=config)"
        else:
            yield f'model = AutoModelForCausalLM.from_pretrained(folder, dtype="auto"{trust})'
    yield from _asking(config)


def _asking(config: ModelSettings) -> Iterator[str]:
    longest = getattr(config, "max_new_tokens", 64)
    yield ""
    yield 'prompt = "Write a prompt here, in the form that the model was trained on"'
    yield 'inputs = tokenizer(prompt, return_tensors="pt")'
    yield f"output = model.generate(**inputs, max_new_tokens={longest}, do_sample=False)"
    yield 'print(tokenizer.decode(output[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True))'
