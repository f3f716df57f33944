"""How two sets of weights differ, in a line that can be read: names that differ in the block alone stand together."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from torch import Tensor

_NUMBER = re.compile(r"^((?:.*?\.)??)(\d+)(\..+)$")  # the first whole number in a name is the block's


def mismatch(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], words: tuple[str, str, str]) -> str:
    """All differences between two sets of weights, counts first; empty if there are none.

    Args:
        found: weights by name.
        wanted: weights by name.
        words: what to call weights that only ``found`` has, those that only ``wanted`` has, and the link between two
            shapes of one weight.
    """
    only_found, only_wanted, link = words
    shapes = {name: (tuple(found[name].shape), tuple(wanted[name].shape)) for name in found if name in wanted}
    differences = {
        only_found: [name for name in found if name not in wanted],
        only_wanted: [name for name in wanted if name not in found],
        "of another shape": [f"{name} is {a}{link}{b}" for name, (a, b) in shapes.items() if a != b],
    }
    return "; ".join(f"{len(names)} {what}: {grouped(names)}" for what, names in differences.items() if names)


def grouped(names: Iterable[str]) -> str:
    """Names of weights, those of several blocks as one: ``h.{0-11}.mlp.c_fc.weight``."""
    blocks: dict[tuple[str, str], list[int]] = {}
    for name in names:
        before, number, behind = match.groups() if (match := _NUMBER.match(name)) else (name, "-1", "")
        blocks.setdefault((before, behind), []).append(int(number))
    return ", ".join(before + _range(sorted(numbers)) + behind for (before, behind), numbers in sorted(blocks.items()))


def _range(numbers: list[int]) -> str:
    if numbers[0] < 0:
        return ""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [f"{run[0]}-{run[-1]}" if len(run) > 1 else str(run[0]) for run in runs]
    return texts[0] if len(numbers) == 1 else "{" + ",".join(texts) + "}"
