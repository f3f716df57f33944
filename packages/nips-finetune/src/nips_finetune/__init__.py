"""The training script that the peft methods share: any adapter method, three tasks, flags or YAML."""

from importlib.metadata import version

from nips_finetune.arguments import AdapterArguments, FinetuneArguments, JobArguments
from nips_finetune.count import count_parameters, count_report
from nips_finetune.dry_run import plan
from nips_finetune.job import Job, prepare
from nips_finetune.merge_export import check_new_folder, merge_and_save
from nips_finetune.method import AdapterMethod
from nips_finetune.parsing import parse
from nips_finetune.records import read_records
from nips_finetune.saved_adapter import Batches, SavedAdapter
from nips_finetune.tasks import Task, find_task
from nips_finetune.train import train, train_main
from nips_finetune.trainer import FinetuneTrainer

__all__ = [
    "AdapterArguments",
    "AdapterMethod",
    "Batches",
    "FinetuneArguments",
    "FinetuneTrainer",
    "Job",
    "JobArguments",
    "SavedAdapter",
    "Task",
    "check_new_folder",
    "count_parameters",
    "count_report",
    "find_task",
    "merge_and_save",
    "parse",
    "plan",
    "prepare",
    "read_records",
    "train",
    "train_main",
]

__version__ = version("nips-finetune")
