"""Reading and writing a flat YAML mapping, with errors a user can act on."""

from pathlib import Path
from typing import Any

import yaml

from ppolm.errors import ConfigError


def read_yaml(path: str | Path) -> dict[str, Any]:
    """The mapping in ``path``; an empty file is an empty mapping."""
    try:
        values = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"Config file {path} does not exist. `ppolm examples DIR` copies example configs.") from None
    except IsADirectoryError:
        raise ConfigError(f"Config file {path} is a folder. Give the YAML file itself.") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"Config file {path} is not valid YAML: {' '.join(str(error).split())}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise ConfigError(f"Config file {path} must hold 'setting: value' lines, found a {type(values).__name__}.")
    return values


def write_yaml(path: str | Path, values: dict[str, Any]) -> None:
    """Write ``values`` in their own order."""
    Path(path).write_text(yaml.safe_dump(values, sort_keys=False, allow_unicode=True), encoding="utf-8")
