# SPDX-License-Identifier: Apache-2.0
"""What a table keeps of its changes: the newest row, every version of it, or every event.

The mode is a property of the table, which is made for it, and cannot be changed later.
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from changelane.errors import ConfigError, UnknownNameError
from changelane.pipeline.options import MODES, Options
from changelane.schema import TableId, option_for_table
from changelane.spark.runtime.sql import COLUMNS, DELETED, ORDER

UPSERT, HISTORY, APPEND = MODES

SOFT: Final = "soft"

UNTIL: Final = "_changelane_until"
VALID_FROM: Final = "_valid_from"
VALID_TO: Final = "_valid_to"
IS_CURRENT: Final = "_is_current"

OWN_ORDER: Final = bytes([1])
"""What stands for a version's own order among the orders of its columns."""

EVENT: Final = "_changelane_event"
"""A hash of what an event told."""
ORDINAL: Final = "_changelane_ordinal"
"""Which of the changes at one position a row is of: 0 = the position has but one; its number in
its transaction; below 0 a hash of where its message stood; NULL where nothing tells."""
DEDUPLICATION_COLUMNS: Final[Mapping[str, str]] = {EVENT: "bigint", ORDINAL: "bigint"}
"""What tables have, name -> Spark type, whose rows are only added: by it an event is known that
comes again."""

_ROW: Final = {ORDER: "binary", COLUMNS: "map<string,binary>"}
STATE_TYPES: Final[Mapping[str, Mapping[str, str]]] = {
    UPSERT: _ROW,
    HISTORY: {
        VALID_FROM: "timestamp",
        VALID_TO: "timestamp",
        IS_CURRENT: "boolean",
        **_ROW,
        UNTIL: "binary",
    },
    APPEND: {
        "_changelane_op": "string",
        "_changelane_time": "timestamp",
        **_ROW,
        "_changelane_before": "string",
        "_changelane_transaction": "string",
        "_changelane_topic": "string",
        "_changelane_partition": "int",
        "_changelane_offset": "bigint",
        "_changelane_index": "int",
        **DEDUPLICATION_COLUMNS,
    },
}
"""Mode -> the columns, name -> Spark type, that a table has beside those of its source."""


class TableMode(msgspec.Struct, frozen=True):
    """How a table keeps its changes.

    Attributes:
        name: ``upsert``, ``history`` or ``append``.
        track: With ``history``, the columns whose changes make versions.
        track_except: The columns whose changes make none.
        keeps_deleted: With ``upsert``, rows that are gone stay with what was last known of them,
            and a column says so.
    """

    name: str = UPSERT
    track: tuple[str, ...] | None = None
    track_except: tuple[str, ...] | None = None
    keeps_deleted: bool = False

    def __post_init__(self) -> None:
        """Check the name, and that it is a mode whose rows are deleted; the order of names is none.

        Raises:
            UnknownNameError: There is no such mode.
            ConfigError: The mode has no rows that could be kept.
        """
        if self.name not in MODES:
            raise UnknownNameError("mode", self.name, MODES)
        if self.keeps_deleted and self.name != UPSERT:
            raise ConfigError(f"deletes: soft is for the mode upsert, and not for {self.name}")
        # a table is asked for by the same names again, in whatever order
        for field in ("track", "track_except"):
            if (names := getattr(self, field)) is not None:
                msgspec.structs.force_setattr(self, field, tuple(sorted(set(names))))

    @property
    def is_tracked(self) -> bool:
        """Whether changes of some columns make no versions."""
        return self.track is not None or self.track_except is not None

    @property
    def reserved(self) -> frozenset[str]:
        """Names of ours that no column of a source may have in such a table."""
        return frozenset(self.state_types)

    @property
    def state_types(self) -> Mapping[str, str]:
        """The columns, name -> Spark type, that a table has beside those of its source."""
        own = STATE_TYPES[self.name]
        return {**own, DELETED: "boolean"} if self.keeps_deleted else own

    def state_types_for(self, *, has_key: bool) -> Mapping[str, str]:
        """Return the columns, name -> Spark type, of a table whose rows have a key, or none."""
        is_keyless = self.name == UPSERT and not has_key
        return {**self.state_types, **DEDUPLICATION_COLUMNS} if is_keyless else self.state_types

    @property
    def properties(self) -> dict[str, str]:
        """What a table tells of its mode."""
        mode_property = {} if self.name == UPSERT else {"mode": self.name}
        if self.track is not None:
            mode_property["track"] = msgspec.json.encode(self.track).decode()
        if self.track_except is not None:
            mode_property["track_except"] = msgspec.json.encode(self.track_except).decode()
        if self.keeps_deleted:
            mode_property["deletes"] = SOFT
        return mode_property


def mode_of(properties: Mapping[str, str]) -> TableMode:
    """Return the mode that a table tells of."""

    def names(key: str) -> tuple[str, ...] | None:
        mode_text = properties.get(key)
        return None if mode_text is None else msgspec.json.decode(mode_text, type=tuple[str, ...])

    keeps_deleted = properties.get("deletes") == SOFT
    mode = properties.get("mode", UPSERT)
    return TableMode(mode, names("track"), names("track_except"), keeps_deleted)


class Modes(msgspec.Struct, frozen=True):
    """The modes of tables.

    Attributes:
        default: That of tables that are not named.
        tables: By the table's name at its source, in full or its last parts; the fuller name wins.
    """

    default: TableMode = TableMode()
    tables: Mapping[str, TableMode] = {}

    def of(self, table: TableId) -> TableMode:
        """Return the mode of a table."""
        return option_for_table(self.tables, table) or self.default


def modes_of(options: Options) -> Modes:
    """Return the modes that a pipeline's options ask for."""
    tables = {
        name: TableMode(
            table_options.mode or options.mode,
            _names(table_options.track_history_column_list),
            _names(table_options.track_history_except_column_list),
            options.deletes_of(table_options) == SOFT,
        )
        for name, table_options in options.tables.items()
    }
    return Modes(TableMode(options.mode, keeps_deleted=options.deletes == SOFT), tables)


def _names(column_list: list[str] | None) -> tuple[str, ...] | None:
    return None if column_list is None else tuple(column_list)
