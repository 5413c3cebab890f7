# SPDX-License-Identifier: Apache-2.0
"""The check of a PostgreSQL server before and beside a capture: nothing is written."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from changelane.capture.finding import Finding
from changelane.capture.first_load_findings import inexact_load_findings
from changelane.capture.postgres.connection import PostgresConnection, connect, database_errors
from changelane.capture.postgres.ddl_trigger import ddl_trigger_findings
from changelane.capture.postgres.publication import read_publication
from changelane.capture.postgres.publication_findings import publication_findings
from changelane.capture.postgres.replication import current_lsn, slot_state
from changelane.capture.postgres.server_findings import (
    ABOUT,
    ServerState,
    blocking_findings,
    server_findings,
)
from changelane.capture.postgres.slot_findings import MAX_LAG_BYTES, log_findings, slot_findings
from changelane.capture.postgres.sql_text import check_publication_name, check_slot_name
from changelane.capture.postgres.table_findings import selection_findings, table_findings
from changelane.capture.postgres.tables import (
    date_columns,
    read_relations,
    read_tables,
    selection_of,
)
from changelane.capture.table_pattern import pattern_of
from changelane.errors import ConfigError

if TYPE_CHECKING:
    from changelane.capture.postgres.connection import Connection

_EXPLAINED: Final = frozenset({"replication_privilege", "wal_senders"})
"""Findings after which a replication connection fails, too."""

_SERVER: Final = """
SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
  current_setting('wal_level'), current_setting('max_replication_slots')::int,
  (SELECT count(*) FROM pg_replication_slots),
  ARRAY(SELECT slot_name::text FROM pg_replication_slots WHERE NOT active ORDER BY slot_name),
  current_setting('max_wal_senders')::int, (SELECT count(*) FROM pg_stat_replication),
  (SELECT setting::bigint FROM pg_settings WHERE name = 'max_slot_wal_keep_size'),
  coalesce(nullif(current_setting('idle_replication_slot_timeout', true), '0'), ''),
  getdatabaseencoding(), current_user::text,
  r.rolsuper OR r.rolreplication OR EXISTS (
    SELECT FROM pg_roles m WHERE m.rolname = 'rds_replication' AND pg_has_role(m.oid, 'MEMBER')),
  has_database_privilege(current_database(), 'CREATE'),
  EXISTS (SELECT FROM pg_roles WHERE rolname = 'rds_superuser')
FROM pg_roles r WHERE r.rolname = current_user
"""


def check_server(
    options: PostgresConnection,
    *,
    tables: Iterable[str],
    publication: str,
    slot: str,
    needs_ddl_trigger: bool = False,
    is_engine_load: bool = False,
    position: int | None = None,
    max_lag_bytes: int = MAX_LAG_BYTES,
) -> list[Finding]:
    """Check whether a server can be captured without loss.

    Args:
        options: The login that the capture uses.
        tables: Patterns of table names.
        publication: The name of the publication.
        slot: The name of the replication slot.
        needs_ddl_trigger: Whether the event trigger reports statements.
        is_engine_load: Whether the engine reads all rows before the changes.
        position: The LSN up to which changes are durable here; ``None`` before the first run.
        max_lag_bytes: The lag of the slot that gets a warning.

    Returns:
        The findings; an empty list if nothing is wrong.

    Raises:
        ConfigError: A name is invalid, or the server rejects the login.
        UnreachableError: The server does not answer.
        MissingExtraError: psycopg is not installed.
    """
    patterns = list(tables)
    for pattern in patterns:
        pattern_of(pattern)
    check_publication_name(publication)
    check_slot_name(slot)
    with connect(options) as connection:
        server = read_server(connection)
        if findings := list(blocking_findings(server)):
            return findings
        state = slot_state(connection, slot)
        findings += server_findings(server, state)
        findings += _replication_findings(options, findings)
        findings += slot_findings(
            slot,
            state,
            server,
            database=options.database,
            position=position,
            max_lag_bytes=max_lag_bytes,
        )
        findings += log_findings(current_lsn(connection), position)
        if needs_ddl_trigger:
            findings += ddl_trigger_findings(connection, server.version)
        relations = read_relations(connection)
        selection = selection_of(relations, patterns)
        selected = read_tables(connection, relations, selection.tables)
        findings += selection_findings(selection)
        findings += table_findings(selected, server)
        if is_engine_load:
            findings += inexact_load_findings(
                date_columns(connection, selection.tables),
                "writes infinite dates, those before year 1 and of October 1582 wrongly",
            )
        published = read_publication(connection, publication)
        findings += publication_findings(
            publication, published, selected, server, slot=None if state is None else slot
        )
    return findings


def read_server(connection: "Connection") -> ServerState:
    """Read the state of a server, as the user of the connection sees it."""
    with database_errors("the check of the server"):
        row = connection.execute(_SERVER).fetchone()
    if row is None:
        raise ConfigError("the server does not show the role of the user")
    keep_size = row[8]
    return ServerState(
        version=row[0],
        is_standby=row[1],
        wal_level=row[2],
        max_replication_slots=row[3],
        slot_count=row[4],
        idle_slots=tuple(row[5]),
        max_wal_senders=row[6],
        wal_sender_count=row[7],
        max_slot_wal_keep_size=None if keep_size in {None, -1} else keep_size << 20,
        has_keep_size=keep_size is not None,
        idle_slot_timeout=row[9],
        encoding=row[10],
        user=row[11],
        has_replication=row[12],
        can_create=row[13],
        is_rds=row[14],
    )


def _replication_findings(
    options: PostgresConnection, findings: Iterable[Finding]
) -> Iterator[Finding]:
    """Open a replication connection, which a pooler or a limit may reject."""
    if any(finding.defect in _EXPLAINED for finding in findings):
        return
    try:
        connect(options, is_replication=True).close()
    except ConfigError as error:
        yield Finding(
            severity="error",
            defect="replication_connection",
            about=ABOUT,
            problem=f"a second connection, for replication, fails: {error}",
            consequence="the log cannot be read",
            advice="connect to the server itself, not to a pooler, and raise limits of connections",
        )
