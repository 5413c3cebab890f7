# SPDX-License-Identifier: Apache-2.0
"""A MySQL or MariaDB server as :class:`~changelane.capture.captured_server.CapturedServer`."""

from collections.abc import Collection
from contextlib import closing
from functools import cache
from typing import Final, Literal

from changelane.capture.captured_server import IsPassed, LogLag
from changelane.capture.connectors import ConnectorOptions, effective_server_id
from changelane.capture.engine_offset import source_time_ms
from changelane.capture.finding import Finding
from changelane.capture.log_origin import LogOrigin
from changelane.capture.manifest import EngineOffset
from changelane.capture.mysql.check import check_server, read_time_s, read_variables
from changelane.capture.mysql.connection import READ_TIMEOUT_S, MysqlConnection, connect
from changelane.capture.mysql.log_content import (
    is_one_statement,
    log_content_findings,
    read_log_mark,
)
from changelane.capture.mysql.position import (
    BinlogPosition,
    contains_gtids,
    current_position,
    lag_bytes,
    log_files,
    server_identity,
)
from changelane.capture.mysql.position_findings import headroom_s
from changelane.capture.mysql.server_findings import ServerState
from changelane.capture.mysql.sql_text import shown_name
from changelane.capture.mysql.tables import list_tables, tables_with_rows
from changelane.pipeline.mysql_source import MariadbSource, MysqlSource

_SSL_MODES: Final[
    dict[str, Literal["disabled", "preferred", "required", "verify_ca", "verify_identity"]]
] = {
    "disable": "disabled",
    "prefer": "preferred",
    "require": "required",
    "verify-ca": "verify_ca",
    "verify-full": "verify_identity",
}


_EVENT: Final = "event"
"""The field of an offset that has read events behind its position."""


class CapturedMysql:
    """A MySQL or MariaDB server.

    Args:
        source: The database.
    """

    def __init__(self, source: MysqlSource) -> None:
        self._source = source
        self._connection = login_of(source)

    def findings(self, offset: EngineOffset | None) -> list[Finding]:
        """Return what prevents or endangers the capture."""
        return check_server(
            self._connection,
            tables=self._source.tables,
            server_ids=[effective_server_id(self._source.server_id, self._source.server_name)],
            is_engine_load=self._source.snapshot == "engine",
            binlog_position=None if offset is None else position_of(offset),
        )

    def origin(self) -> LogOrigin:
        """Return the server and the tables, which have no ids: the log has their statements."""
        source = self._source
        with closing(connect(self._connection)) as connection:
            tables = list_tables(connection, source.tables)
            identity = server_identity(connection)
            mark = read_log_mark(connection)
        return LogOrigin(
            server=source.server_name,
            database=source.database,
            identity=identity.server_uuid,
            tables={shown_name(table.database or "", table.name or ""): "" for table in tables},
            log_mark=mark,
        )

    def log_findings(self, recorded: LogOrigin, offset: EngineOffset) -> list[Finding]:
        """Return the finding about a log that has other transactions before the position."""
        position = position_of(offset)
        if position is None:
            return []
        with closing(connect(self._connection)) as connection:
            return log_content_findings(connection, position, recorded.log_mark)

    def tables_with_rows(self, names: Collection[str]) -> list[str]:
        """Return the tables that have rows."""
        with closing(connect(self._connection)) as connection:
            return tables_with_rows(connection, names)

    def attached_partitions(self, numbers: Collection[str]) -> set[str]:
        """Return nothing: partitions are no tables."""
        del numbers
        return set()

    def prepare(self) -> list[str]:
        """Create nothing: the binary log needs no preparation."""
        return []

    def publish(self, names: Collection[str]) -> list[str]:
        """Do nothing: the binary log has all tables."""
        del names
        return []

    def forget_position(self) -> None:
        """Do nothing: the server keeps no position of its readers."""

    def connector_options(self, *, heartbeat_s: float) -> ConnectorOptions:
        """Return the options of Debezium's connector."""
        source = self._source
        with closing(connect(self._connection)) as connection:
            tables = list_tables(connection, source.tables)
        return ConnectorOptions(
            product="mariadb" if isinstance(source, MariadbSource) else "mysql",
            name=source.server_name,
            host=source.host,
            port=source.port,
            database=source.database,
            user=source.user,
            password=source.password,
            tables=tuple(tables),
            server_id=source.server_id,
            sslmode=source.sslmode,
            sslrootcert=source.sslrootcert or "",
            sslcert=source.sslcert or "",
            sslkey=source.sslkey or "",
            heartbeat_s=heartbeat_s,
            properties=source.debezium,
        )

    def log_lag(self, offset: EngineOffset | None) -> LogLag:
        """Return the bytes of the binary log after a position, and how long the server has it."""
        position = None if offset is None else position_of(offset)
        with closing(connect(self._connection)) as connection:
            files = log_files(connection)
            server = ServerState(
                variables=read_variables(connection),
                log_files=files,
                time_s=read_time_s(connection),
            )
        if not files:
            return LogLag(
                problem="the files of the binary log are unknown: the user lacks REPLICATION "
                "CLIENT (MariaDB: BINLOG MONITOR)"
            )
        if position is None:
            return LogLag()
        is_purged = position.file not in {file.name for file in files}
        return LogLag(
            lag_bytes=lag_bytes(files, position),
            headroom_s=0 if is_purged else headroom_s(server, position),
            problem=f"the server does not have {position.file}" if is_purged else "",
        )

    def is_end(self, offset: EngineOffset) -> bool:
        """Whether an offset is at the end of the binary log.

        GTIDs alone do not show it: a replica may commit transactions in another order.
        """
        with closing(connect(self._connection)) as connection:
            end = current_position(connection)
        position = position_of(offset)
        return position is not None and position.order == end.order

    def marker(self) -> IsPassed:
        """Return a function for the end of the log: all committed changes are below it.

        The engine reports a position with the next event only: a change, or a heartbeat of the
        server. After a statement, the position is that of its beginning, and after a restart
        that of the file's: GTIDs show that it has been read, or the number of its events.
        """
        with closing(connect(self._connection)) as connection:
            end = current_position(connection)

        @cache
        def is_begin_of_last_statement(begin: BinlogPosition) -> bool:
            with closing(connect(self._connection)) as connection:
                return is_one_statement(connection, begin, end)

        def is_passed(offset: EngineOffset) -> bool:
            position = position_of(offset)
            return position is not None and (
                position.order >= end.order
                or contains_gtids(position.gtid, end.gtid)
                or (_EVENT in offset and is_begin_of_last_statement(position))
            )

        return is_passed


def position_of(offset: EngineOffset) -> BinlogPosition | None:
    """Return the position of an offset of Debezium; ``None`` = it has none."""
    file, position = offset.get("file"), offset.get("pos")
    if not isinstance(file, str) or not isinstance(position, int):
        return None
    gtids = [offset.get("gtids"), offset.get("transaction_id")]
    time_ms = source_time_ms(offset)
    return BinlogPosition(
        file,
        position,
        ",".join(str(gtid) for gtid in gtids if gtid),
        None if time_ms is None else time_ms / 1000,
    )


def login_of(
    source: MysqlSource, *, read_timeout_s: int | None = READ_TIMEOUT_S
) -> MysqlConnection:
    """Return the login of a source.

    Args:
        source: The database.
        read_timeout_s: Seconds until a statement without an answer fails; ``None`` = never.
    """
    return MysqlConnection(
        host=source.host,
        port=source.port,
        user=source.user,
        password=source.password,
        ssl_mode=_SSL_MODES[source.sslmode],
        ssl_ca=source.sslrootcert or "",
        ssl_cert=source.sslcert or "",
        ssl_key=source.sslkey or "",
        read_timeout_s=read_timeout_s,
    )
