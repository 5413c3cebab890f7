# SPDX-License-Identifier: Apache-2.0
"""Plain rows and keys with a schema block of Connect, which Avro messages have, too."""

from typing import Final, NamedTuple

from changelane.errors import DecodeError
from changelane.event import DataChange, Image
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.contract.format import Report
from changelane.formats.debezium_envelope import other_events
from changelane.formats.debezium_envelope.message_key import READ_ERRORS
from changelane.formats.debezium_envelope.row_writers import RowWriters
from changelane.formats.debezium_envelope.rows import connect_schema
from changelane.formats.debezium_envelope.rows.connect_schema import Blocks, struct
from changelane.formats.debezium_envelope.rows.modes import Modes, TimePrecisionMode
from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.raw_json import wrapped
from changelane.formats.debezium_envelope.rows.row_reader import (
    PLAIN,
    BlockPlan,
    RowPlan,
    fields_of,
)
from changelane.formats.plain.tables import Row
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableSchema
from changelane.types import UNKNOWN

_MAX_SCHEMAS: Final = 1024
_MARKS: Final = (b'"schema"', b'"payload"')
_MODES: Final = Modes(TimePrecisionMode.MICROSECONDS)
"""Each time has a logical type of Avro, which are those of microseconds."""


class TypedRow(NamedTuple):
    """A row, or a key, with the columns of its schema block."""

    values: Row
    schema: TableSchema
    plan: RowPlan


class _Plan(BlockPlan):
    """How the rows of one schema block are read."""

    def __init__(self, block: bytes) -> None:
        parsed = connect_schema.parse(block)
        fields = fields_of(parsed) if parsed.type == "struct" else {}
        super().__init__(fields or None, parsed.label)


class ConnectRows:
    """Reads rows and keys with a schema block."""

    def __init__(self) -> None:
        self._blocks: Blocks[RowPlan] = Blocks(_Plan)
        self._combined: BoundedCache[tuple[object, ...], TableSchema] = BoundedCache(_MAX_SCHEMAS)

    def read(self, data: bytes | None) -> TypedRow | None:
        """Return a row or a key; ``None`` if it has no schema block of a row.

        Raises:
            DecodeError: A value is not of its type.
        """
        if not data or not all(mark in data for mark in _MARKS):
            return None
        return self._blocks.read(data, PLAIN, self._row)

    @staticmethod
    def _row(payload: bytes, _block: bytes | None, plan: RowPlan) -> TypedRow | None:
        if plan.schema is None or payload.strip() == b"null":
            return None
        row: Row = other_events.loads(plan.rows_reader, payload)
        plan.convert(row, "$")
        for name in plan.schema.names - row.keys():
            row[name] = None
        return TypedRow(row, plan.schema, plan)

    def with_key(self, row: TypedRow, key: Row, typed_key: TypedRow | None) -> TypedRow:
        """Return a row with the columns of its message key.

        Args:
            row: The row.
            key: The key as JSON.
            typed_key: The key with its types, if it has some.

        Raises:
            DecodeError: A column of both has two values, or a value is not of its type.
        """
        values = _key_values(key, row.plan) if typed_key is None else typed_key.values
        for name, value in values.items():
            if name in row.values and row.values[name] != value:
                reason = "a key column differs from the message key"
                raise DecodeError(reason, code=ReasonCode.WRONG_IMAGE, path=f"$.{name}")
        if values.keys() <= row.values.keys():
            return row
        added = tuple(name for name in values if name not in row.values)
        key_schema = None if typed_key is None else typed_key.schema
        shape = (row.schema, key_schema, added)
        schema = self._combined.get(shape)
        if schema is None:
            known = {} if key_schema is None else key_schema.by_name
            columns = tuple(known.get(name, Column(name, UNKNOWN)) for name in added)
            schema = self._combined.add(shape, TableSchema((*columns, *row.schema.columns)))
        return TypedRow({**values, **row.values}, schema, row.plan)


def _key_values(key: Row, plan: RowPlan) -> Row:
    """Return the values of a key without types, with those of the row's columns."""
    try:
        row: Row = plan.rows(json.dumps(key))
        plan.convert(row, "$.key")
    except READ_ERRORS:
        code = ReasonCode.WRONG_TYPE
        reason = "a value of the key is not of its column's type"
        raise DecodeError(reason, code=code, path="$.key") from None
    return {name: row.get(name, value) for name, value in key.items()}


class ConnectWriter:
    """Writes rows and keys with schema blocks."""

    def __init__(self) -> None:
        self._writers = RowWriters(lambda _: _MODES, Placeholder(None))

    def write(
        self, event: DataChange, image: Image, topic: str | None, report: Report
    ) -> tuple[bytes, bytes | None]:
        """Return the row and the key of a change.

        Args:
            event: The change, with a schema.
            image: The columns to write; those of the key are among them.
            topic: The topic, which names the schemas.
            report: Called for each value that has no form.
        """
        writer = self._writers.of(event)
        for loss in writer.losses:
            report(loss)
        written = writer.write(image, report, {})
        row = {name: written[name] for name in writer.fields if name in written}
        base = topic or event.table.name or "row"
        shape = (writer, base, tuple(row))
        block = self._writers.blocks.get(shape)
        if block is None:
            fields = tuple(writer.fields[name] for name in row)
            block = self._writers.add_block(shape, struct(fields, name=f"{base}.Value"))
        return wrapped(block, row), self._writers.key(event, row, writer, base, report)
