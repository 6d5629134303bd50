"""Starting the server: a free port, the links that open it, and a quiet end."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType

import uvicorn

from ppolm.errors import ConfigError
from ppolm.studio.app import make_app
from ppolm.studio.studio import Studio

FIRST_PORT = 8420
MORE_PORTS = 20
"""Ports that are tried if the first is taken and none was asked for."""
LOCAL = ("127.0.0.1", "localhost", "::1")
MOST_CONNECTIONS = 2000


def listen(host: str, port: int | None) -> socket.socket:
    """A listening socket on the port that was asked for, or on the first free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    last = 0 if port is not None else MORE_PORTS
    for number in range(FIRST_PORT if port is None else port, (FIRST_PORT if port is None else port) + last + 1):
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(512)
            return listener
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE or number == (FIRST_PORT if port is None else port) + last:
                raise ConfigError(
                    f"The page cannot listen on {host}, port {number}: {error.strerror}. Give another --port."
                ) from None
    raise AssertionError("the last port is taken or refused")


def links(studio: Studio) -> Iterator[tuple[str, str]]:
    """Who opens which link."""
    here = f"http://{'127.0.0.1' if studio.host not in LOCAL else _bracketed(studio.host)}:{studio.port}"
    yield "you", f"{here}/open?key={studio.keys.owner}"
    name = socket.gethostname() if studio.host in ("0.0.0.0", "::") else studio.host
    for key, annotator in studio.keys.annotators.items():
        yield annotator, f"http://{_bracketed(name)}:{studio.port}/open?key={key}"


def serve(studio: Studio, port: int | None, ready: Callable[[Studio], None]) -> None:
    """Answer requests until Ctrl-C; ``ready`` is told the port once there is one."""
    listener = listen(studio.host, port)
    studio = replace(studio, port=listener.getsockname()[1])
    config = uvicorn.Config(
        make_app(studio),
        log_level=logging.WARNING,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_keep_alive=30,
    )
    ready(studio)
    Server(config, studio).run(sockets=[listener])


class Server(uvicorn.Server):
    """Lets open streams end by themselves when it is told to stop; uvicorn would wait for them, then cut them off."""

    def __init__(self, config: uvicorn.Config, studio: Studio) -> None:
        super().__init__(config)
        self.studio = studio

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ctrl-C or SIGTERM."""
        self.studio.closing.set()
        super().handle_exit(sig, frame)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
