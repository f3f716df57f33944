"""peft's own LoRA as a method, and its training script: nothing here is made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from peft import LoraConfig

from nips_finetune import AdapterArguments, AdapterMethod, Task, train_main


@dataclass
class LoraArguments(AdapterArguments):
    """LoRA's settings, as far as the tests use them."""

    r: int = field(default=4, metadata={"help": "rank"})
    lora_alpha: float = field(default=8.0, metadata={"help": "scale times rank"})

    def make_config(self, task: Task, head: Sequence[str] = ()) -> LoraConfig:
        return LoraConfig(**self.settings(task, head))


METHOD = AdapterMethod(
    name="plain-lora",
    title="LoRA",
    import_name="peft",
    citation="arXiv 2106.09685",
    config_type=LoraConfig,
    adapter_arguments=LoraArguments,
)

if __name__ == "__main__":
    train_main(METHOD)
