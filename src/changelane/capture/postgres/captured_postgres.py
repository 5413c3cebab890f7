# SPDX-License-Identifier: Apache-2.0
"""A PostgreSQL server as :class:`~changelane.capture.captured_server.CapturedServer`."""

from collections.abc import Collection

from changelane.capture.captured_server import IsPassed, LogLag
from changelane.capture.connectors import ConnectorOptions
from changelane.capture.engine_offset import lsn_of
from changelane.capture.finding import Finding
from changelane.capture.log_origin import LogOrigin
from changelane.capture.manifest import EngineOffset
from changelane.capture.postgres.check import check_server
from changelane.capture.postgres.connection import PostgresConnection, connect
from changelane.capture.postgres.partitions import attached_partitions, read_partitions
from changelane.capture.postgres.publication import (
    create_publication,
    read_publication,
    unpublished_columns,
)
from changelane.capture.postgres.replication import (
    drop_slot,
    emit_marker,
    server_identity,
    slot_state,
)
from changelane.capture.postgres.tables import (
    CapturedTable,
    read_relations,
    read_tables,
    selection_of,
    tables_with_rows,
)
from changelane.capture.postgres.timeline import read_timeline, timeline_findings
from changelane.pipeline.postgres_source import PostgresSource
from changelane.schema import TableId


class CapturedPostgres:
    """A PostgreSQL server.

    Args:
        source: The database.
    """

    def __init__(self, source: PostgresSource) -> None:
        self._source = source
        self._connection = login_of(source)

    def findings(self, offset: EngineOffset | None) -> list[Finding]:
        """Return what prevents or endangers the capture."""
        source = self._source
        return check_server(
            self._connection,
            tables=source.tables,
            publication=source.publication_name,
            slot=source.slot_name,
            needs_ddl_trigger=source.ddl == "event_trigger",
            is_engine_load=source.snapshot == "engine",
            position=None if offset is None else lsn_of(offset),
        )

    def origin(self) -> LogOrigin:
        """Return the cluster, and the tables with their ids in the catalog."""
        source = self._source
        with connect(self._connection) as connection:
            relations = read_relations(connection)
            selected = selection_of(relations, source.tables).tables
            partitions = read_partitions(connection, relations, selected)
            identity = server_identity(connection)
        return LogOrigin(
            server=source.server_name,
            database=source.database,
            identity=str(identity.system_identifier),
            tables={table.shown: str(table.oid) for table in selected},
            timeline=identity.timeline,
            partitions=partitions,
        )

    def log_findings(self, recorded: LogOrigin, offset: EngineOffset) -> list[Finding]:
        """Return the finding about a timeline that does not have the captured position."""
        lsn = lsn_of(offset)
        if lsn is None:
            return []
        timeline = read_timeline(self._connection, recorded.timeline)
        return list(timeline_findings(recorded.timeline, timeline, lsn))

    def tables_with_rows(self, names: Collection[str]) -> list[str]:
        """Return the tables that have rows."""
        with connect(self._connection) as connection:
            return tables_with_rows(connection, names)

    def attached_partitions(self, numbers: Collection[str]) -> set[str]:
        """Return which partitions have rows and were tables of their own before."""
        if not numbers:
            return set()
        with connect(self._connection) as connection:
            return attached_partitions(connection, numbers)

    def prepare(self) -> list[str]:
        """Create the publication, if there is none; an existing one is never changed."""
        source = self._source
        with connect(self._connection) as connection:
            if read_publication(connection, source.publication_name) is not None:
                return []
            return create_publication(connection, source.publication_name, source.tables)

    def publish(self, names: Collection[str]) -> list[str]:
        """Add tables to the publication, if it lacks them."""
        with connect(self._connection) as connection:
            if not names or read_publication(connection, self._source.publication_name) is None:
                return []
            return create_publication(connection, self._source.publication_name, names)

    def forget_position(self) -> None:
        """Drop the slot."""
        with connect(self._connection) as connection:
            if slot_state(connection, self._source.slot_name) is not None:
                drop_slot(connection, self._source.slot_name)

    def connector_options(self, *, heartbeat_s: float) -> ConnectorOptions:
        """Return the options of Debezium's connector."""
        source = self._source
        with connect(self._connection) as connection:
            relations = read_relations(connection)
            selected = selection_of(relations, source.tables).tables
            tables = read_tables(connection, relations, selected)
            publication = read_publication(connection, source.publication_name)
        return ConnectorOptions(
            product="postgres",
            name=source.server_name,
            host=source.host,
            port=source.port,
            database=source.database,
            user=source.user,
            password=source.password,
            tables=tuple(self._table_id(table) for table in tables),
            parents=tuple(self._table_id(table) for table in tables if table.children),
            unpublished=tuple(
                (table.relation.schema, table.relation.name, column)
                for table in tables
                for column in unpublished_columns(table, publication)
            ),
            slot=source.slot_name,
            publication=source.publication_name,
            sslmode=source.sslmode,
            sslrootcert=source.sslrootcert or "",
            sslcert=source.sslcert or "",
            sslkey=source.sslkey or "",
            heartbeat_s=heartbeat_s,
            properties=source.debezium,
        )

    def _table_id(self, table: CapturedTable) -> TableId:
        return TableId(self._source.database, table.relation.schema, table.relation.name)

    def log_lag(self, offset: EngineOffset | None) -> LogLag:
        """Return the lag of the slot; the server itself knows the acknowledged position."""
        del offset
        slot = self._source.slot_name
        with connect(self._connection) as connection:
            state = slot_state(connection, slot)
        if state is None:
            return LogLag(slot=slot, problem="the slot does not exist")
        headroom = state.safe_wal_size
        return LogLag(
            lag_bytes=state.lag_bytes,
            retained_bytes=state.retained_bytes,
            headroom_bytes=None if headroom is None else max(headroom, 0),
            slot=slot,
            problem="the server deleted log that the slot needs" if state.is_lost else "",
        )

    def is_end(self, offset: EngineOffset) -> bool:
        """Return that it is unknown: an idle server writes into its log, too."""
        del offset
        return False

    def marker(self) -> IsPassed:
        """Write a message into the log; an offset after it has everything committed before."""
        with connect(self._connection) as connection:
            marker = emit_marker(connection, "until now")

        def is_passed(offset: EngineOffset) -> bool:
            lsn = lsn_of(offset)
            return lsn is not None and lsn >= marker.lsn

        return is_passed


def login_of(source: PostgresSource) -> PostgresConnection:
    """Return the login of a source."""
    return PostgresConnection(
        host=source.host,
        port=source.port,
        database=source.database,
        user=source.user,
        password=source.password,
        sslmode=source.sslmode,
        sslrootcert=source.sslrootcert or "",
        sslcert=source.sslcert or "",
        sslkey=source.sslkey or "",
    )
