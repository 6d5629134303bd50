"""Writing an export: checked first, then whole or not at all."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from ppolm.base_setup.adapter_forms import read_adapter_config
from ppolm.base_setup.device import DTYPES
from ppolm.base_setup.load_model import blaming, load_causal_config
from ppolm.errors import ConfigError
from ppolm.export.card import Wishes, card_text
from ppolm.export.gguf_file import check_gguf, write_gguf
from ppolm.export.gguf_layout import config_beside, refuse_unknown
from ppolm.export.gguf_vocabulary import Vocabulary
from ppolm.export.hub import check_name
from ppolm.export.licence import is_licence, licence_of
from ppolm.export.merge import Merged, merge, refuse_packed, save_merged
from ppolm.export.source import Source
from ppolm.messages import brief
from ppolm.names import EMBEDDED
from ppolm.storage.atomic import explained, write_into
from ppolm.storage.output_folder import claim_result

Form = Literal["merged", "adapter", "gguf"]
Precision = Literal["auto", "float32", "bfloat16", "float16", "q8_0"]
CARD = "README.md"
ADAPTER = ("adapter_config.json", "adapter_model.safetensors")
NAMES = {dtype: name for name, dtype in DTYPES.items()}


@dataclass(frozen=True)
class Plan:
    """What is to be written."""

    form: Form = "merged"
    precision: Precision = "auto"
    wishes: Wishes = field(default_factory=Wishes)


@dataclass(frozen=True)
class Written:
    """What was written."""

    folder: Path
    files: tuple[str, ...]
    precision: str
    licence: str | None
    notes: tuple[str, ...]
    """What the user must know of it."""


def export(source: Source, output: Path, plan: Plan) -> Written:
    """Write an export into a new folder; whatever fails, nothing is left of it."""
    plan = check(source, plan)
    written: list[Written] = []

    def fill(folder: Path) -> None:
        precision, notes = fill_folder(source, folder, plan)
        files = tuple(sorted(path.name for path in folder.iterdir()))
        card = card_text(source, plan.form, files, precision, notes, plan.wishes)
        (folder / CARD).write_text(card, encoding="utf-8")
        written.append(Written(output, (*files, CARD), precision, plan.wishes.licence, notes))

    with claim_result(output), explained(output, "export again."):
        write_into(output, fill, CARD)
    return written[0]


def check(source: Source, plan: Plan) -> Plan:
    """Refuse what cannot be written before anything is loaded; returns the plan with the licence that is known."""
    wishes = plan.wishes
    if plan.form == "adapter" and source.adapter is None:
        raise ConfigError(f"{source.folder} is a whole model: there is no adapter. Use --format merged or gguf.")
    if plan.form == "adapter" and plan.precision != "auto":
        raise ConfigError("An adapter is copied as it is. Leave --dtype out, or use --format merged.")
    if plan.form == "merged" and plan.precision == "q8_0":
        raise ConfigError("q8_0 is a type of GGUF. Use --format gguf, or --dtype bfloat16.")
    if wishes.licence is not None and not is_licence(wishes.licence):
        raise ConfigError(f"license is {brief(wishes.licence)}, expected a name of the Hub such as apache-2.0 or mit.")
    if wishes.hub_name is not None:
        check_name(wishes.hub_name, "push_to_hub")
        if plan.form == "adapter" and source.base_is_local and wishes.base_name is None:
            raise ConfigError(
                "The adapter names its base as a folder of this machine, which means nothing to others. Give "
                "--base-name with the base's name on the Hub."
            )
    if wishes.base_name is not None:
        check_name(wishes.base_name, "base_name")
    if plan.form == "gguf":
        check_gguf()
    if plan.form != "adapter":
        config = load_causal_config(source.model, source.config.trust_remote_code)
        refuse_packed(config, source.model)
        if plan.form == "gguf":
            refuse_unknown(config)
    return replace(plan, wishes=replace(wishes, licence=wishes.licence or licence_of(source.config)))


def fill_folder(source: Source, folder: Path, plan: Plan) -> tuple[str, tuple[str, ...]]:
    """Write everything but the card; returns the precision of the weights, and what a reader must know."""
    notes = tuple(notes_on(source, plan))
    if plan.form == "adapter":
        copy_adapter(source, folder, plan.wishes.base_name)
        return "", notes
    merged = merge(source)
    precision = NAMES[merged.stored] if plan.precision == "auto" else plan.precision
    if precision != "q8_0" and plan.form == "merged":
        save_merged(merged, DTYPES[precision], folder, source.model)
        return precision, notes
    said = write_gguf(merged, folder / f"{source.name}-{precision}.gguf", precision, source.name)
    save_around(merged, folder, source.model)
    return precision, (*notes, *notes_on_tokenizer(said))


def save_around(merged: Merged, folder: Path, name: str) -> None:
    """Configuration and tokenizer beside a GGUF file: what it cannot say, programs in Python read here."""
    with blaming(name):
        config_beside(merged.model).save_pretrained(str(folder))
        if merged.model.generation_config is not None:
            merged.model.generation_config.save_pretrained(str(folder))
        merged.tokenizer.save_pretrained(str(folder))


def copy_adapter(source: Source, folder: Path, base_name: str | None) -> None:
    """The adapter's own files, byte for byte; only the name of its base is another if one is given."""
    assert source.adapter is not None
    for name in ADAPTER:
        shutil.copyfile(source.adapter / name, folder / name)
    if base_name is not None:
        path = folder / ADAPTER[0]
        settings = json.loads(path.read_text(encoding="utf-8")) | {"base_model_name_or_path": base_name}
        path.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def notes_on(source: Source, plan: Plan) -> Iterator[str]:
    """What differs between the export and what was trained."""
    if source.config.base_bits is not None and plan.form != "adapter":
        yield (
            f"It was trained on a base in {source.config.base_bits} bits, and is merged into the base as it is stored: "
            "its numbers are near those of the training, not the same."
        )
    if plan.form == "adapter" and plan.wishes.base_name is None:
        yield from notes_on_base(source)


def notes_on_base(source: Source) -> Iterator[str]:
    """If an adapter names its base as nobody else does: where that works, and what to do."""
    assert source.adapter is not None
    base = read_adapter_config(source.adapter).base_model_name_or_path or ""
    change = "To name it as it is called on the Hub, export with --base-name."
    if Path(base).is_absolute():
        yield (
            "adapter_config.json names the base by a path of the machine where it was trained. PEFT finds the base "
            f"there and nowhere else, and everybody who gets the file sees the path. {change}"
        )
    elif base == EMBEDDED:
        yield (
            f"adapter_config.json calls the base {EMBEDDED!r}, a name that only ppolm knows: load the base first, as "
            f"the code of the card does. {change}"
        )


def notes_on_tokenizer(said: Vocabulary) -> Iterator[str]:
    """If a GGUF file has no tokenizer, why, and what to do."""
    if said.model == "none":
        yield (
            f"The GGUF file holds no tokenizer, because GGUF has no words for this one ({said.why}). Encode with the "
            "tokenizer.json beside it, and give token numbers to llama.cpp."
        )
