"""Choices that both the functions and the flags offer; apart from the functions, so that `--help` needs no torch."""

from typing import Literal

Layout = Literal["per_head", "blocks"]
Null = Literal["uniform", "rows"]
