# SPDX-License-Identifier: Apache-2.0
"""Types that the user declares for messages without a schema."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from changelane.errors import ConfigError, DecodeError
from changelane.event import Key, KeyOrigin
from changelane.formats.debezium_envelope.options import Options
from changelane.formats.debezium_envelope.rows.columns import field_of, wire_with
from changelane.formats.debezium_envelope.rows.connect_schema import Schema
from changelane.formats.debezium_envelope.rows.modes import modes_of
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan, decoder
from changelane.formats.debezium_envelope.rows.semantic_types import Wire
from changelane.formats.debezium_envelope.rows.wire import Envelope
from changelane.formats.debezium_envelope.source_block import Place
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNKNOWN, LogicalType, parse_type

_KEY: Final = " key"
_MOST_COLUMNS: Final = 10_000


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
            declared = self._tables.get(".".join(parts[first:]))
            if declared is None:
                continue
            columns, key = declared
            options = self._options
            modes = modes_of(
                options.time_precision_mode,
                options.decimal_format,
                place.source.product,
                options.binary_handling_mode,
            )
            fields = {column.name: field_of(column, modes) for column in columns}
            wires = {c.name: wire_with(fields[c.name], modes, c.type) for c in columns}
            return _plan(columns, wires, fields), key
        return None

    def extended(self, place: Place, names: Iterable[str]) -> tuple[RowPlan, Key | None]:
        """Return how rows are read that have columns which are not declared.

        Their types are not known, so their JSON is their value.

        Raises:
            DecodeError: The table would have more columns than any database allows.
        """
        declared = self._found[place.table]
        if declared is None:
            raise ValueError
        plan, key = declared
        new = [Column(name, UNKNOWN) for name in names if name not in plan.wires]
        if not new:
            return declared
        columns = (*(plan.schema.columns if plan.schema else ()), *new)
        if len(columns) > _MOST_COLUMNS:
            raise DecodeError("too many columns", code=ReasonCode.TOO_MANY_COLUMNS, path="$.after")
        fields = {**plan.fields, **{column.name: Schema("string") for column in new}}
        wires = {**plan.wires, **{column.name: Wire(UNKNOWN, Any) for column in new}}
        extended = self._found[place.table] = (_plan(columns, wires, fields), key)
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
    """Return what reads a row change, and refuses a row with other columns than these.

    Classes refuse unknown names where typed dictionaries overlook them.
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
        return _misfit  # names that only the long way can read
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


def _misfit(value: Any) -> Any:
    del value
    raise msgspec.ValidationError


def _type(table: str, column: str, text: str) -> LogicalType:
    try:
        return parse_type(text.removesuffix(_KEY))
    except ConfigError as error:
        msg = f"schemas: {table}.{column}: {error}"
        raise ConfigError(msg) from None
