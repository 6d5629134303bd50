"""The licence of a base model, as its own card gives it."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import ModelCard, try_to_load_from_cache

from ppolm.config import ModelSettings
from ppolm.names import EMBEDDED

OURS = "mit"
"""Of the embedded model, which is a part of ppolm."""


def licence_of(config: ModelSettings) -> str | None:
    """What the base's card says, in its folder or in the local cache of the Hub; None if that is not known."""
    if config.model_name == EMBEDDED:
        return OURS
    folder = Path(config.model_name).expanduser()
    card: Path | str | None = folder / "README.md"
    if not folder.is_dir():
        found = try_to_load_from_cache(config.model_name, "README.md") if config.model_name.count("/") == 1 else None
        card = found if isinstance(found, str) else None
    try:
        said = None if card is None else ModelCard.load(card, ignore_metadata_errors=True).data.get("license")
    except Exception:  # a card is anybody's text
        return None
    return said if isinstance(said, str) and is_licence(said) else None


def is_licence(text: str) -> bool:
    """Whether a text has the form of the Hub's names of licences, such as apache-2.0."""
    return 0 < len(text) <= 40 and all(letter.islower() or letter.isdigit() or letter in ".-" for letter in text)
