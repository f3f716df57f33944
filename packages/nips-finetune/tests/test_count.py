"""Parameters are counted as they are, and memory grows with what it depends on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification

from nips_finetune import count_parameters, count_report
from nips_finetune.memory import estimate_memory
from nips_finetune.pretrained import load_config, model_on_meta
from nips_finetune.testing.fixtures import query_and_value

QV = ["q_proj", "v_proj"]


def test_the_adapter_the_head_and_each_layer_are_counted(roberta_folder: Path) -> None:
    base = AutoModelForSequenceClassification.from_pretrained(roberta_folder)
    size = sum(p.numel() for p in base.parameters())
    config = LoraConfig(r=4, target_modules=["query", "key", "q_proj", "k_proj"], rank_pattern={"0.*(query|q_proj)": 2})
    config.modules_to_save, config.task_type = ["classifier"], "SEQ_CLS"
    model = get_peft_model(base, config)
    counts = count_parameters(model)
    assert counts["adapter"] == 64 * (2 + 3 * 4)
    assert counts["head"] == 32 * 32 + 32 + 32 * 2 + 2
    assert counts["trainable"] == counts["adapter"] + counts["head"] == model.get_nb_trainable_parameters()[0]
    assert counts["total"] == size + counts["trainable"]
    assert sorted(layer["rank"] for layer in counts["modules"].values()) == [2, 4, 4, 4]
    for name, layer in counts["modules"].items():
        assert name.startswith("roberta.encoder.layer.")
        assert layer["parameters"] == layer["rank"] * 64
        assert (layer["in_features"], layer["out_features"]) == (32, 32)


def test_a_config_alone_is_enough_to_count(llama_folder: Path, tmp_path: Path) -> None:
    alone = tmp_path / "config.json"
    alone.write_text((llama_folder / "config.json").read_text())
    for source in (alone, llama_folder):
        report = count_report(str(source), LoraConfig(r=3, target_modules=[*QV, "down_proj"]))
        assert report["adapter"] == report["lora_same_rank"] == 3 * (4 * 64 + 2 * (48 + 32))
        assert (report["model_type"], report["layers"], len(report["modules"])) == ("llama", 6, 6)
        assert report["percent_of_base"] == pytest.approx(100 * report["adapter"] / report["base"])


def test_another_model_than_a_language_model_is_counted_without_its_head(vit_folder: Path) -> None:
    report = count_report(str(vit_folder), LoraConfig(r=1, target_modules=query_and_value(vit_folder)))
    assert report["adapter"] == 4 * 64
    assert not any(name.startswith("classifier") for name in report["modules"])


def test_what_cannot_be_counted_is_told(llama_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"with target_modules \['q_proj', 'x'\]: no module ends in 'x'; .* in q_proj, .*"
    ):
        count_report(str(llama_folder), LoraConfig(target_modules=["x", "q_proj"]))
    with pytest.raises(OSError, match="no model 'no/where'"):
        count_report("no/where", LoraConfig())
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "unheard-of"}))
    with pytest.raises(ValueError, match=r"cannot load the model of .*unheard-of"):
        count_report(str(tmp_path / "config.json"), LoraConfig())


def adapted(folder: Path, dtype: torch.dtype = torch.float32) -> torch.nn.Module:
    model = model_on_meta("AutoModelForCausalLM", load_config(str(folder)), dtype)
    return get_peft_model(model, LoraConfig(r=2, target_modules=QV))


def batch(rows: int, length: int = 16) -> dict[str, torch.Tensor]:
    ids = torch.zeros(rows, length, dtype=torch.long, device="meta")
    return {"input_ids": ids, "labels": ids}


def activations(memory: dict[str, object]) -> float:
    """What is estimated for them; older versions of transformers and torch run no Llama on meta tensors and say so."""
    if memory["activations_bytes"] is None:
        pytest.skip(f"activations are unknown here: {memory['activations_unknown']}")
    return float(memory["activations_bytes"])  # type: ignore[arg-type]


def test_memory_is_that_of_weights_what_trains_and_activations(llama_folder: Path) -> None:
    model = adapted(llama_folder)
    frozen = sum(p.numel() for p in model.parameters() if not p.requires_grad)
    memory = estimate_memory(model, batch(2), gradient_checkpointing=False)
    assert memory["weights_bytes"] == 4 * frozen
    assert memory["trained_bytes"] == 16 * count_parameters(model)["trainable"]
    assert estimate_memory(adapted(llama_folder, torch.bfloat16), batch(2), False)["weights_bytes"] == 2 * frozen
    assert memory["total_gib"] == round(
        (memory["weights_bytes"] + memory["trained_bytes"] + activations(memory)) / 2**30, 3
    )


def test_activations_grow_with_the_batch_and_shrink_with_checkpointing(llama_folder: Path) -> None:
    two, four = (activations(estimate_memory(adapted(llama_folder), batch(rows), False)) for rows in (2, 4))
    assert four == pytest.approx(2 * two, rel=0.05)
    less = estimate_memory(adapted(llama_folder), batch(4), gradient_checkpointing=True)
    assert activations(less) < 0.75 * four


def really_kept(model: torch.nn.Module, ids: torch.Tensor) -> int:
    weights = {p.untyped_storage().data_ptr() for p in model.parameters()}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.train()(input_ids=ids, labels=ids)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())


@pytest.mark.parametrize("kind", ["sdpa", "eager"])
@pytest.mark.parametrize("length", [16, 60])
def test_activations_are_what_a_real_step_keeps(kind: str, length: int, llama_folder: Path) -> None:
    lora, ids = LoraConfig(r=2, target_modules=QV), torch.zeros(2, length, dtype=torch.long)
    real = AutoModelForCausalLM.from_pretrained(llama_folder, attn_implementation=kind)
    config = load_config(str(llama_folder))
    config._attn_implementation = kind
    meta = get_peft_model(model_on_meta("AutoModelForCausalLM", config), lora)
    estimated = estimate_memory(meta, batch(2, length), gradient_checkpointing=False)
    assert activations(estimated) == pytest.approx(really_kept(get_peft_model(real, lora), ids), rel=0.15)
