# SPDX-License-Identifier: Apache-2.0
"""Captures the database of a source with a connector in Kafka Connect.

changelane registers the connector, and never changes one that has another configuration unless the
user says so. The topics have what the connector captures; its offset shows how far they are.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from changelane.capture.captured_server import CapturedServer
from changelane.capture.connect_cluster import ConnectCluster, ConnectorStatus
from changelane.capture.connect_config import (
    Connector,
    connector_name,
    connector_of,
    secret_keys,
)
from changelane.capture.engine import CaptureError
from changelane.capture.engine_offset import is_in_snapshot
from changelane.capture.finding import Finding, reject_errors
from changelane.capture.postgres.slot_findings import SNAPSHOT
from changelane.errors import ConfigError
from changelane.formats.contract.options import seconds
from changelane.pipeline.database_source import DatabaseSource

_START_S: Final = 120.0
_PAUSE_S: Final = 0.5
"""Between two requests for a state that is waited for: Kafka Connect notifies nobody of its own."""
_CHANGE_S: Final = 15.0
"""For so long a changed connector may have the state of its former configuration."""
_CHECK_INTERVAL_S: Final = 10.0
_ATTEMPTS: Final = 5
_TABLES: Final = "table.include.list"
_OWN_DEFECTS: Final = frozenset({"slot_active", "server_id_clash"})
"""Defects that a running connector of the pipeline itself causes."""
_ANEW: Final = (
    "to read all rows again, stop the connector, delete its offsets, the connector and the slot, "
    "and start the pipeline again"
)


class ConnectCapture:
    """The capture of a database by a connector in Kafka Connect.

    Attributes:
        name: The name of the connector.

    Args:
        source: The database, with ``connect_url``.
        server: Its server.
        notify: Shows a note to the user.
    """

    def __init__(
        self,
        source: DatabaseSource,
        server: CapturedServer,
        *,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._server = server
        self._notify = notify
        self._cluster = cluster_of(source)
        self.name = connector_name(source.server_name, source.type_name)
        self._label = f"the connector {self.name} in Kafka Connect at {self._cluster.label}"
        self._next_check_s = 0.0
        self._shown_problem = ""

    def start(self, *, replaces: bool = False) -> None:
        """Register the connector unless it is registered, and wait until it runs.

        Args:
            replaces: Whether a connector with another configuration is changed.

        Raises:
            ConfigError: The database cannot be captured, the connector has another configuration,
                or Kafka Connect rejects it.
            UnreachableError: Kafka Connect or the database does not answer.
            CaptureError: The connector failed, or does not run.
        """
        for statement in self._server.prepare():
            self._notify(f"executed: {statement}")
        findings = self.findings()
        reject_errors(findings, self._source.label)
        registered = self._cluster.config(self.name)
        connector = source_connector(self._source, self._server)
        if registered is None:
            for finding in findings:
                self._notify(" ".join(finding.text().split()))
            self._register(connector, "registered")
        elif keys := differing_keys(registered, connector.config):
            if not replaces:
                raise ConfigError(self._difference_text(keys))
            former_status = self._cluster.status(self.name)
            self._register(connector, "changed")
            self._wait_changed(former_status)
        self._wait_running()

    def findings(self) -> list[Finding]:
        """Return what prevents or endangers the capture; nothing is written.

        Raises:
            ConfigError: Kafka Connect or the server rejects the login.
            UnreachableError: One of them does not answer.
        """
        is_registered = self._cluster.config(self.name) is not None
        findings = self._server.findings(self._cluster.offset(self.name))
        for _ in range(_ATTEMPTS):
            if all(finding.defect != "slot_ahead" for finding in findings):
                break
            # the connector may have moved the slot after its offset was read
            findings = self._server.findings(self._cluster.offset(self.name))
        return [
            msgspec.structs.replace(finding, advice=finding.advice.replace(SNAPSHOT, _ANEW))
            for finding in findings
            if not is_registered or finding.defect not in _OWN_DEFECTS
        ]

    def problem(self) -> str | None:
        """Return why the connector does not capture what the pipeline needs.

        Returns:
            The reason; empty if it does; ``None`` if it is not registered, and can be.

        Raises:
            ConfigError: Kafka Connect or the server rejects the login.
            UnreachableError: One of them does not answer.
        """
        registered = self._cluster.config(self.name)
        connector = source_connector(self._source, self._server)
        if registered is None:
            return self._validation_errors(connector) or None
        if keys := differing_keys(registered, connector.config):
            return self._difference_text(keys)
        status = self._cluster.status(self.name)
        if (problem := _problem_of(self.name, status)) or status is None or status.is_running:
            return problem
        text = f"the connector {self.name} does not run ({status.states_text})"
        return f"{text}: look at the log of its workers"

    def _difference_text(self, keys: list[str]) -> str:
        """Return the error for a connector whose properties differ."""
        text = f"{self._label} has another configuration ({', '.join(keys)})"
        if _TABLES in keys:
            text += "; rows that new tables have already are in no topic"
        return (
            f"{text}: if it belongs to this pipeline, change it with `changelane capture "
            "PIPELINE.yaml --replace-connector`, else set another topic_prefix"
        )

    def _register(self, connector: Connector, verb: str) -> None:
        keys = ", ".join(secret_keys(connector))
        self._notify(f"the workers read from {self._source.connect_secrets_file}: {keys}")
        if errors := self._validation_errors(connector):
            raise ConfigError(errors)
        self._cluster.set_config(connector.name, connector.config)
        self._notify(f"{verb} {self._label}")

    def _validation_errors(self, connector: Connector) -> str:
        """Return why Kafka Connect would reject a connector; empty if it would not."""
        errors = self._cluster.validation_errors(connector.name, connector.config)
        return f"{self._label} would be rejected: {'; '.join(errors)}" if errors else ""

    def _wait_changed(self, former_status: ConnectorStatus | None) -> None:
        """Wait until the workers restart what failed with the former configuration."""
        deadline_s = time.monotonic() + _CHANGE_S
        while former_status is not None and former_status.failure and time.monotonic() < deadline_s:
            if self._cluster.status(self.name) != former_status:
                return
            time.sleep(_PAUSE_S)

    def _wait_running(self) -> None:
        """Wait until the connector and its task run.

        Raises:
            CaptureError: They do not.
        """
        deadline_s = time.monotonic() + _START_S
        while True:
            status = self._running_status()
            if status is not None and status.is_running:
                return
            if time.monotonic() > deadline_s:
                msg = f"{self._label} does not run after {_START_S:.0f} seconds"
                raise CaptureError(f"{msg}: look at the log of its workers")
            time.sleep(_PAUSE_S)

    def _running_status(self) -> ConnectorStatus | None:
        """Return the state of the connector.

        Raises:
            CaptureError: It failed, or somebody paused or stopped it.
        """
        status = self._cluster.status(self.name)
        if problem := _problem_of(self.name, status):
            raise CaptureError(problem)
        return status

    def wait_until_now(self, check: Callable[[], None] = lambda: None) -> None:
        """Wait until the topics have everything that is committed by now.

        The workers record offsets every ``offset.flush.interval.ms``, by default a minute.

        Args:
            check: Called again and again; it raises to stop the wait.

        Raises:
            CaptureError: The connector failed, or somebody deleted it.
            ConfigError: The server rejects the marker.
            UnreachableError: Kafka Connect or the server does not answer.
        """
        if not self._has_offsets():
            self._notify(
                f"Kafka Connect at {self._cluster.label} is older than 3.5 and shows no offsets: "
                "the run reads what the topics have now"
            )
            return
        is_passed = self._server.marker()
        while True:
            check()
            offset = self._cluster.offset(self.name)
            # the position of a snapshot is that of its beginning, while rows are still to be read
            if offset is not None and not is_in_snapshot(offset) and is_passed(offset):
                return
            if self._running_status() is None and (problem := self._missing_text()):
                raise CaptureError(problem)
            time.sleep(_PAUSE_S)

    def _has_offsets(self) -> bool:
        """Whether the cluster shows the offset; a worker may know a new connector late."""
        for _ in range(_ATTEMPTS):
            if self._cluster.has_offsets(self.name):
                return True
            time.sleep(_PAUSE_S)
        return False

    def _missing_text(self) -> str:
        """Return the error for a connector that was deleted; empty if it only has no state."""
        if self._cluster.config(self.name) is not None:
            return ""
        advice = "register it with `changelane capture PIPELINE.yaml`"
        return f"{self._label} does not exist any more: {advice}"

    def check(self) -> None:
        """Show a failure of the connector, or of Kafka Connect, once for each reason.

        The topics can be read meanwhile, and a failed task can be started again by its workers.
        """
        if time.monotonic() < self._next_check_s:
            return
        self._next_check_s = time.monotonic() + _CHECK_INTERVAL_S
        try:
            status = self._cluster.status(self.name)
            problem = self._missing_text() if status is None else _problem_of(self.name, status)
        except ConfigError as error:
            problem = str(error)
        if problem and problem != self._shown_problem:
            self._notify(problem)
        self._shown_problem = problem


def cluster_of(source: DatabaseSource) -> ConnectCluster:
    """Return the Kafka Connect cluster of a source with ``connect_url``."""
    return ConnectCluster(source.connect_url or "", source.connect_auth)


def source_connector(source: DatabaseSource, server: CapturedServer) -> Connector:
    """Return the connector that captures a source, with the tables as they are now."""
    options = server.connector_options(heartbeat_s=seconds(source.heartbeat_interval))
    return connector_of(
        options,
        has_snapshot=source.snapshot != "none",
        secrets_file=source.connect_secrets_file,
    )


def differing_keys(registered: Mapping[str, str], wanted: Mapping[str, str]) -> list[str]:
    """Return the names of the properties that differ.

    A connector that captures more tables is no other one: tables that were dropped stay in its
    list.

    >>> differing_keys({"a": "1", "name": "shop"}, {"a": "2", "b": "3"})
    ['a', 'b']
    """
    names = {name for name in registered.keys() | wanted.keys() if name != "name"}
    differing = {name for name in names if registered.get(name) != wanted.get(name)}
    tables, wanted_tables = (
        set(config.get(_TABLES, "").split(",")) for config in (registered, wanted)
    )
    if wanted_tables <= tables:
        differing.discard(_TABLES)
    return sorted(differing)


def _problem_of(name: str, status: ConnectorStatus | None) -> str:
    """Return why a connector does not run; empty if it runs, or starts."""
    if status is None:
        return ""
    if status.failure:
        advice = (
            f"GET /connectors/{name}/status has its whole trace with the cause; restart it then "
            f"(POST /connectors/{name}/restart?includeTasks=true&onlyFailed=true)"
        )
        return f"the connector {name}: {status.failure}; {advice}"
    state = status.connector.state
    if state not in {"PAUSED", "STOPPED"}:
        return ""
    return f"the connector {name} is {state.lower()}: resume it (PUT /connectors/{name}/resume)"
