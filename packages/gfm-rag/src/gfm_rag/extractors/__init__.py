"""Extractors: passages to triples, by rules, by a spaCy pipeline, by a language model behind an endpoint, on Ray."""

from gfm_rag.extractors.openai_compatible import OpenAICompatibleExtractor
from gfm_rag.extractors.rules import RuleExtractor
from gfm_rag.extractors.spacy import SpacyExtractor

__all__ = ["OpenAICompatibleExtractor", "RuleExtractor", "SpacyExtractor"]
