"""Whether the Hugging Face Hub can be reached."""

from __future__ import annotations

import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlparse

from huggingface_hub import constants


def hub_is_reachable(timeout: float = 3.0) -> bool:
    """Whether a connection to the Hub opens; checking first spares the user half a minute of silent retries."""
    if constants.HF_HUB_OFFLINE:
        return False
    if urllib.request.getproxies():
        return True  # only the proxy knows
    address = urlparse(constants.ENDPOINT)
    try:
        port = address.port or (80 if address.scheme == "http" else 443)
        socket.create_connection((address.hostname or "", port), timeout).close()
    except OSError:
        return False
    return True


@contextmanager
def offline_unless_reachable() -> Iterator[bool]:
    """Put the Hugging Face libraries in offline mode (caches only) if the Hub is unreachable; yields whether it is."""
    import datasets

    reachable, before = hub_is_reachable(), (constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE)
    if not reachable:
        constants.HF_HUB_OFFLINE = datasets.config.HF_HUB_OFFLINE = True
    try:
        yield reachable
    finally:
        constants.HF_HUB_OFFLINE, datasets.config.HF_HUB_OFFLINE = before
