"""``ppolm studio``: the pages in a browser."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import tyro

from ppolm.cli.settings import parse
from ppolm.errors import ConfigError
from ppolm.messages import printable

if TYPE_CHECKING:
    from ppolm.studio.studio import Studio


DEFAULT_FOLDERS = ("runs",)
Folders = Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_FOLDER...")]


@dataclass(frozen=True)
class StudioArguments:
    """See runs token by token, and judge responses, in a browser. It reads run folders and never writes into them."""

    folders: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_FOLDER...")] = (
        DEFAULT_FOLDERS
    )
    """Run folders, or folders that hold some."""
    store: str = "feedback.db"
    """Feedback store for judgements: an SQLite file, or a URL such as postgresql://user@host/db."""
    port: int | None = None
    """Port to listen on. Default: the first free one from 8420."""
    host: str = "127.0.0.1"
    """Address to listen on. Another than 127.0.0.1 opens judging to other machines and needs --annotators."""
    annotators: str | None = None
    """File with a line `name key` for each annotator: a personal link is printed for each."""
    device: str = "auto"
    """Where "Try it" and reward models compute: auto, cpu, cuda, mps. Beside a run on the only GPU: cpu."""
    open: bool = True
    """Open the page in a browser, if there is one."""
    example: bool = False
    """Show the run that comes with ppolm, with answers to judge; judgements are kept until the page ends."""


def main(argv: list[str]) -> None:
    """Serve until Ctrl-C."""
    arguments = parse(StudioArguments, "ppolm studio", argv)
    try:
        from ppolm.studio.plotly_file import plotly_script
        from ppolm.studio.serve import LOCAL, serve
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"ppolm studio needs {error.name}, which is not installed. Install it with: pip install 'ppolm[studio]'"
        ) from error
    from ppolm.studio.model_workers import ModelWorkers
    from ppolm.studio.studio import Studio
    from ppolm.studio.visitors import Keys, read_annotators
    from ppolm.studio.workspace import Workspace

    plotly_script()
    if arguments.device not in ("auto", "cpu"):
        from ppolm.base_setup.device import resolve_device

        resolve_device(arguments.device)  # a wrong name is told now, not when somebody tries a model
    if arguments.host not in LOCAL and arguments.annotators is None:
        raise ConfigError(
            f"--host {arguments.host} opens the page to other machines. Name who may judge there with --annotators "
            "FILE; your own pages stay on this machine."
        )
    annotators = {} if arguments.annotators is None else read_annotators(Path(arguments.annotators))
    with place_of(arguments) as (folders, store):
        keys, models = Keys(annotators=annotators), ModelWorkers(device=arguments.device)
        studio = Studio(Workspace(folders), store=store, keys=keys, host=arguments.host, models=models)
        serve(studio, arguments.port, lambda ready: announce(ready, arguments.open))


@contextmanager
def place_of(arguments: StudioArguments) -> Iterator[tuple[list[Path], str]]:
    """The folders to look into, and the store to write to."""
    if arguments.example:
        from ppolm.embedded import EXAMPLE
        from ppolm.studio.example import make_example_store

        with TemporaryDirectory(prefix="ppolm-example-") as folder:
            yield [EXAMPLE], make_example_store(Path(folder))
        return
    for name in arguments.folders:
        if not Path(name).is_dir() and arguments.folders != DEFAULT_FOLDERS:
            raise ConfigError(f"There is no folder {name}. Give a run folder, or one that holds runs.")
    yield [Path(name) for name in arguments.folders], arguments.store


def announce(studio: Studio, open_browser: bool) -> None:
    """Print the links, and open the owner's."""
    from ppolm.studio.serve import links

    (_, own), *others = links(studio)
    found = len(studio.workspace.runs())
    where = ", ".join(str(folder) for folder in studio.workspace.folders)
    print(printable(f"ppolm studio: {found} {'run' if found == 1 else 'runs'} in {where}"))
    print(f"Open  {own}")
    for name, link in others:
        print(printable(f"Judge {link}  ({name})"))
    print("Ctrl-C ends it; runs do not notice.", flush=True)
    if open_browser and sys.stdout.isatty():
        webbrowser.open(own)
