"""The three messages along an edge, rho being the relation's vector and x the sender's state, and their derivatives.

Each works on blocks: states (n, batch, d), relation vectors (n, 1, d). The first argument may be overwritten.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
from torch import Tensor


class BlockFunction(Protocol):
    """Joins a block (n, batch, d), which it may overwrite, with another that broadcasts to it."""

    def __call__(self, block: Tensor, other: Tensor) -> Tensor:
        """The joined block."""
        ...


class MessageFunction(NamedTuple):
    """A message m(x, rho) and the products of a gradient g at m with its derivatives.

    Args:
        combine: m from x and rho.
        grad_state: the gradient at x from g and rho.
        grad_relation: the gradient at rho from g and x, before it is summed over the batch.
        square: whether the moments of "pna" combine x^2 and rho^2 instead of squaring the message (official kernel;
            the same for distmult, a convention for transe).
    """

    combine: BlockFunction
    grad_state: BlockFunction
    grad_relation: BlockFunction
    square: bool


def _multiply(block: Tensor, other: Tensor) -> Tensor:
    return block.mul_(other)


def _add(block: Tensor, other: Tensor) -> Tensor:
    return block.add_(other)


def _first(block: Tensor, other: Tensor) -> Tensor:
    return block


def _complex_product(block: Tensor, other: Tensor) -> Tensor:
    a, b = block.chunk(2, dim=-1)
    c, d = other.chunk(2, dim=-1)
    return torch.cat([a * c - b * d, a * d + b * c], dim=-1)


def _conjugate_product(block: Tensor, other: Tensor) -> Tensor:
    a, b = block.chunk(2, dim=-1)
    c, d = other.chunk(2, dim=-1)
    return torch.cat([a * c + b * d, b * c - a * d], dim=-1)


MESSAGES = {
    "distmult": MessageFunction(_multiply, _multiply, _multiply, square=True),
    "transe": MessageFunction(_add, _first, _first, square=True),
    "rotate": MessageFunction(_complex_product, _conjugate_product, _conjugate_product, square=False),
}
