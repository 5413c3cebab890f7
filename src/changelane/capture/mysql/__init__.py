# SPDX-License-Identifier: Apache-2.0
"""MySQL and MariaDB as sources: their connection, and whatever is asked of them in SQL.

The log itself is read by the engine; see :mod:`changelane.capture`. Only :func:`connect` and the
functions that take a connection do input and output; planning and findings are pure.
"""

from changelane.capture.mysql.check import check_server
from changelane.capture.mysql.connection import MysqlConnection, connect
from changelane.capture.mysql.position import (
    BinlogPosition,
    Marker,
    ServerIdentity,
    begin_snapshot,
    create_marker_table,
    current_position,
    emit_marker,
    server_identity,
)
from changelane.capture.mysql.tables import list_tables

__all__ = [
    "BinlogPosition",
    "Marker",
    "MysqlConnection",
    "ServerIdentity",
    "begin_snapshot",
    "check_server",
    "connect",
    "create_marker_table",
    "current_position",
    "emit_marker",
    "list_tables",
    "server_identity",
]
