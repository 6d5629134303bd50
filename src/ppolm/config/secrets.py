"""Keeping secrets out of URLs: keys and passwords are named as environment variables and read when a call is made.

``https://host/score?api_key=$MY_KEY`` is stored and shown as written; the value of ``MY_KEY`` never is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import parse_qsl, quote, urlsplit

from ppolm.errors import ConfigError

VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
SECRET_NAME = re.compile(
    r"(^|[_.\-])(key|token|sig|auth|pwd|pass|jwt|sas|code)($|[_.\-])|(api|access|private|subscription)key|token$|secret"
    r"|passw|passphrase|signature|credential|authorization|bearer",
    re.IGNORECASE,
)
"""Names of query parameters that services use for keys."""
SECRET_FORM = re.compile(r"(?=.*[A-Za-z])(?=.*[0-9])[A-Za-z0-9_\-+/=.]{20,}")
"""What keys look like, whatever the parameter is called: long, with both letters and digits."""
HOW = "Put it into an environment variable and name that: {example} (in quotes, so that the shell leaves the $ alone)."


def is_url(text: object) -> bool:
    """Whether a reward or store is a URL."""
    return isinstance(text, str) and "://" in text


def refuse_secret(name: str, url: str) -> None:
    """Raise ConfigError for a URL that contains a secret, since it would be stored with the run and shown."""
    try:
        parts = urlsplit(url)
        user, password = parts.username, parts.password
        query = parse_qsl(parts.query, keep_blank_values=True)
        hostless = parts.port is None and not parts.netloc
        if hostless != (parts.scheme == "sqlite") or (not hostless and "@" in parts.path):
            raise ValueError("a / in a password ends the host too soon")
    except ValueError:
        raise ConfigError(
            f"{name} is an address that cannot be read. Write scheme://host:port/path, a key or password as $MY_KEY."
        ) from None
    address = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
    if password is not None and not _named(password):
        raise ConfigError(
            f"{name} has a password in its address, at {address}; it would be stored with the run. "
            + HOW.format(example=f"{parts.scheme}://user:$MY_PASSWORD@...")
        )
    if user and password is None and parts.scheme in ("http", "https") and not _named(user):
        raise ConfigError(
            f"{name} has a user or key in its address, at {address}; it would be stored with the run. "
            + HOW.format(example=f"{parts.scheme}://user:$MY_PASSWORD@...")
        )
    for key, value in query:
        if value and not _named(value) and (SECRET_NAME.search(key) or SECRET_FORM.fullmatch(value)):
            raise ConfigError(
                f"{name} has what looks like a secret in its address, under {key!r:.40} at {address}; it would be "
                "stored with the run. " + HOW.format(example=f"{key:.40}=$MY_KEY")
            )


def _named(value: str) -> bool:
    """Whether the whole value is one ``$NAME`` or ``${NAME}``."""
    return VARIABLE.fullmatch(value) is not None


def expand(url: str, environment: Mapping[str, str] = os.environ) -> str:
    """The URL with its variables replaced by their values; raises ConfigError for a variable that is not set."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not environment.get(name):
            raise ConfigError(f"{url} names the environment variable {name}, which is not set. Set it, or export it.")
        return quote(environment[name], safe="")

    return VARIABLE.sub(value, url)


def hide(text: str, url: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text with the values of the URL's variables replaced by their names again."""
    for match in VARIABLE.finditer(url):
        secret = environment.get(match[1] or match[2])
        for form in {secret, quote(secret, safe="")} if secret else ():
            text = text.replace(form, match[0])
    return text
