"""The script that draws charts, from the package that carries it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from ppolm.errors import ConfigError


def plotly_script(command: str = "ppolm studio") -> Path:
    """Where it lies. The package is not imported, which would take seconds; ``command`` is who asks for it."""
    found = find_spec("plotly")
    for folder in (found.submodule_search_locations or ()) if found else ():
        script = Path(folder) / "package_data" / "plotly.min.js"
        if script.is_file():
            return script
    raise ConfigError(f"{command} needs some packages that are not installed: pip install 'ppolm[studio]'.")
