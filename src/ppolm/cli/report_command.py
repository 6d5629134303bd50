"""``ppolm report``: one HTML file about one or several runs, to be mailed or kept."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from ppolm.cli.runs_command import label_runs
from ppolm.cli.settings import parse
from ppolm.errors import ConfigError, RunFolderError
from ppolm.messages import brief, printable
from ppolm.runs.run_overview import find_runs, is_run

MOST_RUNS = 8
"""As many as there are colours that can be told apart."""


@dataclass(frozen=True)
class ReportArguments:
    """Write one HTML file about runs: charts, verdict, settings, samples and tokens. It opens without a network.

    Several runs are drawn into the same charts, and the settings in which they differ come first.
    """

    runs: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]")]
    """Run folders."""
    output: str | None = None
    """File to write. Default: report-NAME.html in the current folder. Only another report is replaced."""


def main(argv: list[str]) -> None:
    """Read the runs, write the file, and say where it is."""
    arguments = parse(ReportArguments, "ppolm report", argv)
    if not arguments.runs:
        raise ConfigError(
            "There is nothing to report on. Give run folders, such as runs/my-run; `ppolm runs` lists them."
        )
    paths = list(dict.fromkeys(map(Path, arguments.runs)))
    if len(paths) > MOST_RUNS:
        raise ConfigError(f"A report takes at most {MOST_RUNS} runs, and these are {len(paths)}. Choose some of them.")
    for path in paths:
        refuse_other_folder(path)
    from ppolm.studio.plotly_file import plotly_script

    plotly_script("ppolm report")  # before anything is read
    from ppolm.studio.report_page import write_report
    from ppolm.studio.report_run import read_run

    named = label_runs(paths)
    output = Path(arguments.output) if arguments.output is not None else default_output(list(named))
    size = write_report([read_run(name, path) for name, path in named.items()], output)
    print(printable(f"Report: {output} ({size / 2**20:.1f} MiB, opens in any browser, without a network)", keep=""))


def refuse_other_folder(path: Path) -> None:
    """Raise unless a folder is a run."""
    if is_run(path):
        return
    below = [str(run) for run in find_runs(path)[:3]] if path.is_dir() else []
    hint = (
        f" Runs in it: {', '.join(map(brief, below))}." if below else " `ppolm runs FOLDER` lists the runs of a folder."
    )
    what = "is not a run folder" if path.exists() else "does not exist"
    raise RunFolderError(f"{brief(str(path))} {what}.{hint}")


def default_output(names: list[str]) -> Path:
    """A file in the current folder, named after the runs."""
    plain = [re.sub(r"[^\w.-]+", "-", Path(name).name, flags=re.ASCII).strip("-.")[:60] or "run" for name in names]
    return Path(f"report-{'-and-'.join(plain[:2])}{'-and-more' if len(plain) > 2 else ''}.html")
