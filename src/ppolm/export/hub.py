"""Pushing an export to the Hugging Face Hub. The token is the client's affair: it is neither read here nor shown."""

from __future__ import annotations

from pathlib import Path

from huggingface_hub import HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id

from ppolm.data.hub import hub_is_reachable
from ppolm.errors import ConfigError, HubError
from ppolm.messages import brief, reason

REFUSED = {
    401: "the Hub does not accept the token, or there is none. Log in with `hf auth login`, or set HF_TOKEN",
    403: "the token may not write there. Use one with write access, and a name that belongs to you",
    409: "it exists already, and nothing in it is replaced. Choose another name, or remove it",
}
"""What statuses of the Hub mean, and what to do."""


def check_name(name: str, setting: str) -> None:
    """Raise for a name that the Hub would not accept; to be called before the export."""
    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise ConfigError(f"{setting} is {brief(name)}, expected a name such as me/my-model. {reason(error)}") from None


def push(folder: Path, name: str, private: bool) -> str:
    """Make a new repository and upload the folder; returns its address. The folder stays as it is, whatever happens."""
    kept = f"The export is complete in {folder}, but it was not pushed to {name}"
    again = f"Then upload it: hf upload {name} {folder}"
    if not hub_is_reachable():
        raise HubError(f"{kept}: the Hub cannot be reached. Connect to the network. {again}")
    if get_token() is None:
        raise HubError(f"{kept}: {REFUSED[401]}. {again}")
    try:
        api = HfApi()
        address = api.create_repo(name, private=private)
        api.upload_folder(repo_id=address.repo_id, folder_path=folder, commit_message="Exported by ppolm")
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        why = REFUSED.get(status, f"the Hub answered {status or 'nothing'} ({without_token(reason(error))})")
        raise HubError(f"{kept}: {why}. {again}") from None
    except Exception as error:  # what carries the client's requests has errors of its own
        why = f"the Hub cannot be reached, or does not answer as it should ({without_token(reason(error))})"
        raise HubError(f"{kept}: {why}. {again}") from None
    return str(address)


def without_token(text: str) -> str:
    """A message in which the token does not stand."""
    token = get_token()
    return text.replace(token, "(the token)") if token else text
