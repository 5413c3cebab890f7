# SPDX-License-Identifier: Apache-2.0
"""The state of schema evolution of one table, and why evolution of a table is halted."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from changelane.apply.column_mapping import ColumnBackfill, ColumnMapping
from changelane.pipeline.options import Options
from changelane.position import order_text
from changelane.reason_codes import ReasonCode
from changelane.spark.rows.schema import RowColumn

KEY_CHANGED: Final = ReasonCode.KEY_CHANGED
NOT_IN_MODE: Final = (
    "a table of mode `history` or `append` keeps the columns of its older rows, so that no column "
    "can be renamed or dropped: move the table away and load it again"
)
IN_PARTITION: Final = (
    "the table is partitioned by {}, and no table format drops a column of the partitions: set "
    "`dropped_columns: keep`, or load the table again into another folder"
)
NO_RENAMES: Final = (
    "Hudi cannot rename a column safely: remove the table's folder and load it again from a "
    "snapshot"
)
NO_DROPS: Final = (
    "Hudi cannot drop a column safely: set `dropped_columns: keep`, and replay the quarantined "
    "events"
)


class EvolutionHalt(msgspec.Struct, frozen=True):
    """Why evolution of a table is halted: older events are applied, newer ones are quarantined.

    Attributes:
        order: Events after this order are quarantined.
        code: The reason code.
        reason: The reason, with the way out.
        statements: The SQL statements with which the table would continue.
    """

    order: bytes
    code: ReasonCode
    reason: str
    statements: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The halt as a property of the table."""
        return msgspec.json.encode(self).decode()

    @property
    def where(self) -> str:
        """The position in the source's log, for people."""
        return order_text(self.order)

    @classmethod
    def of(cls, text: str) -> "EvolutionHalt | None":
        """Read a property of a table; an empty text is ``None``."""
        return msgspec.json.decode(text, type=cls) if text else None


class Evolution(msgspec.Struct, frozen=True):
    """The options of schema evolution.

    Attributes:
        schema_changes: ``evolve``: tables follow their sources; ``strict``: events that need an
            altered table are quarantined; ``ignore``: tables stay, and events lose new columns.
        dropped_columns: ``keep`` or ``drop`` the columns that a source dropped.
        dropped_tables: ``keep`` the rows of a dropped table until a table of its name has rows, or
            ``truncate`` it.
        shadow_tables: ``skip`` or ``include`` the shadow tables of online schema changes.
    """

    schema_changes: str = "evolve"
    dropped_columns: str = "keep"
    dropped_tables: str = "keep"
    shadow_tables: str = "skip"

    @property
    def keeps_columns(self) -> bool:
        """Whether tables keep the columns that their source dropped."""
        return self.dropped_columns == "keep"


def evolution_of(options: Options) -> Evolution:
    """Return the options of schema evolution of a pipeline."""
    return Evolution(
        options.schema_changes,
        options.dropped_columns,
        options.dropped_tables,
        options.shadow_tables,
    )


class EvolutionState(NamedTuple):
    """The schema changes of a table that it has executed.

    Attributes:
        column_mapping: The columns of the table over the log; ``None`` if no statement concerns it.
        halted: Why evolution is halted.
        cleared: Rows up to this order belong to a dropped table of the same name; empty = none.
        initial_properties: Properties of the table if this batch creates it.
        backfills: Columns whose older rows lack the value that the source gave them, with the
            value; ``None`` if the value is unknown.
        key_order: The order of the newest statement that changed the key; empty = none.
        newest: The order of the newest statement; empty = none.
    """

    column_mapping: ColumnMapping | None = None
    halted: EvolutionHalt | None = None
    cleared: bytes = b""
    initial_properties: Mapping[str, str] = {}
    backfills: tuple[tuple[ColumnBackfill, RowColumn | None], ...] = ()
    key_order: bytes = b""
    newest: bytes = b""


NO_CHANGES: Final = EvolutionState()
"""The state of a table that no statement concerns."""
