"""Pushing to the Hub: the real client against a small server that speaks its protocol. Only ever when asked for."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from huggingface_hub import constants

from ppolm.cli.main import run as ppolm
from ppolm.embedded import EXAMPLE_RUN
from tests.export.small_hub import TOKEN, SmallHub, small_hub

NAME = "me/my-model"


Push = Callable[..., tuple[int, str]]


@pytest.fixture
def push(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Push:
    """Exports and pushes with the real client; returns the status and everything that was printed."""

    def run(output: Path, address: str, *flags: str, token: str = TOKEN, name: str | None = NAME) -> tuple[int, str]:
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", token)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(output.parent / "no-token"))
        asked = ["--push-to-hub", name] if name else []
        capsys.readouterr()
        status = ppolm(["export", str(EXAMPLE_RUN), "--output", str(output), *flags, *asked])
        said = capsys.readouterr()
        return status, said.out + said.err

    return run


def check_kept(output: Path, printed: str) -> None:
    """The export is whole, and the token stands nowhere."""
    assert f"The export is complete in {output}" in " ".join(printed.split())
    assert printed.count("error: ") == 1
    assert "Traceback" not in printed
    assert {"README.md", "model.safetensors", "config.json"} <= {file.name for file in output.iterdir()}


def check_secret(output: Path, printed: str) -> None:
    assert TOKEN not in printed
    for file in output.iterdir():
        assert TOKEN.encode() not in file.read_bytes()


def test_a_push_makes_a_private_repository_with_every_file_and_never_shows_the_token(
    tmp_path: Path, push: Push
) -> None:
    with small_hub() as hub:
        status, printed = push(tmp_path / "out", hub.address)
        assert status == 0, printed
        assert hub.repositories == {NAME: "private"}
        assert hub.files == {file.name: file.read_bytes() for file in (tmp_path / "out").iterdir()}
        assert len(hub.large) == 1  # the weights went the way of large files
        assert "(private)" in printed
        assert f'folder = "{NAME}"' in (tmp_path / "out" / "README.md").read_text()
        check_secret(tmp_path / "out", printed)
        status, printed = push(tmp_path / "again", hub.address, "--public")
        assert status == 1
        assert "it exists already, and nothing in it is replaced" in printed
        check_kept(tmp_path / "again", printed)
        assert hub.repositories == {NAME: "private"}


def refused(push: Push, hub: SmallHub, output: Path, token: str) -> str:
    status, printed = push(output, hub.address, token=token)
    assert status == 1
    check_kept(output, printed)
    check_secret(output, printed)
    assert not hub.files
    return printed


@pytest.mark.parametrize(
    ("token", "refusal", "said"),
    [
        ("hf_wrong", None, "does not accept the token"),
        ("", None, "there is none"),
        (TOKEN, 403, "may not write there"),
        (TOKEN, 418, "answered 418"),
    ],
)
def test_a_refused_push_is_one_sentence_after_the_export_is_complete(
    token: str, refusal: int | None, said: str, tmp_path: Path, push: Push
) -> None:
    with small_hub() as hub:
        hub.refusal = refusal
        printed = refused(push, hub, tmp_path / "out", token)
    assert said in printed
    assert "hf_wrong" not in printed


def test_a_hub_that_cannot_be_reached_is_one_sentence_after_the_export_is_complete(tmp_path: Path, push: Push) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))  # bound, and nobody listens
        status, printed = push(tmp_path / "out", f"http://127.0.0.1:{nobody.getsockname()[1]}")
    assert status == 1
    assert "the Hub cannot be reached" in printed
    check_kept(tmp_path / "out", printed)
    check_secret(tmp_path / "out", printed)


def test_nothing_is_sent_unless_it_is_asked_for(tmp_path: Path, push: Push) -> None:
    with small_hub() as hub:
        assert push(tmp_path / "out", hub.address, name=None)[0] == 0
        assert (hub.repositories, hub.files) == ({}, {})
