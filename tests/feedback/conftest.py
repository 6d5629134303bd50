"""Places for feedback stores, in SQLite and in a real PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from ppolm.feedback.connection import store_url
from tests.postgres_server import running_server


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """A real server, if there is one."""
    with running_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place for an empty store, in either database."""
    if request.param == "sqlite":
        yield str(tmp_path / "feedback.db")
        return
    url = request.getfixturevalue("postgres_url")
    _empty(url)  # a test without this fixture may have left tables there
    yield url
    _empty(url)


def _empty(url: str) -> None:
    engine = create_engine(store_url(url))
    with engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE; CREATE SCHEMA public"))
    engine.dispose()
