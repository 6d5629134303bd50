"""The pages: an address, a title and the script that fills it. The frame around them is one template."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from ppolm import __version__
from ppolm.studio.plotly_file import plotly_script
from ppolm.studio.studio import Studio

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Page:
    """One kind of page."""

    path: str
    script: str
    """File of static/js/pages, without its ending."""
    title: str
    in_menu: bool = False
    for_annotators: bool = False


PAGES = (
    Page("/", "runs", "Runs", in_menu=True),
    Page("/judge", "judge", "Judge", in_menu=True, for_annotators=True),
    Page("/studies", "studies", "Studies", in_menu=True),
    Page("/people", "people", "People", in_menu=True),
    Page("/compare", "compare", "Compare runs"),
    Page("/run/{run}", "run", "Run"),
    Page("/run/{run}/tokens", "tokens", "Tokens"),
    Page("/rewards", "rewards", "Reward models", in_menu=True),
    Page("/rewards/{reward}", "reward", "Reward model"),
    Page("/try", "try", "Try it", in_menu=True),
)
"""Menu entries appear in this order."""


def routes(_: Studio) -> list[Any]:
    """Pages, and the files that they load."""
    templates = Environment(loader=FileSystemLoader(FOLDER / "templates"), autoescape=True)
    frame = templates.get_template("frame.html")

    def page_route(page: Page) -> Route:
        async def show(request: Request) -> Response:
            visitor = request.scope["visitor"]
            menu = [one for one in PAGES if one.in_menu and (visitor.is_owner or one.for_annotators)]
            return HTMLResponse(
                frame.render(
                    page=page,
                    menu=menu,
                    visitor=visitor,
                    csrf=request.scope["csrf"],
                    version=__version__,
                    judge_name=visitor.annotator or "",
                )
            )

        return Route(page.path, show, name=page.script)

    async def plotly(_: Request) -> Response:
        return FileResponse(
            plotly_script(), media_type="text/javascript", headers={"cache-control": "max-age=86400, immutable"}
        )

    return [
        *(page_route(page) for page in PAGES),
        Route("/static/plotly.js", plotly),
        Mount("/static", StaticFiles(directory=FOLDER / "static")),
    ]
