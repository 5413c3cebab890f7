# SPDX-License-Identifier: Apache-2.0
"""Whether the binary log of a server is the captured one, and not another one with equal names.

``RESET MASTER`` deletes the log, and the server begins again with the first file and the first
GTID. After some time, the names, the sizes and the GTIDs of the new log include the captured
position, and its first changes would be lost.
"""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from changelane.capture.finding import Finding
from changelane.capture.mysql.connection import Connection, database_errors, read_if_allowed
from changelane.capture.mysql.position import (
    BinlogPosition,
    gtid_numbers,
    gtid_position,
    is_mariadb,
    log_files,
)
from changelane.capture.postgres.slot_findings import SNAPSHOT

_MARKED_EVENTS: Final = 32
"""Some transactions: their ids increase until a server is restarted, also after a reset."""
_FIRST_POSITION: Final = 4
"""The position of the first event of a file."""


class LogMark(msgspec.Struct, frozen=True):
    """The first events of a file of the log, which never change.

    Attributes:
        file: The name of the file.
        event_count: The number of the events.
        digest: The SHA-256 of their positions, types and contents, hexadecimal.
    """

    file: str
    event_count: int
    digest: str


def read_log_mark(connection: Connection) -> LogMark | None:
    """Return the mark of the newest file; ``None`` = unknown.

    Raises:
        UnreachableError: The connection is lost.
    """
    files = log_files(connection)
    return _mark_of(connection, files[-1].name, _MARKED_EVENTS) if files else None


def _mark_of(connection: Connection, file: str, event_count: int) -> LogMark | None:
    events = _events(connection, file, f"LIMIT {event_count}")
    if not events:
        return None
    digest = hashlib.sha256(repr([event[1:] for event in events]).encode("utf-8", "replace"))
    return LogMark(file, len(events), digest.hexdigest())


def is_one_statement(connection: Connection, begin: BinlogPosition, end: BinlogPosition) -> bool:
    """Whether the log has exactly one statement between two positions; false if unknown.

    Raises:
        UnreachableError: The connection is lost.
    """
    if begin.file != end.file:
        return False
    events = _events(connection, begin.file, f"FROM {begin.offset} LIMIT 2")
    # a transaction with rows ends after more events
    return len(events) == 2 and events[1][2] == "Query" and events[1][4] == end.offset


def _events(connection: Connection, file: str, which: str) -> Sequence[tuple[Any, ...]]:
    """Return events of a file of the log; empty = unknown."""
    name = file.replace("\\", "\\\\").replace("'", "''")
    try:
        with database_errors("the events of the log"):
            events = read_if_allowed(connection, f"SHOW BINLOG EVENTS IN '{name}' {which}")
    except UnicodeDecodeError:  # a statement in the character set of another client
        return ()
    return events or ()


def log_content_findings(
    connection: Connection, binlog_position: BinlogPosition, mark: LogMark | None
) -> list[Finding]:
    """Return the finding about a log that is not the captured one.

    Args:
        connection: A connection to the server.
        binlog_position: The position up to which changes are durable here.
        mark: The mark of the captured log; ``None`` = there is none.

    Raises:
        UnreachableError: The connection is lost.
    """
    if not (_has_other_mark(connection, mark) or _has_other_gtids(connection, binlog_position)):
        return []
    return [
        Finding(
            severity="error",
            defect="other_log",
            about=f"position {binlog_position.file}:{binlog_position.offset}",
            problem="the log of the server has other transactions before it",
            consequence="the log was reset, or the server replaced: changes would be lost",
            advice=SNAPSHOT,
        )
    ]


def _has_other_mark(connection: Connection, mark: LogMark | None) -> bool:
    """Whether the marked file has other events; false if the server deleted it."""
    if mark is None or mark.file not in {file.name for file in log_files(connection)}:
        return False
    present = _mark_of(connection, mark.file, mark.event_count)
    return present not in {None, mark}


def _has_other_gtids(connection: Connection, binlog_position: BinlogPosition) -> bool:
    """Whether the log has other GTIDs before a position than those captured; MariaDB only.

    A position outside of the log has findings of its own (:mod:`.position_findings`).
    Debezium's position after a connection by GTIDs is the beginning of the file, until the next
    transaction. MySQL has no function for the GTIDs at a position.
    """
    captured = gtid_numbers(binlog_position.gtid)
    sizes = {log_file.name: log_file.size for log_file in log_files(connection)}
    is_in_log = binlog_position.offset <= sizes.get(binlog_position.file, -1)
    if not captured or not is_in_log or not is_mariadb(connection):
        return False
    text = gtid_position(connection, binlog_position.file, binlog_position.offset)
    if text is None:
        return True  # no event begins or ends there
    is_beginning = binlog_position.offset <= _FIRST_POSITION
    return any(
        number > captured[domain] or (number < captured[domain] and not is_beginning)
        for domain, number in gtid_numbers(text).items()
        if domain in captured  # the connector may leave out the others
    )
