"""Zero-shot class weights against open_clip's own function, and by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from dota_clip.encoders.open_clip import OpenClipEncoder
from dota_clip.imagenet_templates import SIMPLE_IMAGENET_TEMPLATES
from dota_clip.zero_shot import zero_shot_weights

ANIMALS = ["cat", "hot dog", "sea lion", "newt", "eel"]


class LetterCounts:
    """Embeds a text as its counts of a, b, c and d: a real encoder, small enough to check by hand."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        self.dtype = dtype
        self.longest = 0

    def encode_text(self, texts: list[str]) -> Tensor:
        self.longest = max(self.longest, len(texts))
        return torch.tensor([[float(text.count(letter)) for letter in "abcd"] for text in texts], dtype=self.dtype)


def test_weights_equal_open_clips_zero_shot_classifier(open_clip_folder: Path) -> None:
    import open_clip

    encoder = OpenClipEncoder.from_pretrained(open_clip_folder, device="cpu")
    expected = open_clip.build_zero_shot_classifier(
        encoder.model, encoder.tokenizer, ANIMALS, SIMPLE_IMAGENET_TEMPLATES
    )
    found = zero_shot_weights(encoder, ANIMALS, SIMPLE_IMAGENET_TEMPLATES)
    assert found.shape == (32, 5)
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


def test_each_prompt_counts_the_same_however_long_its_feature_is() -> None:
    # "aab" -> (2, 1, 0, 0) / sqrt 5 and "bbbb" -> (0, 1, 0, 0): their mean direction, not that of their sum.
    found = zero_shot_weights(LetterCounts(), ["b"], ["aa{}", "bbb{}"])
    expected = normalize(torch.tensor([2 / 5**0.5, 1 / 5**0.5 + 1, 0, 0]), dim=0)
    torch.testing.assert_close(found[:, 0], expected)


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 64])
def test_the_batch_size_changes_nothing_and_bounds_the_prompts_at_once(batch_size: int) -> None:
    names, templates = list("abcd"), ["{}", "a{}b", "dd{}"]
    encoder = LetterCounts()
    found = zero_shot_weights(encoder, names, templates, batch_size=batch_size)
    torch.testing.assert_close(found, zero_shot_weights(LetterCounts(), names, templates))
    assert encoder.longest <= batch_size


def test_many_batches_go_through_the_progress_bar_unchanged() -> None:
    names = [letter * repeats for letter in "abcd" for repeats in range(1, 6)]
    found = zero_shot_weights(LetterCounts(), names, ["{}", "ab{}"], batch_size=2)
    torch.testing.assert_close(found, zero_shot_weights(LetterCounts(), names, ["{}", "ab{}"]))


def test_columns_have_unit_norm_and_may_be_changed_in_place() -> None:
    found = zero_shot_weights(LetterCounts(), ["ab", "cd"], ["a {}"])
    torch.testing.assert_close(found.norm(dim=0), torch.ones(2))
    found += 1  # an inference tensor would refuse this


def test_half_precision_features_give_float32_weights_and_double_stays() -> None:
    assert zero_shot_weights(LetterCounts(torch.bfloat16), ["a"], ["{}"]).dtype == torch.float32
    assert zero_shot_weights(LetterCounts(torch.float64), ["a"], ["{}"]).dtype == torch.float64


def test_braces_in_names_and_templates_are_plain_text() -> None:
    found = zero_shot_weights(LetterCounts(), ["{0} b"], ["a {} {x}"])
    torch.testing.assert_close(found[:, 0], normalize(torch.tensor([1.0, 1, 0, 0]), dim=0))


def test_two_classes_of_one_name_share_their_weights_only_on_request() -> None:
    with pytest.raises(ValueError, match="'a' given more than once"):
        zero_shot_weights(LetterCounts(), ["a", "b", "a"], ["{}"])
    found = zero_shot_weights(LetterCounts(), ["a", "b", "a"], ["{}"], allow_duplicates=True)
    assert torch.equal(found[:, 0], found[:, 2])


@pytest.mark.parametrize(
    ("names", "templates", "batch_size", "message"),
    [
        ([], ["{}"], 4, "at least one name is needed"),
        (["a"], [], 4, "no prompt template"),
        (["a"], ["photo"], 4, r"exactly one \{\}"),
        (["a"], ["{}"], 0, "batch_size must be at least 1, got 0"),
    ],
)
def test_lists_that_make_no_classifier_are_refused(
    names: list[str], templates: list[str], batch_size: int, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        zero_shot_weights(LetterCounts(), names, templates, batch_size=batch_size)


def test_features_that_overflow_name_the_prompt() -> None:
    class Overflowing(LetterCounts):
        def encode_text(self, texts: list[str]) -> Tensor:
            return super().encode_text(texts) / torch.tensor([[float("b" not in text)] for text in texts])

    with pytest.raises(ValueError, match="non-finite features for 'a b'; try dtype float32"):
        zero_shot_weights(Overflowing(), ["a", "b"], ["a {}"])


def test_open_clips_template_functions_do_as_well_as_strings(open_clip_folder: Path) -> None:
    import open_clip

    encoder = OpenClipEncoder.from_pretrained(open_clip_folder, device="cpu")
    functions = zero_shot_weights(encoder, ["cat", "dog"], open_clip.SIMPLE_IMAGENET_TEMPLATES)
    strings = zero_shot_weights(encoder, ["cat", "dog"], SIMPLE_IMAGENET_TEMPLATES)
    torch.testing.assert_close(functions, strings, atol=0, rtol=0)
