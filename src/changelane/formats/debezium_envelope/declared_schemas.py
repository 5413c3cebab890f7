# SPDX-License-Identifier: Apache-2.0
"""The option ``schemas``: column types for messages without a schema block."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from changelane.errors import ConfigError, DecodeError
from changelane.event import Key, KeyOrigin
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.debezium_envelope.options import Options
from changelane.formats.debezium_envelope.rows.columns import field_of, wire_with
from changelane.formats.debezium_envelope.rows.connect_schema import Schema
from changelane.formats.debezium_envelope.rows.modes import modes_of
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan, decoder
from changelane.formats.debezium_envelope.rows.semantic_types import Wire
from changelane.formats.debezium_envelope.rows.wire import Envelope
from changelane.formats.debezium_envelope.source_block import TableOrigin
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNKNOWN, LogicalType, parse_type

_KEY: Final = " key"
_MAX_COLUMNS: Final = 10_000
_MAX_TABLES: Final = 10_000


class DeclaredSchemas:
    """The tables that the option ``schemas`` declares."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._tables: dict[str, tuple[tuple[Column, ...], Key | None]] = {}
        for table, columns in options.schemas.items():
            keys = tuple(name for name, text in columns.items() if text.endswith(_KEY))
            typed_columns = tuple(
                Column(name, _type(table, name, text), nullable=name not in keys)
                for name, text in columns.items()
            )
            key = Key(keys, KeyOrigin.CONFIG) if keys else None
            self._tables[table] = (typed_columns, key)
        self._cache: BoundedCache[TableId, tuple[RowPlan, Key | None] | None] = BoundedCache(
            _MAX_TABLES
        )

    def find(self, table_origin: TableOrigin) -> tuple[RowPlan, Key | None] | None:
        """Return the plan of a table's rows, and its key; ``None`` if it is not declared."""
        table = table_origin.table
        if table not in self._cache:
            return self._cache.add(table, self._make(table_origin))
        return self._cache[table]

    def _make(self, table_origin: TableOrigin) -> tuple[RowPlan, Key | None] | None:
        table = table_origin.table
        parts = [part for part in (table.database, table.schema, table.name) if part]
        for first in range(len(parts)):
            declared = self._tables.get(".".join(parts[first:]))
            if declared is None:
                continue
            columns, key = declared
            options = self._options
            modes = modes_of(
                options.time_precision_mode,
                options.decimal_format,
                table_origin.source.product,
                options.binary_handling_mode,
            )
            fields = {column.name: field_of(column, modes) for column in columns}
            wires = {c.name: wire_with(fields[c.name], modes, c.type) for c in columns}
            return _plan(columns, wires, fields), key
        return None

    def extended(
        self, table_origin: TableOrigin, names: Iterable[str]
    ) -> tuple[RowPlan, Key | None]:
        """Return the plan of rows with further, undeclared columns, and the key.

        The type of an undeclared column is unknown, so its value is its JSON.

        Raises:
            DecodeError: The table would have more columns than any database allows.
        """
        declared = self.find(table_origin)
        if declared is None:
            raise ValueError
        plan, key = declared
        new = [Column(name, UNKNOWN) for name in names if name not in plan.wires]
        if not new:
            return declared
        columns = (*(plan.schema.columns if plan.schema else ()), *new)
        if len(columns) > _MAX_COLUMNS:
            raise DecodeError("too many columns", code=ReasonCode.TOO_MANY_COLUMNS, path="$.after")
        fields = {**plan.fields, **{column.name: Schema("string") for column in new}}
        wires = {**plan.wires, **{column.name: Wire(UNKNOWN, Any) for column in new}}
        extended = self._cache[table_origin.table] = (_plan(columns, wires, fields), key)
        return extended


def _plan(
    columns: tuple[Column, ...], wires: Mapping[str, Wire], fields: Mapping[str, Schema]
) -> RowPlan:
    plan = RowPlan(wires, TableSchema(columns))
    plan.is_declared = True
    plan.fields = fields
    plan.envelope = _strict_envelope(wires)
    return plan


def _strict_envelope(wires: Mapping[str, Wire]) -> Callable[[Any], Any]:
    """Return the decoder of a row change; it rejects a row with other columns.

    The row is a class, because a class can forbid unknown names; a typed dictionary ignores them.
    """
    names = tuple(wires)
    renamed = {f"c{index}": name for index, name in enumerate(names)}
    members = [
        (f"c{index}", wire.json | None | msgspec.UnsetType, msgspec.UNSET)
        for index, wire in enumerate(wires.values())
    ]
    try:
        kind = msgspec.defstruct(
            "row", members, rename=renamed, forbid_unknown_fields=True, gc=False
        )
    except ValueError:
        return _reject  # only the slow path can decode these names
    read = decoder(Envelope[kind]).decode  # type: ignore[valid-type]

    def row(converted: Any) -> dict[str, Any]:
        values = msgspec.structs.astuple(converted)
        if msgspec.UNSET in values:
            pairs = zip(names, values, strict=True)
            return {name: value for name, value in pairs if value is not msgspec.UNSET}
        return dict(zip(names, values, strict=True))

    def envelope(value: Any) -> Any:
        converted = read(value)
        if converted.before is not None:
            converted.before = row(converted.before)
        if converted.after is not None:
            converted.after = row(converted.after)
        return converted

    return envelope


def _reject(value: Any) -> Any:
    del value
    raise msgspec.ValidationError


def _type(table: str, column: str, text: str) -> LogicalType:
    try:
        return parse_type(text.removesuffix(_KEY))
    except ConfigError as error:
        msg = f"schemas: {table}.{column}: {error}"
        raise ConfigError(msg) from None
