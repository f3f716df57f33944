"""trl's SFTTrainer takes a RidgeLoraConfig and the mixin, saves, resumes, and what it saved loads."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM

from nips_common.testing.tiny_models import LLAMA
from ridgelora import RidgeLoraConfig, RidgeSquashingMixin, ridge_squashing_loss

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::FutureWarning")]

WORDS = re.findall(r"\w+", "the quick brown fox jumps over a lazy dog and runs far away from all of them")


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {word: i for i, word in enumerate(["<pad>", "<eos>", "<unk>", *WORDS])}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def trainer(base: Path, out: Path, **options: Any) -> Any:
    from datasets import Dataset
    from transformers import LlamaForCausalLM
    from trl import SFTConfig, SFTTrainer

    texts = [" ".join(WORDS[i : i + 6]) for i in range(len(WORDS) - 6)] * 2
    settings = {"max_steps": 4, "learning_rate": 0.02, "lr_scheduler_type": "constant", "report_to": "none"}
    settings |= {"use_cpu": True, "disable_tqdm": True, "logging_steps": 1, "save_strategy": "no", "max_length": 16}

    class Squashing(RidgeSquashingMixin, SFTTrainer):
        pass

    torch.manual_seed(0)
    return Squashing(
        model=LlamaForCausalLM.from_pretrained(base),
        args=SFTConfig(str(out), per_device_train_batch_size=4, bf16=False, **(settings | options)),
        train_dataset=Dataset.from_dict({"text": texts}),
        processing_class=tokenizer(),
        peft_config=RidgeLoraConfig(target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"),
        beta_rs=-0.01,
    )


def adapter(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: p.detach().clone() for name, p in model.named_parameters() if "ridgelora_" in name}


def test_sft_saves_resumes_and_reloads(tmp_path: Path) -> None:
    LLAMA.build().save_pretrained(tmp_path / "base")
    whole = trainer(tmp_path / "base", tmp_path / "whole", save_strategy="steps", save_steps=2)
    trained = {name for name, parameter in whole.model.named_parameters() if parameter.requires_grad}
    assert trained == set(adapter(whole.model))
    whole.train()
    losses = [entry["loss"] for entry in whole.state.log_history if "loss" in entry]
    assert losses[-1] < losses[0]
    squashing = [entry["ridge_squashing_loss"] for entry in whole.state.log_history if "loss" in entry]
    assert squashing[0] == 0
    assert squashing[-1] > 0
    assert ridge_squashing_loss(whole.model) > squashing[-1]

    resumed = trainer(tmp_path / "base", tmp_path / "resumed")
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-2"))
    for name, value in adapter(whole.model).items():
        torch.testing.assert_close(adapter(resumed.model)[name], value, atol=1e-6, rtol=1e-5)

    whole.save_model(tmp_path / "adapter")
    loaded = AutoPeftModelForCausalLM.from_pretrained(tmp_path / "adapter")
    assert (LLAMA.output(loaded) - LLAMA.output(whole.model.eval())).abs().max() <= 1e-6
