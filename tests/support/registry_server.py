# SPDX-License-Identifier: Apache-2.0
"""A schema registry in this process: a small part of Confluent's interface."""

import json
from typing import Any

from json_server import JsonServer


class RegistryServer(JsonServer):
    """Speaks ``GET /schemas/ids/{id}``, and ``POST`` of the subjects and their versions.

    Attributes:
        schemas: The answers by id.
        subjects: The ids of each subject.
        statuses: The statuses of the next answers, which are failures.
    """

    def __init__(self) -> None:
        super().__init__()
        self.schemas: dict[int, dict[str, Any]] = {}
        self.subjects: dict[str, list[int]] = {}
        self.statuses: list[int] = []

    unauthorized = b'{"error_code": 401, "message": "secret"}'
    missing = b'{"error_code": 404, "message": "secret"}'

    def next_failure(self) -> tuple[int, bytes] | None:
        if not self.statuses:
            return None
        status = self.statuses.pop(0)
        return status, json.dumps({"error_code": status, "message": "secret"}).encode()

    def respond(self, method: str, path: str, body: Any) -> Any:
        return self.get(path) if method == "GET" else self.post(path, body)

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
