"""Starting the server: a free port, the links that open it, and a quiet end."""

from __future__ import annotations

import errno
import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType

import uvicorn

from ppolm.errors import ConfigError
from ppolm.messages import reason
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
    ports = range(FIRST_PORT, FIRST_PORT + MORE_PORTS) if port is None else [port]
    for number in ports:
        # Named as TCP, connections are told not to hold back the end of an answer (TCP_NODELAY), which costs 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, number))
            listener.listen(512)
            return listener
        except (OSError, OverflowError) as error:
            listener.close()
            taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            if not taken or number == ports[-1]:
                raise ConfigError(
                    f"The page cannot listen on {host}, port {number}: {reason(error)}. Give another --port or --host."
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

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Listen for signals while it runs. One that ended it has done its work, and is not raised again."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Ctrl-C or SIGTERM."""
        self.studio.closing.set()
        super().handle_exit(sig, frame)


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
