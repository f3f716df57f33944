"""What a method hands over to get a training script."""

from __future__ import annotations

from dataclasses import dataclass

from peft import PeftConfig

from nips_finetune.arguments import AdapterArguments, FinetuneArguments
from nips_finetune.trainer import FinetuneTrainer


@dataclass(frozen=True)
class AdapterMethod:
    """A method of peft, with all that its training script and its commands need to know.

    Args:
        name: The command and distribution, such as ``lora-anl``; messages say ``lora-anl train``.
        title: The method, for the model card and ``--help``.
        import_name: What must be imported before an adapter is loaded; "peft" for peft's own methods.
        citation: What the method is and where it is published, in a few words for the model card.
        config_type: Its class of config, by which a saved adapter is known to be one of this method.
        adapter_arguments: A dataclass of its settings, which become flags.
        training_arguments: :class:`FinetuneArguments` or a dataclass that adds flags to them.
        trainer: :class:`FinetuneTrainer` or a subclass, made with the Trainer's keywords; ``self.args`` are the
            ``training_arguments``. Parameters that take no weight decay: override ``get_decay_parameter_names``.
    """

    name: str
    title: str
    import_name: str
    citation: str
    config_type: type[PeftConfig]
    adapter_arguments: type[AdapterArguments]
    training_arguments: type[FinetuneArguments] = FinetuneArguments
    trainer: type[FinetuneTrainer] = FinetuneTrainer

    @property
    def command(self) -> str:
        """What a user types to train."""
        return f"{self.name} train"
