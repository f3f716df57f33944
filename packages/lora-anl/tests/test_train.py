"""`lora-anl train`: what every method's training script does, and AuroRA's own flags."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from lora_anl import AuroraConfig
from lora_anl.arguments import METHOD, AuroraArguments
from lora_anl.train import main
from nips_common.testing.bad_input import BadInput, bad_inputs
from nips_finetune import AdapterArguments, find_task, parse
from nips_finetune.testing.method_suite import MethodSuite

NEEDED = ["--model", "m", "--train_data", "d.csv", "--output_dir", "o"]


class TestAurora(MethodSuite):
    """All that every method must do."""

    method = METHOD
    program = "lora_anl.train"

    def test_the_card_says_whether_it_merges(self, llama_folder: Path, text_jsonl: Path, tmp_path: Path) -> None:
        for mode, words in (("dynamic", "cannot be merged"), ("static", "merges exactly")):
            more = ("--max_steps", "1", "--forward_mode", mode)
            self.train(self.arguments(llama_folder, text_jsonl, tmp_path / mode, *more))
            card = (tmp_path / mode / "README.md").read_text()
            assert words in card
            assert "import lora_anl  #" in card
            assert "arXiv 2505.18738" in card
            assert f"| forward_mode | {mode} |" in card

    def test_the_module_is_a_program(
        self, llama_folder: Path, text_jsonl: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        main(self.arguments(llama_folder, text_jsonl, tmp_path / "out", "--max_steps", "1"))
        assert json.loads(capsys.readouterr().out)["steps"] == 1


def test_every_flag_reaches_the_config() -> None:
    given = {
        "r": "3",
        "aurora_alpha": "7.5",
        "target_modules": "q_proj v_proj",
        "exclude_modules": "lm_head",
        "aurora_dropout": "0.25",
        "activation": "sigmoid",
        "use_fixed": "false",
        "grid_size": "4",
        "spline_order": "2",
        "grid_range": "-2.0 3.0",
        "spline_mode": "per_channel",
        "spline_init_scale": "0.5",
        "forward_mode": "static",
        "modules_to_save": "lm_head",
        "layers_to_transform": "0 2",
    }
    assert {*given, "use_spline"} == {entry.name for entry in fields(AuroraArguments)}
    flags = [part for name, values in given.items() for part in (f"--{name}", *values.split())]
    job, adapter, _ = parse(METHOD, [*NEEDED, *flags])
    config = adapter.make_config(job.find_task())
    assert isinstance(config, AuroraConfig)
    found = {name: getattr(config, name) for name in given}
    assert found == {
        "r": 3,
        "aurora_alpha": 7.5,
        "target_modules": {"q_proj", "v_proj"},
        "exclude_modules": {"lm_head"},
        "aurora_dropout": 0.25,
        "activation": "sigmoid",
        "use_fixed": False,
        "grid_size": 4,
        "spline_order": 2,
        "grid_range": (-2.0, 3.0),
        "spline_mode": "per_channel",
        "spline_init_scale": 0.5,
        "forward_mode": "static",
        "modules_to_save": ["lm_head"],
        "layers_to_transform": [0, 2],
    }


def test_the_flags_have_the_defaults_of_the_config() -> None:
    config, flags = AuroraConfig(), AuroraArguments().make_config(find_task("causal_lm"))
    own = {entry.name for entry in fields(AuroraArguments)} - {entry.name for entry in fields(AdapterArguments)}
    assert len(own) == 12
    for name in own:
        assert getattr(flags, name) == getattr(config, name), name


@bad_inputs(
    [
        BadInput("rank 0", lambda: parse(METHOD, [*NEEDED, "--r", "0"]), ("r", "at least 1", "0")),
        BadInput("dropout 1", lambda: parse(METHOD, [*NEEDED, "--aurora_dropout", "1"]), ("aurora_dropout", "[0, 1)")),
        BadInput(
            "an unknown activation", lambda: parse(METHOD, [*NEEDED, "--activation", "relu6"]), ("'relu6'", "tanh")
        ),
        BadInput("order 6", lambda: parse(METHOD, [*NEEDED, "--spline_order", "6"]), ("spline_order", "6")),
        BadInput("a falling grid", lambda: parse(METHOD, [*NEEDED, "--grid_range", "1", "-1"]), ("grid_range",)),
        BadInput("half a grid", lambda: parse(METHOD, [*NEEDED, "--grid_range", "1"]), ("grid_range",)),
        BadInput(
            "no part", lambda: parse(METHOD, [*NEEDED, "--use_fixed", "false", "--use_spline", "false"]), ("use_",)
        ),
        BadInput(
            "LoRA's name", lambda: parse(METHOD, [*NEEDED, "--lora_alpha", "8"]), ("did you mean --aurora_alpha?",)
        ),
    ]
)
def test_a_setting_out_of_range_is_told_in_one_line(case: BadInput) -> None:
    case.check()


def test_without_the_extra_one_line_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "nips_finetune", None)  # Python's own way to say that there is none
    from lora_anl import cli

    for program, name in ((main, "lora-anl train"), (cli.main, "lora-anl")):
        with pytest.raises(SystemExit) as stopped:
            program()
        assert stopped.value.code == 2
        line = f'{name}: error: nips_finetune is not installed: pip install "lora-anl[train]"\n'
        assert capsys.readouterr() == ("", line)


@pytest.mark.slow
def test_importing_the_package_needs_no_training_script() -> None:
    code = "import sys; sys.modules['nips_finetune'] = None; import lora_anl; print(*lora_anl.__all__)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "AuroraConfig" in run.stdout
