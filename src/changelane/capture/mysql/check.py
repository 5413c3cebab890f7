# SPDX-License-Identifier: Apache-2.0
"""The check of a MySQL or MariaDB server before and beside a capture: nothing is written."""

import re
from collections.abc import Iterable
from contextlib import closing
from typing import Any, Final

from changelane.capture.finding import Finding
from changelane.capture.first_load_findings import inexact_load_findings
from changelane.capture.mysql.connection import (
    Connection,
    MysqlConnection,
    connect,
    database_errors,
    read_if_allowed,
    read_rows,
)
from changelane.capture.mysql.position import (
    BinlogPosition,
    log_files,
    log_status,
    prepared_transactions,
)
from changelane.capture.mysql.position_findings import MAX_LAG_BYTES, position_findings
from changelane.capture.mysql.server_findings import (
    ServerState,
    prepared_findings,
    privileges_of,
    server_findings,
)
from changelane.capture.mysql.sql_text import account
from changelane.capture.mysql.tables import (
    cascade_findings,
    cascading_tables,
    float_columns,
    parse_patterns,
    read_all_tables,
    selection_findings,
    selection_of,
    table_findings,
    unknown_type_findings,
    unknown_type_tables,
    unreadable_tables,
)

_NAMES: Final = (
    "basedir",
    "binlog_expire_logs_auto_purge",
    "binlog_expire_logs_seconds",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_metadata",
    "binlog_row_value_options",
    "expire_logs_days",
    "gtid_mode",
    "gtid_strict_mode",
    "log_bin",
    "log_replica_updates",
    "log_slave_updates",
    "lower_case_table_names",
    "server_id",
)
_VERSION: Final = re.compile(r"(?:5\.5\.5-)?([0-9]+)\.([0-9]+)")
"""MariaDB 10 may write another version before its own, for old replicas."""
_REPLICAS: Final = ("SHOW REPLICAS", "SHOW SLAVE HOSTS")
_READERS: Final = (
    "SELECT user, host FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
)
"""Without PROCESS, it has the connections of the own user only."""
_REPLICA_STATUS: Final = ("SHOW REPLICA STATUS", "SHOW SLAVE STATUS")


def check_server(
    options: MysqlConnection,
    *,
    tables: Iterable[str],
    server_ids: Iterable[int] = (),
    is_engine_load: bool = False,
    binlog_position: BinlogPosition | None = None,
    max_lag_bytes: int = MAX_LAG_BYTES,
) -> list[Finding]:
    """Check whether a server can be captured without loss.

    Args:
        options: The login that the capture uses.
        tables: Patterns of table names, such as ``shop.*``.
        server_ids: The ids that the capture uses as a replica.
        is_engine_load: Whether the engine reads all rows before the changes.
        binlog_position: The position up to which changes are durable here; ``None`` before the
            first run.
        max_lag_bytes: The lag that gets a warning.

    Returns:
        The findings; an empty list if nothing is wrong.

    Raises:
        ConfigError: A pattern is invalid, or the server rejects the login.
        UnreachableError: The server does not answer.
        MissingExtraError: pymysql is not installed.
    """
    texts = list(tables)
    parse_patterns(texts)
    with closing(connect(options)) as connection:
        server = read_server(connection)
        ignores_case = server.setting("lower_case_table_names", "0") != "0"
        patterns = parse_patterns(texts, ignores_case=ignores_case)
        selection = selection_of(read_all_tables(connection), patterns)
        databases = {table.database for table in selection.tables}
        findings = list(server_findings(server, databases=databases, server_ids=server_ids))
        findings += position_findings(server, binlog_position, max_lag_bytes=max_lag_bytes)
        findings += selection_findings(selection)
        unreadable = unreadable_tables(connection, selection.tables)
        findings += table_findings(selection.tables, unreadable, server.account)
        findings += cascade_findings(cascading_tables(connection, selection.tables))
        if is_engine_load:
            findings += inexact_load_findings(
                float_columns(connection, selection.tables), "rounds FLOAT to six digits"
            )
            if binlog_position is None:
                findings += prepared_findings(prepared_transactions(connection) or ())
        findings += unknown_type_findings(unknown_type_tables(connection, databases))
    return findings


def read_server(connection: Connection) -> ServerState:
    """Read the state of a server, as the user of the connection sees it."""
    with database_errors("the check of the server"):
        ((version_text, user),) = read_rows(connection, "SELECT version(), current_user()")
        zones = read_rows(connection, "SELECT convert_tz('2000-01-01 00:00:00', 'UTC', 'Etc/UTC')")
        privileges = privileges_of(_grants(connection))
        replicas = _first_answer(connection, _REPLICAS)
        readers = read_rows(connection, _READERS)
        replica_status = _first_answer(connection, _REPLICA_STATUS)
    status = log_status(connection) or ("", 0, "", "")
    version = _VERSION.match(version_text)
    return ServerState(
        is_mariadb="mariadb" in version_text.lower(),
        version=(int(version[1]), int(version[2])) if version else (0, 0),
        version_text=version_text,
        variables=read_variables(connection),
        account=account(user),
        privileges=privileges,
        log_databases=_names(status[2]),
        skipped_databases=_names(status[3]),
        log_files=log_files(connection),
        replica_ids=frozenset(int(row[0]) for row in replicas),
        log_readers=tuple(f"{user}@{host}" for user, host in readers),
        is_replica=bool(replica_status),
        has_time_zones=zones[0][0] is not None,
        time_s=read_time_s(connection),
    )


def read_variables(connection: Connection) -> dict[str, str]:
    """Read the global variables of :class:`ServerState`, by name in lower case."""
    names = ", ".join(f"'{name}'" for name in _NAMES)
    with database_errors("the settings of the server"):
        rows = read_rows(connection, f"SHOW GLOBAL VARIABLES WHERE variable_name IN ({names})")
    return {str(name).lower(): str(value) for name, value in rows}


def read_time_s(connection: Connection) -> float:
    """Read the clock of the server, seconds since 1970-01-01 UTC."""
    with database_errors("the time of the server"):
        ((time_s,),) = read_rows(connection, "SELECT unix_timestamp(now(6))")
    return float(time_s)


def _first_answer(connection: Connection, sql_statements: Iterable[str]) -> list[tuple[Any, ...]]:
    """Return the rows of the first statement that this version knows and the user may use."""
    for statement in sql_statements:
        rows = read_if_allowed(connection, statement)
        if rows is not None:
            return rows
    return []


def _grants(connection: Connection) -> list[str]:
    """Return the lines of ``SHOW GRANTS`` of the user and of the roles that are active.

    The lines may contain the hash of a password: they are never shown.
    """
    rows = read_rows(connection, "SHOW GRANTS")
    ((role,),) = read_if_allowed(connection, "SELECT current_role()") or [(None,)]
    if role and role != "NONE":
        rows += (
            read_if_allowed(connection, "SHOW GRANTS FOR CURRENT_ROLE")  # MariaDB
            or read_if_allowed(connection, f"SHOW GRANTS FOR CURRENT_USER() USING {role}")
            or []
        )
    return [str(line) for (line,) in rows]


def _names(text: str) -> tuple[str, ...]:
    """Return the names of a list with commas."""
    return tuple(filter(None, text.split(",")))
