"""The subcommands of `bigram-subnet` beside train: they parse, call and print.

What they call is imported when they run, so that help, the version and mistakes in flags need no torch.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from bigram_subnet.choices import Layout, Null

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

Model = Annotated[str, typer.Option(help="Model: hub id, local folder or .gguf file.")]
Mask = Annotated[
    str, typer.Argument(help="Mask: .safetensors, .pickle, a folder with one, an output of train, or a hub id.")
]
Tokens = Annotated[
    list[Path] | None,
    typer.Option(help="Token file, all sequences of one length: ids on a line, or .npy. May be repeated."),
]
Text = Annotated[list[Path] | None, typer.Option(help="Raw text file instead of token files. May be repeated.")]
Tokenizer = Annotated[str | None, typer.Option(help="Tokenizer for raw text; default: the model's.")]
Length = Annotated[int, typer.Option(min=1, help="Tokens in a sequence of raw text.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Only so many sequences.")]
BatchSize = Annotated[int, typer.Option(min=1, help="Sequences at a time.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Dtype = Annotated[str, typer.Option(help="Of the model: auto, float32, bfloat16, float16, float64.")]
Seed = Annotated[int, typer.Option(min=0, help="Of random masks and draws.")]
Config = Annotated[str | None, typer.Option("--model", help="Model whose heads split a fused GPT-NeoX projection.")]
Split = Annotated[Layout, typer.Option(help="How a fused GPT-NeoX projection is read; blocks is the official way.")]


def print_report(report: Any) -> None:
    """Prints JSON; what is no number becomes null."""
    typer.echo(json.dumps(_finite(report), indent=2))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def count(
    output: Annotated[Path, typer.Argument(help="File for the counts, .safetensors.")],
    tokens: Annotated[
        list[Path] | None,
        typer.Option(help="Token file: one sequence of ids a line, of any length, or .npy. May be repeated."),
    ] = None,
    text: Text = None,
    tokenizer: Annotated[
        str | None, typer.Option(help="Tokenizer of the text, or that the token files were made with.")
    ] = None,
    vocab_size: Annotated[
        int | None, typer.Option(min=1, help="Size of the vocabulary, for token files without a tokenizer.")
    ] = None,
    order: Annotated[int, typer.Option(min=1, help="n: 2 counts bigrams.")] = 2,
    min_count: Annotated[int | None, typer.Option(min=1, help="Forget n-grams seen fewer times.")] = None,
    prune_every: Annotated[int | None, typer.Option(min=1, help="Forget them after so many lines already.")] = None,
    sequence_length: Length = 128,
) -> None:
    """Count the n-grams of a corpus, as it is read, into one file; prints JSON."""
    from bigram_subnet.ngrams import BigramCounts
    from bigram_subnet.ngrams.vocabulary import vocabulary_digest
    from bigram_subnet.pretrained import load_tokenizer

    if output.suffix != ".safetensors":
        raise ValueError(f"{output}: a file of counts must end in .safetensors")
    if bool(tokens) == bool(text):
        raise ValueError("give either token files (--tokens) or raw text (--text)")
    if text and tokenizer is None:
        raise ValueError("raw text needs --tokenizer")
    if (tokenizer is None) == (vocab_size is None):
        raise ValueError("token files need either --tokenizer or --vocab-size, its number of ids; raw text --tokenizer")
    made: Any = None if tokenizer is None else load_tokenizer(tokenizer)
    if text:
        counts = BigramCounts.from_text(text, made, order, min_count, prune_every, sequence_length)
    else:
        counts = BigramCounts.from_files(tokens or [], vocab_size or len(made), order, min_count, prune_every)
        counts.vocabulary = None if made is None else vocabulary_digest(made)
    counts.save(output)
    print_report(
        {"counts": str(output), "order": counts.order, "vocab_size": counts.vocab_size, "tokens": counts.tokens,
         "lines": counts.lines}
    )  # fmt: skip


def _model_and_ids(
    model: str,
    tokens: Any,
    text: Any,
    tokenizer: str | None,
    length: int,
    limit: int | None,
    device: str,
    dtype: str,
) -> tuple[Any, Tensor, Any]:
    from bigram_subnet.inputs import read_sequences, tokenizer_for
    from bigram_subnet.pretrained import load_model
    from nips_common.runtime import resolve_device, resolve_dtype

    place = resolve_device(device)
    made = tokenizer_for(text, tokenizer, model)
    ids = read_sequences(tokens, text, made, length, limit)
    loaded = load_model(model, resolve_dtype(dtype, place), place)
    return loaded, ids, made


def evaluate(
    mask: Mask,
    model: Model,
    counts: Annotated[Path, typer.Option(help="File of counts, from `count`.")],
    tokens: Tokens = None,
    text: Text = None,
    tokenizer: Tokenizer = None,
    sequence_length: Length = 128,
    limit: Limit = None,
    batch_size: BatchSize = 8,
    device: Device = "auto",
    dtype: Dtype = "auto",
    seed: Seed = 0,
) -> None:
    """Measure how bigram-like a subnetwork is on held-out text, beside controls; prints JSON.

    ngram_corr_dropinf is the paper's r: Pearson's correlation of the surprisals of subnetwork and n-grams, without
    tokens of infinite n-gram surprisal (ngram_correlation clamps those instead). ngram_xent is the cross-entropy to the
    n-grams' distribution in nats; distill_* compare with the full model instead. Controls: the full model, a random
    mask with as many weights in every matrix, and no weight at all.
    """
    import torch

    from bigram_subnet.evaluation import evaluate_subnetwork
    from bigram_subnet.inputs import check_same_vocabulary, load_mask
    from bigram_subnet.ngrams import BigramCounts

    table = BigramCounts.load(counts)
    loaded, ids, made = _model_and_ids(model, tokens, text, tokenizer, sequence_length, limit, device, dtype)
    check_same_vocabulary(table, made, loaded, str(counts))
    found = load_mask(mask, loaded)
    generator = torch.Generator().manual_seed(seed)
    report = evaluate_subnetwork(loaded, found, table, ids, generator, batch_size)
    if math.isnan(report["ngram_corr_dropinf"]):
        log.warning("r is null: every held-out token that %s knows has the same surprisal", counts)
    print_report({"mask": mask, "kept": found.kept, "total": found.total, **report})


def ablate(
    mask: Mask,
    model: Model,
    tokens: Tokens = None,
    text: Text = None,
    tokenizer: Tokenizer = None,
    sequence_length: Length = 128,
    limit: Limit = None,
    draws: Annotated[int, typer.Option(min=1, help="Random masks; more than one also tell their spread.")] = 1,
    batch_size: BatchSize = 8,
    device: Device = "auto",
    dtype: Dtype = "auto",
    seed: Seed = 0,
) -> None:
    """Measure what a model loses without a subnetwork, and without a random one of the same size; prints JSON.

    Losses of the next token in nats: full model, subnetwork alone, random mask alone (as many weights in every matrix),
    model without the subnetwork (ablated), model without the random mask. The subnetwork is sufficient for what
    `subnetwork` still predicts, and needed for what `ablated` loses beyond `random_ablated`. With several --draws the
    random losses are means, and random_std and random_ablated_std their standard deviations.
    """
    import torch

    from bigram_subnet.ablation import ablation_report
    from bigram_subnet.inputs import load_mask

    loaded, ids, _ = _model_and_ids(model, tokens, text, tokenizer, sequence_length, limit, device, dtype)
    found = load_mask(mask, loaded)
    losses = ablation_report(loaded, found, ids, torch.Generator().manual_seed(seed), batch_size, draws)
    print_report({"mask": mask, "kept": found.kept, "total": found.total, "losses_in_nats": losses})


def overlap(
    first: Mask,
    second: Mask,
    null: Annotated[Null, typer.Option(help="uniform (paper) or rows (official code).")] = "uniform",
    draws: Annotated[int, typer.Option(min=1, help="Draws for the p-value.")] = 10000,
    layout: Split = "per_head",
    model: Config = None,
    seed: Seed = 0,
) -> None:
    """Compare the overlap of two masks with chance; prints JSON.

    overlap is the share of all weights that both keep, expected what chance gives, ratio their quotient, contained the
    share of the first mask that the second keeps too, p_value (draws with at least this overlap + 1) / (draws + 1).
    """
    from bigram_subnet.inputs import load_mask
    from bigram_subnet.overlap import mask_overlap

    a, b = load_mask(first), load_mask(second)
    for name, found in ((first, a), (second, b)):
        if not found.kept:
            log.warning("%s keeps no weight: an overlap with it says nothing, and its shares are null", name)
    print_report(dataclasses.asdict(mask_overlap(a, b, null, draws, layout, _config(model), seed)))


def _config(model: str | None) -> Any:
    from bigram_subnet.pretrained import load_config

    return None if model is None else load_config(model)


def rotate(
    model: Model,
    mask: Annotated[str | None, typer.Option(help="Look at the model under this mask.")] = None,
    tokens: Tokens = None,
    text: Text = None,
    tokenizer: Tokenizer = None,
    sequence_length: Length = 128,
    limit: Limit = None,
    alpha: Annotated[float, typer.Option(min=0, help="Of the ridge regressions.")] = 1.0,
    lens: Annotated[bool, typer.Option(help="Read tokens off every layer as well.")] = False,
    batch_size: BatchSize = 8,
    device: Device = "auto",
    dtype: Dtype = "float32",
) -> None:
    """Measure by how many degrees each layer is turned from the embeddings and from the output; prints JSON.

    Layer 0 is the input of the first block. Use many more positions than the model is wide. The lens gives, for each
    layer, the correlation with the target's logits and how often the input token is among the first 1, 5 and 10.
    """
    from bigram_subnet.inputs import load_mask
    from bigram_subnet.lens import layer_lens
    from bigram_subnet.residual import layer_rotations

    loaded, ids, _ = _model_and_ids(model, tokens, text, tokenizer, sequence_length, limit, device, dtype)
    found = None if mask is None else load_mask(mask, loaded)
    angles = layer_rotations(loaded, ids, found, alpha, batch_size)
    layers: list[dict[str, Any]] = [{"layer": layer, **angle._asdict()} for layer, angle in enumerate(angles)]
    directions: tuple[Literal["input", "output"], ...] = ("input", "output") if lens else ()
    for direction in directions:
        for row, seen in zip(layers, layer_lens(loaded, ids, direction, found, alpha, batch_size), strict=True):
            row[f"lens_{direction}"] = seen._asdict()
    print_report({"model": model, "mask": mask, "positions": ids.numel(), "layers": layers})


def show(
    mask: Mask,
    model: Config = None,
    layout: Split = "per_head",
    plot: Annotated[Path | None, typer.Option(help="Draw the bars as PNG too.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Show where a mask's weights lie: a table of layers, with bars.

    density is the share of a part that is kept, share the share of all kept weights that lie in it (and the bar).
    """
    from bigram_subnet.figure import draw_shares
    from bigram_subnet.inputs import load_mask
    from bigram_subnet.shares import block_shares

    if plot is not None and plot.suffix != ".png":
        raise ValueError(f"--plot must end in .png, got {plot}")
    found = load_mask(mask)
    rows = block_shares(found, layout, _config(model))
    if as_json:
        print_report(
            {"mask": mask, "base_model": found.base_model, "kept": found.kept, "total": found.total, "parts": rows}
        )
    else:
        typer.echo(f"{mask}: {found!r}")
        widest = max(max(row["share"] for row in rows), 1e-9)
        typer.echo(f"{'layer':>5} {'part':13} {'kept':>12} {'total':>12} {'density':>8} {'share':>7}")
        for row in rows:
            bar = "#" * round(40 * row["share"] / widest)
            numbers = f"{row['kept']:>12,} {row['total']:>12,} {row['density']:>8.3%} {row['share']:>7.2%}"
            typer.echo(f"{row['layer']:>5} {row['part']:13} {numbers} {bar}".rstrip())
    if plot is not None:
        draw_shares(plot, rows, f"{found.base_model or mask}: {found.kept:,} weights kept")


def convert(
    source: Mask,
    output: Annotated[Path, typer.Argument(help=".safetensors (bit-packed) or .pickle (published form).")],
    model: Annotated[
        str | None, typer.Option(help="Check names and shapes against this model, and store its config.")
    ] = None,
) -> None:
    """Convert a mask between the published pickle and the packed file; pickles are read without running anything."""
    from bigram_subnet.inputs import load_mask
    from bigram_subnet.mask_files import check_ending
    from bigram_subnet.pretrained import load_model

    check_ending(output)
    loaded = None if model is None else load_model(model)
    found = load_mask(source, loaded)
    found.save(output)
    print_report({"mask": str(output), "base_model": found.base_model, "kept": found.kept, "total": found.total})


def generate(
    prompt: Annotated[str, typer.Argument(help="Text to go on from.")],
    model: Model,
    mask: Annotated[str | None, typer.Option(help="Generate under this mask; default: the full model.")] = None,
    tokenizer: Annotated[str | None, typer.Option(help="Default: the model's.")] = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="Most new tokens.")] = 32,
    temperature: Annotated[float, typer.Option(min=0, help="0 is greedy; the paper uses 0.3.")] = 0.3,
    device: Device = "auto",
    dtype: Dtype = "auto",
    seed: Annotated[int, typer.Option(min=0, help="Of sampling.")] = 0,
) -> None:
    """Generate text with a subnetwork."""
    import torch

    from bigram_subnet.ablation import check_ids
    from bigram_subnet.inputs import load_mask
    from bigram_subnet.masking import apply_mask
    from bigram_subnet.pretrained import load_model, load_tokenizer
    from nips_common.runtime import resolve_device, resolve_dtype, seed_everything

    place = resolve_device(device)
    made = load_tokenizer(tokenizer or model)
    loaded = load_model(model, resolve_dtype(dtype, place), place)
    if mask is not None:
        loaded = apply_mask(loaded, load_mask(mask, loaded), inplace=True)
    ids = made(prompt, return_tensors="pt", add_special_tokens=False)["input_ids"].to(loaded.device)
    if not ids.numel():
        raise ValueError("the prompt holds no token")
    check_ids(loaded, ids, more=max_new_tokens)
    seed_everything(seed)
    options: dict[str, Any] = (
        {"do_sample": True, "temperature": temperature} if temperature > 0 else {"do_sample": False}
    )
    anything: Any = loaded
    out = anything.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=max_new_tokens, pad_token_id=0, **options
    )
    typer.echo(made.decode(out[0], skip_special_tokens=True))
