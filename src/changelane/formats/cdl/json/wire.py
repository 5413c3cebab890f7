# SPDX-License-Identifier: Apache-2.0
"""The wire classes of CDL's messages, with CDL's own field names, and their schema blocks."""

from typing import Final, Generic, TypeVar

import msgspec

from changelane.formats.debezium_envelope.rows import connect_schema
from changelane.formats.debezium_envelope.rows.connect_schema import Schema
from changelane.formats.debezium_envelope.rows.modes import Modes
from changelane.formats.debezium_envelope.rows.row_reader import (
    BlockPlan,
    all_fields,
    fields_of,
    plain_json,
)

Row = TypeVar("Row")


class Property(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A coordinate in the source's log."""

    name: str
    value: int | None = None


class TransactionBlock(msgspec.Struct, forbid_unknown_fields=True):
    """The coordinates of a change in the source's log."""

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


class CdlPlan(BlockPlan):
    """How the changes of one schema block are read."""

    def __init__(self, parsed: Schema | None, modes: Modes) -> None:
        parts = {} if parsed is None else fields_of(parsed)
        row = parts.get("data") or parts.get("before")
        fields = {} if row is None else all_fields(row, parts.get("before"))
        unique = fields_of(parts["unique"]) if fields and "unique" in parts else {}
        for name, field in unique.items():
            fields.setdefault(name, field)
        label = "" if parsed is None else parsed.label
        super().__init__(fields or None, label, modes, envelope=Envelope)
        other_unique = {name: field for name, field in unique.items() if fields[name] != field}
        if other_unique:
            self.details["unique_fields"] = plain_json(other_unique)


def plan_of(block: bytes, modes: Modes) -> CdlPlan:
    """Return the plan of a schema block.

    Raises:
        DecodeError: The block is not a schema.
    """
    return CdlPlan(connect_schema.parse(block), modes)
