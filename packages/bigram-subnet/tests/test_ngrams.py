"""N-gram counts: exact, the same however the corpus is cut, and clear about bad input."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file

from bigram_subnet import BigramCounts, NgramTarget, surprisal, surprisal_correlation
from bigram_subnet.ngrams import token_files
from bigram_subnet.ngrams.tally import Tally, digits_per_word, pack_digits, unpack_digits
from bigram_subnet.ngrams.token_files import TokenBlock, read_token_files, token_rows

V = 7
lines_of_ids = st.lists(st.lists(st.integers(0, V - 1), max_size=9), min_size=1, max_size=12).filter(any)


def plain_counts(lines: list[list[int]], order: int, vocab_size: int = V) -> dict[tuple[int, ...], Counter[int]]:
    """The definition: a dict of counters, history padded with V."""
    found: dict[tuple[int, ...], Counter[int]] = {}
    for line in lines:
        padded = [vocab_size] * (order - 1) + line
        for i in range(order - 1, len(padded)):
            found.setdefault(tuple(padded[i - order + 1 : i]), Counter())[padded[i]] += 1
    return found


def plain_probs(lines: list[list[int]], order: int, context: list[int]) -> list[float]:
    for n in range(order, 0, -1):
        row = plain_counts(lines, n).get(tuple(context[len(context) - n + 1 :]))
        if row:
            return [row[token] / row.total() for token in range(V)]
    return [1 / V] * V


@settings(max_examples=40, deadline=None)
@given(lines_of_ids, st.integers(1, 4), st.lists(st.integers(0, V - 1), min_size=3, max_size=6))
def test_distributions_equal_the_definition(lines: list[list[int]], order: int, query: list[int]) -> None:
    counts = BigramCounts.from_sequences(lines, V, order)
    probs = counts.next_token_probs(torch.tensor([query]))[0]
    padded = [V] * (order - 1) + query
    for i in range(len(query)):
        expected = plain_probs(lines, order, padded[i + 1 : i + order] if order > 1 else [])
        torch.testing.assert_close(probs[i], torch.tensor(expected, dtype=torch.float64), atol=1e-12, rtol=0)
    surprisals = counts.token_surprisal(torch.tensor([query]))[0]
    for i, token in enumerate(query):
        p = plain_probs(lines, order, padded[i : i + order - 1])[token]
        assert 2 ** -float(surprisals[i]) == pytest.approx(p, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(lines=lines_of_ids, order=st.integers(1, 3), chunk=st.integers(1, 40))
def test_streamed_counts_equal_those_in_memory_in_any_chunking(
    lines: list[list[int]], order: int, chunk: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("tokens")
    whole = BigramCounts.from_sequences(lines, V, order)
    half = len(lines) // 2
    for name, part in (("a.txt", lines[:half]), ("b.txt", lines[half:])):
        (folder / name).write_text("".join(" ".join(map(str, line)) + "\n" for line in part))
    usual, token_files._CHUNK = token_files._CHUNK, chunk
    try:
        streamed = BigramCounts.from_files([folder / "a.txt", folder / "b.txt"], V, order)
    finally:
        token_files._CHUNK = usual
    assert (
        (streamed.tokens, streamed.lines)
        == (whole.tokens, whole.lines)
        == (sum(map(len, lines)), sum(map(bool, lines)))
    )
    query = torch.arange(V).repeat(2)[None]
    assert torch.equal(streamed.next_token_probs(query), whole.next_token_probs(query))


@settings(max_examples=25, deadline=None)
@given(lines_of_ids, st.integers(2, 3), st.integers(1, 3), st.integers(1, 5))
def test_pruning_in_between_equals_the_definition(
    lines: list[list[int]], order: int, min_count: int, every: int
) -> None:
    expected: list[dict[tuple[int, ...], Counter[int]]] = []
    for n in range(1, order + 1):
        kept: dict[tuple[int, ...], Counter[int]] = {}
        for start in range(0, len(lines), every):
            for context, row in plain_counts(lines[start : start + every], n).items():
                kept.setdefault(context, Counter()).update(row)
            kept = {
                context: Counter({token: c for token, c in row.items() if c >= min_count})
                for context, row in kept.items()
            }
            kept = {context: row for context, row in kept.items() if row}
        expected.append(kept)
    counts = BigramCounts.from_sequences(lines, V, order, min_count, every)
    for context, row in expected[-1].items():
        ids = [token for token in context if token < V]
        if len(ids) == order - 1:
            probs = counts.next_token_probs(torch.tensor([ids]), backoff=False)[0, -1]
            assert probs.tolist() == pytest.approx([row[token] / row.total() for token in range(V)])
    seen = {context for context in expected[-1] if V not in context}
    query = torch.tensor([[0] * (order - 2) + [token] for token in range(V)])
    missing = counts.next_token_probs(query, backoff=False)[:, -1].isnan().all(-1)
    assert [bool(value) for value in missing] == [((0,) * (order - 2) + (token,)) not in seen for token in range(V)]


def test_rows_sum_to_one() -> None:
    counts = BigramCounts.from_sequences(torch.randint(0, 50, (20, 30)), 60)
    sums = counts.next_token_probs(torch.arange(60)[None]).sum(-1)
    torch.testing.assert_close(sums, torch.ones_like(sums), atol=1e-12, rtol=0)


def test_an_unseen_context_has_the_unigram_and_no_row_without_backoff() -> None:
    counts = BigramCounts.from_sequences([[0, 1, 1, 2]], 4)
    assert counts.next_token_probs(torch.tensor([[3]]))[0, 0].tolist() == [0.25, 0.5, 0.25, 0.0]
    assert bool(counts.next_token_probs(torch.tensor([[3]]), backoff=False).isnan().all())
    assert bool(counts.next_token_probs(torch.tensor([[2]]), backoff=False).isnan().all())  # only ever the last token


def test_when_everything_is_pruned_the_distribution_is_uniform() -> None:
    counts = BigramCounts.from_sequences([[0, 1, 2, 3]], 4, min_count=5)
    assert counts.next_token_probs(torch.tensor([[0]]))[0, 0].tolist() == [0.25] * 4
    assert counts.token_surprisal(torch.tensor([[0, 1]])).tolist() == [[2.0, 2.0]]


def test_the_first_token_is_given_the_start_of_a_line() -> None:
    counts = BigramCounts.from_sequences([[0, 1], [0, 2], [1, 2]], 3)
    assert 2 ** -counts.token_surprisal(torch.tensor([[0]]))[0, 0] == pytest.approx(2 / 3)


def test_a_model_that_is_the_table_has_correlation_one() -> None:
    data = torch.randint(0, 20, (50, 40), generator=torch.Generator().manual_seed(0))
    counts = BigramCounts.from_sequences(data, 20)
    model = surprisal(counts.next_token_probs(data).log(), data)
    assert surprisal_correlation(model, counts.token_surprisal(data)[:, 1:]) == pytest.approx(1.0, abs=1e-12)


def test_the_target_conditions_on_the_current_token() -> None:
    counts = BigramCounts.from_sequences([[0, 1, 0, 1, 0, 2]], 3)
    target = NgramTarget(counts)
    probs = target(torch.tensor([[1, 0]]))
    assert probs.dtype == torch.float32
    assert probs[0].tolist() == [[1.0, 0.0, 0.0], pytest.approx([0.0, 2 / 3, 1 / 3])]


@pytest.mark.parametrize("order", [1, 2, 3, 6])
def test_a_saved_table_is_the_same_and_is_mapped(order: int, tmp_path: Path) -> None:
    data = torch.randint(0, 30, (20, 20), generator=torch.Generator().manual_seed(0))
    counts = BigramCounts.from_sequences(data, 30, order)
    counts.save(tmp_path / "counts.safetensors")
    found = BigramCounts.load(tmp_path / "counts.safetensors")
    query = torch.randint(0, 30, (3, 7))
    assert torch.equal(found.next_token_probs(query), counts.next_token_probs(query))
    assert torch.equal(found.token_surprisal(query), counts.token_surprisal(query))
    assert (found.order, found.vocab_size, found.tokens, found.lines) == (order, 30, 400, 20)


def test_a_mapped_table_is_not_read_into_memory(tmp_path: Path) -> None:
    """40 MB of counts: loading them may not make the process grow by as much."""
    keys = (np.arange(1000, dtype=np.int64)[:, None] * 3001 + np.arange(3000)).reshape(-1)
    from bigram_subnet.ngrams.table import NgramTable

    tables = [
        NgramTable.from_keys(np.arange(9, dtype=np.int64)[:, None], np.ones(9, dtype=np.int64), 1, 3000),
        NgramTable.from_keys(keys[:, None], np.ones_like(keys), 2, 3000),
    ]
    BigramCounts(tables, 1).save(tmp_path / "counts.safetensors")
    size = (tmp_path / "counts.safetensors").stat().st_size
    assert size > 36e6

    def private() -> int:
        rows = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return sum(int(row.split()[1]) for row in rows if row.startswith("Private_Dirty")) * 1024

    if not Path("/proc/self/smaps_rollup").is_file():
        pytest.skip("this system does not say what memory a process owns")
    before = private()
    found = BigramCounts.load(tmp_path / "counts.safetensors")
    probs = found.next_token_probs(torch.tensor([[5]]))
    assert float(probs.sum()) == pytest.approx(1)
    assert private() - before < size / 4


@given(st.integers(2, 70000), st.data())
@settings(max_examples=40, deadline=None)
def test_packed_ngrams_unpack_and_keep_their_order(vocab_size: int, data: st.DataObject) -> None:
    order = data.draw(st.integers(1, 9))
    row = st.lists(st.integers(0, vocab_size), min_size=order, max_size=order)
    rows = data.draw(st.lists(row, min_size=2, max_size=2))
    ids = np.array(rows, dtype=np.int64)
    keys = pack_digits([ids[:, i] for i in range(order)], vocab_size)
    assert keys.min() >= 0
    assert np.array_equal(unpack_digits(keys, order, vocab_size), ids)
    assert (rows[0] < rows[1]) == (keys[0].tolist() < keys[1].tolist())


def test_ngrams_of_several_words_are_counted_too() -> None:
    vocab_size = 60000
    assert digits_per_word(vocab_size) == 3
    data = torch.randint(0, vocab_size, (4, 8), generator=torch.Generator().manual_seed(0))
    counts = BigramCounts.from_sequences(torch.cat([data, data]), vocab_size, order=5)
    assert counts.token_surprisal(data)[:, 1:].abs().max() < 1e-9  # every context has one next token


def test_many_small_runs_are_merged() -> None:
    tally = Tally(2, 9)
    rng = np.random.default_rng(0)
    total: Counter[tuple[int, int]] = Counter()
    for _ in range(60):
        ids = rng.integers(0, 9, 20)
        tally.add(TokenBlock(ids, np.array([20]), 1, "x"))
        total.update(zip([9, *ids[:-1].tolist()], ids.tolist(), strict=True))
    keys, counts = tally.result()
    assert {divmod(int(key), 10): int(count) for key, count in zip(keys[:, 0], counts, strict=True)} == dict(total)


@pytest.mark.parametrize(
    ("text", "line", "word"),
    [
        ("0 1\n\n2 7\n", 3, "token id 7 is outside of the vocabulary, 0 to 6"),
        ("0 1\n2 -1\n", 2, "token id -1"),
        ("0 1\n2 two 3\n", 2, "'two' is no token id"),
        ("0 1\n2 3.5\n", 2, "'3.5' is no token id"),
        ("0 1\n1-2\n", 2, "'1-2' is no token id"),
        ("\n\n0 \xe9\n", 3, "is no token id"),
        ("0 99999999999999999999\n", 1, "is no token id"),
        ("1,2,3\n", 1, "'1,2,3' is no token id"),
    ],
)
@pytest.mark.parametrize("chunk", [4, 1 << 22])
def test_a_bad_id_is_named_with_file_and_line(
    text: str, line: int, word: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_files, "_CHUNK", chunk)
    (tmp_path / "tokens.txt").write_bytes(text.encode("latin1"))
    with pytest.raises(ValueError) as caught:
        BigramCounts.from_files(tmp_path / "tokens.txt", V)
    assert f"tokens.txt, line {line}: " in str(caught.value)
    assert word in str(caught.value)


def test_a_bad_id_is_named_while_lines_are_grouped_for_pruning(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0 1\n2 3\n1 2\n")
    (tmp_path / "b.txt").write_text("0 1\n9\n")
    with pytest.raises(ValueError, match=r"b\.txt, line 2: token id 9"):
        BigramCounts.from_files([tmp_path / "a.txt", tmp_path / "b.txt"], V, min_count=1, prune_every=4)


@pytest.mark.parametrize("text", ["", "\n\n", "  \n\t\n"])
def test_an_empty_corpus_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_text(text)
    with pytest.raises(ValueError, match="no token to count"):
        BigramCounts.from_files(tmp_path / "tokens.txt", V)


def test_empty_lines_spaces_and_windows_lines_are_ignored(tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_bytes(b"\n  0 1 2\r\n\r\n\n3\t4 \n5")
    counts = BigramCounts.from_files(tmp_path / "tokens.txt", V)
    assert (counts.tokens, counts.lines) == (6, 3)
    assert torch.equal(
        counts.next_token_probs(torch.arange(V)[None]),
        BigramCounts.from_sequences([[0, 1, 2], [3, 4], [5]], V).next_token_probs(torch.arange(V)[None]),
    )


def test_a_missing_file_is_named_before_anything_is_counted(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no ids\n")
    with pytest.raises(FileNotFoundError, match=r"b\.txt: no such token file"):
        BigramCounts.from_files([tmp_path / "a.txt", tmp_path / "b.txt"], V)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"vocab_size": 0}, "vocab_size"),
        ({"order": 0}, "order"),
        ({"order": 2.0}, "order"),
        ({"min_count": 0}, "min_count"),
        ({"prune_every": 5}, "needs min_count"),
        ({"min_count": 2, "prune_every": 0}, "prune_every"),
    ],
)
def test_arguments_out_of_range_are_named(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        BigramCounts.from_sequences([[0, 1]], **({"vocab_size": V} | arguments))  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [-1, V])
def test_a_query_outside_of_the_vocabulary_is_refused(wrong: int) -> None:
    counts = BigramCounts.from_sequences([[0, 1]], V)
    for call in (counts.next_token_probs, counts.token_surprisal, NgramTarget(counts)):
        with pytest.raises(ValueError, match=f"token id {wrong} is outside of the counts' vocabulary, 0 to 6"):
            call(torch.tensor([[0, wrong]]))


def test_arrays_are_read_like_text(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, V, (30, 8)).astype(np.uint16)
    np.save(tmp_path / "tokens.npy", data)
    (tmp_path / "tokens.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in data))
    array, text = (BigramCounts.from_files(tmp_path / name, V) for name in ("tokens.npy", "tokens.txt"))
    query = torch.arange(V)[None]
    assert torch.equal(array.next_token_probs(query), text.next_token_probs(query))
    for bad in (data.astype(float), data[0]):
        np.save(tmp_path / "bad.npy", bad)
        with pytest.raises(ValueError, match=r"bad\.npy: expected integers \(sequences, length\)"):
            BigramCounts.from_files(tmp_path / "bad.npy", V)


@pytest.mark.parametrize("cut", [10, 300, -1])
def test_a_truncated_table_is_named(cut: int, tmp_path: Path) -> None:
    file = tmp_path / "counts.safetensors"
    BigramCounts.from_sequences([[0, 1, 2]], V).save(file)
    file.write_bytes(file.read_bytes()[:cut])
    with pytest.raises(ValueError, match=r"counts\.safetensors: truncated or damaged"):
        BigramCounts.load(file)


def test_a_small_corpus_is_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "bigram_subnet.ngrams"):
        BigramCounts.from_sequences([[0, 1, 2]], V)
    assert "3 tokens for a vocabulary of 7" in caplog.text
    caplog.clear()
    BigramCounts.from_sequences([[0] * 7000], V)
    assert not caplog.text


def test_token_rows_are_the_lines_of_the_first_length(tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_text("0 1 2\n\n3 4 5\n6\n")
    assert token_rows(read_token_files(tmp_path / "tokens.txt")).tolist() == [[0, 1, 2], [3, 4, 5]]
    assert token_rows(read_token_files(tmp_path / "tokens.txt"), limit=1).tolist() == [[0, 1, 2]]
    (tmp_path / "ragged.txt").write_text("0 1 2\n3\n3 4 5\n")
    with pytest.raises(ValueError, match=r"ragged\.txt, line 2: all lines must have 3 tokens"):
        token_rows(read_token_files(tmp_path / "ragged.txt"))


@pytest.mark.parametrize(
    "sequences",
    [
        [[0, 1], [0.5, 1.7]],
        [[0, 1], [True, False]],
        [[0, 1], ["0", "1"]],
        [[0, 1], [[0, 1], [1, 2]]],
        torch.tensor([[0.5, 1.0]]),
        torch.tensor([[True]]),
    ],
)
def test_sequences_that_are_no_whole_numbers_are_refused(sequences: Any) -> None:
    """numpy would cut 1.7 to 1 without a word."""
    with pytest.raises(ValueError, match="whole numbers"):
        BigramCounts.from_sequences(sequences, V)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", ">i4", ">u8", "int64"])
def test_ids_of_any_width_and_byte_order_are_counted(dtype: str, tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, V, (9, 5))
    np.save(tmp_path / "tokens.npy", np.asfortranarray(data.astype(dtype)))
    query = torch.arange(V)[None]
    expected = BigramCounts.from_sequences(data.tolist(), V).next_token_probs(query)
    for counts in (
        BigramCounts.from_files(tmp_path / "tokens.npy", V),
        BigramCounts.from_sequences(data.astype(dtype), V),
        BigramCounts.from_sequences(list(data.astype(dtype)), V),
    ):
        assert torch.equal(counts.next_token_probs(query), expected)


def test_ids_beyond_63_bits_do_not_wrap_into_the_vocabulary(tmp_path: Path) -> None:
    np.save(tmp_path / "tokens.npy", np.array([[0, 1], [2, 2**64 - 1]], dtype=np.uint64))
    with pytest.raises(ValueError, match=r"tokens\.npy, line 2: token id 9223372036854775807 is outside"):
        BigramCounts.from_files(tmp_path / "tokens.npy", V)


def test_rows_do_not_wrap_at_32_bits(tmp_path: Path) -> None:
    (tmp_path / "tokens.txt").write_text(f"0 1\n2 {2**32 + 3}\n")
    with pytest.raises(ValueError, match=r"tokens\.txt, line 2: token id 4294967299 is outside"):
        token_rows(read_token_files(tmp_path / "tokens.txt"))


def test_empty_files_and_archives_are_no_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "archive.npz", a=np.zeros((2, 2), int))
    (tmp_path / "archive.npz").rename(tmp_path / "archive.npy")
    (tmp_path / "empty.npy").write_bytes(b"")
    for name in ("archive", "empty"):
        with pytest.raises(ValueError, match=rf"{name}\.npy: no readable \.npy array"):
            BigramCounts.from_files(tmp_path / f"{name}.npy", V)


def test_queries_are_whole_numbers_of_any_width() -> None:
    counts = BigramCounts.from_sequences([[0, 1, 1, 2]], V)
    query = torch.tensor([[1, 2, 0]])
    for dtype in (torch.uint8, torch.uint16, torch.int32):
        assert torch.equal(counts.token_surprisal(query.to(dtype)), counts.token_surprisal(query))
        assert torch.equal(counts.next_token_probs(query.to(dtype)), counts.next_token_probs(query))
    for wrong in (query.bool(), query.float(), query[0]):
        with pytest.raises(ValueError, match="whole numbers"):
            counts.next_token_probs(wrong)


def test_a_vocabulary_beyond_32_bits_is_refused() -> None:
    with pytest.raises(ValueError, match="vocab_size must be below 2147483647"):
        BigramCounts.from_sequences([[0, 1]], 2**31)


@pytest.mark.parametrize("order", [1, 2, 3, 4, 5])
def test_a_vocabulary_of_262144_and_one_of_a_single_token_are_counted_in_every_order(order: int) -> None:
    """(V + 1)^4 is beyond 63 bits: such n-grams take several words."""
    size = 262_144
    data = torch.randint(size - 3, size, (6, 20), generator=torch.Generator().manual_seed(order))
    large = BigramCounts.from_sequences(data, size, order)
    small = BigramCounts.from_sequences(data - (size - 3), 3, order)
    assert torch.equal(large.token_surprisal(data), small.token_surprisal(data - (size - 3)))
    single = BigramCounts.from_sequences([[0] * 9], 1, order)
    assert single.token_surprisal(torch.zeros(1, 9, dtype=torch.long)).abs().max() == 0


def test_a_short_line_in_the_middle_of_a_later_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0 1 2\n3\n")
    (tmp_path / "b.txt").write_text("0 1 2\n4\n3 4 5\n")
    with pytest.raises(ValueError, match=r"b\.txt, line 2: all lines must have 3 tokens"):
        token_rows(read_token_files([tmp_path / "a.txt", tmp_path / "b.txt"]))
    (tmp_path / "b.txt").write_text("0 1 2\n3 4 5\n4\n")
    rows = token_rows(read_token_files([tmp_path / "a.txt", tmp_path / "b.txt"]))
    assert rows.tolist() == [[0, 1, 2], [0, 1, 2], [3, 4, 5]]
    (tmp_path / "b.txt").write_text("0 1 2\n3 4 5 6\n")
    with pytest.raises(ValueError, match=r"b\.txt, line 2: all lines must have 3 tokens"):
        token_rows(read_token_files([tmp_path / "a.txt", tmp_path / "b.txt"]))
    for lines in ("0 1 2\n3 4\n5\n", "0 1 2\n3 4\n5\n\n1 2\n", "0 1 2\n3 4\n0 1 2 3\n"):
        (tmp_path / "b.txt").write_text(lines)
        with pytest.raises(ValueError, match=r"b\.txt, line 2: all lines must have 3 tokens"):
            token_rows(read_token_files([tmp_path / "a.txt", tmp_path / "b.txt"]))


@pytest.mark.parametrize("chunk", [4, 1 << 22])
def test_a_limit_leaves_later_lines_unread(chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_files, "_CHUNK", chunk)
    (tmp_path / "a.txt").write_text("0 1\n\n2 3\n4 5\n6 7 8\n")
    for limit in (1, 2, 3):
        rows = token_rows(read_token_files(tmp_path / "a.txt"), limit)
        assert rows.tolist() == [[0, 1], [2, 3], [4, 5]][:limit]


def saved_with(path: Path, change: Callable[[dict[str, torch.Tensor], dict[str, Any]], None]) -> Path:
    """A file of counts in which something was changed."""
    BigramCounts.from_sequences([[0, 1, 2, 1]], V).save(path)
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key).clone() for key in file.keys()}  # noqa: SIM118 - it is no dict
        header = json.loads(file.metadata()["ngrams"])
    change(tensors, header)
    save_file(tensors, path, {"ngrams": json.dumps(header)})
    return path


def cut(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors[name] = tensors[name][:-1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tensors, header: tensors.pop("2/level0"), "'level0' is missing"),
        (lambda tensors, header: cut(tensors, "2/counts"), "2/counts must hold 4 numbers, got 3"),
        (lambda tensors, header: cut(tensors, "2/indptr"), "2/indptr must hold 5 numbers, got 4"),
        (lambda tensors, header: tensors["1/indptr"].add_(1), "1/indptr must end with 3"),
        (lambda tensors, header: tensors.update({"1/indices": torch.ones(3)}), "1/indices must be torch.int32"),
        (lambda tensors, header: header.update(order="2"), "order must be a whole number"),
        (lambda tensors, header: header.pop("vocab_size"), "'vocab_size' is missing"),
    ],
)
def test_counts_whose_arrays_do_not_belong_together_are_refused(
    change: Callable[[dict[str, torch.Tensor], dict[str, Any]], None], words: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=rf"counts\.safetensors: damaged: {words}"):
        BigramCounts.load(saved_with(tmp_path / "counts.safetensors", change))


def test_counts_with_unreadable_metadata_are_named(tmp_path: Path) -> None:
    save_file({"x": torch.ones(1)}, tmp_path / "counts.safetensors", {"ngrams": "{"})
    with pytest.raises(ValueError, match=r"counts\.safetensors: truncated or damaged"):
        BigramCounts.load(tmp_path / "counts.safetensors")
