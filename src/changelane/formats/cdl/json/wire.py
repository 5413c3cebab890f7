# SPDX-License-Identifier: Apache-2.0
"""The message as a typed class with CDL's own field names, and what its schema block says."""

from typing import Any, Final, Generic, TypeVar

import msgspec

from changelane.formats.debezium_envelope.rows import connect_schema
from changelane.formats.debezium_envelope.rows.columns import column_of, field_of, wire_of_field
from changelane.formats.debezium_envelope.rows.connect_schema import Schema
from changelane.formats.debezium_envelope.rows.modes import Modes
from changelane.formats.debezium_envelope.rows.row_reader import (
    RowPlan,
    all_fields,
    decoder,
    filler_of,
    plain_json,
)
from changelane.schema import TableSchema

Row = TypeVar("Row")


class Property(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """One coordinate in the source's log."""

    name: str
    value: int | None = None


class TransactionBlock(msgspec.Struct, forbid_unknown_fields=True):
    """Where in the source's log a change stands."""

    properties: list[Property] | None = None


class Envelope(msgspec.Struct, Generic[Row], forbid_unknown_fields=True):
    """A change, in the order of the fields on the wire."""

    OPERATION: str
    TABLE_NAME: str | None
    DATA_STORE: str | None
    SEG_OWNER: str | None = None
    TIMESTAMP: int | None = None
    LOB_COLUMNS: str | None = None
    transaction: TransactionBlock | None = None
    unique: Row | None = None
    data: Row | None = None
    before: Row | None = None
    message_version: str | None = None
    message_type: str | None = None
    HEARTBEAT_IDENTIFIER: str | None = None


FIELDS: Final = frozenset(Envelope.__struct_fields__)


class CdlPlan(RowPlan):
    """What one schema block says."""

    def __init__(self, parsed: Schema | None, modes: Modes) -> None:
        parts = {} if parsed is None else {member.member: member for member in parsed.members}
        row = parts.get("data") or parts.get("before")
        if parsed is None or row is None or not (fields := all_fields(row, parts.get("before"))):
            super().__init__(None, None)
        else:
            unique = parts["unique"].members if "unique" in parts else ()
            for member in unique:
                fields.setdefault(member.member, member)
            self._describe(fields, unique, parsed.label, modes)
        kind = self.row_kind
        self.reader = decoder(Envelope[kind])  # type: ignore[valid-type]
        self.change = self.reader.decode

    def _describe(
        self, fields: dict[str, Schema], unique: tuple[Schema, ...], label: str, modes: Modes
    ) -> None:
        wires = {name: wire_of_field(member) for name, member in fields.items()}
        columns = tuple(column_of(member, wires[name]) for name, member in fields.items())
        super().__init__(wires, TableSchema(columns))
        self.fields = fields
        self.label = label
        self.fillers = {c.name: filler_of(c, fields[c.name], modes) for c in columns}
        fields_by_member: dict[str, Any] = {}
        unusual_fields = {
            c.name: fields[c.name] for c in columns if field_of(c, modes) != fields[c.name]
        }
        if unusual_fields:
            fields_by_member["fields"] = plain_json(unusual_fields)
        other_unique = tuple(member for member in unique if fields[member.member] != member)
        if other_unique:
            fields_by_member["unique_fields"] = plain_json(
                {member.member: member for member in other_unique}
            )
        self.details = fields_by_member


def plan_of(block: bytes, modes: Modes) -> CdlPlan:
    """Return what is made of a schema block once.

    Raises:
        DecodeError: It is not a schema.
    """
    return CdlPlan(connect_schema.parse(block), modes)
