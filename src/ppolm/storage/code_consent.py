"""Code named by a run folder runs only with the user's consent, since the folder may come from somebody else.

The user who starts a run names its code on the command line, in a settings file or in Python. This is recorded in the
run folder (``code.json``) and sealed with a key that only this user has, so users can resume and evaluate their own
runs without being asked, even after moving them. In a folder from elsewhere the seal is missing or somebody else's, and
every piece of code has to be named again on the command line, or confirmed at the terminal.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import os
import secrets
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ppolm.config import ModelSettings, PPOConfig
from ppolm.config.secrets import is_url
from ppolm.errors import ConfigError
from ppolm.messages import brief, printable
from ppolm.names import EMBEDDED

log = logging.getLogger(__name__)
SEAL_FILE = "code.json"
KEY_BYTES = 32
OURS = ("model", "human", "gold")
"""Rewards that are part of ppolm."""


@dataclass(frozen=True)
class Code:
    """Something that a configuration would run, or send prompts to."""

    what: str
    """Description for messages."""
    name: str
    """Its name in the configuration."""
    flag: str
    """The command-line flag that names it."""

    @property
    def identity(self) -> str:
        """A key that is equal for the same code; paths are resolved, as they depend on the current folder."""
        place, colon, function = self.name.rpartition(":")
        if self.flag == "--trust-remote-code":
            local = Path(self.name).expanduser()
            return f"code of {local.resolve() if local.exists() else self.name}"
        if place.endswith(".py"):
            return f"{Path(place).expanduser().resolve()}{colon}{function}"
        return self.name


def code_of(config: ModelSettings, rewards: bool = True) -> list[Code]:
    """What a configuration would run besides ppolm itself; without ``rewards``, only code run to load its model."""
    found = []
    if config.trust_remote_code and config.model_name != EMBEDDED:
        found.append(Code(f"the Python code of model {config.model_name}", config.model_name, "--trust-remote-code"))
    if isinstance(config, PPOConfig) and config.engine == "vllm":
        found += [Code(f"prompts sent to {url}", url, "--engine-url") for url in config.engine_url]
    if not rewards or not isinstance(config, PPOConfig):
        return found
    named = [*(("--reward", name) for name in config.reward), ("--judge", config.judge)]
    for flag, name in named:
        if name is not None and name not in OURS and (":" in name or name.endswith(".py")):
            what = f"prompts and responses sent to {name}" if is_url(name) else f"the Python code of {name}"
            found.append(Code(what, name, flag))
    if "human" in (*config.reward, config.judge) and is_url(config.feedback_store):
        place = config.feedback_store
        found.append(Code(f"prompts and responses stored at {place}", place, "--feedback-store"))
    return found


def ask_consent(folder: Path, config: ModelSettings, argv: Sequence[str], command: str, rewards: bool = True) -> None:
    """Raise unless the user has agreed to everything that ``folder``'s configuration would run.

    The user has if they started the run with it, confirm it now, or give the setting in ``argv``: then its value is
    what the user typed, not what the folder says.
    """
    sealed = _sealed(folder)
    named = {argument.partition("=")[0].replace("_", "-") for argument in argv}
    new = [code for code in code_of(config, rewards) if code.identity not in sealed and code.flag not in named]
    if not new or _confirmed(folder, new):
        return
    flags = " ".join(dict.fromkeys(_flags(new)))
    raise ConfigError(
        f"{folder} was not started here by you, and would use {'; '.join(code.what for code in new)}. Look at it. "
        f"If you trust it, name it on the command line: ppolm {command} {shlex.quote(str(folder))} {flags}"
    )


def seal(folder: Path, config: ModelSettings) -> None:
    """Record in a folder that this user agreed to what its configuration runs. Never stops a training."""
    items = sorted(code.identity for code in code_of(config))
    key = _key(create=True) if items else None
    if key is None:
        return
    try:
        (folder / SEAL_FILE).write_text(json.dumps({"code": items, "seal": _mac(key, items)}, indent=1))
    except OSError as error:
        log.warning("%s could not be written, so that its code will be asked for again: %s", folder / SEAL_FILE, error)


def _sealed(folder: Path) -> frozenset[str]:
    """What this user agreed to in a folder."""
    key = _key(create=False)
    try:
        noted = json.loads((folder / SEAL_FILE).read_text(encoding="utf-8"))
        items, seal_ = noted["code"], noted["seal"]
        if key is not None and hmac.compare_digest(_mac(key, items), str(seal_)):
            return frozenset(map(str, items))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass  # missing or not ours: nothing was agreed to
    return frozenset()


def _flags(codes: Sequence[Code]) -> list[str]:
    """The flags to type, one entry per flag."""
    named: dict[str, list[str]] = {}
    for code in codes:
        named.setdefault(code.flag, []).append(shlex.quote(code.name))
    return [flag if flag == "--trust-remote-code" else f"{flag} {' '.join(names)}" for flag, names in named.items()]


def _confirmed(folder: Path, codes: Sequence[Code]) -> bool:
    """Ask at the terminal, if it is interactive."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    lines = "\n".join(f"  {printable(code.what, keep='')}" for code in codes)
    print(f"{brief(str(folder), 200)} was not started here by you, and would use\n{lines}", file=sys.stderr)
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    try:
        return input().strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _mac(key: bytes, items: Sequence[str]) -> str:
    return hmac.new(key, json.dumps(list(items)).encode(), hashlib.sha256).hexdigest()


def _key(create: bool) -> bytes | None:
    """This user's key, created when first needed. None if it cannot be stored."""
    try:
        state = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "ppolm"
        path = state / "seal.key"
        if create and not path.exists():
            state.mkdir(parents=True, exist_ok=True)
            new = state / f".seal.{secrets.token_hex(8)}"
            handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(secrets.token_bytes(KEY_BYTES))
            try:
                os.link(new, path)  # atomic, and never overwrites another process's key
            except FileExistsError:
                pass
            finally:
                new.unlink()
        key = path.read_bytes()
    except (OSError, RuntimeError):  # no home folder, or not writable
        return None
    return key if len(key) == KEY_BYTES else None
