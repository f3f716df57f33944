"""A server on loopback that speaks the chat protocol of OpenAI-compatible servers, with the faults of real ones."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class ChatServer:
    """What was asked, and how to answer.

    Args:
        answer: request body to the reply's text, or to (status, body, headers).
    """

    def __init__(self, answer: Callable[[dict[str, Any]], Any]) -> None:
        self.answer = answer
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        self.base_url = ""

    def handle(self, body: dict[str, Any], key: str | None) -> tuple[int, dict[str, Any], dict[str, str]]:
        with self.lock:
            self.requests.append(body)
            self.keys.append(key)
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            reply = self.answer(body)
        finally:
            with self.lock:
                self.at_once -= 1
        if not isinstance(reply, str):
            return reply  # type: ignore[no-any-return]
        message = {"role": "assistant", "content": reply}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        whole = {"id": "1", "object": "chat.completion", "created": 0, "model": body["model"], "choices": [choice]}
        return 200, whole, {}


@contextmanager
def chat_server(answer: Callable[[dict[str, Any]], Any]) -> Iterator[ChatServer]:
    """Runs a server on a free port of loopback for the length of the block."""
    server = ChatServer(answer)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            assert self.path == "/v1/chat/completions"
            status, body, headers = server.handle(json.loads(content), self.headers.get("Authorization"))
            data = json.dumps(body).encode()
            try:
                self.send_response(status)
                for name, value in {
                    "Content-Type": "application/json",
                    "Content-Length": str(len(data)),
                    **headers,
                }.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the client's time was over

        def log_message(self, *_: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    server.base_url = f"http://127.0.0.1:{http.server_port}/v1"
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


def slow(seconds: float, reply: str) -> str:
    time.sleep(seconds)
    return reply
