# SPDX-License-Identifier: Apache-2.0
"""Findings about the publication of a capture. Pure."""

from collections.abc import Iterator, Sequence

from changelane.capture.finding import Finding, about_tables, shortened
from changelane.capture.postgres.publication import (
    GENERATED_VERSION,
    VIA_ROOT_VERSION,
    Publication,
    PublishedTable,
    addition_statement,
    creation_statement,
    generated_statement,
    missing_tables,
    operations_statement,
    replacement_statement,
    via_root_statement,
)
from changelane.capture.postgres.server_findings import ServerState
from changelane.capture.postgres.slot_findings import SNAPSHOT, create_statement, drop_statement
from changelane.capture.postgres.tables import CapturedTable


def publication_findings(
    name: str,
    publication: Publication | None,
    tables: Sequence[CapturedTable],
    server: ServerState,
    *,
    slot: str | None = None,
) -> Iterator[Finding]:
    """Yield findings about a publication.

    Args:
        name: The name of the publication.
        publication: Its state; ``None`` if it does not exist.
        tables: The tables that are captured.
        server: The state of the server.
        slot: The name of the slot if it exists, else ``None``.
    """
    about = f"publication {name}"
    yield from _partition_support_findings(tables, server)
    publishable = [
        table
        for table in tables
        if server.version >= VIA_ROOT_VERSION or table.relation.kind == "table"
    ]
    relations = [table.relation for table in publishable]
    if publication is None:
        if relations:
            can_create = server.can_create and all(table.is_owned for table in publishable)
            statement = creation_statement(name, relations, server.version)
            yield _missing_finding(about, statement, server, can_create=can_create, slot=slot)
        return
    if missing := missing_tables(publication, relations):
        yield Finding(
            severity="error",
            defect="publication_lacks_table",
            about=about,
            problem=f"{about_tables([table.shown for table in missing])} missing",
            consequence="their changes are lost",
            statements=(addition_statement(name, missing),),
        )
    if unpublished := [
        operation
        for operation in ("insert", "update", "delete", "truncate")
        if operation not in publication.operations
    ]:
        yield Finding(
            severity="error",
            defect="publication_operations",
            about=about,
            problem=f"{' and '.join(unpublished)} not published",
            consequence="these changes are lost",
            statements=(operations_statement(name),),
        )
    yield from _partition_findings(about, publication, publishable)
    yield from _subset_findings(about, publication, publishable)
    yield from _generated_findings(publication, publishable, server)


def _missing_finding(
    about: str, statement: str, server: ServerState, *, can_create: bool, slot: str | None
) -> Finding:
    if slot is not None:
        # pgoutput looks the publication up as of the moment of each change
        return Finding(
            severity="error",
            defect="publication_missing",
            about=about,
            problem=f"the publication does not exist, but slot {slot} does",
            consequence="the engine fails at changes from before the publication",
            statements=(statement, drop_statement(slot), create_statement(slot)),
            advice=SNAPSHOT,
        )
    lack = f"the user {server.user} may not create it"
    return Finding(
        severity="warning" if can_create else "error",
        defect="publication_missing",
        about=about,
        problem="the publication does not exist",
        consequence="the first run creates it" if can_create else lack,
        statements=(statement,),
    )


def _partition_support_findings(
    tables: Sequence[CapturedTable], server: ServerState
) -> Iterator[Finding]:
    partitioned = [table for table in tables if table.relation.kind == "partitioned table"]
    if not partitioned or server.version >= VIA_ROOT_VERSION:
        return
    yield Finding(
        severity="error",
        defect="partitioned_table",
        about=about_tables([table.relation.shown for table in partitioned]),
        problem=f"version {server.version_text} cannot publish a partitioned table",
        consequence="its changes are lost",
        advice="name its partitions instead, or upgrade to version 13 or later",
    )


def _partition_findings(
    about: str, publication: Publication, tables: Sequence[CapturedTable]
) -> Iterator[Finding]:
    partitioned = [table.relation for table in tables if table.relation.kind == "partitioned table"]
    if publication.is_via_root or not partitioned:
        return
    yield Finding(
        severity="error",
        defect="publication_partitions",
        about=about,
        problem="publish_via_partition_root is off",
        consequence=(
            f"changes of {shortened([table.shown for table in partitioned])} have the names of "
            "their partitions, and are lost"
        ),
        statements=(via_root_statement(publication.name),),
    )


def _subset_findings(
    about: str, publication: Publication, tables: Sequence[CapturedTable]
) -> Iterator[Finding]:
    """Yield findings about row filters and column lists, which may be intended."""
    filtered, shortened_tables = [], []
    for table in tables:
        published = publication.tables.get((table.relation.schema, table.relation.name))
        if published is None:
            continue
        if published.row_filter:
            filtered.append(table)
        if lacking := _unpublished_columns(table, published):
            shortened_tables.append((table, lacking))
    if filtered:
        names = shortened([table.relation.shown for table in filtered])
        yield Finding(
            severity="warning",
            defect="publication_row_filter",
            about=about,
            problem=f"rows of {names} are filtered",
            consequence="changes of other rows are lost, although `snapshot: engine` reads them",
            statements=tuple(
                replacement_statement(publication.name, table.relation) for table in filtered
            ),
            advice="unless this is intended",
        )
    if shortened_tables:
        columns = [
            f"{table.relation.shown}.{column}"
            for table, lacking in shortened_tables
            for column in lacking
        ]
        yield Finding(
            severity="warning",
            defect="publication_columns",
            about=about,
            problem=f"columns are not published: {shortened(columns)}",
            consequence="their changes are lost, although `snapshot: engine` reads them",
            statements=tuple(
                replacement_statement(publication.name, table.relation)
                for table, _ in shortened_tables
            ),
            advice="unless this is intended",
        )


def _unpublished_columns(captured_table: CapturedTable, published: PublishedTable) -> list[str]:
    if published.columns is None:
        return []
    return [column for column in captured_table.columns if column not in published.columns]


def _generated_findings(
    publication: Publication, tables: Sequence[CapturedTable], server: ServerState
) -> Iterator[Finding]:
    """Yield findings about generated columns, which ``pgoutput`` may leave out."""
    stored = [table for table in tables if table.generated and not publication.has_generated]
    virtual = [table for table in tables if table.virtual]
    can_publish = server.version >= GENERATED_VERSION
    for lacking, kind, statements in (
        (stored, "stored", (generated_statement(publication.name),) if can_publish else ()),
        (virtual, "virtual", ()),
    ):
        if not lacking:
            continue
        columns = [
            f"{table.relation.shown}.{column}"
            for table in lacking
            for column in (table.generated if kind == "stored" else table.virtual)
        ]
        is_key = any(
            set(table.primary_key.names) & {*table.generated, *table.virtual}
            for table in lacking
            if table.primary_key is not None
        )
        lost = "rows have no complete key" if is_key else "the lake does not have them"
        yield Finding(
            severity="error" if is_key else "warning",
            defect="generated_columns",
            about=about_tables([table.relation.shown for table in lacking]),
            problem=f"{kind} generated columns are not in the log: {shortened(columns)}",
            consequence=lost,
            statements=statements,
            advice="" if statements else "compute them with a transform, or exclude them",
        )
