# SPDX-License-Identifier: Apache-2.0
"""Findings about a PostgreSQL server: its version, settings and the user's privileges. Pure."""

from collections.abc import Iterator
from typing import Final

import msgspec

from changelane.capture.finding import Finding, shortened
from changelane.capture.postgres.replication import SlotState
from changelane.capture.postgres.sql_text import identifier, literal

ABOUT: Final = "PostgreSQL"
MIN_VERSION: Final = 110000
"""Version 11 is the first whose ``pgoutput`` publishes truncates."""
RELOAD: Final = "SELECT pg_reload_conf()"
RESTART: Final = "restart the server"
_SUGGESTED_KEEP_SIZE: Final = "50GB"
_SAFE_MINOR: Final = {13: 21, 14: 18, 15: 13, 16: 9, 17: 5}
"""The minor version that mends logical decoding beside DDL without a strong lock, such as ``ALTER
PUBLICATION ... ADD TABLE``: https://www.postgresql.org/docs/release/15.13/."""
_SPARE_COUNT: Final = 5


class ServerState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a server, as far as a capture depends on it.

    Attributes:
        version: The number, such as 150018 for 15.18.
        wal_level: ``minimal``, ``replica`` or ``logical``.
        slot_count, idle_slots: The number of slots, and the names of those that nobody reads.
        wal_sender_count: The number of connections of the replication protocol.
        max_slot_wal_keep_size: Bytes of log that a slot may keep; ``None`` without a limit.
        has_keep_size: Whether the server has this setting (from version 13).
        idle_slot_timeout: The time after which an idle slot is lost (from version 18); empty if
            there is none.
        encoding: The encoding of the database.
        user: The user who captures.
        has_replication: The user may read the log.
        can_create: The user may create a publication in the database.
        is_rds: The server is an Amazon RDS, whose settings are in a parameter group.
    """

    version: int = 150000
    is_standby: bool = False
    wal_level: str = "logical"
    max_replication_slots: int = 10
    slot_count: int = 0
    idle_slots: tuple[str, ...] = ()
    max_wal_senders: int = 10
    wal_sender_count: int = 0
    max_slot_wal_keep_size: int | None = None
    has_keep_size: bool = True
    idle_slot_timeout: str = ""
    encoding: str = "UTF8"
    user: str = "postgres"
    has_replication: bool = True
    can_create: bool = True
    is_rds: bool = False

    @property
    def version_text(self) -> str:
        """The version as its users know it."""
        return f"{self.version // 10000}.{self.version % 10000}"


def blocking_findings(server: ServerState) -> Iterator[Finding]:
    """Yield the reasons for which nothing else can be checked."""
    if server.version < MIN_VERSION:
        yield Finding(
            severity="error",
            defect="version",
            about=ABOUT,
            problem=f"version {server.version_text} is not supported",
            consequence="truncates are lost",
            advice=f"upgrade to version {MIN_VERSION // 10000} or later",
        )
    elif server.is_standby:
        yield Finding(
            severity="error",
            defect="standby",
            about=ABOUT,
            problem="the server is a standby",
            consequence="slots, publications and markers can be created on a primary only",
            advice="connect to the primary",
        )


def server_findings(server: ServerState, slot: SlotState | None) -> Iterator[Finding]:
    """Yield findings about a server.

    Args:
        server: Its state.
        slot: The slot of the capture; ``None`` if it does not exist.
    """
    yield from _version_findings(server)
    if server.wal_level != "logical":
        yield _setting_finding(
            server,
            defect="wal_level",
            problem=f"wal_level is {server.wal_level}",
            consequence="the log has no changes of rows",
            setting="wal_level",
            value="logical",
        )
    if slot is None and server.slot_count >= server.max_replication_slots:
        idle = f", or drop an idle slot: {shortened(server.idle_slots)}"
        yield _setting_finding(
            server,
            defect="replication_slots",
            problem=f"all {server.max_replication_slots} replication slots are in use",
            consequence="no slot can be created",
            setting="max_replication_slots",
            value=str(server.slot_count + _SPARE_COUNT),
            alternative=idle if server.idle_slots else "",
        )
    is_read = slot is not None and slot.is_active
    if not is_read and server.wal_sender_count >= server.max_wal_senders:
        yield _setting_finding(
            server,
            defect="wal_senders",
            problem=f"all {server.max_wal_senders} WAL senders are in use",
            consequence="the log cannot be read",
            setting="max_wal_senders",
            value=str(server.wal_sender_count + _SPARE_COUNT),
        )
    if not server.has_replication:
        user = identifier(server.user)
        grant = f"GRANT rds_replication TO {user}"
        yield Finding(
            severity="error",
            defect="replication_privilege",
            about=f"user {server.user}",
            problem="the privilege REPLICATION is missing",
            consequence="the log cannot be read",
            statements=(grant if server.is_rds else f"ALTER ROLE {user} REPLICATION",),
        )
    yield from _retention_findings(server, slot)
    if server.encoding == "SQL_ASCII":
        yield Finding(
            severity="warning",
            defect="encoding",
            about=ABOUT,
            problem="the database has the encoding SQL_ASCII",
            consequence="the encoding of its texts is unknown: what is not UTF-8 is damaged",
            advice="capture a database with a known encoding",
        )


def _version_findings(server: ServerState) -> Iterator[Finding]:
    major, minor = divmod(server.version, 10000)
    safe_minor = _SAFE_MINOR.get(major)
    if major >= min(_SAFE_MINOR) and (safe_minor is None or minor >= safe_minor):
        return
    oldest = f"{min(_SAFE_MINOR)}.{_SAFE_MINOR[min(_SAFE_MINOR)]}"
    yield Finding(
        severity="warning",
        defect="known_loss",
        about=ABOUT,
        problem=f"version {server.version_text} decodes its log with an outdated catalog",
        consequence=(
            "changes are lost if a table is added to the publication, or a type is altered, while "
            "a transaction writes"
        ),
        advice=f"upgrade to {f'{major}.{safe_minor}' if safe_minor else oldest} or later",
    )


def _setting_finding(
    server: ServerState,
    *,
    defect: str,
    problem: str,
    consequence: str,
    setting: str,
    value: str,
    alternative: str = "",
) -> Finding:
    """Return the finding about a setting that needs a restart."""
    rds_setting = (
        "rds.logical_replication = 1" if setting == "wal_level" else f"{setting} = {value}"
    )
    statement = f"ALTER SYSTEM SET {setting} = {literal(value)}"
    advice = RESTART
    if server.is_rds:
        advice = f"set {rds_setting} in the parameter group, and restart the instance"
    return Finding(
        severity="error",
        defect=defect,
        about=ABOUT,
        problem=problem,
        consequence=consequence,
        statements=() if server.is_rds else (statement,),
        advice=advice + alternative,
    )


def keep_size_statements(server: ServerState, value: str) -> tuple[tuple[str, ...], str]:
    """Return the statements and the advice that limit the log of slots."""
    if server.is_rds:
        return (), f"set max_slot_wal_keep_size to {value} in the parameter group"
    return (f"ALTER SYSTEM SET max_slot_wal_keep_size = {literal(value)}", RELOAD), ""


def _retention_findings(server: ServerState, slot: SlotState | None) -> Iterator[Finding]:
    if server.max_slot_wal_keep_size is None:
        statements, advice = keep_size_statements(server, _SUGGESTED_KEEP_SIZE)
        if not server.has_keep_size:
            statements, advice = (), "watch the lag of the slot, or upgrade to version 13 or later"
        retained = f" (slot {slot.name}: {slot.headroom_text})" if slot is not None else ""
        yield Finding(
            severity="warning",
            defect="unlimited_retention",
            about=ABOUT,
            problem=f"max_slot_wal_keep_size is unlimited{retained}",
            consequence="while the capture is stopped, the log fills the disk of the server",
            statements=statements,
            advice=advice,
        )
    if server.idle_slot_timeout:
        yield Finding(
            severity="warning",
            defect="idle_slot_timeout",
            about=ABOUT,
            problem=f"idle_replication_slot_timeout is {server.idle_slot_timeout}",
            consequence="a capture that is stopped for longer loses its slot",
            statements=("ALTER SYSTEM SET idle_replication_slot_timeout = 0", RELOAD),
        )
