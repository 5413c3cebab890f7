# SPDX-License-Identifier: Apache-2.0
"""Timelines of a PostgreSQL server: whether its log continues the captured one.

A server that is promoted, or recovered to an earlier moment, begins a timeline. Its log is that of
the former timeline up to the switch point, and another one after it. So an LSN means the same
change on both timelines only up to the switch point. The server keeps the switch points of its
timeline in a history file (https://www.postgresql.org/docs/current/continuous-archiving.html).
"""

from collections.abc import Iterator
from contextlib import closing

import msgspec

from changelane.capture.finding import Finding
from changelane.capture.postgres.connection import PostgresConnection, connect, database_errors
from changelane.capture.postgres.replication import server_identity
from changelane.capture.postgres.slot_findings import SNAPSHOT
from changelane.capture.postgres.sql_text import lsn_of, lsn_text


class Timeline(msgspec.Struct, frozen=True):
    """The timeline of a server.

    Attributes:
        number: Its number.
        switch_points: The LSN at which each former timeline of the server ended.
    """

    number: int
    switch_points: dict[int, int] = {}


def read_timeline(login: PostgresConnection, captured: int) -> Timeline:
    """Return the timeline of a server, with its history if it is not the captured one.

    Args:
        login: The login of the capture.
        captured: The timeline of the captured position; 0 = unknown.

    Raises:
        ConfigError: The server rejects the login or a statement.
        UnreachableError: The server does not answer.
    """
    with connect(login) as connection:
        number = server_identity(connection).timeline
    if captured in {0, number} or number == 1:  # the first one has no history
        return Timeline(number)
    with (
        closing(connect(login, is_replication=True)) as replication,
        database_errors("the history of the timeline"),
    ):
        row = replication.execute(f"TIMELINE_HISTORY {number}").fetchone()
    content = row[1] if row else ""
    history = content.decode() if isinstance(content, bytes) else content
    return Timeline(number, switch_points(history))


def switch_points(history: str) -> dict[int, int]:
    r"""Return the LSN at which each former timeline ended, from the text of a history file.

    >>> switch_points("1\t0/3000060\tno recovery target specified\n2\t1/0\tbefore 2024\n")
    {1: 50331744, 2: 4294967296}
    """
    lines = [line.split() for line in history.splitlines()]
    return {int(line[0]): lsn_of(line[1]) for line in lines if line and not line[0].startswith("#")}


def timeline_findings(captured: int, timeline: Timeline, position: int) -> Iterator[Finding]:
    """Yield the finding about a captured position that is not in the log of a server.

    Args:
        captured: The timeline of the position; 0 = unknown.
        timeline: The timeline of the server.
        position: The position up to which changes are durable here.
    """
    switch = timeline.switch_points.get(captured)
    if captured in {0, timeline.number} or (switch is not None and position <= switch):
        return
    end = "" if switch is None else f" at {lsn_text(switch)}"
    yield Finding(
        severity="error",
        defect="timeline",
        about=f"position {lsn_text(position)}",
        problem=f"timeline {timeline.number} of the server left the captured one, {captured}{end}",
        consequence=(
            "the server was restored to an earlier moment, or promoted without the last changes: "
            "changes would be lost"
        ),
        advice=SNAPSHOT,
    )
