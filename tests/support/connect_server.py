# SPDX-License-Identifier: Apache-2.0
"""The answers of a Kafka Connect cluster, in this process; it runs no connector."""

from typing import Any

from json_server import JsonServer


class ConnectServer(JsonServer):
    """Speaks the part of the REST interface that changelane needs.

    Attributes:
        configs: The configurations of the connectors.
        states: The answers about their states; without one, a connector runs.
        offsets: Their offsets.
        shows_offsets: Whether it shows them, as Kafka Connect 3.5 and newer do.
        errors: The status and the body of the next answers.
        validation_errors: The errors of a configuration, by its keys.
    """

    def __init__(self) -> None:
        super().__init__()
        self.configs: dict[str, dict[str, str]] = {}
        self.states: dict[str, dict[str, Any]] = {}
        self.offsets: dict[str, dict[str, Any]] = {}
        self.errors: list[tuple[int, bytes]] = []
        self.validation_errors: dict[str, list[str]] = {}
        self.version = "4.1.0"
        self.shows_offsets = True

    unauthorized = b"<html>login</html>"
    missing = b'{"error_code": 404, "message": "not found"}'

    def next_failure(self) -> tuple[int, bytes] | None:
        return self.errors.pop(0) if self.errors else None

    def respond(self, method: str, path: str, body: Any) -> Any:
        return self.get(path) if method == "GET" else self.put(path, body)

    def get(self, path: str) -> Any:
        running = {
            "connector": {"state": "RUNNING", "worker_id": "w:1"},
            "tasks": [{"id": 0, "state": "RUNNING", "worker_id": "w:1"}],
        }
        match path.split("/"):
            case ["", ""]:
                return {"version": self.version}
            case ["", "connectors", _, "offsets"] if not self.shows_offsets:
                return None
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
