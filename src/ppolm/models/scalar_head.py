"""The linear head that turns a hidden state into one number, for value and reward models."""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from ppolm.errors import ModelError
from ppolm.messages import reason

HEAD_FILE = "head.safetensors"


class ScalarHead(nn.Module):
    """s = w · h + b in float32, whatever the precision of the base."""

    def __init__(self, hidden_size: int, device: torch.device) -> None:
        super().__init__()
        self.linear = nn.utils.skip_init(nn.Linear, hidden_size, 1, device=device)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.requires_grad_(False)

    def forward(self, hidden: Tensor) -> Tensor:
        """[n, d] -> [n]."""
        return self.linear(hidden.float()).squeeze(-1)

    def init_reward(self) -> None:
        """w ~ N(0, 1/(d+1)), a variance: scores start at unit scale for unit-scale states. b = 0."""
        nn.init.normal_(self.linear.weight, std=1 / math.sqrt(self.linear.in_features + 1))
        nn.init.zeros_(self.linear.bias)

    def save(self, folder: str | Path) -> None:
        """Write the head beside the adapter."""
        save_file({"weight": self.linear.weight.detach(), "bias": self.linear.bias.detach()}, Path(folder) / HEAD_FILE)

    def load(self, folder: str | Path) -> None:
        """Read what ``save`` wrote."""
        path = Path(folder) / HEAD_FILE
        try:
            tensors = load_file(path)
            self.linear.load_state_dict(tensors)
        except FileNotFoundError:
            raise ModelError(
                f"{folder} has no {HEAD_FILE}: it is not a value or reward model saved by ppolm."
            ) from None
        except (OSError, ValueError, SafetensorError, RuntimeError) as error:
            raise ModelError(f"{path} is damaged or belongs to another model: {reason(error)}") from error
        if not all(torch.isfinite(tensor).all() for tensor in tensors.values()):
            raise ModelError(f"{path} holds numbers that are not finite. Download or copy it again.")
