# SPDX-License-Identifier: Apache-2.0
"""The encoder of the smaller members of the family.

A member's fields, their order and the names of its schemas are data (:class:`Layout`); rows, types
and schemas of columns are written as in ``debezium-json``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from changelane.errors import EncodeError
from changelane.event import DataChange, Op, Tombstone
from changelane.formats.contract.format import Report
from changelane.formats.contract.losses import PARTIAL_ROW
from changelane.formats.debezium_envelope.blocks import field_schemas, fields_in, schema_of_value
from changelane.formats.debezium_envelope.row_writers import Fields, RowWriters
from changelane.formats.debezium_envelope.rows.connect_schema import UNSET, Schema, struct
from changelane.formats.debezium_envelope.rows.modes import Modes
from changelane.formats.debezium_envelope.rows.placeholders import NO_PLACEHOLDER, Placeholder
from changelane.formats.debezium_envelope.rows.raw_json import NO_SCHEMA, wrapped
from changelane.formats.debezium_envelope.rows.row_reader import key_row
from changelane.formats.debezium_envelope.rows.row_writer import Images, RowWriter
from changelane.message import Message
from changelane.schema import TableId

_NOTHING: Final[Mapping[str, Any]] = {}
_MILLISECOND: Final = 1_000_000
_DETAILS: Final = frozenset(
    "source envelope name fields placeholders fillers key header topic value image unique"
    " LOB_COLUMNS".split()
)
"""The details that a member's reader keeps."""


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The fields and schemas of a member's messages, as data.

    Attributes:
        payload: The fields in their order: name, ``:type`` unless text, ``!`` if required.
        source: The fields of the source block, in the order of the payload.
        source_schema: The same in the order of the schema, if that differs.
        source_members: Schemas of source fields that this notation cannot express.
        envelope_name: The name of the message's schema; ``{base}`` is the name of the table. Empty
            = the schemas of this member have no names.
        row_names: The names of the schemas of both images.
        source_name: The name of the source block's schema; ``{name}`` is its field ``name``.
        empty: The JSON value for a missing image.
        has_key_schema: Message keys have a schema.
        same_rows: A missing image has the schema of the other image.
        all_columns: The schema of an image lists the columns that the image lacks, too.
        attributes: The attributes of schemas in their order, if that is not Connect's.
    """

    payload: str
    source: str
    source_schema: str = ""
    source_members: tuple[Schema, ...] = ()
    envelope_name: str = ""
    row_names: tuple[str, str] = ("", "")
    source_name: str = ""
    empty: object = None
    has_key_schema: bool = False
    same_rows: bool = False
    all_columns: bool = False
    attributes: tuple[str, ...] = ()


class Parts(msgspec.Struct, kw_only=True):
    """The parts of a message other than its rows.

    Attributes:
        source: The source block, in any order.
        base: The name of the table in the names of schemas.
        topic: The topic of the message.
        extra_fields: Further fields of the payload.
        extra_schemas: Schemas of further fields that the layout does not have.
        has_schema: The message has a schema.
        block: A schema that is written as it is.
        key: The key columns, for an event without a key.
    """

    source: Mapping[str, Any]
    base: str = ""
    topic: str | None = None
    extra_fields: Mapping[str, Any] = _NOTHING
    extra_schemas: Mapping[str, Schema] = _NOTHING
    has_schema: bool = True
    block: bytes | None = None
    key: Sequence[str] | None = None


class MemberWriter:
    """Encodes the row changes of one codec."""

    def __init__(
        self,
        layout: Layout,
        modes: Callable[[str | None], Modes],
        *,
        placeholder: Placeholder = NO_PLACEHOLDER,
        fields: Fields = lambda _schema, raw: raw,
    ) -> None:
        self._layout = layout
        self._writers = RowWriters(modes, placeholder, fields, layout.attributes)
        self._payload = fields_in(layout.payload)
        self._source = fields_in(layout.source)
        special = {member.member: member for member in layout.source_members}
        self._source_schema = fields_in(layout.source_schema or layout.source) | special

    def images(
        self, event: DataChange, report: Report, fillers: Mapping[str, Any] | None = None
    ) -> Images:
        """Return the JSON of both images; *fillers* are the fillers of the before image."""
        details = event.details
        writer = self._writers.of(event)
        hidden = part_of(details, "placeholders")
        before = after = None
        if event.before is not None:
            before = writer.write(event.before, report, hidden, fillers)
        if event.after is not None:
            after = writer.write(event.after, report, hidden)
        if not (before if event.op is Op.DELETE else after):
            raise EncodeError("the format cannot express any column of the row")
        return Images(writer, before, after)

    def row_writer(self, event: DataChange) -> RowWriter:
        """Return the writer of an event's rows."""
        return self._writers.of(event)

    def change(self, event: DataChange, parts: Parts, report: Report) -> Message:
        """Return the message of a row change."""
        return self.message(event, self.images(event, report), parts, report)

    def message(self, event: DataChange, images: Images, parts: Parts, report: Report) -> Message:
        """Return the message of a row change with encoded images."""
        layout, details = self._layout, event.details
        report_other_details(details, report)
        writer, before, after = images
        source = self._source_block(parts.source, details)
        values: dict[str, Any] = {
            "before": layout.empty if before is None else before,
            "after": layout.empty if after is None else after,
            "source": source,
            "op": event.op.value,
            "ts_ms": milliseconds(event.process_time_ns),
            **parts.extra_fields,
        }
        payload = {name: values[name] for name in self._payload}
        payload |= part_of(details, "envelope")
        base = str(details.get("name", parts.base))
        block = parts.block
        has_schema = parts.has_schema and event.schema is not None
        if has_schema:
            for loss in writer.losses:
                report(loss)
            block = self._block(images, payload, parts, base)
        elif event.schema is not None:
            report(("schema", "column types are not written"))
            if event.op is Op.UPDATE and not writer.fields.keys() <= (after or {}).keys():
                report(PARTIAL_ROW)
        row = key_row(event.key, before, after)
        key_base = base if has_schema and layout.has_key_schema else None
        key_block = block if event.schema is None and layout.has_key_schema else None
        key = self._writers.key(
            event, row, writer, key_base, report, columns=parts.key, block=key_block
        )
        return Message(wrapped(block, payload), key, topic=parts.topic)

    def tombstone(self, event: Tombstone, report: Report) -> Message:
        """Return the tombstone of a key; it does not name its table."""
        report_other_details(event.details, report)
        if event.table != TableId():
            report(("event:tombstone", "a tombstone does not name its table"))
        if event.moved_to is not None:
            report(("moved_to", "a tombstone does not name the new key"))
        block = NO_SCHEMA if self._layout.has_key_schema else None
        return self._writers.tombstone(event, report, block=block)

    # -- parts ---------------------------------------------------------------------------------

    def _source_block(
        self, source_fields: Mapping[str, Any], details: Mapping[str, Any]
    ) -> dict[str, Any]:
        block = {name: source_fields.get(name) for name in self._source}
        block.update(part_of(details, "source"))
        return block

    def _block(self, images: Images, payload: Mapping[str, Any], parts: Parts, base: str) -> bytes:
        writer, before, after = images
        source = payload["source"]
        shape = (
            writer,
            base,
            None if before is None else tuple(before),
            None if after is None else tuple(after),
            tuple(source),
            source.get("name"),
            tuple(map(type, source.values())),
            tuple(payload),
            tuple(map(type, payload.values())),
            *(
                tuple(m.member for m in extra_schema.members)
                for extra_schema in parts.extra_schemas.values()
            ),
        )
        block = self._writers.blocks.get(shape)
        if block is None:
            block = self._writers.add_block(shape, self._schema(images, payload, parts, base))
        return block

    def _schema(
        self, images: Images, payload: Mapping[str, Any], parts: Parts, base: str
    ) -> Schema:
        writer, before, after = images
        if self._layout.all_columns:
            before = after = None
        elif self._layout.same_rows:
            before, after = (
                (after if before is None else before),
                (before if after is None else after),
            )
        names = [name.format(base=base) or UNSET for name in self._layout.row_names]
        schemas = {
            "before": writer.struct(before, names[0], "before"),
            "after": writer.struct(after, names[1], "after"),
            "source": self._source_struct(payload["source"]),
            **parts.extra_schemas,
        }
        fields = [
            schemas[name]
            if name in schemas
            else next(iter(field_schemas(self._payload, {name: payload[name]})))
            for name in payload
        ]
        return struct(tuple(fields), name=self._layout.envelope_name.format(base=base) or UNSET)

    def _source_struct(self, source: Mapping[str, Any]) -> Schema:
        described_fields = {name: source[name] for name in self._source_schema if name in source}
        fields = field_schemas(self._source_schema, described_fields)
        extra = (n for n in source if n not in self._source_schema and n not in self._source)
        fields += tuple(schema_of_value(name, source[name]) for name in extra)
        name = self._layout.source_name.format(name=source.get("name") or "")
        return struct(fields, name=name or UNSET, field="source")


def part_of(details: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """Return a part of an event's details; empty if it is missing or no object."""
    part = details.get(name)
    return part if isinstance(part, dict) else _NOTHING


def milliseconds(time_ns: int | None) -> int | None:
    """Return a time in milliseconds, as in ``ts_ms``."""
    return None if time_ns is None else time_ns // _MILLISECOND


def report_other_details(details: Mapping[str, Any], report: Report) -> None:
    """Report the details of other producers, which have no field in this format."""
    if not details.keys() <= _DETAILS:
        report(("details", "further fields of other producers are not written"))
