"""``ppolm export``."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from ppolm.cli.settings import parse
from ppolm.errors import ConfigError
from ppolm.messages import printable


@dataclass(frozen=True)
class ExportArguments:
    """Write a trained policy as files that other programs load: a whole model, an adapter, or GGUF for llama.cpp."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder (its best policy), one of its checkpoints, or the folder of `ppolm sft`."""
    output: str | None = None
    """Folder for the export. It must be new or empty."""
    format: Literal["merged", "adapter", "gguf"] = "merged"
    """merged: a folder that plain transformers loads, base and adapter in one; adapter: the PEFT folder; gguf: one file
    for llama.cpp and what is built on it (extra gguf)."""
    dtype: Literal["auto", "float32", "bfloat16", "float16", "q8_0"] = "auto"
    """Precision of the weights, rounded once from float32. auto: that in which the base is stored. q8_0 is GGUF's."""
    license: str | None = None
    """Licence for the card, such as apache-2.0. Default: that of the base's card, else it is called unknown."""
    base_name: str | None = None
    """The base's name on the Hub, for the card and an adapter's configuration, if the run has it as a folder."""
    push_to_hub: str | None = None
    """Upload the finished export as a new repository of this name, such as me/my-model. The Hub's own client finds your
    token (hf auth login, or HF_TOKEN); it is never written or printed."""
    public: bool = False
    """Let everybody see the new repository. Off: it is private."""
    trust_remote_code: bool = False
    """Let the model repository run its own Python code, if the run does so and was not started by you."""


def main(argv: list[str]) -> None:
    """Export, print what was written, and push it if that was asked for."""
    arguments = parse(ExportArguments, "ppolm export", argv)
    if arguments.output is None:
        raise ConfigError("There is no output folder. Give --output with a new folder.")
    if arguments.public and arguments.push_to_hub is None:
        raise ConfigError("--public says who sees a repository. Give --push-to-hub NAME with it, or leave it out.")
    from ppolm.export.card import Wishes
    from ppolm.export.export import Plan, Written, export
    from ppolm.export.hub import push
    from ppolm.export.source import find_source

    source = find_source(Path(arguments.run), argv)
    wishes = Wishes(arguments.license, arguments.base_name, arguments.push_to_hub)
    written: Written = export(source, Path(arguments.output), Plan(arguments.format, arguments.dtype, wishes))
    size = sum(file.stat().st_size for file in written.folder.iterdir()) / 2**20
    form = ", ".join(filter(None, (arguments.format, written.precision)))
    print(f"Exported:    {written.folder} ({form}, {size:.1f} MiB)")
    for note in written.notes:
        print(f"Note:        {printable(note)}")
    known = written.licence or "unknown: say it with --license"
    print(f"Licence:     {known}\nRead it:     {shlex.quote(str(written.folder / 'README.md'))}")
    if arguments.push_to_hub is not None:
        address = push(written.folder, arguments.push_to_hub, private=not arguments.public)
        print(f"Pushed:      {address} ({'public' if arguments.public else 'private'})")
