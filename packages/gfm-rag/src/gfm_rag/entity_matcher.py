"""Names in a question by looking for the graph's own: the longest runs of words that are entities."""

from __future__ import annotations

from collections.abc import Iterable

from gfm_rag.phrases import letters_of, words_of


class EntityMatcher:
    """Finds entity names in text without a model, whatever their case; usable as `ner`.

    Args:
        names: the entities.
        shortest: letters and digits that a name must have, so that "a" or "in" are not found everywhere; a character of
            a script without spaces between words, as Chinese, counts as two.
    """

    def __init__(self, names: Iterable[str], shortest: int = 3) -> None:
        self._names: dict[tuple[str, ...], str] = {}
        for name in names:
            words = tuple(words_of(name))
            if sum(map(letters_of, words)) >= shortest:
                self._names.setdefault(words, name)
        self._longest = max(map(len, self._names), default=0)

    def __call__(self, text: str) -> list[str]:
        """The names in the order of the text; of overlapping ones the longest from the left."""
        words = words_of(text)
        found: list[str] = []
        position = 0
        while position < len(words):
            for stop in range(min(len(words), position + self._longest), position, -1):
                name = self._names.get(tuple(words[position:stop]))
                if name is not None:
                    found.append(name)
                    position = stop
                    break
            else:
                position += 1
        return list(dict.fromkeys(found))
