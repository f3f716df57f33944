"""What an adapter costs: its trainable parameters, layer by layer, on real or on meta tensors."""

from __future__ import annotations

from typing import Any

from peft import PeftConfig
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn

from nips_finetune.pretrained import load_config, model_on_meta
from nips_finetune.targets import adapted_model
from nips_finetune.tasks import is_head


def count_parameters(model: nn.Module) -> dict[str, Any]:
    """Count what trains in a peft model, adapted layer by adapted layer.

    Returns:
        ``adapter``, ``head``, ``trainable``, ``total`` (with the base), ``trainable_percent`` and ``modules``: for each
        adapted layer ``in_features``, ``out_features``, ``rank`` and ``parameters``.
    """
    modules = {}
    for name, layer in model.named_modules():
        if isinstance(layer, BaseTunerLayer):
            own = tuple(layer.adapter_layer_names)
            count = sum(p.numel() for key, p in layer.named_parameters() if key.partition(".")[0] in own)
            rank = max(layer.r.values())
            shape = {"in_features": layer.in_features, "out_features": layer.out_features}
            modules[name.removeprefix("base_model.model.")] = {**shape, "rank": rank, "parameters": count}
    trainable = {name: p.numel() for name, p in model.named_parameters() if p.requires_grad}
    head = sum(count for name, count in trainable.items() if is_head(name))
    total = sum(p.numel() for p in model.parameters())
    return {
        "adapter": sum(trainable.values()) - head,
        "head": head,
        "trainable": sum(trainable.values()),
        "total": total,
        "trainable_percent": 100 * sum(trainable.values()) / total,
        "modules": modules,
    }


def count_report(model: str, adapter: PeftConfig) -> dict[str, Any]:
    """Count what an adapter would train on a model, from the model's config alone.

    Args:
        model: A folder, a ``config.json`` or a hub id; weights are not read.
        adapter: The adapter. A model of another kind than causal language models is counted without a head.

    Returns:
        ``model``, ``model_type``, ``adapter`` (parameters), ``base``, ``percent_of_base``, ``layers`` (their number),
        ``lora_same_rank`` (what LoRA of the same rank on the same layers trains) and ``modules``, as
        :func:`count_parameters` has them.

    Raises:
        ValueError, OSError: No such model; no such layers in it.
    """
    config = load_config(model)
    generates = any("CausalLM" in name for name in config.architectures or [])
    built = model_on_meta("AutoModelForCausalLM" if generates else "AutoModel", config)
    counts = count_parameters(adapted_model(built, adapter, model))
    layers = counts["modules"].values()
    base = counts["total"] - counts["trainable"]
    return {
        "model": model,
        "model_type": config.model_type,
        "adapter": counts["adapter"],
        "base": base,
        "percent_of_base": 100 * counts["adapter"] / base,
        "layers": len(layers),
        "lora_same_rank": sum(layer["rank"] * (layer["in_features"] + layer["out_features"]) for layer in layers),
        "modules": counts["modules"],
    }
