"""Tiny random base models as local folders, and data they can learn."""

from nips_finetune.testing.fixtures import (  # noqa: F401 - pytest finds them here
    frozen_imports,
    image_folder,
    llama_folder,
    roberta_folder,
    text_csv,
    text_jsonl,
    vit_folder,
)
