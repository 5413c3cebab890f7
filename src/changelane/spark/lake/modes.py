# SPDX-License-Identifier: Apache-2.0
"""The modes of tables: the newest row, all versions of a row, or all events.

The mode is a property of the table and cannot be changed after its creation.
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
"""Represents the order of a version in the orders of its columns."""

EVENT: Final = "_changelane_event"
"""The column with a hash of an event's content."""
ORDINAL: Final = "_changelane_ordinal"
"""The column with the number of a row's change among those at one position.

0 = the position has only one change; above 0 the number in the transaction; below 0 a hash of the
message's coordinates; NULL = unknown.
"""
DEDUPLICATION_COLUMNS: Final[Mapping[str, str]] = {EVENT: "bigint", ORDINAL: "bigint"}
"""Name -> Spark type of the columns that detect repeated events in tables that only add rows."""

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
"""Mode -> the state columns of its tables, name -> Spark type."""


class TableMode(msgspec.Struct, frozen=True):
    """The mode of a table, with its options.

    Attributes:
        name: ``upsert``, ``history`` or ``append``.
        track: With ``history``, the columns whose changes create versions.
        track_except: The columns whose changes create none.
        keeps_deleted: With ``upsert``, whether deleted rows stay, with their last values and a
            mark (soft deletes).
    """

    name: str = UPSERT
    track: tuple[str, ...] | None = None
    track_except: tuple[str, ...] | None = None
    keeps_deleted: bool = False

    def __post_init__(self) -> None:
        """Check the name, and sort the column names.

        Raises:
            UnknownNameError: There is no such mode.
            ConfigError: The mode does not support soft deletes.
        """
        if self.name not in MODES:
            raise UnknownNameError("mode", self.name, MODES)
        if self.keeps_deleted and self.name != UPSERT:
            raise ConfigError(f"deletes: soft needs the mode upsert, and the mode is {self.name}")
        # modes with the same columns in another order are equal
        for field in ("track", "track_except"):
            if (names := getattr(self, field)) is not None:
                msgspec.structs.force_setattr(self, field, tuple(sorted(set(names))))

    @property
    def is_tracked(self) -> bool:
        """Whether changes of some columns create no versions."""
        return self.track is not None or self.track_except is not None

    @property
    def reserved(self) -> frozenset[str]:
        """The names of state columns, which no column of the source may have."""
        return frozenset(self.state_types)

    @property
    def state_types(self) -> Mapping[str, str]:
        """The state columns of a table with a key, name -> Spark type."""
        own = STATE_TYPES[self.name]
        return {**own, DELETED: "boolean"} if self.keeps_deleted else own

    def state_types_for(self, *, has_key: bool) -> Mapping[str, str]:
        """Return the state columns of a table with or without a key, name -> Spark type."""
        is_keyless = self.name == UPSERT and not has_key
        return {**self.state_types, **DEDUPLICATION_COLUMNS} if is_keyless else self.state_types

    @property
    def properties(self) -> dict[str, str]:
        """The mode as properties of a table."""
        mode_property = {} if self.name == UPSERT else {"mode": self.name}
        if self.track is not None:
            mode_property["track"] = msgspec.json.encode(self.track).decode()
        if self.track_except is not None:
            mode_property["track_except"] = msgspec.json.encode(self.track_except).decode()
        if self.keeps_deleted:
            mode_property["deletes"] = SOFT
        return mode_property


def mode_of(properties: Mapping[str, str]) -> TableMode:
    """Return the mode in a table's properties."""

    def names(key: str) -> tuple[str, ...] | None:
        mode_text = properties.get(key)
        return None if mode_text is None else msgspec.json.decode(mode_text, type=tuple[str, ...])

    keeps_deleted = properties.get("deletes") == SOFT
    mode = properties.get("mode", UPSERT)
    return TableMode(mode, names("track"), names("track_except"), keeps_deleted)


class Modes(msgspec.Struct, frozen=True):
    """The modes of tables.

    Attributes:
        default: The mode of all other tables.
        tables: The mode by the table's name at its source, or the last parts of it; the fuller
            name wins.
    """

    default: TableMode = TableMode()
    tables: Mapping[str, TableMode] = {}

    def of(self, table: TableId) -> TableMode:
        """Return the mode of a table."""
        return option_for_table(self.tables, table) or self.default

    @property
    def has_append(self) -> bool:
        """Whether the mode of some table is ``append``."""
        return any(mode.name == APPEND for mode in (self.default, *self.tables.values()))


def modes_of(options: Options) -> Modes:
    """Return the modes in a pipeline's options."""
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
