"""Phrases of any script, the words in them, and the names that a question holds."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gfm_rag import BM25Retriever, KGIndex, normalize_phrase
from gfm_rag.entity_matcher import EntityMatcher
from gfm_rag.phrases import words_of


@given(st.text(alphabet=st.characters()), st.sampled_from(["unicode", "ascii"]))
def test_a_normalised_phrase_stays_as_it_is(text: str, normalizer: str) -> None:
    once = normalize_phrase(text, normalizer)  # type: ignore[arg-type]
    assert normalize_phrase(once, normalizer) == once  # type: ignore[arg-type]


@given(st.text(alphabet=st.characters()))
def test_every_word_of_a_phrase_begins_with_a_letter_or_digit(text: str) -> None:
    for word in normalize_phrase(text).split(" ")[: len(text)]:
        assert not word or unicodedata.category(word[0])[0] in "LN"


@pytest.mark.parametrize(
    ("text", "phrase"),
    [
        ("❤\ufe0f", ""),  # the sign is no letter, and what says that it is an emoji is none, either
        ("1\ufe0f\u20e3", "1"),
        ("x\ufe0f", "x"),
        ("\u0301", ""),
        ("co\u00adoperate", "cooperate"),
        ("\u0645\u06cc\u200c\u062e\u0648", "\u0645\u06cc\u062e\u0648"),  # Persian, with a joiner inside the word
        ("a\u200bb", "a b"),
        ("_a\tb\n", "a b"),
    ],
)
def test_invisible_characters_make_no_phrase_and_no_space_inside_words(text: str, phrase: str) -> None:
    assert normalize_phrase(text) == phrase


def test_scripts_without_spaces_have_a_word_for_each_character() -> None:
    assert words_of("Ada in 日本, カナ!") == ["ada", "in", "日", "本", "カ", "ナ"]
    matcher = EntityMatcher(["日本", "東京", "Ada", "水"])
    assert matcher("日本の首都は東京ですか。adaは水を飲む") == ["日本", "東京", "Ada"]
    assert EntityMatcher(["水"], shortest=2)("水を飲む") == ["水"]


def test_bm25_finds_words_inside_sentences_without_spaces() -> None:
    texts = {"日本": "首都は東京です。", "中国": "首都は北京です。"}
    index = KGIndex.from_triples([], dict.fromkeys(texts, ()), texts)
    assert BM25Retriever(index).retrieve("東の都?")[0].title == "日本"
