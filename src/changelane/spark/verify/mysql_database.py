# SPDX-License-Identifier: Apache-2.0
"""A captured MySQL or MariaDB database as a source of verified tables."""

import contextlib
from collections.abc import Iterator
from typing import Final

from changelane.capture.mysql.captured_mysql import CapturedMysql, login_of
from changelane.capture.mysql.connection import (
    Connection,
    connect,
    database_errors,
    is_in_snapshot,
    read_rows,
)
from changelane.capture.mysql.position import (
    begin_snapshot,
    is_mariadb,
    prepared_transactions,
)
from changelane.capture.mysql.tables import (
    MysqlTable,
    ignores_case,
    parse_patterns,
    read_all_tables,
    selection_of,
)
from changelane.errors import ChangelaneError
from changelane.event import OWN_VERSION, Source
from changelane.pipeline.mysql_source import MysqlSource
from changelane.position import MySqlPosition
from changelane.schema import TableId
from changelane.spark.verify.mysql_rows import MysqlRows, primary_key, source_columns
from changelane.spark.verify.mysql_types import MysqlType
from changelane.spark.verify.source_database import (
    CONNECTOR,
    Snapshot,
    VerifiedTable,
)
from changelane.spark.verify.table_plan import Bound, TablePlan
from changelane.spark.verify.table_planning import UnverifiableError

_SETTINGS: Final = (
    "SET SESSION sql_mode = ''",  # one mode pads char(n), another one has no backslash escapes
    # a merged derived table would compute the hash of a row for each use
    "SET SESSION optimizer_switch = 'derived_merge=off'",
)
_MAX_ROW: Final = (1 << 32) - 1
_NO_TIMEOUT: Final = {True: "max_statement_time", False: "max_execution_time"}


class MysqlDatabase:
    """A MySQL or MariaDB database; :func:`open_mysql` connects to it.

    Args:
        source: The captured database.
        connection: The connection that reads snapshots.
    """

    def __init__(self, source: MysqlSource, connection: Connection) -> None:
        self._source = source
        self._connection = connection

    @property
    def event_source(self) -> Source:
        """The source of events that changelane makes of the rows."""
        return Source(self._source.type_name, CONNECTOR, self._source.server_name, OWN_VERSION)

    def tables(self) -> list[VerifiedTable]:
        """Return the captured tables."""
        patterns = parse_patterns(self._source.tables, ignores_case=ignores_case(self._connection))
        selection = selection_of(read_all_tables(self._connection), patterns)
        return list(map(self._table, selection.tables))

    def _table(self, table: MysqlTable) -> VerifiedTable:
        refusal = ""
        if not table.is_transactional:
            refusal = f"the storage engine {table.engine} has no snapshots"
        elif table.kind == "SYSTEM VERSIONED":
            refusal = "it is system-versioned: the log has its history as rows"
        return VerifiedTable(
            id=TableId(table.database, None, table.name),
            relation=table,
            primary_key=primary_key(self._connection, table),
            refusal=refusal,
        )

    def column_types(self, table: VerifiedTable) -> dict[str, MysqlType]:
        """Return the types of a table's columns, by name."""
        return source_columns(self._connection, table.relation)

    def has_rows(self, table: VerifiedTable) -> bool:
        """Whether a table has rows."""
        with database_errors(f"the count of {table.id}"):
            return bool(read_rows(self._connection, f"SELECT 1 FROM {table.relation.sql} LIMIT 1"))

    @contextlib.contextmanager
    def open_snapshot(self, table: VerifiedTable) -> Iterator[Snapshot]:
        """Open a snapshot at an exact position of the binary log.

        The position is between two transactions: the events of those before it are below it, and
        those of later transactions above. The log has the events of an XA transaction when it is
        prepared, so that the snapshot lacks the changes of those that are prepared at its position.
        """
        prepared_before = prepared_transactions(self._connection)
        position = begin_snapshot(self._connection)
        # one list has those that end meanwhile, the other one those that begin meanwhile
        prepared_after = prepared_transactions(self._connection)

        def writers() -> frozenset[str]:
            if prepared_before is None or prepared_after is None:
                raise UnverifiableError(
                    "the user cannot list XA transactions, whose changes a repair may undo: "
                    "GRANT XA_RECOVER_ADMIN ON *.* TO the user"
                )
            return prepared_before | prepared_after

        def is_intact() -> bool:
            with database_errors(f"the lock of {table.id}"):
                return is_in_snapshot(self._connection, table.relation.sql)

        try:
            yield Snapshot(
                position_text=f"{position.file}:{position.offset}",
                # repaired rows are part of a later snapshot at the same position
                newest=MySqlPosition(position.file, position.offset, _MAX_ROW),
                repair_position=lambda number: MySqlPosition(
                    position.file, position.offset, number
                ),
                is_passed=CapturedMysql(self._source).marker(),
                is_intact=is_intact,
                writers=writers,
            )
        finally:
            with contextlib.suppress(ChangelaneError), database_errors("the end of the snapshot"):
                self._connection.rollback()

    def is_any_open(self, writers: frozenset[str]) -> bool:
        """Whether one of the XA transactions is still prepared."""
        return not writers.isdisjoint(prepared_transactions(self._connection) or ())

    def rows(
        self, table: VerifiedTable, columns_plan: TablePlan, bounds: tuple[Bound, ...] = ()
    ) -> MysqlRows:
        """Return the rows of a table in the open snapshot."""
        return MysqlRows(self._connection, table.relation, columns_plan, bounds)


@contextlib.contextmanager
def open_mysql(source: MysqlSource) -> Iterator[MysqlDatabase]:
    """Connect to the database of a source.

    Raises:
        ConfigError: The server rejects the login.
        UnreachableError: The server does not answer.
    """
    with contextlib.closing(connect(login_of(source, read_timeout_s=None))) as connection:
        with database_errors("the settings of the connection"):
            for statement in _SETTINGS:
                read_rows(connection, statement)
            read_rows(connection, f"SET SESSION {_NO_TIMEOUT[is_mariadb(connection)]} = 0")
        yield MysqlDatabase(source, connection)
