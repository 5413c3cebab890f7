# SPDX-License-Identifier: Apache-2.0
"""Requests the rows of single tables from the capture of a database."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Literal

import msgspec

from changelane.capture.captured_server import CapturedServer
from changelane.capture.log_origin import (
    continuation_findings,
    new_tables,
    other_log_findings,
    read_origin,
)
from changelane.capture.postgres.slot_findings import SNAPSHOT
from changelane.capture.products import captured_server_of, table_database_of
from changelane.capture.segment_store import CaptureLog
from changelane.capture.snapshot.plan import SnapshotTable
from changelane.capture.snapshot.table_database import check_key
from changelane.capture.snapshot.table_requests import TableRequest, create_request
from changelane.capture.storage import folder_of
from changelane.errors import ConfigError, UnknownNameError
from changelane.formats.contract.options import seconds
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.experimental_source import unavailable


class Requested(msgspec.Struct, frozen=True):
    """What was requested.

    Attributes:
        requests: The requests.
        statements: The statements that the server executed.
    """

    requests: tuple[TableRequest, ...]
    statements: tuple[str, ...] = ()


def request_tables(
    source: DatabaseSource,
    names: Sequence[str],
    *,
    kind: Literal["add", "redo"],
    lower: Sequence[str] = (),
    upper: Sequence[str] = (),
) -> Requested:
    """Request the rows of tables from the capture that runs, or from the next one.

    Args:
        source: The database.
        names: Names of tables, in full or by their last parts.
        kind: What is requested; a table that is new to the log is added in any case.
        lower: The first values of the smallest key of a range, as texts; empty = no bound.
        upper: The first values of the greatest key, which is part of the range.

    Raises:
        ConfigError: The log has no first load of this database, a table has no key, its snapshot
            is not complete, a bound is no value of the key, a range is of a new table, or the
            publication lacks the table and the login may not change that, and the error has the
            statement; or the source is experimental.
        UnknownNameError: No captured table has the name.
        UnreachableError: The server does not answer.
    """
    if source.is_experimental:
        raise unavailable(source, f"snapshot {kind}", SNAPSHOT)
    check_capture_log(source)
    folder = folder_of(source.segments)
    newest = CaptureLog(folder).newest()
    server = captured_server_of(source)
    selected = _selected(source, server, names)
    recorded, origin = read_origin(folder), server.origin()
    new = set(selected).intersection(() if recorded is None else new_tables(recorded, origin))
    if new and (lower or upper):
        raise ConfigError(
            f"{min(new)} was not captured until now, or created again, so that the rows outside of "
            "the range would be missing: read it as a whole (`changelane snapshot add`)"
        )
    options = server.connector_options(heartbeat_s=seconds(source.heartbeat_interval))
    tables = table_database_of(source, options)
    for name in selected:
        table = tables.table(name)
        if table is not None:
            check_key(table)
            _check_range(table, lower, upper)
            tables.table(name, tuple(lower), tuple(upper))
    added = set(selected) if kind == "add" else new
    statements = server.publish(sorted(added)) if added else []
    requests = [
        TableRequest(
            kind="add" if name in added else "redo",
            table=name,
            history=0 if newest is None else newest.history,
            created_ms=int(time.time() * 1000),
            lower=tuple(lower),
            upper=tuple(upper),
            partitions=origin.partitions.get(name, {}),
        )
        for name in selected
    ]
    for request in requests:
        create_request(folder, request)
    return Requested(tuple(requests), tuple(statements))


def check_capture_log(source: DatabaseSource) -> None:
    """Check that the capture log has the first rows of this database.

    Raises:
        ConfigError: It has not.
    """
    folder = folder_of(source.segments)
    newest = CaptureLog(folder).newest()
    if newest is None or not newest.engine_offset:
        # a first snapshot would come after the position of other rows
        msg = f"the capture log {folder.label} has no complete first load: start `changelane run`"
        raise ConfigError(msg)
    recorded = read_origin(folder)
    if recorded is None:
        return
    # positions of another server have another meaning
    server = captured_server_of(source)
    present = server.origin()
    for finding in (
        *other_log_findings(recorded, present, folder.label),
        *continuation_findings(recorded, present, lambda _: (), has_snapshot=False),
        *server.log_findings(recorded, newest.engine_offset),
    ):
        msg = f"the capture log {folder.label} is not of this database: {finding.problem}"
        raise ConfigError(msg)


def _selected(source: DatabaseSource, server: CapturedServer, names: Sequence[str]) -> list[str]:
    """Return captured tables, as patterns of these tables only."""
    captured = sorted(server.origin().tables)
    selected: dict[str, None] = {}
    for name in names:
        matches = [table for table in captured if f".{table}".endswith(f".{name}")]
        if not matches:
            with suppress(ConfigError, ValueError):  # the name is no pattern
                same_server = msgspec.structs.replace(source, tables=[name])
                tables = captured_server_of(same_server).origin().tables
                matches = [table for table in captured if table in tables]
        if not matches:
            raise UnknownNameError("table", name, captured)
        selected |= dict.fromkeys(matches)
    return list(selected)


def _check_range(planned_table: SnapshotTable, lower: Sequence[str], upper: Sequence[str]) -> None:
    """Check that a table has the key of a range.

    Raises:
        ConfigError: It has other columns, or a type whose order the capture does not know.
    """
    key = planned_table.key
    value_count = max(len(lower), len(upper))
    names = ", ".join(column.name for column in key)
    if value_count > len(key):
        raise ConfigError(f"a bound has more values than the key of {planned_table.label}: {names}")
    if not all(column.is_divisible for column in key[:value_count]):
        raise ConfigError(
            f"the key of {planned_table.label} has a type without ranges ({names}): read the whole "
            "table"
        )
