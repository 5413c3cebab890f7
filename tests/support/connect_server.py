# SPDX-License-Identifier: Apache-2.0
"""The answers of a Kafka Connect cluster, in this process; it runs no connector."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class ConnectServer:
    """Speaks the part of the REST interface that changelane needs.

    Attributes:
        requests: The method and the path of each request.
        configs: The configurations of the connectors.
        states: The answers about their states; without one, a connector runs.
        offsets: Their offsets.
        errors: The status and the body of the next answers.
        validation_errors: The errors of a configuration, by its keys.
        auth: The header that each request must have; empty = none.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.configs: dict[str, dict[str, str]] = {}
        self.states: dict[str, dict[str, Any]] = {}
        self.offsets: dict[str, dict[str, Any]] = {}
        self.errors: list[tuple[int, bytes]] = []
        self.validation_errors: dict[str, list[str]] = {}
        self.auth = ""
        self.version = "4.1.0"
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(lambda: server.get(self.path))

            def do_PUT(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(lambda: server.put(self.path, json.loads(body)))

            def _answer(self, respond: Any) -> None:
                server.requests.append(f"{self.command} {self.path}")
                if server.auth and self.headers.get("Authorization") != server.auth:
                    status, body = 401, b"<html>login</html>"
                elif server.errors:
                    status, body = server.errors.pop(0)
                else:
                    answer = respond()
                    status = 200 if answer is not None else 404
                    missing = {"error_code": 404, "message": "not found"}
                    body = json.dumps(missing if answer is None else answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if status == 302:
                    self.send_header("Location", f"{server.address}/elsewhere")
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def get(self, path: str) -> Any:
        running = {
            "connector": {"state": "RUNNING", "worker_id": "w:1"},
            "tasks": [{"id": 0, "state": "RUNNING", "worker_id": "w:1"}],
        }
        match path.split("/"):
            case ["", ""]:
                return {"version": self.version}
            case ["", "connectors", name, part] if name in self.configs:
                offset = self.offsets.get(name)
                entries = [] if offset is None else [{"partition": {}, "offset": offset}]
                return {
                    "config": {**self.configs[name], "name": name},
                    "status": self.states.get(name, running),
                    "offsets": {"offsets": entries},
                }[part]
        return None

    def put(self, path: str, body: dict[str, str]) -> Any:
        match path.split("/"):
            case ["", "connector-plugins", _, "config", "validate"]:
                errors = {key: [] for key in body} | self.validation_errors
                values = [{"name": key, "errors": texts} for key, texts in errors.items()]
                return {"configs": [{"value": None}, *({"value": value} for value in values)]}
            case ["", "connectors", name, "config"]:
                self.configs[name] = body
                return {"name": name, "config": body}
        return None
