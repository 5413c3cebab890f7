# SPDX-License-Identifier: Apache-2.0
"""The offsets of Debezium's connectors: the positions and times in them, and their source. Pure."""

from collections.abc import Mapping
from typing import Final

from changelane.capture.connectors import ConnectorOptions, Product
from changelane.capture.manifest import EngineOffset
from changelane.capture.postgres.sql_text import lsn_text

_POSITION_FIELDS: Final[dict[Product, str]] = {"sqlserver": "commit_lsn", "oracle": "scn"}


def position_text(product: Product, offset: Mapping[str, object]) -> str:
    """Return the position of an engine's offset as the database writes it; empty if unknown."""
    if product == "postgres":
        lsn = lsn_of(offset)
        return "" if lsn is None else lsn_text(lsn)
    if product in _POSITION_FIELDS:
        return str(offset.get(_POSITION_FIELDS[product]) or "")
    file, position = offset.get("file"), offset.get("pos")
    return f"{file}:{position}" if file else ""


def lsn_of(offset: Mapping[str, object]) -> int | None:
    """Return the LSN up to which an offset of PostgreSQL has everything that was committed."""
    for field in ("lsn_commit", "lsn_proc", "lsn"):
        value = offset.get(field)
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def is_in_snapshot(offset: Mapping[str, object]) -> bool:
    """Whether a snapshot is running at an offset, which could not continue from there."""
    snapshot = offset.get("snapshot")
    is_running = snapshot is not None and str(snapshot).lower() not in {"false", "incremental"}
    return is_running and offset.get("snapshot_completed") is not True


def offset_to_continue(product: Product, offset: EngineOffset) -> EngineOffset:
    """Return the offset of a published transaction with which an engine continues behind it.

    PostgreSQL itself sends nothing of what was committed before the position that Debezium asks
    for. Debezium then looks for that position among the events (``WalPositionLocator`` of 3.6.1),
    and skips those before it. The position of a commit is the end of its record, though, which is
    the position of the next record. If a transaction that is still open wrote that one, all that it
    has written until then would be skipped. Behind a logical message that is the last position,
    Debezium skips nothing.

    Args:
        product: The database product.
        offset: The offset.
    """
    commit = offset.get("lsn_commit")
    if product != "postgres" or commit is None:  # without a commit, it skips nothing either
        return offset
    return {**offset, "lsn": commit, "lsn_proc": commit, "messageType": "MESSAGE"}


def source_time_ms(offset: Mapping[str, object]) -> int | None:
    """Return the time of the source in an offset, milliseconds since 1970-01-01 UTC."""
    for field, per_second in (("ts_usec", 1_000_000), ("ts_sec", 1)):
        value = offset.get(field)
        if isinstance(value, int) and not isinstance(value, bool):
            return value * 1000 // per_second
    return None


def source_partition(options: ConnectorOptions) -> dict[str, str]:
    """Return what identifies the source in an offset file and in records of Debezium."""
    if options.product == "sqlserver":
        return {"server": options.name, "database": options.database}
    return {"server": options.name}
