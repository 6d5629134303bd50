"""Reading and writing a flat YAML mapping, with errors a user can act on."""

from pathlib import Path
from typing import Any

import yaml

from ppolm.errors import ConfigError
from ppolm.messages import brief, reason

LARGEST_FILE = 256 * 1024
"""Bytes. All settings take about 5,000; the parser needs seconds for much larger files."""
DEEPEST = 8
"""Settings are numbers, text and lists of these; anything nested deeper is not a setting."""


class _Loader(yaml.SafeLoader):
    """Plain data only: no aliases, which can expand a few bytes to gigabytes, and no duplicate keys."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose a node; refuse aliases and nesting that is too deep."""
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.MarkedYAMLError(problem="an alias (*name) is not allowed", problem_mark=event.start_mark)
        if self.depth >= DEEPEST:
            mark = self.peek_event().start_mark
            raise yaml.MarkedYAMLError(problem=f"nested more than {DEEPEST} deep", problem_mark=mark)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        """Construct a mapping; refuse duplicate keys, since it is unclear which value was meant."""
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    raise yaml.MarkedYAMLError(problem=f"{brief(key.value)} is set twice", problem_mark=key.start_mark)
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in ``path``; empty for an empty file."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ConfigError(
                f"Config file {path} is larger than {LARGEST_FILE // 1024} KiB, so it holds more than settings."
            )
        values = _load(content.decode("utf-8-sig"))
    except FileNotFoundError:
        raise ConfigError(f"Config file {path} does not exist. `ppolm examples DIR` copies example configs.") from None
    except IsADirectoryError:
        raise ConfigError(f"Config file {path} is a folder. Give the YAML file itself.") from None
    except OSError as error:
        raise ConfigError(f"Config file {path} cannot be read: {error.strerror}.") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"Config file {path} is not valid YAML: {_what_and_where(error)}.") from None
    except (ValueError, RecursionError, OverflowError) as error:  # an impossible date, a number of 5,000 digits
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(f"Config file {path} is not valid YAML: {reason(error)}.") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"Config file {path} must hold 'setting: value' lines, found a {type(values).__name__}.")
    return values


def _load(text: str) -> Any:
    loader = _Loader(text)
    try:
        return loader.get_single_data()
    finally:
        loader.dispose()


def _what_and_where(error: yaml.YAMLError) -> str:
    """The problem and its line number, without quoting the file, which may contain secrets."""
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or reason(error)
    return f"{problem} (line {mark.line + 1})" if mark is not None else str(problem)


def write_yaml(path: str | Path, values: dict[str, Any]) -> None:
    """Write ``values``, keeping their order."""
    Path(path).write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), encoding="utf-8")
