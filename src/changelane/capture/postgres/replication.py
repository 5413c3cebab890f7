# SPDX-License-Identifier: Apache-2.0
"""Replication slots, markers and positions of a PostgreSQL server.

Slots are logical with the plugin ``pgoutput``. A position is an LSN as a number
(:func:`~changelane.capture.postgres.sql_text.lsn_of`).
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import msgspec

from changelane.capture.finding import size_text
from changelane.capture.postgres.connection import database_errors
from changelane.capture.postgres.sql_text import check_slot_name, identifier, lsn_of
from changelane.errors import ConfigError

if TYPE_CHECKING:
    from changelane.capture.postgres.connection import Connection

PLUGIN: Final = "pgoutput"
MARKER_PREFIX: Final = "changelane"


class SlotState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a replication slot.

    Attributes:
        plugin, slot_type, database: Its kind; a physical slot has no plugin and no database.
        active_pid: The server process that reads it; ``None`` if nobody does.
        restart_lsn: The oldest position whose log the server keeps; ``None`` if the slot is lost.
        confirmed_flush_lsn: The position up to which changes are acknowledged.
        wal_status: ``reserved``, ``extended``, ``unreserved`` (the next checkpoint may remove its
            log) or ``lost``; empty before version 13.
        safe_wal_size: Bytes until the slot may be lost; ``None`` without a limit. It is negative
            for an unreserved slot.
        lag_bytes: Bytes of the log after the acknowledged position.
        retained_bytes: Bytes of the log that the server keeps for the slot.
        invalidation_reason: The reason of a lost slot (from version 17).
    """

    name: str
    plugin: str = PLUGIN
    slot_type: str = "logical"
    database: str = ""
    active_pid: int | None = None
    restart_lsn: int | None = None
    confirmed_flush_lsn: int | None = None
    wal_status: str = ""
    safe_wal_size: int | None = None
    lag_bytes: int | None = None
    retained_bytes: int | None = None
    invalidation_reason: str = ""

    @property
    def is_active(self) -> bool:
        """Whether a process reads the slot."""
        return self.active_pid is not None

    @property
    def is_lost(self) -> bool:
        """Whether the server removed log that the slot needs."""
        return self.wal_status == "lost" or bool(self.invalidation_reason)

    @property
    def headroom_text(self) -> str:
        """The retained log and the headroom, for people."""
        text = f"{size_text(self.retained_bytes or 0)} of the log kept"
        if self.safe_wal_size is None:
            return f"{text}, without a limit"
        return f"{text}, {size_text(max(self.safe_wal_size, 0))} until the slot may be lost"


# the columns of later versions are read through to_jsonb: they may not exist
_SLOT: Final = """
SELECT s.slot_name, coalesce(s.plugin, ''), s.slot_type, coalesce(s.database, ''), s.active_pid,
  s.restart_lsn, s.confirmed_flush_lsn,
  coalesce(j ->> 'wal_status', ''), (j ->> 'safe_wal_size')::bigint,
  coalesce(j ->> 'invalidation_reason', '')
FROM pg_replication_slots s CROSS JOIN LATERAL to_jsonb(s) AS j
WHERE s.slot_name = %s
"""


def slot_state(connection: "Connection", name: str) -> SlotState | None:
    """Return the state of a slot; ``None`` if there is none of this name.

    Raises:
        UnreachableError: The connection is lost.
    """
    with database_errors(f"the state of slot {name}"):
        row = connection.execute(_SLOT, [name]).fetchone()
    if row is None:
        return None
    restart_lsn, confirmed_lsn = (None if text is None else lsn_of(text) for text in row[5:7])
    current = current_lsn(connection)

    def bytes_since(lsn: int | None) -> int | None:
        return None if lsn is None else max(current - lsn, 0)

    return SlotState(
        name=row[0],
        plugin=row[1],
        slot_type=row[2],
        database=row[3],
        active_pid=row[4],
        restart_lsn=restart_lsn,
        confirmed_flush_lsn=confirmed_lsn,
        wal_status=row[7],
        safe_wal_size=row[8],
        lag_bytes=bytes_since(confirmed_lsn),
        retained_bytes=bytes_since(restart_lsn),
        invalidation_reason=row[9],
    )


def current_lsn(connection: "Connection") -> int:
    """Return the end of the log: all changes committed before this call are below it.

    On a standby, it is the end of the replayed log.
    """
    with database_errors("the position of the log"):
        row = connection.execute(
            "SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() "
            "ELSE pg_current_wal_insert_lsn() END"
        ).fetchone()
    return lsn_of(row[0]) if row and row[0] else 0


class ServerIdentity(msgspec.Struct, frozen=True):
    """The identity of a log: positions of another one have another meaning.

    Attributes:
        system_identifier: The number that ``initdb`` made; a copy has the same one.
        timeline: It increases at each promotion and each recovery to an earlier moment.
    """

    system_identifier: int
    timeline: int


_IDENTITY: Final = """
SELECT s.system_identifier, CASE WHEN pg_is_in_recovery() THEN c.timeline_id
  ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::int END
FROM pg_control_system() s, pg_control_checkpoint() c
"""


def server_identity(connection: "Connection") -> ServerIdentity:
    """Return the identity of the server's log.

    After a promotion, the checkpoint has the former timeline for a while; names of files have the
    present one, and a standby has no such names.
    """
    with database_errors("the identity of the server"):
        row = connection.execute(_IDENTITY).fetchone()
    if row is None:
        raise ConfigError("the server does not return its identity")
    return ServerIdentity(*row)


class CreatedSlot(msgspec.Struct, frozen=True):
    """The result of :func:`create_slot`.

    Attributes:
        consistent_lsn: The consistent point: the slot has all changes of transactions that commit
            after it. Of a slot that existed, the acknowledged position.
        is_new: Whether this call created the slot.
    """

    consistent_lsn: int
    is_new: bool


def create_slot(connection: "Connection", name: str, *, timeout_s: int = 60) -> CreatedSlot:
    """Create a slot in the database of the connection, unless it exists.

    The server waits until the transactions that run at this moment end.

    Args:
        connection: A connection with autocommit.
        name: The name of the slot.
        timeout_s: Seconds to wait for running transactions.

    Raises:
        ConfigError: The name is invalid or belongs to another kind of slot, a transaction runs too
            long, or the server rejects the slot.
        UnreachableError: The connection is lost.
    """
    check_slot_name(name)
    import psycopg

    doing = f"the creation of slot {name}"
    with _statement_timeout(connection, timeout_s), database_errors(doing):
        try:
            row = connection.execute(
                "SELECT lsn FROM pg_create_logical_replication_slot(%s, %s)", [name, PLUGIN]
            ).fetchone()
            return CreatedSlot(lsn_of(row[0]) if row else 0, is_new=True)
        except psycopg.errors.DuplicateObject:
            return _existing_slot(connection, name)
        except psycopg.errors.QueryCanceled:
            raise _waits_too_long(connection, doing, timeout_s) from None


class ExportingSlot(msgspec.Struct, frozen=True):
    """The result of :func:`create_exporting_slot`.

    Attributes:
        consistent_lsn: The consistent point: the slot has all changes of transactions that commit
            after it.
        snapshot: The name of the snapshot that sees everything before it. It lives until the
            connection is used or closed.
    """

    consistent_lsn: int
    snapshot: str


def create_exporting_slot(
    connection: "Connection", name: str, *, timeout_s: int = 60
) -> ExportingSlot:
    """Create a slot, and export the snapshot of its consistent point.

    The server waits until the transactions that run at this moment end.

    Args:
        connection: A connection of the replication protocol.
        name: The name of the slot, which must not exist.
        timeout_s: Seconds to wait for running transactions.

    Raises:
        ConfigError: The name is invalid, a transaction runs too long, or the server rejects the
            slot.
        UnreachableError: The connection is lost.
    """
    check_slot_name(name)
    import psycopg

    doing = f"the creation of slot {name}"
    with database_errors(doing):
        # it waits for locks of transactions only
        connection.execute(f"SET lock_timeout = '{timeout_s}s'")
        connection.execute("SET idle_in_transaction_session_timeout = 0")
        try:
            row = connection.execute(
                f"CREATE_REPLICATION_SLOT {identifier(name)} LOGICAL {PLUGIN} EXPORT_SNAPSHOT"
            ).fetchone()
        except psycopg.errors.LockNotAvailable:
            raise _waits_too_long(connection, doing, timeout_s) from None
    if row is None:
        raise ConfigError(f"{doing} fails: the server does not return its position")
    return ExportingSlot(lsn_of(row[1]), row[2])


def _waits_too_long(connection: "Connection", doing: str, timeout_s: int) -> ConfigError:
    running = _running_transactions(connection)
    return ConfigError(
        f"{doing} waits longer than {timeout_s} s for the transactions of other sessions: "
        f"end them, and try again{running}"
    )


def _existing_slot(connection: "Connection", name: str) -> CreatedSlot:
    state = slot_state(connection, name)
    if state is None:
        raise ConfigError(f"slot {name} was dropped while it was read: try again")
    if state.plugin != PLUGIN or state.database != connection.info.dbname:
        kind = f"plugin {state.plugin}" if state.plugin else f"a {state.slot_type} slot"
        raise ConfigError(
            f"the name of slot {name} is in use ({kind}, database {state.database or 'none'}): "
            "choose another name"
        )
    if state.is_lost or state.confirmed_flush_lsn is None:
        raise ConfigError(f"slot {name} is lost: drop it, create it again and take a new snapshot")
    return CreatedSlot(state.confirmed_flush_lsn, is_new=False)


def _running_transactions(connection: "Connection") -> str:
    rows = connection.execute(
        "SELECT pid::text FROM pg_stat_activity WHERE backend_xid IS NOT NULL "
        "AND pid <> pg_backend_pid() UNION ALL "
        "SELECT 'prepared transaction ' || gid FROM pg_prepared_xacts LIMIT 10"
    ).fetchall()
    names = ", ".join(name for (name,) in rows)
    return f" (processes: {names})" if names else ""


@contextmanager
def _statement_timeout(connection: "Connection", seconds: int) -> Iterator[None]:
    """Run statements with another timeout."""
    with database_errors("the timeout of statements"):
        row = connection.execute("SELECT current_setting('statement_timeout')").fetchone()
        timeout = row[0] if row else "0"
        statement = "SELECT set_config('statement_timeout', %s, false)"
        connection.execute(statement, [f"{seconds}s"])
    try:
        yield
    finally:
        if not connection.closed and not connection.broken:
            with database_errors("the timeout of statements"):
                connection.execute(statement, [timeout])


def drop_slot(connection: "Connection", name: str) -> bool:
    """Drop a slot; return whether it existed.

    Raises:
        ConfigError: A process reads the slot, or the user lacks the privilege.
        UnreachableError: The connection is lost.
    """
    import psycopg

    with database_errors(f"the drop of slot {name}"):
        try:
            connection.execute("SELECT pg_drop_replication_slot(%s)", [name])
        except psycopg.errors.UndefinedObject:
            return False
        except psycopg.errors.ObjectInUse:
            state = slot_state(connection, name)
            pid = state.active_pid if state else None
            raise ConfigError(
                f"slot {name} is in use by process {pid}: stop the capture that reads it"
            ) from None
    return True


class Marker(msgspec.Struct, frozen=True):
    """A logical message in the log, after everything that was committed before.

    Attributes:
        lsn: The position of the message; the commit of its transaction follows it.
        content: The message: token, a space, and the text.
        token: 32 hexadecimal digits that no other marker has.
    """

    lsn: int
    content: str
    token: str


def emit_marker(connection: "Connection", text: str) -> Marker:
    """Write a transactional message with the prefix ``changelane`` into the log, and commit it.

    A reader that has seen its token has seen all changes that were committed before this call.

    Args:
        connection: A connection with autocommit, outside of a transaction.
        text: A text without secrets; every reader of the log sees it.

    Raises:
        ValueError: The connection is in a transaction.
        ConfigError: The server rejects the message.
        UnreachableError: The connection is lost.
    """
    from psycopg.pq import TransactionStatus

    if connection.info.transaction_status is not TransactionStatus.IDLE:
        raise ValueError("a marker needs a connection that is in no transaction")
    token = uuid.uuid4().hex
    content = f"{token} {text}"
    with database_errors("the marker in the log"), connection.transaction():
        row = connection.execute(
            "SELECT pg_logical_emit_message(true, %s::text, %s::text)", [MARKER_PREFIX, content]
        ).fetchone()
    return Marker(lsn_of(row[0]) if row else 0, content, token)
