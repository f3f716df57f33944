"""Model folders: ours (config.json and model.safetensors) and the official ones (config.json and model.pth)."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from gfm_rag.config import GFMConfig
from gfm_rag.encoders import Encoder, EncoderRecord
from nips_common.artifacts import (
    atomic_folder,
    check_keys,
    check_tensors,
    load_folder,
    read_json,
    save_folder,
    write_json,
)
from nips_common.runtime import resolve_device

log = logging.getLogger(__name__)

_NETWORKS = ("gfmrag.ultra.models.QueryNBFNet", "gfmrag.models.ultra.models.QueryNBFNet")
_OFFICIAL = {
    "gfmrag.models.GNNRetriever": "gfm-rag retriever",  # release 1.0.0
    "gfmrag.models.gfm_rag_v1.GNNRetriever": "gfm-rag retriever",  # release 2.0.0
    "gfmrag.models.QueryGNN": "gfm-rag query network",
    "gfmrag.models.gfm_rag_v1.QueryGNN": "gfm-rag query network",
}
_NAMES = {"message_func": "message", "aggregate_func": "aggregate"}
# Official keys that say nothing about the network.
_IGNORED = {"_target_", "_convert_", "_recursive_"}
_OF_THE_RETRIEVER = {"ranker", "init_nodes_weight", "init_nodes_type", "init_entities_weight", "dataset_config"}


class PretrainedNetwork(nn.Module):
    """A network with a `config` that is saved as a folder and read strictly. Subclasses set `kind`.

    `encoder` says with which text encoder it was trained, None if that is not known (official folders do not say).
    """

    kind: ClassVar[str]
    config: GFMConfig
    encoder: EncoderRecord | None = None

    def record_encoder(self, encoder: Encoder) -> None:
        """Keeps the name of the encoder that the network is trained with; `save_pretrained` writes it.

        Raises:
            ValueError: see `check_encoder`.
        """
        self.check_encoder(encoder)
        self.encoder = EncoderRecord.of(encoder)

    def check_encoder(self, encoder: Encoder) -> None:
        """ValueError for an encoder of another size than the network's, or another one than the recorded."""
        if encoder.dim != self.config.text_dim:
            raise ValueError(
                f"the encoder gives {encoder.dim} dimensions, but the model was made for "
                f"text_dim={self.config.text_dim}"
            )
        found = EncoderRecord.of(encoder)
        if self.encoder is not None and found is not None and found.name != self.encoder.name:
            raise ValueError(
                f"the model was trained with the encoder {self.encoder.source} ({self.encoder.name}), "
                f"got {found.source} ({found.name})"
            )

    def save_pretrained(self, folder: str | os.PathLike[str], *, official: bool = False) -> None:
        """Writes config.json and model.safetensors, atomically.

        Args:
            folder: new or existing folder.
            official: write the official form instead, config.json with `_target_` and model.pth.
        """
        if official:
            save_official(Path(folder), self)
        else:
            record = {} if self.encoder is None else {"encoder": self.encoder._asdict()}
            save_folder(Path(folder), self.kind, dataclasses.asdict(self.config) | record, self.state_dict())

    @classmethod
    def from_pretrained(cls, folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> Self:
        """Reads a folder of `save_pretrained` or of the official release (both of its forms), or a hub id.

        Args:
            folder: a local folder, or a name such as rmanluo/GFM-RAG-8M, looked up on the Hugging Face hub (and in
                its cache) where there is no such folder.
            device: where the weights go, also "auto".

        Raises:
            ValueError: a missing, damaged or foreign file; an unknown `_target_`; unknown, missing or wrongly shaped
                weights, all named together.
            FileNotFoundError: neither a folder nor a name that the hub knows.
        """
        place, folder = resolve_device(device), local_folder(folder)
        # by the configuration: a folder in which both forms were saved holds both files of weights
        if not _is_official(folder / "config.json"):
            _check_stage(folder, cls.kind)
            config, tensors = load_folder(folder, cls.kind)
            record = EncoderRecord.read(config.pop("encoder", None), str(folder / "config.json"))
            names = [field.name for field in dataclasses.fields(GFMConfig)]
            check_keys(config, names, names, str(folder / "config.json"))
            model, where = cls(_config(config, folder / "config.json")), "model.safetensors"
            model.encoder = record
        else:
            model = cls(read_official_config(folder / "config.json", cls.kind))
            tensors, where = read_official_weights(folder / "model.pth"), "model.pth"
        check_tensors(tensors, {name: tuple(t.shape) for name, t in model.state_dict().items()}, str(folder / where))
        model.load_state_dict(tensors)
        return model.to(place).eval()


def _is_official(config: Path) -> bool:
    if not config.is_file():
        raise ValueError(f"{config}: no such file (expected config.json with model.safetensors or model.pth)")
    return "kind" not in read_json(config)


def _check_stage(folder: Path, wanted: str) -> None:
    """ValueError for the model of the other stage, with the way on."""
    found = read_json(folder / "config.json")["kind"]
    if found == "gfm-rag query network" != wanted:
        raise ValueError(
            f"{folder} is a pre-trained network, which does not retrieve yet: `gfm-rag finetune --init {folder}` "
            f"trains a retriever from it, `gfm-rag convert {folder} OUT` makes one without training"
        )
    if found == "gfm-rag retriever" != wanted:
        raise ValueError(f"{folder} is a retriever; stage 1 begins with a network of `gfm-rag pretrain`, or with none")


def local_folder(name: str | os.PathLike[str]) -> Path:
    """The folder of that name, or the hub's snapshot of it.

    Raises:
        FileNotFoundError: there is neither, or the hub's client is not installed.
    """
    folder = Path(name)
    if folder.is_dir():
        return folder
    text = os.fspath(name)
    if text.count("/") == 1 and not text.startswith((".", "/")):
        try:
            from huggingface_hub import snapshot_download
            from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

            return Path(snapshot_download(text, allow_patterns=["config.json", "model.pth", "model.safetensors"]))
        except ImportError as error:
            raise FileNotFoundError(f'{text} is no folder; for hub names: pip install "gfm-rag[encoders]"') from error
        except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise FileNotFoundError(f"{text} is no folder, and the hub did not give it: {reason}") from error
    raise FileNotFoundError(f"{text}: no such model folder (expected config.json and model.safetensors or model.pth)")


def read_official_config(path: Path, kind: str) -> GFMConfig:
    """The network's settings from an official config.json, of release 1.0.0 or 2.0.0. Nothing in it is imported.

    Raises:
        ValueError: a missing file, an unknown `_target_`, one of another network than `kind`, or an unknown key.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file")
    found = read_json(path).get("model_config")
    if not isinstance(found, dict) or not isinstance(found.get("entity_model"), dict):
        raise ValueError(f"{path}: expected model_config with entity_model, as the official code saves it")
    entity = found["entity_model"]
    _check_target(found.get("_target_"), _OFFICIAL, path)
    _check_target(entity.get("_target_"), _NETWORKS, path)
    if _OFFICIAL[found["_target_"]] != kind:
        raise ValueError(
            f"{path}: _target_ {found['_target_']!r} is a {_OFFICIAL[found['_target_']]}, expected a {kind}"
        )
    sizes = [found[key] for key in ("rel_emb_dim", "feat_dim") if key in found]
    if len(sizes) != 1:
        raise ValueError(f"{path}: model_config must hold rel_emb_dim (1.0.0) or feat_dim (2.0.0)")
    accepted = {field.name for field in dataclasses.fields(GFMConfig)} - {"text_dim"}
    settings = {_NAMES.get(key, key): value for key, value in entity.items() if key not in _IGNORED}
    check_keys(settings, accepted, ["input_dim", "hidden_dims"], f"{path}: entity_model")
    check_keys(
        found, {"entity_model", "rel_emb_dim", "feat_dim", *_IGNORED, *_OF_THE_RETRIEVER}, (), f"{path}: model_config"
    )
    if False in (found.get("init_entities_weight"), found.get("init_nodes_weight")):
        log.warning("%s: this model was trained without entity weights, but GFMRetriever always gives them", path)
    return _config({**settings, "text_dim": sizes[0]}, path)


def _config(settings: Mapping[str, Any], path: Path) -> GFMConfig:
    try:
        return GFMConfig(**settings)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _check_target(target: object, known: Mapping[str, str] | tuple[str, ...], path: Path) -> None:
    if not isinstance(target, str) or target not in known:
        raise ValueError(f"{path}: unknown _target_ {target!r}, known are {', '.join(known)}; it is never imported")


def read_official_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a file `torch.save({"model": state_dict}, path)`; nothing but tensors is ever loaded from it.

    Raises:
        ValueError: a missing or damaged file, one that holds code, or one without such a dictionary.
    """
    if not path.is_file():
        raise ValueError(f"{path}: no such file (expected model.safetensors or model.pth)")
    try:
        content: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises what the damaged or unsafe stream happens to hit
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ValueError(f"{path}: not a file of tensors that can be read safely ({reason[0]})") from error
    weights = content.get("model") if isinstance(content, dict) else None
    if not isinstance(weights, dict) or not all(isinstance(value, Tensor) for value in weights.values()):
        raise ValueError(f"{path}: expected a dictionary with the state_dict under 'model'")
    return weights


def save_official(folder: str | Path, model: PretrainedNetwork) -> None:
    """Writes config.json and model.pth as the official release 1.0.0 does, both in one step."""
    config = dataclasses.asdict(model.config)
    back = {value: key for key, value in _NAMES.items()}
    entity = {back.get(key, key): value for key, value in config.items() if key != "text_dim"}
    name = next(name for name, kind in _OFFICIAL.items() if kind == model.kind)
    form = {"_target_": name, "entity_model": {"_target_": _NETWORKS[0], **entity}, "rel_emb_dim": config["text_dim"]}
    with atomic_folder(folder) as new:
        torch.save({"model": {key: value.cpu() for key, value in model.state_dict().items()}}, new / "model.pth")
        write_json(new / "config.json", {"model_config": form})
