# SPDX-License-Identifier: Apache-2.0
"""What a capture log was captured from: positions and rows of something else do not continue it.

The file ``origin.json`` of the log has the server and the tables of the newest capture. The next
one compares them: another server, one that was restored from a dump, and a table that was not
captured until now have changes that no position of the log reveals.
"""

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from changelane.capture.finding import Finding, about_tables
from changelane.capture.mysql.log_content import LogMark
from changelane.capture.postgres.slot_findings import SNAPSHOT
from changelane.capture.storage import Folder
from changelane.errors import ChangelaneError

_NAME: Final = "origin.json"
_MAX_ARGUMENTS: Final = 5
"""The number of tables that an error writes as arguments of a command."""


class LogOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The origin of a capture log.

    Attributes:
        server: The name of the server in topics.
        database: The database.
        identity: The identity that the server gave itself when it was created; empty = unknown.
        timeline: The timeline of the server's log; 0 = unknown. PostgreSQL only.
        log_mark: What identifies the binary log; ``None`` = unknown. MySQL and MariaDB only.
        tables: The captured tables: name, as a pattern of this table only -> the id of the table,
            which changes when it is created again; empty = unknown.
        partitions: The partitions of captured tables, of all levels, whose rows the log has:
            table -> id of the partition -> its name. A table is missing if they are unknown.
            PostgreSQL only.
    """

    server: str
    database: str
    identity: str
    tables: dict[str, str]
    timeline: int = 0
    log_mark: LogMark | None = None
    partitions: dict[str, dict[str, str]] = {}


def read_origin(folder: Folder) -> LogOrigin | None:
    """Return the origin of a capture log; ``None`` = it has none yet.

    Raises:
        ChangelaneError: The file is damaged.
    """
    try:
        return msgspec.json.decode(folder.read(_NAME), type=LogOrigin)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ChangelaneError(f"{_NAME} of the capture log {folder.label} is damaged") from error


def write_origin(folder: Folder, origin: LogOrigin) -> None:
    """Replace the origin of a capture log, if it is another one."""
    if read_origin(folder) != origin:
        folder.replace(_NAME, msgspec.json.encode(origin))


def other_log_findings(recorded: LogOrigin, present: LogOrigin, label: str) -> Iterator[Finding]:
    """Yield the finding about a capture log of another database.

    Args:
        recorded: The origin of the log.
        present: The origin of the capture that starts.
        label: The capture log as text.
    """
    if (recorded.server, recorded.database) != (present.server, present.database):
        yield Finding(
            severity="error",
            defect="other_database",
            about=f"capture log {label}",
            problem=f"it belongs to database {recorded.database} (topic_prefix {recorded.server})",
            consequence="rows of two databases cannot be in one capture log",
            advice="set another folder under segments, or restore the former names",
        )


def continuation_findings(
    recorded: LogOrigin,
    present: LogOrigin,
    tables_with_rows: Callable[[Collection[str]], Iterable[str]],
    *,
    has_snapshot: bool,
    has_table_snapshots: bool = True,
    is_read: Callable[[str], bool] = lambda _: False,
) -> Iterator[Finding]:
    """Yield findings about a capture that continues from the position of its log.

    Args:
        recorded: The origin of the log.
        present: The origin of the capture that starts.
        tables_with_rows: Returns those of some tables that have rows.
        has_snapshot: Whether the log begins with the rows of the tables.
        has_table_snapshots: Whether the rows of a single table can be read.
        is_read: Returns whether the capture reads the rows of a new table.
    """
    if recorded.identity and present.identity and recorded.identity != present.identity:
        yield Finding(
            severity="error",
            defect="other_server",
            about=f"database {present.database}",
            problem="the server is not the one that was captured",
            consequence="its log has other positions: changes would be lost",
            advice=SNAPSHOT,
        )
        return
    if not has_snapshot:
        return
    new = [name for name in new_tables(recorded, present) if not is_read(name)]
    if missing := sorted(tables_with_rows(new) if new else []):
        advice = (
            f"`changelane snapshot add PIPELINE.yaml {_arguments(missing)}` reads only these, if "
            f"the tables have keys; {SNAPSHOT}"
        )
        yield Finding(
            severity="error",
            defect="new_table",
            about=about_tables(missing),
            problem="not captured until now, or created again",
            consequence="the rows that are there already would be missing",
            advice=advice if has_table_snapshots else SNAPSHOT,
        )


def _arguments(names: Sequence[str]) -> str:
    return shlex.join(names) if len(names) <= _MAX_ARGUMENTS else "TABLE..."


def new_tables(recorded: LogOrigin, present: LogOrigin) -> list[str]:
    """Return the tables that were not captured until now, or were created again."""
    return [name for name, number in present.tables.items() if recorded.tables.get(name) != number]
