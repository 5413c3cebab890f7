# SPDX-License-Identifier: Apache-2.0
"""An experimental database as :class:`~changelane.capture.captured_server.CapturedServer`.

Nothing here connects to the server: only Debezium's connector does. What the server would answer is
unknown, and each method says so or assumes the worst.
"""

from collections.abc import Collection

from changelane.capture.captured_server import IsPassed, LogLag
from changelane.capture.connectors import ConnectorOptions
from changelane.capture.finding import Finding
from changelane.capture.log_origin import LogOrigin
from changelane.capture.manifest import EngineOffset
from changelane.pipeline.experimental_source import (
    PAGE,
    ExperimentalSource,
    OracleSource,
    until_now_error,
)
from changelane.schema import TableId


class CapturedExperimental:
    """A server of SQL Server or Oracle.

    Args:
        source: The database.
    """

    def __init__(self, source: ExperimentalSource) -> None:
        self._source = source

    def findings(self, offset: EngineOffset | None) -> list[Finding]:
        """Return the warning that nothing is checked."""
        del offset
        return [
            Finding(
                severity="warning",
                defect="experimental",
                about=self._source.label,
                problem="the capture is experimental: no test runs such a server, and changelane "
                "checks no setting of it",
                consequence="a missing setting is an error of Debezium, or changes are missing",
                advice=f"compare the server with {PAGE}",
            )
        ]

    def origin(self) -> LogOrigin:
        """Return the database and the tables as the pipeline names them."""
        source = self._source
        return LogOrigin(
            server=source.server_name,
            database=source.database,
            identity="",
            tables=dict.fromkeys(source.tables, ""),
        )

    def log_findings(self, recorded: LogOrigin, offset: EngineOffset) -> list[Finding]:
        """Return nothing: the log of the server is unknown."""
        del recorded, offset
        return []

    def tables_with_rows(self, names: Collection[str]) -> list[str]:
        """Return all of the tables, because each may have rows."""
        return list(names)

    def attached_partitions(self, numbers: Collection[str]) -> set[str]:
        """Return nothing: partitions are no tables."""
        del numbers
        return set()

    def prepare(self) -> list[str]:
        """Create nothing."""
        return []

    def publish(self, names: Collection[str]) -> list[str]:
        """Do nothing: the user lets the server log the changes of a table."""
        del names
        return []

    def forget_position(self) -> None:
        """Do nothing: the server keeps no position of its readers."""

    def connector_options(self, *, heartbeat_s: float) -> ConnectorOptions:
        """Return the options of Debezium's connector."""
        source = self._source
        names = [name.partition(".") for name in source.tables]
        return ConnectorOptions(
            product="oracle" if isinstance(source, OracleSource) else "sqlserver",
            name=source.server_name,
            host=source.host,
            port=source.port,
            database=source.database,
            pdb=(source.pdb or "") if isinstance(source, OracleSource) else "",
            user=source.user,
            password=source.password,
            tables=tuple(TableId(schema=schema, name=name) for schema, _, name in names),
            sslmode=source.sslmode,
            sslrootcert=source.sslrootcert or "",
            heartbeat_s=heartbeat_s,
            properties=source.debezium,
        )

    def log_lag(self, offset: EngineOffset | None) -> LogLag:
        """Return that the lag is unknown."""
        del offset
        return LogLag(problem="the lag of its log is unknown, because the capture is experimental")

    def is_end(self, offset: EngineOffset) -> bool:
        """Return that it is unknown."""
        del offset
        return False

    def marker(self) -> IsPassed:
        """Reject the wait for a position.

        Raises:
            ConfigError: Always.
        """
        raise until_now_error(self._source)
