# SPDX-License-Identifier: Apache-2.0
"""A schema registry in this process: a small part of Confluent's interface."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


class RegistryServer:
    """Speaks ``GET /schemas/ids/{id}``, and ``POST`` of the subjects and their versions.

    Attributes:
        requests: The method and the path of each request.
        schemas: The answers by id.
        subjects: The ids of each subject.
        statuses: The statuses of the next answers, which have no body.
        auth: The header that each request must have; empty = none.
    """

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.statuses: list[int] = []
        self.auth = ""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(lambda: registry.get(self.path))

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                self._answer(lambda: registry.post(self.path, json.loads(body)))

            def _answer(self, respond: Any) -> None:
                registry.requests.append(f"{self.command} {self.path}")
                status, answer = 200, None
                if registry.auth and self.headers.get("Authorization") != registry.auth:
                    status = 401
                elif registry.statuses:
                    status = registry.statuses.pop(0)
                else:
                    answer = respond()
                    status = 404 if answer is None else 200
                body = json.dumps(answer or {"error_code": status, "message": "secret"}).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                if status == 302:
                    self.send_header("Location", f"{registry.address}/elsewhere")
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

    def add(self, text: str, **answer: Any) -> int:
        """Add a schema, and return its id."""
        schema_id = len(self.schemas) + 1
        self.schemas[schema_id] = {"schema": text, **answer}
        return schema_id

    def get(self, path: str) -> dict[str, Any] | None:
        match path.split("/"):
            case ["", "schemas", "ids", number]:
                return self.schemas.get(int(number))
            case ["", "subjects", subject, "versions", version]:
                ids = self.subjects.get(subject, [])
                return self.schemas[ids[int(version) - 1]] if int(version) <= len(ids) else None
        return None

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any] | None:
        text = body["schema"]
        json.loads(text)
        same = (i for i, answer in self.schemas.items() if answer["schema"] == text)
        schema_id = next(same, None)
        match path.split("/"):
            case ["", "subjects", subject, "versions"]:
                schema_id = schema_id or self.add(text)
                self.subjects.setdefault(subject, []).append(schema_id)
            case ["", "subjects", subject] if schema_id not in self.subjects.get(subject, []):
                return None
        return {"id": schema_id}
