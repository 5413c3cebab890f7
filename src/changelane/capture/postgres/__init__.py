# SPDX-License-Identifier: Apache-2.0
"""PostgreSQL as a source: its connection, and whatever is asked of it in SQL.

The log itself is read by the engine; see :mod:`changelane.capture`. Only :func:`connect` and the
functions that take a connection do input and output; planning and findings are pure.
"""

from changelane.capture.postgres.check import check_server
from changelane.capture.postgres.connection import PostgresConnection, connect
from changelane.capture.postgres.publication import create_publication
from changelane.capture.postgres.replication import (
    CreatedSlot,
    Marker,
    ServerIdentity,
    SlotState,
    create_slot,
    current_lsn,
    drop_slot,
    emit_marker,
    server_identity,
    slot_state,
)
from changelane.capture.postgres.sql_text import lsn_of, lsn_text
from changelane.capture.postgres.tables import list_tables

__all__ = [
    "CreatedSlot",
    "Marker",
    "PostgresConnection",
    "ServerIdentity",
    "SlotState",
    "check_server",
    "connect",
    "create_publication",
    "create_slot",
    "current_lsn",
    "drop_slot",
    "emit_marker",
    "list_tables",
    "lsn_of",
    "lsn_text",
    "server_identity",
    "slot_state",
]
