"""`--push_to_hub`: the Trainer's own push of the folder as it is left, to a server that answers as the hub."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from nips_finetune.testing.method_suite import COMMON

PROGRAM = Path(__file__).parent / "lora_program.py"


class Hub(BaseHTTPRequestHandler):
    """The four answers that a push needs; commits are kept on the server."""

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        address, server = self.path.partition("?")[0], self.server
        if address == "/api/repos/create":
            self.answer({"url": f"http://{self.headers['Host']}/me/mine"})
        elif address == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif address == "/api/models/me/mine/preupload/main":
            files = [{"path": file["path"], "uploadMode": "regular"} for file in json.loads(body)["files"]]
            self.answer({"files": [file | {"shouldIgnore": False} for file in files]})
        elif address == "/api/models/me/mine/commit/main":
            server.commits.append([json.loads(line) for line in body.splitlines()])  # type: ignore[attr-defined]
            self.answer(
                {"commitUrl": f"http://{self.headers['Host']}/me/mine/commit/1", "commitOid": "1", "success": True}
            )
        else:
            self.send_error(404)

    def answer(self, value: dict[str, Any]) -> None:
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def hub() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    server.commits = []
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.slow
def test_what_is_pushed_is_the_folder_with_its_own_card(
    hub: Any, llama_folder: Path, text_jsonl: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"HF_ENDPOINT": f"http://127.0.0.1:{hub.server_port}", "HF_TOKEN": "hf_none", "HF_HOME": str(tmp_path)}
    for name, value in {**settings, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}.items():
        monkeypatch.setenv(name, value)
    argv = ["--model", llama_folder, "--train_data", text_jsonl, "--output_dir", tmp_path / "out", *COMMON]
    more = ["--max_steps", "1", "--push_to_hub", "true", "--hub_model_id", "me/mine"]
    run = subprocess.run(
        list(map(str, [sys.executable, PROGRAM, *argv, *more])), capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    pushed = {
        entry["value"]["path"]: base64.b64decode(entry["value"]["content"])
        for commit in hub.commits
        for entry in commit
        if entry["key"] == "file"
    }
    assert set(pushed) == {file.name for file in (tmp_path / "out").iterdir()}
    assert b"# LoRA adapter of" in pushed["README.md"]
    assert "training_args.bin" not in pushed
    assert pushed["adapter_model.safetensors"] == (tmp_path / "out" / "adapter_model.safetensors").read_bytes()
    assert json.loads(pushed["metrics.json"]) == json.loads(run.stdout)
