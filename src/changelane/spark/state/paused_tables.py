# SPDX-License-Identifier: Apache-2.0
"""Paused tables: a table that cannot apply its events stops, and the other tables continue.

Its events wait in the change log. Once the cause is fixed, ``changelane unpause`` lets the next
batch of the pipeline, or its next run, merge them first. The paused tables are properties of the
change log.
"""

import hashlib
from typing import Final, Literal

import msgspec

from changelane.spark.state.change_log import ChangeLog

_PREFIX: Final = "paused."


class PausedTable(msgspec.Struct, frozen=True):
    """A table whose events wait in the change log.

    Attributes:
        table_id: The table.
        reason: Why it could not apply them; it quotes no value of a row.
        batch: The first batch that it did not apply.
        time_ms: The time of that, milliseconds since 1970-01-01 UTC.
        state: ``paused``; ``unpaused`` when the next batch may try again; ``done`` when the table
            is no longer paused.
        pipeline: The pipeline whose events wait; ``None`` in properties of older versions.
    """

    table_id: str
    reason: str
    batch: int
    time_ms: int
    state: Literal["paused", "unpaused", "done"] = "paused"
    pipeline: str | None = None


class PausedTables:
    """The paused tables of the pipeline of a change log; without a pipeline, of the lake."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log

    def tables(self) -> dict[str, PausedTable]:
        """Return the tables whose events wait, by ``table_id``."""
        paused_tables: dict[str, PausedTable] = {}
        for key, value in self._log.properties().items():
            if key.startswith(_PREFIX):
                paused_table = msgspec.json.decode(value, type=PausedTable)
                if paused_table.state != "done" and self._log.is_own(paused_table.pipeline):
                    paused_tables[paused_table.table_id] = paused_table
        return paused_tables

    def record(self, *paused_tables: PausedTable) -> None:
        """Pause tables, or change their state."""
        properties = {
            # table names have any length and any characters
            _PREFIX + hashlib.sha256(paused_table.table_id.encode()).hexdigest()[:32]: (
                msgspec.json.encode(paused_table).decode()
            )
            for paused_table in paused_tables
        }
        if properties:
            self._log.set_properties(properties)
