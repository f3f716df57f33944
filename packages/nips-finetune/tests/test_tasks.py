"""Batches and measures of the three tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoModelForImageClassification, AutoModelForSequenceClassification

from nips_finetune import find_task
from nips_finetune.pretrained import load_image_processor, load_tokenizer
from nips_finetune.tasks import head_modules, make_collator, measure

BEGIN, PAD, END = 0, 1, 2
LANGUAGE, CLASSIFY, IMAGES = (
    find_task(name) for name in ("causal_lm", "sequence_classification", "image_classification")
)


def ids(folder: Path, *words: str) -> list[int]:
    return list(load_tokenizer(str(folder)).convert_tokens_to_ids(list(words)))


def test_a_text_to_continue_ends_and_has_a_loss_on_all_of_it(llama_folder: Path) -> None:
    collate = make_collator(LANGUAGE, load_tokenizer(str(llama_folder)), 16)
    batch = collate([{"text": "the film"}, {"text": "a"}])
    the, film, a = ids(llama_folder, "the", "film", "a")
    assert batch["input_ids"].tolist() == [[BEGIN, the, film, END], [BEGIN, a, END, PAD]]
    assert batch["labels"].tolist() == [[BEGIN, the, film, END], [BEGIN, a, END, -100]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1], [1, 1, 1, 0]]


def test_a_prompt_has_no_loss_and_no_end(llama_folder: Path) -> None:
    collate = make_collator(LANGUAGE, load_tokenizer(str(llama_folder)), 16)
    batch = collate([{"prompt": "the film", "text": "fine"}])
    the, film, fine = ids(llama_folder, "the", "film", "fine")
    assert batch["input_ids"].tolist() == [[BEGIN, the, film, fine, END]]
    assert batch["labels"].tolist() == [[-100, -100, -100, fine, END]]


def test_of_what_is_too_long_the_prompt_loses_its_beginning_first(llama_folder: Path) -> None:
    tokenizer = load_tokenizer(str(llama_folder))
    the, film, was, fine, great = ids(llama_folder, "the", "film", "was", "fine", "great")
    example = {"prompt": "the film was", "text": "fine great"}
    batch = make_collator(LANGUAGE, tokenizer, 5)([example])
    assert batch["input_ids"].tolist() == [[BEGIN, was, fine, great, END]]
    assert batch["labels"].tolist() == [[-100, -100, fine, great, END]]
    batch = make_collator(LANGUAGE, tokenizer, 3)([example])
    assert batch["input_ids"].tolist() == [[BEGIN, fine, great]]
    batch = make_collator(LANGUAGE, tokenizer, 3)([{"text": "the film was"}])
    assert batch["input_ids"].tolist() == [[BEGIN, the, film]]


def test_lengths_are_padded_to_a_multiple(llama_folder: Path, roberta_folder: Path) -> None:
    assert make_collator(LANGUAGE, load_tokenizer(str(llama_folder)), 16, 8)([{"text": "a"}])["labels"].shape == (1, 8)
    rows = [{"text": "a", "label": 1}]
    assert make_collator(CLASSIFY, load_tokenizer(str(roberta_folder)), 16, 8)(rows)["input_ids"].shape == (1, 8)


def test_pairs_are_classified_together(roberta_folder: Path) -> None:
    collate = make_collator(CLASSIFY, load_tokenizer(str(roberta_folder)), 16)
    batch = collate([{"text": "the", "text_pair": "film", "label": 0.5}])
    the, film = ids(roberta_folder, "the", "film")
    assert batch["input_ids"].tolist() == [[BEGIN, the, END, film]]
    assert batch["labels"].tolist() == [0.5]
    assert batch["labels"].dtype == torch.float32


def test_images_get_the_size_of_their_model(vit_folder: Path) -> None:
    collate = make_collator(IMAGES, load_image_processor(str(vit_folder)), 0)
    batch = collate([{"image": Image.new("RGB", (20, 30)), "label": 1}] * 2)
    assert batch["pixel_values"].shape == (2, 3, 16, 16)
    assert batch["labels"].tolist() == [1, 1]


def test_the_head_is_what_stands_beside_the_body(roberta_folder: Path, vit_folder: Path) -> None:
    assert head_modules(AutoModelForSequenceClassification.from_pretrained(roberta_folder)) == ["classifier"]
    assert head_modules(AutoModelForImageClassification.from_pretrained(vit_folder)) == ["classifier"]


def test_measures_of_a_classification_are_those_of_their_formulas() -> None:
    # truth 0 0 0 1 1 2, answers 0 0 1 1 1 1: table rows (2, 1, 0), (0, 2, 0), (0, 1, 0)
    answers = np.array([0, 0, 1, 1, 1, 1])
    found = measure(np.eye(3)[answers], np.array([0, 0, 0, 1, 1, 2]), regression=False)
    assert found["accuracy"] == pytest.approx(4 / 6)
    assert found["macro_f1"] == pytest.approx((4 / 5 + 4 / 6 + 0) / 3)
    # Gorodkin's R_K: (c s - sum p t) / sqrt((s² - sum p²)(s² - sum t²))
    assert found["matthews_correlation"] == pytest.approx((4 * 6 - (2 * 3 + 4 * 2)) / ((36 - 20) * (36 - 14)) ** 0.5)


def test_one_answer_for_all_correlates_with_nothing() -> None:
    found = measure(np.array([[1.0, 0.0]] * 4), np.array([0, 1, 0, 1]), regression=False)
    assert found == {"accuracy": 0.5, "macro_f1": pytest.approx(1 / 3), "matthews_correlation": 0.0}


def test_a_regression_is_measured_by_its_correlation() -> None:
    values = np.array([1.0, 2.0, 4.0, 3.0])
    assert measure(values[:, None] * -2 + 1, values, regression=True)["pearson"] == pytest.approx(-1)
    assert measure(np.ones((4, 1)), values, regression=True)["pearson"] == 0.0


def test_an_unknown_task_is_told_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="one of causal_lm, sequence_classification, image_classification, got 'x'"):
        find_task("x")
