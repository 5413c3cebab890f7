# SPDX-License-Identifier: Apache-2.0
"""Checks that no table of PostgreSQL was rewritten while Debezium's engine read all rows.

A snapshot finds a table empty that a later statement rewrote, such as ``ALTER COLUMN ... TYPE``
(https://www.postgresql.org/docs/15/mvcc-caveats.html), and the log does not have the rewritten
rows. The engine exports its snapshot with the slot and locks no table. A lock in another session
would not help: the engine's queries would wait behind a statement that waits for it. So the engine
begins anew after such a statement, with another slot.
"""

import contextlib

from changelane.capture.connectors import ConnectorOptions
from changelane.capture.postgres.connection import connect
from changelane.capture.postgres.snapshot_tables import table_files
from changelane.capture.postgres.sql_text import qualified
from changelane.capture.slot_guard import SlotError


class RewriteGuard:
    """Remembers the files of the captured tables before the engine creates its slot.

    Args:
        options: The captured database.

    Raises:
        ConfigError: The server rejects the login.
        UnreachableError: The server does not answer.
    """

    def __init__(self, options: ConnectorOptions) -> None:
        self._options = options
        self._before = self._files()
        self._is_checked = False

    def check(self) -> None:
        """Check the tables after all rows were read. A second call does nothing.

        A truncated table is no error, because the log has the truncate.

        Raises:
            SlotError: A table was rewritten: a snapshot with another slot must follow.
            UnreachableError: The server does not answer.
        """
        if self._is_checked:
            return
        for oid, (file, state) in self._files().items():
            file_before, state_before = self._before.get(oid, (file, state))
            if file != file_before and state != state_before:
                reason = "a statement rewrote a table while its rows were read: all are read again"
                raise SlotError(reason, is_retriable=True)
        self._is_checked = True

    def _files(self) -> dict[int, tuple[int, str]]:
        names = [qualified(table.schema or "", table.name or "") for table in self._options.tables]
        with contextlib.closing(connect(self._options.postgres_connection)) as connection:
            return table_files(connection, names)
