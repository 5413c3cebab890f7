# SPDX-License-Identifier: Apache-2.0
"""How far a table follows its source, and why it does not go on."""

from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from changelane.apply.column_mapping import ColumnBackfill, ColumnMapping
from changelane.pipeline.options import Options
from changelane.position import order_text
from changelane.reason_codes import ReasonCode
from changelane.spark.rows.schema import RowColumn

KEY_CHANGED: Final = ReasonCode.KEY_CHANGED
PAST: Final = (
    "a table that keeps versions or events keeps their columns, too, and can rename or drop none: "
    "move it away and read the table anew"
)
FIXED: Final = (
    "tables of this format cannot rename or drop columns and keep what they hold right: remove the "
    "table's folder and load it again from a snapshot"
)


class Halted(msgspec.Struct, frozen=True):
    """Why a table stands still: it takes what is older, the rest is quarantined.

    Attributes:
        order: Events after this one are quarantined.
        code: The reason code.
        reason: In words, with the way out.
        statements: What would make the table follow.
    """

    order: bytes
    code: ReasonCode
    reason: str
    statements: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """The same as a table's property."""
        return msgspec.json.encode(self).decode()

    @property
    def where(self) -> str:
        """The place in the source's log, for people."""
        return order_text(self.order)

    @classmethod
    def of(cls, text: str) -> "Halted | None":
        """Read a table's property; empty = the table is not halted."""
        return msgspec.json.decode(text, type=cls) if text else None


class Evolution(msgspec.Struct, frozen=True):
    """How far tables follow their sources.

    Attributes:
        schema_changes: ``evolve``: tables follow; ``strict``: what needs another table is set
            aside; ``ignore``: tables stay as they are, and take what they have columns for.
        dropped_columns: ``keep`` them in the tables, or ``drop`` them there, too.
        dropped_tables: ``keep`` their rows until others come under the name, or ``clear`` them.
        shadow_tables: ``skip`` the tables of online schema changes, or ``land`` them.
    """

    schema_changes: str = "evolve"
    dropped_columns: str = "keep"
    dropped_tables: str = "keep"
    shadow_tables: str = "skip"

    @property
    def keeps_columns(self) -> bool:
        """Whether columns stay that their source dropped."""
        return self.dropped_columns == "keep"


def evolution_of(options: Options) -> Evolution:
    """Return what a pipeline's options ask for."""
    return Evolution(
        options.schema_changes,
        options.dropped_columns,
        options.dropped_tables,
        options.shadow_tables,
    )


class Followed(NamedTuple):
    """How far a table follows its source.

    Attributes:
        shape: Its columns in the course of the log; ``None`` = nothing was ever said of them.
        halted: Why it does not go on, if so.
        cleared: Rows up to here went with a table of this name; empty = none did.
        created: Properties of the table if it is made now.
        fillings: Columns whose older rows may lack what the source gave them, and the value;
            ``None`` = it was not told.
        key_order: The newest statement about the key; empty = none.
        newest: The newest statement about the table; empty = none.
    """

    shape: ColumnMapping | None = None
    halted: Halted | None = None
    cleared: bytes = b""
    created: Mapping[str, str] = {}
    fillings: tuple[tuple[ColumnBackfill, RowColumn | None], ...] = ()
    key_order: bytes = b""
    newest: bytes = b""


NOTHING: Final = Followed()
"""Nothing was ever said of the table."""
