# SPDX-License-Identifier: Apache-2.0
"""The reasons for which Debezium's engine failed, as sentences that name the fix."""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from changelane.capture.connectors import ConnectorOptions, effective_server_id
from changelane.capture.engine_config import Failed
from changelane.capture.postgres.slot_findings import SNAPSHOT

_MAX_REASON: Final = 500
_HIDDEN: Final = "***"


class _Fault(NamedTuple):
    """A known fault.

    Attributes:
        pattern: Occurs in the messages of the errors.
        sentence: What is wrong, and what to do.
        is_retriable: Whether the database may answer later.
    """

    pattern: str
    sentence: str
    is_retriable: bool = False


# The order matters: the first pattern that occurs is the reason.
_FAULTS: Final = (
    _Fault(
        r"(?:password|SASL|peer|ident) authentication failed|Access denied for user|"
        r"Login failed for user|ORA-01017|ORA-28000",
        "the database rejects the login of user {user}: check user and password",
    ),
    _Fault(
        r"no pg_hba\.conf entry",
        (
            "pg_hba.conf of the server does not admit user {user} to database {database}: add an "
            "entry for it, and check sslmode"
        ),
    ),
    _Fault(
        r'database "[^"]*" does not exist|Unknown database|Cannot open database|'
        r"ORA-12505|ORA-12514",
        "there is no database {database} on the server: check the name of the database",
    ),
    _Fault(
        r"Publication autocreation is disabled|publication \S+ does not exist",
        (
            "there is no publication {publication} in database {database}: CREATE PUBLICATION "
            '"{publication}" FOR ALL TABLES'
        ),
    ),
    _Fault(
        r"wal_level|logical decoding requires",
        "the server writes no logical log: set wal_level = logical and restart the server",
    ),
    _Fault(
        r"must be superuser or replication role|permission denied to .*replication",
        'user {user} may not replicate: ALTER ROLE "{user}" REPLICATION',
    ),
    _Fault(
        r"all replication slots are in use",
        (
            "all replication slots of the server are in use: drop an unused one, or increase "
            "max_replication_slots"
        ),
    ),
    _Fault(
        r"replication slot .* is active|is already active for PID",
        "another process uses the replication slot {slot}: stop it, or choose another slot",
        is_retriable=True,
    ),
    _Fault(
        (
            r"has already been removed|can no longer get changes from replication slot|"
            r"no longer available on the server|purged required binary logs|"
            r"Could not find first log file name|which is not in the master's binlog|"
            # Oracle: its archived logs were deleted
            r"do not contain the offset scn|log containing offset SCN|ORA-00308|ORA-01291"
        ),
        (
            "the server deleted a part of its log that was not captured yet: changes are lost. "
            f"{SNAPSHOT}"
        ),
    ),
    _Fault(
        r"not configured to use a archive log LOG_MODE",
        "the server keeps no archived logs: start it with ALTER DATABASE ARCHIVELOG",
    ),
    _Fault(
        r"Supplemental logging not",
        (
            "the log of the server has no complete rows: ALTER DATABASE ADD SUPPLEMENTAL LOG DATA, "
            "and for each table ADD SUPPLEMENTAL LOG DATA (ALL) COLUMNS"
        ),
    ),
    _Fault(
        r"slave with the same server_uuid/server_id",
        (
            "another reader of the log has the server id {server_id} of this capture, so that the "
            "server ended this one: set another server_id, or stop the other capture"
        ),
    ),
    _Fault(
        r"invalid snapshot identifier|could not import the requested snapshot|"
        r"snapshot \S+ does not exist",
        "the exported snapshot is lost, because the session that exported it has ended",
        is_retriable=True,
    ),
    _Fault(
        (
            r"Table definition has changed, please retry|Lock wait timeout exceeded|"
            # the structure of a table is read before its rows
            r"Unknown column '[^']*' in|column \"[^\"]*\" does not exist"
        ),
        "a statement alters or truncates a table that is being read ({line})",
        is_retriable=True,
    ),
    _Fault(
        r"permission denied for (?:table|schema|relation|view|sequence) [^\s,;]+",
        (
            'user {user} may not read a captured table ({match}): GRANT SELECT ON it TO "{user}", '
            "and USAGE on its schema"
        ),
    ),
    _Fault(
        r"convert data value for '(?P<column>[^']+)'",
        (
            "Debezium cannot express a value of column {column}, such as NaN of numeric: exclude "
            "the column with column.exclude.list under debezium, or "
            "set another value before the first snapshot"
        ),
    ),
    _Fault(
        r"DDL statement couldn't be parsed\..* the statement '(?P<statement>.*)",
        (
            "Debezium cannot parse a statement of database {database} ({statement}), such as one "
            "with the type inet6: change the type or clause, then read all rows again with "
            "--new-snapshot"
        ),
    ),
    _Fault(
        r"OutOfMemoryError|Java heap space|GC overhead limit",
        "the JVM of the capture ran out of memory: increase the option memory",
    ),
    _Fault(
        r"No space left on device|Disk quota exceeded",
        "no space is left for the capture log or the spool: free some space",
        is_retriable=True,
    ),
    _Fault(
        (
            r"terminating connection|the database system is|Connection (?:to \S+ )?refused|"
            # "This connection", "This replication stream", and so on
            r"has been closed|Socket (?:is )?closed|inactive copy|unexpected end of stream|"
            r"Connection reset|Broken pipe|An I/O error|EOFException|"
            r"Database connection failed|connection attempt failed|UnknownHostException|"
            r"SocketTimeoutException|Communications link failure|Connection is closed|"
            r"Failed to (?:read next byte|connect)|unexpectedly closed|server closed|"
            r"connection failed|Couldn't obtain encoding|too many (?:clients|connections)|"
            r"timed out|Unable to connect|ORA-12541|ORA-17800|ORA-17002"
        ),
        (
            "the database {database} at {host}:{port} does not answer: check that the server runs, "
            "and host, port and sslmode ({line})"
        ),
        is_retriable=True,
    ),
)
_VALUE: Final = re.compile(r"(: )(?:\"[^\"]*\"|'[^']*')$")


def failure_of(messages: Iterable[str], options: ConnectorOptions, *, log_file: str = "") -> Failed:
    """Return the reason of a failure.

    Args:
        messages: The messages of the errors, the first cause last.
        options: The captured database.
        log_file: The engine's log, where the reader finds more.
    """
    lines = [first_line(message, options.secrets) for message in messages]
    lines = [line for line in lines if line]
    line = lines[-1] if lines else "no reason was given"
    text = "\n".join(lines)
    for fault in _FAULTS:
        if match := re.search(fault.pattern, text, re.IGNORECASE):
            reason = fault.sentence.format(
                user=options.user,
                database=options.database,
                publication=options.publication,
                slot=options.slot,
                host=options.host,
                port=options.effective_port,
                server_id=effective_server_id(options.server_id, options.name),
                match=match[0],
                **match.groupdict(),
                line=line,
            )
            return Failed(reason, fault.is_retriable)
    more = f"; see {log_file}" if log_file else ""
    return Failed(f"Debezium's engine failed: {line}{more}", is_retriable=False)


def first_line(message: str, secrets: Sequence[str]) -> str:
    """Return the first line of an error's message, without secrets and values of rows.

    PostgreSQL quotes values behind a colon, and in the lines ``Detail`` and ``Where`` that follow.
    """
    lines = message.strip().splitlines()
    line = without_secrets(lines[0] if lines else "", secrets)
    line = _VALUE.sub(r"\1...", line)
    return line if len(line) <= _MAX_REASON else line[:_MAX_REASON] + " ..."


def without_secrets(text: str, secrets: Sequence[str]) -> str:
    """Return a text without secrets."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, _HIDDEN)
    return text
