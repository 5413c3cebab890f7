# SPDX-License-Identifier: Apache-2.0
"""Findings about the captured position in the log of a MySQL or MariaDB server. Pure."""

from collections.abc import Iterator
from typing import Final

from changelane.capture.finding import Finding, size_text
from changelane.capture.mysql.position import BinlogPosition, file_number, lag_bytes
from changelane.capture.mysql.server_findings import ServerState, retention_s

MAX_LAG_BYTES: Final = 1 << 30
"""A position that is further behind gets a warning."""
_LOW_HEADROOM: Final = 4
"""A position gets a warning in the last quarter of the retention of its log."""
_SNAPSHOT: Final = "take a new snapshot of the tables"


def position_findings(
    server: ServerState,
    binlog_position: BinlogPosition | None,
    *,
    max_lag_bytes: int = MAX_LAG_BYTES,
) -> Iterator[Finding]:
    """Yield findings about the position up to which changes are durable here.

    Args:
        server: The state of the server.
        binlog_position: The position; ``None`` before the first run.
        max_lag_bytes: The lag that gets a warning.
    """
    files = server.log_files
    if binlog_position is None or not files:
        return
    by_name = {file.name: file for file in files}
    about = f"position {binlog_position.file}:{binlog_position.offset}"
    file = by_name.get(binlog_position.file)
    last = files[-1]
    is_ahead = file_number(binlog_position.file) > file_number(last.name) or (
        file is not None and binlog_position.offset > file.size
    )
    if is_ahead:
        yield Finding(
            severity="error",
            defect="position_ahead",
            about=about,
            problem=f"the log of the server ends before it, at {last.name}:{last.size}",
            consequence="it is another server, or its log was reset: changes are lost",
            advice=_SNAPSHOT,
        )
        return
    if file is None:
        yield Finding(
            severity="error",
            defect="position_purged",
            about=about,
            problem=f"the server has deleted this file; the oldest is {files[0].name}",
            consequence="changes are lost",
            advice=_SNAPSHOT,
        )
        return
    yield from _headroom_findings(server, binlog_position, about)
    if (lag := lag_bytes(files, binlog_position)) > max_lag_bytes:
        yield Finding(
            severity="warning",
            defect="position_lag",
            about=about,
            problem=f"the log is {size_text(lag)} ahead",
            consequence="a run needs time to read it, and the server may delete it",
            advice="run the pipeline",
        )


def headroom_s(server: ServerState, binlog_position: BinlogPosition) -> float | None:
    """Return the seconds until the server may delete the log at a position.

    The retention of a file begins with its last event, and so not before the event at the position.
    That of the file which the server writes has not begun.

    Args:
        server: The state of the server.
        binlog_position: The position.

    Returns:
        The seconds, at least 0; ``None`` = never, or unknown.
    """
    retention = retention_s(server)
    if not retention or server.is_rds or not server.log_files:
        return None
    if binlog_position.file == server.log_files[-1].name:
        return retention
    if binlog_position.time_s is None:
        return None
    return max(retention - max(server.time_s - binlog_position.time_s, 0), 0)


def headroom_text(seconds: float) -> str:
    """Return a headroom for people.

    >>> headroom_text(5400)
    '1.5 hours until the server may delete it'
    """
    return f"{seconds / 3600:.1f} hours until the server may delete it"


def _headroom_findings(
    server: ServerState, binlog_position: BinlogPosition, about: str
) -> Iterator[Finding]:
    headroom = headroom_s(server, binlog_position)
    if headroom is not None and headroom * _LOW_HEADROOM < retention_s(server):
        yield Finding(
            severity="warning",
            defect="position_headroom",
            about=about,
            problem=headroom_text(headroom),
            consequence="then changes are lost",
            advice="run the pipeline now, or increase binlog_expire_logs_seconds",
        )
