"""LoRA adapters on the shared base: creating, loading, copying, switching and listing them."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Sequence
from pathlib import Path

import torch
from peft import LoraConfig, PeftConfig, PeftModel, get_peft_model, load_peft_weights, set_peft_model_state_dict
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from ppolm.base_setup.base_setup import BaseModelSetup, find_blocks
from ppolm.base_setup.lora_linear import fuse
from ppolm.base_setup.trunk import Trunk, make_trunk
from ppolm.config import ModelSettings
from ppolm.errors import ModelError

log = logging.getLogger(__name__)


class AdapterSet:
    """The adapters of one base by name. ``activate`` switches them and says, exactly, what requires gradients."""

    def __init__(self, setup: BaseModelSetup) -> None:
        self.setup = setup
        self.heads: dict[str, nn.Module] = {}
        """Scalar heads by the adapter they belong to; they train with it."""
        self.trunk: Trunk | None = None
        """Blocks below every adapter that trains, if there are any."""
        self.packs_prompts = False
        """Whether sequences may share a row, so that a prompt is computed once for all its answers."""
        self._model: PeftModel | None = None
        self._active: tuple[str | None, bool] | None = None

    @property
    def model(self) -> PeftModel:
        """The PEFT model around the base."""
        if self._model is None:
            raise ModelError("No adapter has been added to the base yet.")
        return self._model

    @property
    def names(self) -> list[str]:
        """Names of the adapters added so far."""
        return [] if self._model is None else list(self._model.peft_config)

    def create(self, name: str, lora: LoraConfig) -> None:
        """A new adapter that changes nothing yet (LoRA B is zero)."""
        lora.fan_in_fan_out = has_transposed_weights(self.setup.causal_lm)
        try:
            if self._model is None:
                self._model = get_peft_model(self.setup.causal_lm, lora, adapter_name=name)
            else:
                self._model.add_adapter(name, lora)
        except ValueError as error:
            raise ModelError(f"LoRA cannot be added to {self.setup.name}: {error}") from error
        self._added()

    def load(self, name: str, folder: str | Path) -> None:
        """An adapter from a PEFT folder."""
        trained_on = read_adapter_config(folder).base_model_name_or_path
        if trained_on and trained_on != self.setup.name:  # shapes may fit all the same, and the numbers mean nothing
            log.warning("Adapter %s was trained on %s and is used on %s.", folder, trained_on, self.setup.name)
        try:
            if self._model is None:
                self._model = PeftModel.from_pretrained(self.setup.causal_lm, str(folder), adapter_name=name)
            else:
                self._model.load_adapter(str(folder), adapter_name=name)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            reason = " ".join(str(error).split())[:300]
            raise ModelError(f"Adapter {folder} does not load on model {self.setup.name}: {reason}") from error
        self._added()
        self.load_weights(name, folder)  # PEFT does not mind if layers are missing; this does

    def _added(self) -> None:
        self.model.eval()  # dropout is off in all of PPO, LoRA's too
        fuse(self.model)
        self._active = None
        self.activate(None)

    def lora_config(self, name: str) -> LoraConfig:
        """The shape of an adapter, for making another one like it."""
        return copy.deepcopy(self.model.peft_config[name])

    def activate(self, name: str | None, trainable: bool = False) -> None:
        """Run the base through adapter ``name`` (None: the bare base); only its parameters train, and only if asked."""
        if self._active == (name, trainable) or (name is None and self._model is None):
            return
        tuner = self.model.base_model
        if name is None:
            tuner.disable_adapter_layers()
        else:
            tuner.enable_adapter_layers()
            # PEFT makes the active adapter trainable unless told otherwise: a reference would gather gradients.
            tuner.set_adapter(name, inference_mode=not trainable)
        for owner, head in self.heads.items():
            head.requires_grad_(trainable and owner == name)
        self._active = (name, trainable)

    def parameters(self, name: str) -> dict[str, Tensor]:
        """Parameters of adapter ``name`` by their full names."""
        return {key: value for key, value in self.model.named_parameters() if belongs(key, name)}

    def share_trunk(self, trained: Sequence[str], mib: int) -> None:
        """Compute the blocks below all adapters that train once for all roles and epochs, if there are such blocks."""
        depth = min(map(self.first_block, trained))
        self.trunk = make_trunk(self.setup, depth, mib * 2**20) if depth else None

    def first_block(self, name: str | None) -> int:
        """Number of the lowest block that adapter ``name`` changes; the number of blocks if it changes none."""
        _, blocks = find_blocks(self.setup.causal_lm)
        own = set() if name is None else {id(value) for value in self.parameters(name).values()}
        inside = [own & {id(value) for value in block.parameters()} for block in blocks]
        if own - set().union(*inside):
            return 0  # the embeddings, for one, come before every block
        return next((number for number, found in enumerate(inside) if found), len(blocks))

    def copy(self, source: str, target: str) -> None:
        """Overwrite adapter ``target`` with the numbers of ``source`` (same shape)."""
        sources = self.parameters(source)
        with torch.no_grad():
            for key, parameter in self.parameters(target).items():
                parameter.copy_(sources[re.sub(rf"(\.lora_\w+)\.{target}\b", rf"\1.{source}", key)])

    def load_weights(self, name: str, folder: str | Path) -> None:
        """Overwrite adapter ``name`` with the numbers of a saved one of the same shape."""
        read_adapter_config(folder)
        try:
            weights = load_peft_weights(str(folder), device=str(self.setup.device))
            report = set_peft_model_state_dict(self.model, weights, adapter_name=name)
        except (OSError, ValueError, RuntimeError, SafetensorError) as error:
            raise ModelError(
                f"Adapter {folder} cannot be read into {name!r}: {' '.join(str(error).split())[:300]}"
            ) from error
        missing = [key for key in report.missing_keys if belongs(key, name)]
        if missing or report.unexpected_keys:
            key = (missing or report.unexpected_keys)[0]
            raise ModelError(f"Adapter {folder} does not have the layers of adapter {name!r} ({key}).")

    def save(self, name: str, folder: str | Path) -> None:
        """Write adapter ``name`` as a plain PEFT folder, loadable with ``PeftModel.from_pretrained``."""
        folder = Path(folder)
        self.model.save_pretrained(str(folder), selected_adapters=[name], save_embedding_layers=False)
        nested = folder / name  # PEFT puts a named adapter into a folder of that name
        if nested.is_dir():
            for file in nested.iterdir():
                file.replace(folder / file.name)
            nested.rmdir()
        (folder / "README.md").unlink(missing_ok=True)  # PEFT's empty model card says nothing


def belongs(parameter: str, adapter: str) -> bool:
    """Whether a parameter's full name is one of the adapter's; a base may have modules of the same name."""
    return re.search(rf"\.lora_\w+\.{adapter}(\.|$)", parameter) is not None


def has_transposed_weights(model: nn.Module) -> bool:
    """GPT-2 stores its weights transposed; PEFT finds out too, but complains about it."""
    return any(isinstance(module, Conv1D) for module in model.modules())


def new_lora_config(config: ModelSettings, model: PreTrainedModel) -> LoraConfig:
    """The LoRA shape that the configuration asks for."""
    targets = list(config.lora_target_modules)
    shape = {"r": config.lora_r, "lora_alpha": config.lora_alpha, "lora_dropout": config.lora_dropout}
    if config.trainable_layers is None:
        modules = "all-linear" if targets == ["all-linear"] else targets
        return LoraConfig(**shape, target_modules=modules, task_type="CAUSAL_LM")
    name, blocks = find_blocks(model)
    if config.trainable_layers > len(blocks):
        raise ModelError(
            f"trainable_layers is {config.trainable_layers}, but {config.model_name} has {len(blocks)} layers."
        )
    if targets == ["all-linear"]:  # PEFT takes layers only with modules by name
        linear = [path for path, module in blocks[0].named_modules() if isinstance(module, (nn.Linear, Conv1D))]
        # Another adapter may be there already: its own layers are none, and what it wraps has its name below it.
        targets = sorted({path.removesuffix(".base_layer") for path in linear if ".lora_" not in path})
    top = list(range(len(blocks) - config.trainable_layers, len(blocks)))
    return LoraConfig(
        **shape, target_modules=targets, layers_to_transform=top, layers_pattern=name, task_type="CAUSAL_LM"
    )


def read_adapter_config(folder: str | Path) -> PeftConfig:
    """The adapter's own config; raises for a folder that is no LoRA adapter we can train and switch."""
    if not (Path(folder) / "adapter_config.json").is_file():
        raise ModelError(f"Adapter folder {folder} has no adapter_config.json. Give a folder saved by PEFT or ppolm.")
    try:
        config = PeftConfig.from_pretrained(str(folder))
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"Adapter folder {folder} has a damaged adapter_config.json: {error}") from error
    if not isinstance(config, LoraConfig) or config.modules_to_save:
        raise ModelError(f"Adapter {folder} is not a plain LoRA adapter (no modules_to_save), which PPO here needs.")
    return config
