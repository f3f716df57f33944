"""Document rankers, ranks and their averages."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gfm_rag import filtered_ranks, hits_at_k, inverse_frequency, mrr, rank_documents, target_ranks

RANKERS = ["simple", "idf", "topk", "idf_topk"]


def case(seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    matrix = (torch.rand(12, 5, generator=generator) > 0.7).float()
    matrix[0] = 0  # an entity of no document
    return torch.randn(3, 12, generator=generator), matrix


@given(st.integers(0, 100), st.floats(0.1, 5), st.floats(-3, 3))
def test_only_membership_in_the_top_counts_for_the_top_k_rankers(seed: int, slope: float, shift: float) -> None:
    logits, matrix = case(seed)
    for ranker in ("topk", "idf_topk"):
        moved = torch.tanh(slope * logits.double() / 10 + shift)
        expected = rank_documents(logits.double(), matrix, ranker, 4)
        torch.testing.assert_close(rank_documents(moved, matrix, ranker, 4), expected)


@pytest.mark.parametrize("ranker", RANKERS)
def test_document_scores_equal_a_dense_product(ranker: Any) -> None:
    logits, matrix = case()
    idf = torch.where(matrix.sum(1) > 0, 1 / matrix.sum(1), 0)
    top = torch.zeros_like(logits)
    for row, values in zip(top, logits, strict=True):
        row[values.topk(4).indices] = 1
    weights = {"simple": logits, "idf": logits * idf, "topk": top, "idf_topk": top * idf}[ranker]
    for form in (matrix, matrix.to_sparse_coo()):
        torch.testing.assert_close(rank_documents(logits, form, ranker, 4), weights @ matrix, atol=1e-6, rtol=0)


@pytest.mark.parametrize("ranker", RANKERS)
def test_an_entity_of_no_document_changes_nothing_unless_it_takes_a_place(ranker: Any) -> None:
    logits, matrix = case()
    logits[:, 0] = -100  # never among the top
    expected = rank_documents(logits[:, 1:], matrix[1:], ranker, 4)
    torch.testing.assert_close(rank_documents(logits, matrix, ranker, 4), expected)
    assert inverse_frequency(matrix)[0] == 0


def test_more_top_entities_than_there_are_means_all_of_them() -> None:
    logits, matrix = case()
    assert torch.equal(rank_documents(logits, matrix, "topk", 100), rank_documents(logits, matrix, "topk", 12))


def test_of_tied_entities_the_lower_id_is_taken() -> None:
    assert rank_documents(torch.zeros(1, 3), torch.eye(3), "topk", 2).tolist() == [[1, 1, 0]]


def test_wrong_rankers_and_sizes_are_refused() -> None:
    logits, matrix = case()
    with pytest.raises(ValueError, match="simple, idf, topk, idf_topk, got 'best'"):
        rank_documents(logits, matrix, "best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1 entity, got 0"):
        rank_documents(logits, matrix, "topk", 0)
    with pytest.raises(ValueError, match=r"N = 11.*\(3, 12\)"):
        rank_documents(logits, matrix[1:])


def test_the_best_is_first_and_ties_count_against_it() -> None:
    scores = torch.tensor([[0.5, 0.9, 0.9, 0.1], [0.5, 0.2, 0.9, 0.5]])
    everyone = torch.ones(2, 4, dtype=torch.bool)
    assert filtered_ranks(scores, torch.tensor([1, 2]), everyone).tolist() == [2, 1]
    known = everyone.clone()
    known[0, 2] = False
    assert filtered_ranks(scores, torch.tensor([1, 0]), known).tolist() == [1, 3]


def test_ranks_of_several_targets_leave_each_other_out() -> None:
    scores = torch.tensor([[0.9, 0.8, 0.7, 0.6], [0.1, 0.2, 0.3, 0.4]])
    mask = torch.tensor([[1, 0, 1, 1], [0, 0, 0, 0]])
    assert [ranks.tolist() for ranks in target_ranks(scores, mask, filtered=False)] == [[1, 3, 4], []]
    assert [ranks.tolist() for ranks in target_ranks(scores, mask)] == [[1, 2, 2], []]


def test_averages_are_taken_within_each_question_first() -> None:
    ranks = [torch.tensor([1, 2]), torch.tensor([4]), torch.tensor([], dtype=torch.long)]
    assert mrr(ranks) == pytest.approx((0.75 + 0.25) / 2)
    assert hits_at_k(ranks, 1) == pytest.approx(0.25)
    assert mrr(torch.cat(ranks)) == pytest.approx((1 + 0.5 + 0.25) / 3)
    assert hits_at_k(torch.cat(ranks), 2) == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="no rank"):
        mrr([])


def test_scores_that_are_no_numbers_have_no_rank() -> None:
    scores, mask = torch.tensor([[float("nan"), 1.0]]), torch.tensor([[True, False]])
    with pytest.raises(ValueError, match="scores hold NaN"):
        filtered_ranks(scores, torch.tensor([0]), mask)
    with pytest.raises(ValueError, match="scores hold NaN"):
        target_ranks(scores, mask)
    with pytest.raises(ValueError, match="entity_logits hold NaN"):
        rank_documents(scores, torch.eye(2))


def test_ranks_name_sizes_and_targets_that_do_not_fit() -> None:
    scores, everyone = torch.zeros(2, 3), torch.ones(2, 3, dtype=torch.bool)
    for target, candidates, words in (
        ([0, 3], everyone, r"2 ids from 0 to 2, got \[0, 3\]"),
        ([0], everyone, "2 ids from 0 to 2"),
        ([0, 1], everyone[:, :2], r"candidates must both be \(batch, entities\), got \(2, 3\) and \(2, 2\)"),
    ):
        with pytest.raises(ValueError, match=words):
            filtered_ranks(scores, torch.tensor(target), candidates)
    with pytest.raises(ValueError, match="target_mask must both be"):
        target_ranks(scores, everyone[:1])


@given(st.integers(0, 200))
def test_filtered_ranks_leave_out_exactly_the_targets_above(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(4, (2, 8), generator=generator).float()
    mask = torch.rand(2, 8, generator=generator) > 0.5
    for row in range(2):
        order = sorted(range(8), key=lambda i: (-float(scores[row, i]), i))
        others = [[i for i in order if i == target or not mask[row, i]] for target in mask[row].nonzero().flatten()]
        expected = [found.index(int(target)) + 1 for found, target in zip(others, mask[row].nonzero(), strict=True)]
        assert target_ranks(scores, mask)[row].tolist() == expected


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.int64])
@pytest.mark.parametrize("ranker", RANKERS)
def test_logits_of_other_types_are_ranked_as_exactly_as_float32(ranker: Any, dtype: torch.dtype) -> None:
    logits = torch.tensor([[1, 2]])
    matrix = torch.ones(2, 3001)  # more documents than half precision can count
    matrix[0, 1:] = 0
    for form in (matrix, matrix.to_sparse_coo()):
        expected = rank_documents(logits.float(), form, ranker, 2)
        assert torch.equal(rank_documents(logits.to(dtype), form, ranker, 2), expected)
    assert float(inverse_frequency(matrix)[1]) == pytest.approx(1 / 3001)
