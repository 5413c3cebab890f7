# SPDX-License-Identifier: Apache-2.0
"""Findings about the replication slot of a capture. Pure."""

from collections.abc import Iterator
from typing import Final

from changelane.capture.finding import Finding, size_text
from changelane.capture.postgres.replication import PLUGIN, SlotState
from changelane.capture.postgres.server_findings import ServerState, keep_size_statements
from changelane.capture.postgres.sql_text import literal, lsn_text

MAX_LAG_BYTES: Final = 1 << 30
"""A slot that is further behind gets a warning."""
_LOW_HEADROOM: Final = 4
"""A slot gets a warning in the last quarter of the log that it may keep."""
SNAPSHOT: Final = "`changelane capture PIPELINE.yaml --new-snapshot` reads all rows again"


def create_statement(name: str) -> str:
    """Return the statement that creates a slot."""
    return f"SELECT pg_create_logical_replication_slot({literal(name)}, {literal(PLUGIN)})"


def drop_statement(name: str) -> str:
    """Return the statement that drops a slot."""
    return f"SELECT pg_drop_replication_slot({literal(name)})"


def slot_findings(
    name: str,
    slot: SlotState | None,
    server: ServerState,
    *,
    database: str,
    position: int | None = None,
    max_lag_bytes: int = MAX_LAG_BYTES,
) -> Iterator[Finding]:
    """Yield findings about a slot.

    Args:
        name: The name of the slot.
        slot: Its state; ``None`` if it does not exist.
        server: The state of the server.
        database: The database that is captured.
        position: The position up to which changes are durable here; ``None`` before the first run,
            which creates the slot.
        max_lag_bytes: The lag that gets a warning.
    """
    about = f"slot {name}"
    drop = drop_statement(name)
    if slot is None:
        if position is not None:
            yield Finding(
                severity="error",
                defect="slot_missing",
                about=about,
                problem="the slot does not exist any more",
                consequence=f"the changes after {lsn_text(position)} may be lost",
                advice=SNAPSHOT,
            )
        return
    if (slot.slot_type, slot.plugin, slot.database) != ("logical", PLUGIN, database):
        kind = f"with plugin {slot.plugin}, of database {slot.database}"
        if slot.slot_type != "logical":
            kind = f"a {slot.slot_type} slot"
        yield Finding(
            severity="error",
            defect="slot_kind",
            about=about,
            problem=f"the name is in use: {kind}",
            consequence="the capture cannot read it",
            statements=(drop,),
            advice="or, if somebody uses it, set another name",
        )
        return
    if slot.is_lost:
        reason = f" ({slot.invalidation_reason})" if slot.invalidation_reason else ""
        yield Finding(
            severity="error",
            defect="slot_lost",
            about=about,
            problem=f"the server removed log that the slot needs{reason}",
            consequence="changes are lost",
            advice=SNAPSHOT,
        )
        return
    if slot.active_pid is not None:
        yield Finding(
            severity="warning",
            defect="slot_active",
            about=about,
            problem=f"process {slot.active_pid} of the server reads the slot",
            consequence="a second capture fails; ignore this if the pipeline runs",
            statements=(f"SELECT pg_terminate_backend({slot.active_pid})",),
        )
    yield from _position_findings(slot, about, position)
    yield from _retention_findings(slot, about, server)
    if slot.lag_bytes is not None and slot.lag_bytes > max_lag_bytes:
        yield Finding(
            severity="warning",
            defect="slot_lag",
            about=about,
            problem=f"the slot is {size_text(slot.lag_bytes)} behind",
            consequence="the server keeps this log, and a run needs time to read it",
            advice="run the pipeline; if it has ended for good, drop the slot",
        )


def log_findings(end: int, position: int | None) -> Iterator[Finding]:
    """Yield the finding about a server whose log ends before the captured position.

    Args:
        end: The end of its log.
        position: The position up to which changes are durable here; ``None`` before the first run.
    """
    if position is not None and end < position:
        yield Finding(
            severity="error",
            defect="position_ahead",
            about=f"position {lsn_text(position)}",
            problem=f"the log of the server ends before it, at {lsn_text(end)}",
            consequence="the server was restored to an earlier moment: its changes would be lost",
            advice=SNAPSHOT,
        )


def _position_findings(slot: SlotState, about: str, position: int | None) -> Iterator[Finding]:
    confirmed = slot.confirmed_flush_lsn
    if position is None or confirmed is None or confirmed <= position:
        return
    yield Finding(
        severity="error",
        defect="slot_ahead",
        about=about,
        problem=f"the slot is at {lsn_text(confirmed)}, after the last change here",
        consequence=f"the changes from {lsn_text(position)} to {lsn_text(confirmed)} are lost",
        advice=f"find out who else read the slot; {SNAPSHOT}",
    )


def _retention_findings(slot: SlotState, about: str, server: ServerState) -> Iterator[Finding]:
    """Yield findings about a limit of the log that the server keeps."""
    limit, headroom = server.max_slot_wal_keep_size, slot.safe_wal_size
    if limit is None or headroom is None:
        return
    is_unreserved = slot.wal_status == "unreserved"
    if not is_unreserved and headroom * _LOW_HEADROOM >= limit:
        return
    megabytes = max(limit, slot.retained_bytes or 0) * 2 >> 20
    statements, advice = keep_size_statements(server, f"{max(megabytes, 1024)}MB")
    run = "run the pipeline now"
    yield Finding(
        severity="warning",
        defect="slot_headroom",
        about=about,
        problem="the slot is over its limit" if is_unreserved else slot.headroom_text,
        consequence=(
            "the next checkpoint may remove log that it needs"
            if is_unreserved
            else "then its changes are lost"
        ),
        statements=statements,
        advice=f"{advice}, and {run}" if advice else f"or {run}",
    )
