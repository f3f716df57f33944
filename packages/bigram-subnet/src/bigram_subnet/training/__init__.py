"""Training masks with transformers' Trainer."""
