"""Data folders of the official code, in both forms."""

from __future__ import annotations

from pathlib import Path

import pytest

from gfm_rag.official_trees import question_of_v2, read_attributes, read_official_tree
from gfm_rag.questions import link_names


def make_v1(root: Path) -> Path:
    (root / "raw").mkdir(parents=True)
    (root / "processed" / "stage1").mkdir(parents=True)
    (root / "raw" / "dataset_corpus.json").write_text('{"T": "text"}')
    (root / "processed" / "stage1" / "kg.txt").write_text("a,r,b\nb,s,c\n")
    (root / "processed" / "stage1" / "document2entities.json").write_text('{"T": ["a", "b"]}')
    return root


def test_a_v1_tree_becomes_an_index(tmp_path: Path) -> None:
    index = read_official_tree(make_v1(tmp_path / "data"))
    assert index.triples == [("a", "r", "b"), ("b", "s", "c")]
    assert index.document_entities == {"T": ["a", "b"]}
    assert index.text("T") == "text"
    (tmp_path / "data" / "processed" / "stage1" / "kg.txt").write_text("a,r\n")
    with pytest.raises(ValueError, match=r"kg\.txt, line 1"):
        read_official_tree(tmp_path / "data")
    assert read_official_tree(tmp_path / "data", strict=False).entities == ["a", "b"]


def test_a_v2_tree_becomes_the_same_kind_of_index(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(
        'name,type,attributes\n"a, x",entity,{}\nb,entity,{}\nT,document,"{\'k\': 1}"\n'
    )
    (tmp_path / "edges.csv").write_text(
        'source,relation,target,attributes\n"a, x",r,b,{}\n"a, x",is_mentioned_in,T,{}\nb,is_mentioned_in,T,{}\n'
    )
    index = read_official_tree(tmp_path)
    assert index.triples == [("a, x", "r", "b")]
    assert index.document_entities == {"T": ["a, x", "b"]}
    (tmp_path / "edges.csv").write_text("source,relation\na,r\n")
    with pytest.raises(ValueError, match=r"edges\.csv: lacks the columns target"):
        read_official_tree(tmp_path)
    (tmp_path / "edges.csv").write_text("source,relation,target\na,r\n")
    with pytest.raises(ValueError, match=r"edges\.csv, line 2: another number of fields"):
        read_official_tree(tmp_path)


def test_another_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected processed/stage1 with kg\.txt"):
        read_official_tree(tmp_path)


def test_attributes_are_parsed_and_never_evaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_attributes('{"a": true}') == {"a": True}
    assert read_attributes("{'a': None, 'b': [1, 'x']}") == {"a": None, "b": [1, "x"]}
    assert read_attributes("") == {}
    for cell in ("__import__('pathlib').Path('touched').touch()", "{'a': open('touched', 'w')}", "[1]", "{"):
        with pytest.raises(ValueError, match="JSON object or a dictionary of literals"):
            read_attributes(cell)
    assert not (tmp_path / "touched").exists()


def test_v2_questions_take_the_names_of_v1() -> None:
    item = {
        "id": "1", "question": "q", "supporting_documents": ["T"],
        "start_nodes": {"entity": ["a"]}, "target_nodes": {"entity": ["b"], "document": ["T"]},
    }  # fmt: skip
    assert question_of_v2(item) == {
        "id": "1", "question": "q", "supporting_facts": ["T"], "question_entities": ["a"], "supporting_entities": ["b"]
    }  # fmt: skip


def test_names_in_questions_are_written_as_the_official_graph_has_them(tmp_path: Path) -> None:
    root = make_v1(tmp_path / "data")
    (root / "processed" / "stage1" / "kg.txt").write_text("caf,r,b\n")
    assert link_names(["Café"], read_official_tree(root)) == ["caf"]


def test_v2_documents_keep_their_order_and_cells_any_length(tmp_path: Path) -> None:
    long = "x" * 200_000
    (tmp_path / "nodes.csv").write_text(f"name,type,attributes\nZ,document,{long}\nA,document,\na,entity,\n")
    (tmp_path / "edges.csv").write_text("source,relation,target\na,is_mentioned_in,A\n")
    assert read_official_tree(tmp_path).documents == ["Z", "A"]
    (tmp_path / "edges.csv").write_text('source,relation,target\n"a,r,b\n')
    with pytest.raises(ValueError, match=r"edges\.csv, line 2: unexpected end of data"):
        read_official_tree(tmp_path)
