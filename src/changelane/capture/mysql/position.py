# SPDX-License-Identifier: Apache-2.0
"""Positions in the binary log of MySQL and MariaDB, and markers in it.

The binary log has no messages of its own: a marker is a row of a table that is captured, too.
A position that is asked for may be ahead of what a read sees, because a transaction is in the log
before its engine makes it visible; a marker is not: whoever has seen it has seen all before it.
"""

import re
import uuid
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from changelane.capture.mysql.connection import (
    Connection,
    database_errors,
    read_if_allowed,
    read_rows,
)
from changelane.capture.mysql.sql_text import identifier, qualified
from changelane.errors import ConfigError

_FILE: Final = re.compile(r"(.*)\.([0-9]+)", re.ASCII | re.DOTALL)
_STATUS: Final = ("SHOW MASTER STATUS", "SHOW BINARY LOG STATUS")
"""MySQL 8.4 removed the first, and MariaDB does not have the second."""


class BinlogPosition(msgspec.Struct, frozen=True):
    """A position in the binary log.

    Attributes:
        file: The name of the file, such as ``binlog.000042``.
        offset: The offset in the file.
        gtid: The set of global transaction ids up to here; empty if the server has none.
        time_s: The time of the last event before it, seconds since 1970-01-01 UTC; ``None`` =
            unknown.
    """

    file: str
    offset: int
    gtid: str = ""
    time_s: float | None = None

    @property
    def order(self) -> tuple[int, int]:
        """The number of the file and the offset: positions of one server in their order."""
        return file_number(self.file), self.offset


def file_number(name: str) -> int:
    """Return the number of a file of the log; numbers have six digits or more.

    Raises:
        ValueError: The name has no number.

    >>> file_number("binlog.1000000")
    1000000
    """
    parts = _FILE.fullmatch(name)
    if parts is None:
        raise ValueError("a file of the binary log ends with a dot and a number")
    return int(parts[2])


_GTID: Final = re.compile(
    r"(?P<domain>[0-9]+)-[0-9]+-(?P<number>[0-9]+)"  # MariaDB
    r"|(?P<source>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"  # MySQL: intervals of a source
    r"(?::[0-9]+(?:-[0-9]+)?)*:(?:[0-9]+-)?(?P<last>[0-9]+)",
    re.ASCII | re.IGNORECASE,
)


def contains_gtids(reached: str, gtids: str) -> bool:
    """Whether a list of GTIDs has reached another one; never for an empty or unknown one.

    >>> contains_gtids("0-1-5,1-2-8,1-2-9", "1-2-9,0-3-5"), contains_gtids("1-2-9", "1-2-10")
    (True, False)
    >>> source = "3E11FA47-71CA-11E1-9E33-C80AA9429562"
    >>> contains_gtids(f"{source}:1-21,{source}:22", f"{source}:1-5:7-22")
    True
    """
    newest = gtid_numbers(reached)
    wanted = gtid_numbers(gtids)
    is_known = bool(wanted) and not _GTID.sub("", gtids).strip(", \n")
    return is_known and all(newest.get(domain, -1) >= number for domain, number in wanted.items())


def gtid_numbers(gtids: str) -> dict[str, int]:
    """Return the last number of each domain of MariaDB, or each source of MySQL."""
    numbers: dict[str, int] = {}
    for gtid in _GTID.finditer(gtids):
        domain = (gtid["domain"] or gtid["source"]).lower()
        numbers[domain] = max(int(gtid["number"] or gtid["last"]), numbers.get(domain, 0))
    return numbers


def is_mariadb(connection: Connection) -> bool:
    """Whether the server is MariaDB."""
    with database_errors("the version of the server"):
        ((version,),) = read_rows(connection, "SELECT version()")
    return "mariadb" in str(version).lower()


def log_status(connection: Connection) -> tuple[Any, ...] | None:
    """Return the row of the log's status: file, offset, databases in it and not in it.

    ``None`` without a binary log, and if the user lacks the privilege.
    """
    with database_errors("the position of the log"):
        for statement in _STATUS:
            if rows := read_if_allowed(connection, statement):
                return rows[0]
    return None


def current_position(connection: Connection) -> BinlogPosition:
    """Return the end of the log: all changes committed before this call are below it.

    Raises:
        ConfigError: The server has no binary log, or the user lacks the privilege.
        UnreachableError: The connection is lost.
    """
    status = log_status(connection)
    if status is None:
        raise ConfigError(
            "the position of the log is unknown: the server has no binary log, or the user lacks "
            "REPLICATION CLIENT (MariaDB: BINLOG MONITOR)"
        )
    gtid = str(status[4]) if len(status) > 4 else ""
    if is_mariadb(connection):
        with database_errors("the position of the log"):
            ((gtid,),) = read_rows(connection, "SELECT @@global.gtid_binlog_pos")
    return BinlogPosition(status[0], int(status[1]), "".join(gtid.split()))


def begin_snapshot(connection: Connection) -> BinlogPosition:
    """Begin a transaction with a consistent snapshot; return its exact position.

    The transaction sees all changes below the position, and no change after it. MariaDB reports
    the position of a snapshot. Other servers do not: there, a global read lock keeps all
    transactions from their commits for the moment in which the snapshot begins.

    Raises:
        ConfigError: The server has no binary log, or the user lacks a privilege.
        UnreachableError: The connection is lost.
    """
    with database_errors("the snapshot"):
        read_rows(connection, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    if not is_mariadb(connection):
        return begin_locked_snapshot(connection)
    with database_errors("the snapshot"):
        read_rows(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        status = dict(read_rows(connection, "SHOW STATUS LIKE 'Binlog_snapshot_%'"))
    if not status.get("Binlog_snapshot_file"):
        connection.rollback()
        raise ConfigError("the server has no binary log")
    return BinlogPosition(
        str(status["Binlog_snapshot_file"]), int(status["Binlog_snapshot_position"])
    )


def begin_locked_snapshot(connection: Connection) -> BinlogPosition:
    """Begin a transaction with a consistent snapshot under a global read lock.

    The lock waits for running statements, and is released before this function returns.

    Raises:
        ConfigError: The server has no binary log, or the user lacks a privilege.
        UnreachableError: The connection is lost.
    """
    with database_errors("the global read lock"):
        read_rows(connection, "FLUSH TABLES WITH READ LOCK")
    try:
        with database_errors("the snapshot"):
            read_rows(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
        return current_position(connection)
    finally:
        with database_errors("the global read lock"):
            read_rows(connection, "UNLOCK TABLES")


def prepared_transactions(connection: Connection) -> frozenset[str] | None:
    """Return the XA transactions that are prepared; ``None`` = the user lacks the privilege.

    The log has their changes, which no other session sees before ``XA COMMIT``. MariaDB lists them
    for all users, and MySQL with the privilege ``XA_RECOVER_ADMIN``.
    """
    with database_errors("the list of XA transactions"):
        rows = read_if_allowed(connection, "XA RECOVER")
    return None if rows is None else frozenset(map(repr, rows))


def gtid_position(connection: Connection, file: str, offset: int) -> str | None:
    """Return the GTIDs of MariaDB at a position; ``None`` = the log has no event there."""
    with database_errors("the position of the log"):
        ((gtid,),) = read_rows(connection, "SELECT binlog_gtid_pos(%s, %s)", file, offset)
    return None if gtid is None else str(gtid)


class LogFile(msgspec.Struct, frozen=True):
    """A file of the binary log, with its size in bytes."""

    name: str
    size: int


def log_files(connection: Connection) -> tuple[LogFile, ...]:
    """Return the files of the log from the oldest; none if the user lacks the privilege."""
    with database_errors("the files of the log"):
        rows = read_if_allowed(connection, "SHOW BINARY LOGS") or []
    return tuple(LogFile(str(row[0]), int(row[1])) for row in rows)


def lag_bytes(files: Iterable[LogFile], binlog_position: BinlogPosition) -> int:
    """Return the bytes of the log after a position.

    >>> lag_bytes([LogFile("a.1", 10), LogFile("a.2", 7)], BinlogPosition("a.1", 4))
    13
    """
    number, offset = binlog_position.order
    later = sum(file.size for file in files if file_number(file.name) >= number)
    return max(later - offset, 0)


class ServerIdentity(msgspec.Struct, frozen=True):
    """The identity of a log: positions of another one have another meaning.

    Attributes:
        server_uuid: The identity of the server; of MariaDB, ``server_uid`` if the version has it.
        server_id: The number of the server among its replicas.
    """

    server_uuid: str
    server_id: int


def server_identity(connection: Connection) -> ServerIdentity:
    """Return the identity of the server."""
    with database_errors("the identity of the server"):
        rows = read_rows(connection, "SHOW GLOBAL VARIABLES LIKE 'server_%id'")
        variables = {str(name).lower(): str(value) for name, value in rows}
        ((server_id,),) = read_rows(connection, "SELECT @@global.server_id")
    identity = variables.get("server_uuid") or variables.get("server_uid", "")
    return ServerIdentity(identity, int(server_id))


# -- markers


class Marker(msgspec.Struct, frozen=True):
    """A row of the table of markers.

    Attributes:
        writer: Its key.
        token: 32 hexadecimal digits that no other marker has.
        content: The text.
    """

    writer: str
    token: str
    content: str


def marker_table_statement(database: str, table: str) -> str:
    """Return the statement that creates a table of markers."""
    return (
        f"CREATE TABLE IF NOT EXISTS {qualified(database, table)} ("
        "writer varchar(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL PRIMARY KEY, "
        "token char(32) CHARACTER SET ascii NOT NULL, content text CHARACTER SET utf8mb4 NOT NULL"
        ") ENGINE = InnoDB"
    )


def create_marker_table(connection: Connection, database: str, table: str) -> None:
    """Create a table of markers, unless it exists.

    Raises:
        ConfigError: The user may not create it; the error has the statements for another user.
        UnreachableError: The connection is lost.
    """
    statement = marker_table_statement(database, table)
    try:
        with database_errors(f"the creation of table {identifier(table)}"):
            read_rows(connection, statement)
    except ConfigError as error:
        raise type(error)(f"{error}; as another user: {statement}") from None


def emit_marker(
    connection: Connection, database: str, table: str, *, writer: str, text: str = ""
) -> Marker:
    """Write a marker and commit it; it replaces the last one of its writer.

    Args:
        connection: A connection with autocommit, outside of a transaction.
        database: The database of the table of markers.
        table: The table of markers.
        writer: The name of the writer, such as that of a pipeline.
        text: A text without secrets.

    Raises:
        ConfigError: The server rejects the row.
        UnreachableError: The connection is lost.
    """
    marker = Marker(writer, uuid.uuid4().hex, text)
    name = qualified(database, table).replace("%", "%%")
    with database_errors(f"the marker in table {identifier(table)}"):
        read_rows(
            connection,
            f"INSERT INTO {name} (writer, token, content) VALUES (%s, %s, %s) "  # noqa: S608 - a quoted name
            "ON DUPLICATE KEY UPDATE token = VALUES(token), content = VALUES(content)",
            marker.writer,
            marker.token,
            marker.content,
        )
        connection.commit()
    return marker
