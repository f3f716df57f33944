"""Counting n-grams of a corpus and looking up the next-token distribution of a context (paper 3.5)."""

from bigram_subnet.ngrams.counts import BigramCounts

__all__ = ["BigramCounts"]
