# SPDX-License-Identifier: Apache-2.0
"""What is made of a schema once: how to read its rows, and what to keep for writing them again."""

import decimal
import re
from collections.abc import Callable, Iterable, Mapping
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

_SOURCE_NAME: Final = re.compile(r"io\.debezium\.connector\.(\w+)\.Source")
_ENVELOPE: Final = ".Envelope"
_PLAIN_ENCODER: Final = msgspec.json.Encoder(decimal_format="number")


def decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    """Return a decoder of *kind*; numbers with a fraction are exact where it does not say."""
    return msgspec.json.Decoder(kind, float_hook=decimal.Decimal)


class RowPlan:
    """How the rows of one table version are read.

    Attributes:
        schema: Its columns; ``None`` when the message does not tell.
        conversions: Columns whose JSON is not their value.
        texts: Gets the values of a row that may be text, an array or an object; raises
            ``KeyError`` for a row that lacks such a column.
        wires: Forms of all columns.
        envelope: Reads the whole payload of a row change, the short way.
        rows: Reads one image.
        base: What the schema's names start with: Debezium's name of the topic.
        details: What the schema says that its columns do not, for writing it again.
        product: The database, as the schema names it.
    """

    def __init__(self, wires: Mapping[str, Wire] | None, schema: TableSchema | None) -> None:
        self.schema = schema
        self.wires = wires or {}
        self.conversions = tuple(
            (name, wire.decode) for name, wire in self.wires.items() if wire.decode is not None
        )
        self.texts = _getter([name for name, wire in self.wires.items() if _may_be_text(wire)])
        if wires is None:
            self.texts = _every
        kind = dict[str, Any] if wires is None else row_type(wires)
        self.row_kind = kind
        self.envelope = decoder(Envelope[kind]).decode  # type: ignore[valid-type]
        self.rows_reader = decoder(kind | None)
        self.rows = self.rows_reader.decode
        self.base = ""
        self.details: dict[str, object] = {}
        self.fields: Mapping[str, Schema] = {}
        self.fillers: Mapping[str, object] = {}
        self.raw_fields: list[object] = []
        self.last_key: tuple[KeyPlan, bool] | None = None
        self.is_declared = False
        self.label = ""

    def convert(self, row: dict[str, Any], path: str) -> None:
        """Turn the JSON of a row into values, in place.

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


def _may_be_text(wire: Wire) -> bool:
    return wire.json not in NUMBERS


def _getter(names: list[str]) -> Callable[[Mapping[str, Any]], Iterable[Any]]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda row: [row[name] for name in names]


_WRONG: Final = (ValueError, TypeError, KeyError, ArithmeticError, AttributeError, DecodeError)


class KeyPlan(RowPlan):
    """How keys of one schema are read."""

    def __init__(self, block: bytes) -> None:
        parsed = connect_schema.parse(block)
        if parsed.type != "struct":
            super().__init__(None, None)
        else:
            self_fields = {member.member: member for member in parsed.members}
            wires = {name: wire_of_field(member) for name, member in self_fields.items()}
            columns = tuple(column_of(member, wires[name]) for name, member in self_fields.items())
            super().__init__(wires, TableSchema(columns))
            self.fields = self_fields
            self.base = parsed.label.removesuffix(".Key")
        self.parsed = parsed
        self.label = parsed.label

    def fits(self, plan: RowPlan) -> bool:
        """Say whether a writer makes this very schema from the columns of *plan*."""
        key_match = plan.last_key
        if key_match is None or key_match[0] is not self:
            expected = key_schema(plan.base, tuple(plan.fields.get(n) for n in self.fields))
            key_match = plan.last_key = (self, expected == self.parsed)
        return key_match[1]


def key_schema(base: str, members: tuple[Schema | None, ...]) -> Schema | None:
    """Return the schema of a key of these columns."""
    fields = tuple(member for member in members if member is not None)
    if len(fields) != len(members):
        return None
    return connect_schema.struct(fields, name=f"{base}.Key")


class ValuePlan(RowPlan):
    """What one schema block of a value says."""

    def __init__(self, block: bytes) -> None:
        parsed = connect_schema.parse(block)
        self.parsed = parsed
        parts = {member.member: member for member in parsed.members}
        row = parts.get("after") or parts.get("before")
        self.is_rows = row is not None and row.type == "struct"
        if not self.is_rows or row is None:
            super().__init__(None, None)
            self.label = parsed.label
            return
        fields = all_fields(row, parts.get("before"))
        wires = {name: wire_of_field(member) for name, member in fields.items()}
        columns = tuple(column_of(member, wires[name]) for name, member in fields.items())
        super().__init__(wires, TableSchema(columns))
        self.fields = fields
        self.raw_fields = plain_json(tuple(fields.values()))
        self.label = parsed.label
        self.base = parsed.label.removesuffix(_ENVELOPE)
        source = parts.get("source")
        match = _SOURCE_NAME.fullmatch(source.label) if source is not None else None
        modes = modes_of(TimePrecisionMode.AUTO, DecimalFormat.BASE64, match and match.group(1))
        self.fillers = {c.name: filler_of(c, fields[c.name], modes) for c in columns}
        unusual_fields = {
            column.name: fields[column.name]
            for column in columns
            if field_of(column, modes) != fields[column.name]
        }
        if unusual_fields:
            self.details = {"fields": plain_json(unusual_fields)}


def all_fields(after: Schema, before: Schema | None) -> dict[str, Schema]:
    """Return the columns of both images in their order; each may lack some."""
    after_members, before_members = after.members, () if before is None else before.members
    longer, shorter = (
        (after_members, before_members)
        if len(after_members) >= len(before_members)
        else (before_members, after_members)
    )
    fields = {member.member: member for member in longer}
    for member in shorter:
        fields.setdefault(member.member, member)
    return fields


def plain_json(value: object) -> Any:
    """Return wire classes as plain JSON values."""
    return decoder(Any).decode(_PLAIN_ENCODER.encode(value))


def filler_of(column: Column, field: Schema, modes: Modes) -> object:
    """Return what Debezium writes for a column whose value it does not know."""
    if field.default is not UNSET and field.default is not None:
        return field.default
    return None if column.nullable is not False else wire_with(field, modes).filler


PLAIN: Final = RowPlan(None, None)
"""Rows of a message without a schema: no types are guessed."""


def key_row(
    key: Key | None, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> Mapping[str, Any] | None:
    """Return the row that tells the key: a key column that an update leaves out did not change."""
    if before is None or after is None or key is None:
        return before if after is None else after
    return after if all(name in after for name in key.columns) else {**before, **after}
