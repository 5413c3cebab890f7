# SPDX-License-Identifier: Apache-2.0
"""``changelane snapshot``: rows of single tables beside the changes, and how far snapshots are."""

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal

import click
import msgspec
from rich.console import Console

from changelane.capture.snapshot.figures import (
    SnapshotFigures,
    TableFigures,
    read_snapshot_figures,
)
from changelane.capture.snapshot.table_requests import (
    RequestState,
    TableRequest,
    cancel_request,
    read_request,
    read_requests,
    state_of,
)
from changelane.capture.storage import folder_of
from changelane.cli.terminal import Column, output_console, print_table
from changelane.conversion.terminal_text import printable
from changelane.errors import ConfigError
from changelane.pipeline.config import load
from changelane.pipeline.database_source import DatabaseSource

if TYPE_CHECKING:
    from changelane.pipeline.config import Pipeline

_POLL_S: Final = 0.5
_FILE: Final = click.argument("file", metavar="PIPELINE.yaml", type=click.Path(dir_okay=False))
_WAIT: Final = click.option(
    "--wait", is_flag=True, help="End when the capture log has the rows; a capture must run."
)


_CANCELLED: Final = {
    "add": "cancelled: rows from before the capture are missing until `snapshot redo` reads them",
    "redo": "cancelled",
}


class TableSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshot of one table that is requested.

    Attributes:
        table: The table.
        kind: ``add`` or ``redo``.
        state: Whether the rows are still to be read.
        lower, upper: The first values of the keys of a range; empty = no bound.
        error: Why the rows cannot be read; empty = nothing is known to prevent it.
        figures: How far it is; ``None`` = it waits for a capture, or for transactions that write to
            the table.
    """

    table: str
    kind: Literal["add", "redo"]
    state: RequestState
    lower: tuple[str, ...]
    upper: tuple[str, ...]
    error: str
    figures: SnapshotFigures | None


class SnapshotStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The snapshots that are not complete.

    Attributes:
        first_load: The first load of all tables by readers; ``None`` = none is interrupted or runs.
        tables: The snapshots of single tables.
    """

    first_load: SnapshotFigures | None
    tables: tuple[TableSnapshot, ...]


@click.group()
def snapshot() -> None:
    """Read rows of single tables beside the changes; show how far snapshots are."""


@snapshot.command()
@_FILE
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True)
@_WAIT
def add(file: str, tables: tuple[str, ...], *, wait: bool) -> None:
    """Read the rows of tables that were not captured until now.

    A pattern of `tables` in the pipeline must match them; TABLE is the name at the source, or its
    last part. A table of PostgreSQL is added to the publication, or the statement for it is shown.
    The capture that runs reads the rows beside the changes of all tables, or the next one does, as
    `r` events at a known position. No row of another table is read.

    Tables without a key are refused: their rows would be doubled.

    Exit codes: 0 requested, or --wait: read; 1 the rows cannot be read; 2 wrong use or
    configuration.
    """
    _request(load(file), tables, kind="add", lower=(), upper=(), is_waiting=wait)


@snapshot.command()
@_FILE
@click.argument("table", metavar="TABLE")
@click.option(
    "--from",
    "lower",
    metavar="VALUE",
    multiple=True,
    help="The smallest key of a range; one option for each column of the key, in its order. "
    "Binary values of MariaDB are hexadecimal.",
)
@click.option(
    "--to", "upper", metavar="VALUE", multiple=True, help="The greatest key, as for --from."
)
@_WAIT
def redo(
    file: str, table: str, *, lower: tuple[str, ...], upper: tuple[str, ...], wait: bool
) -> None:
    """Read the rows of a table again, or those of a range of keys.

    The capture that runs reads them beside the changes of all tables, or the next one does. The
    rows are `r` events at a known position: they replace what the lake has, but no newer change.
    Rows that exist only in the lake stay: `changelane verify --repair` deletes them.

    Tables without a key, and those of the modes `append` and `history`, are refused: their rows
    would be doubled.

    Exit codes: 0 requested, or --wait: read; 1 the rows cannot be read; 2 wrong use or
    configuration.
    """
    pipeline = load(file)
    modes = {pipeline.options.mode, *(t.mode for t in pipeline.options.tables.values())}
    if other_modes := sorted(mode for mode in modes if mode not in {None, "upsert"}):
        raise ConfigError(
            f"redo needs tables of the mode upsert, not {', '.join(other_modes)}: the rows would "
            "be doubled"
        )
    _request(pipeline, [table], kind="redo", lower=lower, upper=upper, is_waiting=wait)


def _request(
    pipeline: "Pipeline",
    names: Sequence[str],
    *,
    kind: Literal["add", "redo"],
    lower: Sequence[str],
    upper: Sequence[str],
    is_waiting: bool,
) -> None:
    """Request snapshots, and wait for their end if the user wants it."""
    from changelane.capture.requested_tables import request_tables

    source = _database_of(pipeline)
    if pipeline.sink.is_topics:
        raise ConfigError(
            f"pipeline {pipeline.name} writes into topics, where the rows would follow newer "
            "changes: `changelane capture PIPELINE.yaml --new-snapshot` reads all rows in order"
        )
    requested = request_tables(source, names, kind=kind, lower=lower, upper=upper)
    for statement in requested.statements:
        click.echo(f"changelane: executed: {printable(statement)}", err=True)
    names_text = ", ".join(printable(request.table) for request in requested.requests)
    click.echo(f"requested: the rows of {names_text}")
    if not is_waiting:
        click.echo("the capture that runs, or the next one, reads them: see snapshot status")
        return
    if errors := _errors_at_end(source, requested.requests):
        for error in errors:
            click.echo(f"changelane: {printable(error)}", err=True)
        sys.exit(1)
    click.echo("the capture log has the rows")


def _errors_at_end(source: DatabaseSource, requests: Sequence[TableRequest]) -> list[str]:
    """Wait until requests are complete or have failed; return the errors."""
    folder = folder_of(source.segments)
    errors = []
    for request in requests:
        while (present := read_request(folder, request.table)) and present.id == request.id:
            if present.error:
                errors.append(f"the rows of {request.table} are not read: {present.error}")
                break
            if state_of(folder, present) == "cancelled":
                errors.append(f"the rows of {request.table} are not read: cancelled")
                break
            time.sleep(_POLL_S)
    return errors


@snapshot.command()
@_FILE
@click.argument("tables", metavar="TABLE...", nargs=-1, required=True)
def cancel(file: str, tables: tuple[str, ...]) -> None:
    """Cancel requests of `add` and `redo` that wait, run or have failed.

    TABLE is the name at the source, or its last part. The capture that runs ends the readers of the
    table within seconds, and deletes what they read: no row of an incomplete snapshot is visible. A
    snapshot with all chunks complete is published all the same. A request may be cancelled again.

    The log has the changes of an added table from then on, but the rows from before are missing
    until `redo` reads them.

    Exit codes: 0 cancelled, or nothing to cancel; 2 wrong use or configuration.
    """
    folder = folder_of(_database_of(load(file)).segments)
    requests = read_requests(folder)
    for name in tables:
        matches = [request for request in requests if f".{request.table}".endswith(f".{name}")]
        if not matches:
            click.echo(f"no snapshot of {printable(name)} is requested")
        for request in matches:
            cancel_request(folder, request)
            click.echo(f"cancelled: {request.kind} {printable(request.table)}")


@snapshot.command()
@_FILE
@click.option("--output", type=click.Choice(["text", "json"]), default="text")
def status(file: str, *, output: str) -> None:
    """Show the chunks and rows of each table in the snapshots that run, wait or were interrupted.

    It reads the capture log only, so it may run on another machine than the capture. A snapshot
    that is complete is a part of the capture log, and has no chunks any more; a first load with
    `snapshot: engine` has none. With --output json, `first_load` is null if there is none, and
    `tables` has the snapshots of single tables.
    """
    folder = folder_of(_database_of(load(file)).segments)
    snapshots = SnapshotStatus(
        first_load=read_snapshot_figures(folder),
        tables=tuple(
            TableSnapshot(
                table=request.table,
                kind=request.kind,
                state=state_of(folder, request),
                lower=request.lower,
                upper=request.upper,
                error=request.error,
                figures=read_snapshot_figures(folder, request.plan_name),
            )
            for request in read_requests(folder)
        ),
    )
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(snapshots)))
        return
    if snapshots.first_load is None and not snapshots.tables:
        click.echo("no snapshot by readers runs, and none was interrupted")
        return
    console = output_console()
    if snapshots.first_load is not None:
        _show(snapshots.first_load.tables, console)
        console.print(printable(snapshots.first_load.line))
    for table in snapshots.tables:
        _show_table(table, console)


def _show_table(table_snapshot: TableSnapshot, console: Console) -> None:
    """Show the snapshot of one table."""
    figures = table_snapshot.figures
    state = "waits for a capture, or for transactions that write to the table"
    if figures is not None:
        state = figures.line
    if table_snapshot.error:
        state = f"failed: {table_snapshot.error}"
    if table_snapshot.state == "cancelled":
        state = _CANCELLED[table_snapshot.kind]
    name = printable(table_snapshot.table)
    console.print(f"{table_snapshot.kind} {name}: {printable(state)}")


def _show(figures: Sequence[TableFigures], console: Console) -> None:
    columns = [
        Column("table"),
        *(Column(name, is_text=False) for name in ("chunks", "complete", "rows")),
    ]
    rows = [
        (
            printable(row.table),
            *(f"{count:,}" for count in (row.chunk_count, row.complete_count, row.row_count)),
        )
        for row in figures
    ]
    print_table(columns, rows, console)


def _database_of(pipeline: "Pipeline") -> DatabaseSource:
    """Return the source of a pipeline.

    Raises:
        ConfigError: It is no captured database, or Kafka Connect captures it.
    """
    if not isinstance(pipeline.source, DatabaseSource):
        kind = pipeline.source.type_name
        raise ConfigError(f"the source of the pipeline is {kind}, which is not a database")
    if pipeline.source.connect_url is not None:
        raise ConfigError("Kafka Connect takes the snapshot: use `changelane status`")
    return pipeline.source
