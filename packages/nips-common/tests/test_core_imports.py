"""The core: it imports quickly and without torch, and says how to get what an extra brings."""

import importlib.metadata
import os
import subprocess
import sys

import nips_common

WITHOUT_EXTRAS = """
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "safetensors", "peft", "transformers", "accelerate"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
from nips_common import artifacts, assets, claims, cli, peft_methods, runtime

def told(call, *args):
    try:
        call(*args)
    except ImportError as error:
        print(error)

told(runtime.resolve_device)
told(runtime.resolve_dtype)
told(runtime.seed_everything, 0)
told(artifacts.save_folder, "model", "state", {}, {})
told(artifacts.load_folder, "model", "state")
told(peft_methods.register, "x", type, type)
"""


def test_without_the_extras_the_core_works_and_names_the_install_command() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_EXTRAS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == 'torch is not installed: pip install "nips-common[torch]"'
    assert lines[1:3] == lines[:1] * 2
    assert lines[3:5] == ['safetensors is not installed: pip install "nips-common[torch]"'] * 2
    assert lines[5] == 'peft is not installed: pip install "nips-common[peft]"'


def test_importing_the_modules_does_not_import_torch() -> None:
    code = "import sys; from nips_common import artifacts, assets, claims, cli, peft_methods, runtime; "
    code += "assert not {'torch', 'peft', 'safetensors', 'rich.progress'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, env=os.environ)


def test_the_public_names_are_these() -> None:
    assert nips_common.__all__ == ["__version__"]
    assert nips_common.__version__ == importlib.metadata.version("nips-common")


def test_the_public_names_of_the_modules_are_these() -> None:
    from nips_common import artifacts, assets, claims, cli, peft_methods, runtime

    modules = (artifacts, assets, claims, cli, peft_methods, runtime)
    found = {
        module.__name__.rpartition(".")[2]: sorted(
            name
            for name, value in vars(module).items()
            if not name.startswith("_") and getattr(value, "__module__", "") == module.__name__
        )
        for module in modules
    }
    assert found == {
        "artifacts": [
            "atomic_file",
            "atomic_folder",
            "check_keys",
            "check_tensors",
            "load_folder",
            "read_json",
            "recover",
            "save_folder",
            "write_json",
        ],
        "assets": ["AssetMissing", "find_asset"],
        "claims": ["Claim", "Reproduction", "Table", "reproduce_main"],
        "cli": ["T", "make_app", "progress", "run", "user_errors"],
        "peft_methods": ["register"],
        "runtime": ["describe", "require", "resolve_device", "resolve_dtype", "seed_everything"],
    }
    assert claims.Verdict.__args__ == ("holds", "fails", "not judged at this budget", "not run")
    assert claims.ReproduceBudget.__args__ == ("quick", "full")
