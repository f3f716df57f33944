"""The parts of the small real experiment; ``python -m lora_anl.reproduce`` runs them."""
