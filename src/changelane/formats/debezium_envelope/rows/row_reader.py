# SPDX-License-Identifier: Apache-2.0
"""Rows read from JSON: a plan is compiled once per schema."""

import decimal
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from operator import itemgetter
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import Key
from changelane.formats.debezium_envelope.rows import connect_schema
from changelane.formats.debezium_envelope.rows.columns import (
    column_of,
    field_of,
    wire_of_field,
    wire_with,
)
from changelane.formats.debezium_envelope.rows.connect_schema import UNSET, Schema
from changelane.formats.debezium_envelope.rows.modes import (
    DecimalFormat,
    Modes,
    TimePrecisionMode,
    modes_of,
)
from changelane.formats.debezium_envelope.rows.semantic_types import NUMBERS, Wire, row_type
from changelane.formats.debezium_envelope.rows.wire import Envelope
from changelane.reason_codes import ReasonCode
from changelane.schema import Column, TableSchema
from changelane.types import UNKNOWN

_SOURCE_NAME: Final = re.compile(r"io\.debezium\.connector\.(\w+)\.Source")
_PLAIN_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")
_WRONG: Final = (ValueError, TypeError, KeyError, ArithmeticError, AttributeError, DecodeError)


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder of *kind*; a number with a fraction and without a type is a decimal."""
    return msgspec.json.Decoder(kind, float_hook=decimal.Decimal)


class RowPlan:
    """How the rows of one table version are read.

    Attributes:
        schema: The columns; ``None`` where the message has no types.
        conversions: The columns whose JSON is not their value, with their conversion.
        texts: Returns the values of a row that may be text, an array or an object. Raises
            ``KeyError`` for a row that lacks such a column.
        wires: The forms of all columns.
        envelope: Reads the payload of a row change, with the format's wire class.
        rows: Reads one image.
        base: The start of the names of schemas: Debezium's name of the topic.
        label: The name of the schema.
        details: The part of the schema that the columns do not have, for a writer.
        fields: The fields of the columns.
        fillers: The values of columns whose value the producer does not know.
        is_declared: The user declared the types.
        is_rows: The message has a schema block of rows.
    """

    def __init__(
        self,
        wires: Mapping[str, Wire] | None,
        schema: TableSchema | None,
        envelope: Any = Envelope,
    ) -> None:
        self.schema = schema
        self.wires = wires or {}
        self.conversions = tuple(
            (name, wire.decode) for name, wire in self.wires.items() if wire.decode is not None
        )
        self.texts = _every if wires is None else _text_getter(wires)
        kind = dict[str, Any] if wires is None else row_type(wires)
        self.envelope_reader = decoder(envelope[kind])
        self.envelope = self.envelope_reader.decode
        self.rows_reader = decoder(kind | None)
        self.rows = self.rows_reader.decode
        self.base = ""
        self.label = ""
        self.details: dict[str, object] = {}
        self.fields: Mapping[str, Schema] = {}
        self.fillers: Mapping[str, object] = {}
        self.last_key: tuple[KeyPlan, bool] | None = None
        self.is_declared = False
        self.is_rows = False

    def convert(self, row: dict[str, Any], path: str) -> None:
        """Convert the JSON of a row to values, in place.

        Raises:
            DecodeError: A value is not of its column's type.
        """
        name = ""
        try:
            for name, convert in self.conversions:
                value = row.get(name)
                if value is not None:
                    row[name] = convert(value)
        except _WRONG:
            wire = self.wires[name]
            reason = f"not a value of {wire.type}"
            raise DecodeError(reason, code=ReasonCode.WRONG_TYPE, path=f"{path}.{name}") from None


def _every(row: Mapping[str, Any]) -> Iterable[Any]:
    return row.values()


def _text_getter(wires: Mapping[str, Wire]) -> Callable[[Mapping[str, Any]], Iterable[Any]]:
    names = [name for name, wire in wires.items() if wire.json not in NUMBERS]
    if len(names) > 1:
        return itemgetter(*names)
    return lambda row: [row[name] for name in names]


class BlockPlan(RowPlan):
    """How the rows of one schema block are read."""

    def __init__(
        self,
        fields: Mapping[str, Schema] | None,
        label: str,
        modes: Modes | None = None,
        added: Collection[str] = (),
        envelope: Any = Envelope,
        *,
        is_binlog: bool = True,
    ) -> None:
        """Compile the plan.

        Args:
            fields: The fields of a row; ``None`` for a block without rows.
            label: The name of the block.
            modes: The modes of a writer. Fields that it writes otherwise are kept in ``details``.
            added: The fields that are no columns.
            envelope: The wire class of a row change, generic in the row.
            is_binlog: The source may be MySQL or MariaDB.
        """
        if fields is None:
            super().__init__(None, None, envelope)
        else:
            wires = {
                name: Wire(UNKNOWN, Any)
                if name in added
                else wire_of_field(field, is_binlog=is_binlog)
                for name, field in fields.items()
            }
            fields = {name: field for name, field in fields.items() if name not in added}
            columns = tuple(column_of(field, wires[name]) for name, field in fields.items())
            super().__init__(wires, TableSchema(columns), envelope)
            self.is_rows = True
            self.fields = fields
            if added:
                self.texts = _text_getter({name: wires[name] for name in fields})
            if modes is not None:
                self.fillers = {c.name: filler_of(c, fields[c.name], modes) for c in columns}
                unusual_fields = {
                    c.name: fields[c.name] for c in columns if field_of(c, modes) != fields[c.name]
                }
                if unusual_fields:
                    self.details = {"fields": plain_json(unusual_fields)}
        self.label = label


class KeyPlan(BlockPlan):
    """How the keys of one schema block are read."""

    def __init__(self, block: bytes) -> None:
        parsed = connect_schema.parse(block)
        is_struct = parsed.type == "struct"
        super().__init__(fields_of(parsed) if is_struct else None, parsed.label)
        if is_struct:
            self.base = parsed.label.removesuffix(".Key")
        self.parsed = parsed

    def fits(self, plan: RowPlan) -> bool:
        """Return whether a writer makes this schema from the columns of *plan*."""
        key_match = plan.last_key
        if key_match is None or key_match[0] is not self:
            expected = key_schema(plan.base, tuple(plan.fields.get(n) for n in self.fields))
            key_match = plan.last_key = (self, expected == self.parsed)
        return key_match[1]


def key_schema(base: str, members: tuple[Schema | None, ...]) -> Schema | None:
    """Return the schema of a key of these columns; ``None`` where one has no field."""
    fields = tuple(member for member in members if member is not None)
    if len(fields) != len(members):
        return None
    return connect_schema.struct(fields, name=f"{base}.Key")


class ValuePlan(BlockPlan):
    """How the row changes of one schema block are read."""

    def __init__(self, block: bytes, envelope: Any = Envelope) -> None:
        parsed = connect_schema.parse(block)
        parts = fields_of(parsed)
        row = parts.get("after") or parts.get("before")
        if row is None or row.type != "struct":
            super().__init__(None, parsed.label, envelope=envelope)
            return
        source = parts.get("source")
        match = _SOURCE_NAME.fullmatch(source.label) if source is not None else None
        modes = modes_of(TimePrecisionMode.AUTO, DecimalFormat.BASE64, match and match.group(1))
        fields = all_fields(row, parts.get("before"))
        is_binlog = modes.binlog or match is None
        super().__init__(fields, parsed.label, modes, envelope=envelope, is_binlog=is_binlog)
        self.base = parsed.label.removesuffix(".Envelope")


def fields_of(schema: Schema) -> dict[str, Schema]:
    """Return the fields of a struct by name."""
    return {member.member: member for member in schema.members}


def all_fields(after: Schema, before: Schema | None) -> dict[str, Schema]:
    """Return the columns of both images in their order; each image may lack some."""
    images = (fields_of(after), {} if before is None else fields_of(before))
    longer, shorter = sorted(images, key=len, reverse=True)
    return longer | {name: field for name, field in shorter.items() if name not in longer}


def plain_json(value: object) -> Any:
    """Return wire classes as plain JSON values."""
    return decoder(Any).decode(_PLAIN_ENCODER.encode(value))


def filler_of(column: Column, field: Schema, modes: Modes) -> object:
    """Return Debezium's value for a column of unknown value."""
    if field.default is not UNSET and field.default is not None:
        return field.default
    return None if column.nullable is not False else wire_with(field, modes).filler


PLAIN: Final = RowPlan(None, None)
"""The plan of a message without a schema: no types are guessed."""


def key_row(
    key: Key | None, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """Return the row with the key's values: an update leaves out a key column without a change."""
    if before is None or after is None or key is None:
        return before if after is None else after
    return after if all(name in after for name in key.columns) else {**before, **after}
