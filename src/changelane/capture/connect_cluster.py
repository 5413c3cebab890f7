# SPDX-License-Identifier: Apache-2.0
"""A Kafka Connect cluster by its REST interface.

https://docs.confluent.io/platform/current/connect/references/restapi.html; offsets are known since
Kafka 3.5 (KIP-875). Requests follow no redirect, which would send the login to another server.
"""

import time
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec

from changelane.capture.manifest import EngineOffset
from changelane.errors import ConfigError, UnreachableError
from changelane.pipeline.yaml import without_secrets
from changelane.schema_registries.http import authorization

_TIMEOUT_S: Final = 10.0
_CHANGE_TIMEOUT_S: Final = 100.0
"""A worker checks a connector with a connection to its database, for at most 90 seconds."""
_REBALANCE_S: Final = 60.0
_PAUSE_S: Final = 0.5
_MAX_BYTES: Final = 16 << 20
_MAX_REASON: Final = 300
_NOT_FOUND: Final = 404
_CONFLICT: Final = 409
_T = TypeVar("_T")


class UnitState(msgspec.Struct, frozen=True):
    """The state of a connector or of one of its tasks.

    Attributes:
        state: The state as Kafka Connect names it, such as ``RUNNING``, ``PAUSED`` or ``FAILED``.
        id: The number of the task; ``None`` for the connector.
        worker_id: The worker.
        trace: The trace of the failure; empty if there is none.
    """

    state: str
    id: int | None = None
    worker_id: str = ""
    trace: str = ""

    @property
    def reason(self) -> str:
        """The first line of the trace, without the values of variables."""
        return first_line(self.trace)


class ConnectorStatus(msgspec.Struct, frozen=True):
    """The state of a connector and of its tasks."""

    connector: UnitState
    tasks: list[UnitState] = []

    @property
    def failure(self) -> str:
        """What failed, and why; empty if nothing did."""
        for unit in (self.connector, *self.tasks):
            if unit.state == "FAILED":
                about = "the connector" if unit.id is None else f"task {unit.id}"
                return f"{about} failed: {unit.reason or 'without a trace'}"
        return ""

    @property
    def states_text(self) -> str:
        """The state of the connector and of each task, as text."""
        tasks = [f"task {unit.id} is {unit.state.lower()}" for unit in self.tasks]
        return ", ".join([f"it is {self.connector.state.lower()}", *(tasks or ["it has no task"])])

    @property
    def is_running(self) -> bool:
        """Whether the connector and all of its tasks run."""
        states = {unit.state for unit in (self.connector, *self.tasks)}
        return bool(self.tasks) and states == {"RUNNING"}


class _SourceOffset(msgspec.Struct):
    offset: EngineOffset | None


class _Offsets(msgspec.Struct):
    offsets: list[_SourceOffset]


class _CheckedValue(msgspec.Struct):
    name: str = ""
    errors: list[str] = []


class _CheckedProperty(msgspec.Struct):
    value: _CheckedValue | None = None


class _Validation(msgspec.Struct):
    configs: list[_CheckedProperty]


class _Failure(msgspec.Struct):
    message: str | None = None


class ConnectCluster:
    """A Kafka Connect cluster; each method sends one request.

    Each method raises ``UnreachableError`` if the cluster does not answer, and ``ConfigError`` if
    it rejects the login or the request.

    Args:
        url: The address of a worker.
        auth: ``user:password`` or ``Bearer <token>``; empty = without a login.
    """

    def __init__(self, url: str, auth: str = "") -> None:
        self.label = url.rstrip("/")
        self._parts = urlsplit(self.label)
        self._headers = {"Accept": "application/json", "Content-Type": "application/json"}
        if auth:
            self._headers["Authorization"] = authorization(auth)

    def config(self, name: str) -> dict[str, str] | None:
        """Return the configuration of a connector; ``None`` = there is no such connector."""
        return self._get(f"{_path_of(name)}/config", dict[str, str])

    def validation_errors(self, name: str, config: dict[str, str]) -> list[str]:
        """Return what is wrong with a configuration; its connector connects to the database.

        Kafka Connect before KAFKA-20693 does not return these errors when it creates a connector.
        """
        path = f"/connector-plugins/{quote(config['connector.class'], safe='')}/config/validate"
        content = msgspec.json.encode({**config, "name": name})
        answer = self._decoded(self._request("PUT", path, content) or b"", _Validation)
        values = [checked.value for checked in answer.configs if checked.value]
        return [f"{value.name}: {first_line(text)}" for value in values for text in value.errors]

    def set_config(self, name: str, config: dict[str, str]) -> None:
        """Create a connector, or change its configuration."""
        self._request("PUT", f"{_path_of(name)}/config", msgspec.json.encode(config))

    def status(self, name: str) -> ConnectorStatus | None:
        """Return the state of a connector; ``None`` = there is none (yet)."""
        return self._get(f"{_path_of(name)}/status", ConnectorStatus)

    def has_offsets(self, name: str) -> bool:
        """Whether the cluster shows the offset of a connector that it has.

        Its version does not decide that, because vendors have numbers of their own.
        """
        return self._get(f"{_path_of(name)}/offsets", _Offsets) is not None

    def offset(self, name: str) -> EngineOffset | None:
        """Return the offset up to which the topics have everything; ``None`` = there is none."""
        answer = self._get(f"{_path_of(name)}/offsets", _Offsets)
        offsets = [entry.offset for entry in answer.offsets if entry.offset] if answer else []
        return offsets[0] if offsets else None

    def _get(self, path: str, kind: type[_T]) -> _T | None:
        body = self._request("GET", path)
        return None if body is None else self._decoded(body, kind)

    def _decoded(self, body: bytes, kind: type[_T]) -> _T:
        try:
            return msgspec.json.decode(body, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise self._no_cluster() from None

    def _no_cluster(self) -> UnreachableError:
        return UnreachableError(f"{self.label} does not answer as Kafka Connect")

    def _request(self, method: str, path: str, content: bytes | None = None) -> bytes | None:
        """Return the body of an answer; ``None`` = Kafka Connect does not have the connector.

        While the workers divide the connectors anew, the request is repeated.
        """
        deadline_s = time.monotonic() + _REBALANCE_S
        while True:
            code, body = self._answer(method, path, content)
            if code != _CONFLICT or time.monotonic() > deadline_s:
                break
            time.sleep(_PAUSE_S)
        if code in {200, 201}:
            return body
        if code in {401, 403}:
            msg = f"Kafka Connect at {self.label} rejects the login (HTTP status {code})"
            raise ConfigError(f"{msg}: set source.connect_auth to ${{CONNECT_AUTH}}, user:password")
        message = self._decoded(body, _Failure).message or ""
        if code == _NOT_FOUND and method == "GET":
            return None
        reason = first_line(" ".join(message.split()))
        msg = f"Kafka Connect at {self.label} rejects the request (HTTP status {code}): {reason}"
        raise ConfigError(msg)

    def _answer(self, method: str, path: str, content: bytes | None) -> tuple[int, bytes]:
        """Return the status and the body of an answer."""
        host, port = self._parts.hostname or "", self._parts.port
        timeout_s = _TIMEOUT_S if content is None else _CHANGE_TIMEOUT_S
        kind = HTTPSConnection if self._parts.scheme == "https" else HTTPConnection
        connection = kind(host, port, timeout=timeout_s)
        try:
            connection.request(method, self._parts.path + path, content, self._headers)
            response = connection.getresponse()
            return response.status, response.read(_MAX_BYTES)
        except TimeoutError:
            reason = f"no answer in {timeout_s:.0f} s"
        except (OSError, HTTPException, UnicodeError) as error:  # a host may be no name
            reason = getattr(error, "strerror", None) or type(error).__name__
        finally:
            connection.close()
        raise UnreachableError(f"Kafka Connect at {self.label} does not answer ({reason.lower()})")


def _path_of(name: str) -> str:
    return f"/connectors/{quote(name, safe='')}"


def first_line(text: str) -> str:
    """Return the first line of a text, without the values of variables."""
    line = without_secrets(text).strip().partition("\n")[0].strip()
    return line if len(line) <= _MAX_REASON else f"{line[:_MAX_REASON]}..."
