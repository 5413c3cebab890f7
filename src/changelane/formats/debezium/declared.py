# SPDX-License-Identifier: Apache-2.0
"""Types that the user declares for messages without a schema (B-20)."""

from typing import Final

from changelane.errors import ConfigError
from changelane.event import Key, KeyOrigin
from changelane.formats.debezium.columns import field_of, modes_of, wire_with
from changelane.formats.debezium.options import Options
from changelane.formats.debezium.plans import RowPlan
from changelane.formats.debezium.sources import Place
from changelane.schema import Column, TableId, TableSchema
from changelane.types import LogicalType, parse_type

_KEY: Final = " key"


class Declared:
    """The tables of the option ``schemas``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._tables: dict[str, tuple[tuple[Column, ...], Key | None]] = {}
        for table, columns in options.schemas.items():
            keys = tuple(name for name, text in columns.items() if text.endswith(_KEY))
            read = tuple(
                Column(name, _type(table, name, text), nullable=name not in keys)
                for name, text in columns.items()
            )
            key = Key(keys, KeyOrigin.CONFIG) if keys else None
            self._tables[table] = (read, key)
        self._found: dict[TableId, tuple[RowPlan, Key | None] | None] = {}

    def find(self, place: Place) -> tuple[RowPlan, Key | None] | None:
        """Return how the rows of a table are read and its key, when it is declared."""
        table = place.table
        if table not in self._found:
            if len(self._found) > 10_000:
                self._found.clear()
            self._found[table] = self._make(place)
        return self._found[table]

    def _make(self, place: Place) -> tuple[RowPlan, Key | None] | None:
        table = place.table
        parts = [part for part in (table.database, table.schema, table.name) if part]
        for first in range(len(parts)):
            known = self._tables.get(".".join(parts[first:]))
            if known is None:
                continue
            columns, key = known
            options = self._options
            modes = modes_of(
                options.time_precision_mode, options.decimal_format, place.source.product
            )
            fields = {column.name: field_of(column, modes) for column in columns}
            wires = {c.name: wire_with(fields[c.name], modes, c.type) for c in columns}
            plan = RowPlan(wires, TableSchema(columns))
            plan.is_declared = True
            plan.fields = fields
            return plan, key
        return None


def _type(table: str, column: str, text: str) -> LogicalType:
    try:
        return parse_type(text.removesuffix(_KEY))
    except ConfigError as error:
        msg = f"schemas: {table}.{column}: {error}"
        raise ConfigError(msg) from None
