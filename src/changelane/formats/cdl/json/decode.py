# SPDX-License-Identifier: Apache-2.0
"""Messages of CDL to events. Fields without a place in the model become details."""

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import (
    ChangeEvent,
    Completeness,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    Transaction,
    Watermark,
)
from changelane.formats.cdl.json.options import (
    FILLERS,
    MESSAGE_TYPE,
    OPERATIONS,
    ORIGIN,
    VERSION,
    LobNulls,
    Options,
    lob_names,
    modes_of,
)
from changelane.formats.cdl.json.wire import (
    FIELDS,
    CdlPlan,
    Envelope,
    Property,
    TransactionBlock,
    plan_of,
)
from changelane.formats.contract import json
from changelane.formats.debezium_envelope import other_events
from changelane.formats.debezium_envelope.fillers import blank_fillers
from changelane.formats.debezium_envelope.message_key import READ_ERRORS, JsonRow, KeyReader
from changelane.formats.debezium_envelope.options import BeforeImage
from changelane.formats.debezium_envelope.row_images import convert_image
from changelane.formats.debezium_envelope.rows.connect_schema import Blocks
from changelane.formats.debezium_envelope.rows.placeholders import Placeholder
from changelane.formats.debezium_envelope.rows.raw_json import as_text
from changelane.formats.debezium_envelope.rows.row_reader import RowPlan, decoder
from changelane.message import Message
from changelane.position import Position, PostgresPosition, ScnPosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

_MILLISECOND: Final = 1_000_000
_INT64: Final = 1 << 63
_U64: Final = 1 << 64
_READ_ERRORS: Final = (*READ_ERRORS, DecodeError)
_PARTS: Final = decoder(dict[str, msgspec.Raw])
_ANY: Final = decoder(Any)

Change = Envelope[JsonRow]


class Decoder:
    """Decodes the messages of one codec.

    Attributes:
        before_image: The columns of before images with real values.
        placeholder: The placeholder of unavailable values.
        plain: The plan of messages without a schema block.
        blocks: The plans of schema blocks.
    """

    def __init__(self, options: Options) -> None:
        modes = modes_of(options)
        self.before_image = options.before_image
        self.placeholder = Placeholder(options.placeholder)
        self._owner = options.owner
        self._has_lob_nulls = options.lob_nulls is LobNulls.NULL
        self._heartbeat_table = options.heartbeat_table.lower()
        self.plain = CdlPlan(None, modes)
        self.blocks: Blocks[CdlPlan] = Blocks(lambda block: plan_of(block, modes))
        self._keys = KeyReader()

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Return the events of a message."""
        value = message.value
        if not value:
            return (self._keys.tombstone(message),)
        try:
            cached_block = self.blocks.find(value)
            if cached_block is not None:
                plan, start = cached_block
                change = plan.envelope(memoryview(value)[start:-1])
                return (self._event(message, change, plan, {}),)
        except _READ_ERRORS:
            pass  # the slow path decodes the message, or raises the error
        return self.blocks.read(value, self.plain, partial(self._payload, message))

    def _payload(
        self, message: Message, payload: bytes, _block: bytes | None, plan: CdlPlan
    ) -> tuple[ChangeEvent, ...]:
        """Decode any message, and keep unknown fields."""
        if payload.strip() == b"null":
            return (self._keys.tombstone(message),)
        parts = other_events.loads(_PARTS, payload)
        _require(parts)
        details: dict[str, object] = {}
        payload = _without_unknown_fields(parts, payload, details)
        change = other_events.loads(plan.envelope_reader, payload)
        return (self._event(message, change, plan, details),)

    def _event(
        self, message: Message, change: Change, plan: CdlPlan, details: dict[str, object]
    ) -> ChangeEvent:
        op = OPERATIONS.get(change.OPERATION)
        if op is None:
            raise DecodeError(
                "an unknown operation", code=ReasonCode.UNKNOWN_OPERATION, path="$.OPERATION"
            )
        if change.message_version not in {VERSION, None}:
            path = "$.message_version"
            raise DecodeError("not CDL JSON 1.0", code=ReasonCode.UNKNOWN_VERSION, path=path)
        if message.key is not None:
            details["key"] = as_text(message.key)  # its form is not documented
        if message.topic is not None:
            details["topic"] = message.topic  # the user configures it in "Topic Table Mapping"
        time = change.TIMESTAMP
        time_ns = None if time is None else time * _MILLISECOND
        position, transaction = coordinates(change.transaction, details)
        product = change.DATA_STORE
        if product is not None and product != product.upper():
            details["DATA_STORE"] = product
        source = msgspec.structs.replace(ORIGIN, product=product.lower() if product else product)
        if f"{change.SEG_OWNER}.{change.TABLE_NAME}".lower() == self._heartbeat_table:
            details["message"] = as_text(message.value or b"")
            return Watermark("heartbeat", position, source, time_ns, details=details)
        if change.HEARTBEAT_IDENTIFIER is not None:
            details["HEARTBEAT_IDENTIFIER"] = change.HEARTBEAT_IDENTIFIER
        if change.message_type != MESSAGE_TYPE:
            details["message_type"] = change.message_type
        if plan.details:
            details.update(plan.details)
        if plan.schema is not None and plan.label != _label(change):
            details["name"] = plan.label
        owner_part = {self._owner.of(source.product): change.SEG_OWNER}
        table = TableId(name=change.TABLE_NAME, **owner_part)
        key = _key(change, details)
        before, after, completeness = self._images(op, change, key, source.product, plan, details)
        return DataChange(
            op,
            table,
            key,
            before,
            after,
            plan.schema,
            position,
            transaction,
            source,
            time_ns,
            None,
            Completeness.UNKNOWN if before is None else completeness,
            Completeness.FULL if plan.schema is None and after is not None else _UNKNOWN,
            details,
        )

    def _images(  # noqa: PLR0917 - one caller
        self,
        op: Op,
        change: Change,
        key: Key | None,
        product: str | None,
        plan: CdlPlan,
        details: dict[str, object],
    ) -> tuple[JsonRow | None, JsonRow | None, Completeness]:
        """Return both images, and the completeness of the before image."""
        before, after = change.before, change.data
        completeness = Completeness.FULL if plan.schema is None else _UNKNOWN
        path = "$.before"
        if op is Op.DELETE:
            # some tools write the deleted row as `data`
            if before is None and after is not None:
                details["image"], path, before = "data", "$.data", after
            elif before is None and change.unique:
                details["image"], path, before = "unique", "$.unique", dict(change.unique)
                details.pop("unique", None)
                completeness = Completeness.KEY if plan.schema is None else _UNKNOWN
            elif after is not None:
                details["data"] = after
            if before is None:
                raise DecodeError("a field is missing", code=ReasonCode.MISSING_FIELD, path=path)
            after = None
        elif after is None:
            raise DecodeError("a field is missing", code=ReasonCode.MISSING_FIELD, path="$.data")
        lobs = self._lobs(op, change, plan, details)
        blank_columns: list[str] = []
        if before is not None:
            blank_columns = blank_possible_fillers(
                self.before_image, op, before, after, key, product, plan, details
            )
            if blank_columns and plan.schema is None:
                completeness = Completeness.KEY
            if blank_columns and change.LOB_COLUMNS:
                details["LOB_COLUMNS"] = change.LOB_COLUMNS
            hidden = lobs if op is Op.DELETE else ()
            convert_image(
                before,
                plan,
                self.placeholder,
                path,
                details,
                (*hidden, *blank_columns),
                keep_usual=True,
            )
        if after is not None:
            convert_image(after, plan, self.placeholder, "$.data", details, lobs, keep_usual=True)
        return before, after, completeness

    def _lobs(
        self, op: Op, change: Change, plan: CdlPlan, details: dict[str, object]
    ) -> tuple[str, ...]:
        """Return the columns in LOB_COLUMNS with an unavailable value.

        "LOB_COLUMNS: field name of large object data". The value of such a column is unavailable if
        the column is missing, or null in an update or a delete (option ``lob_nulls``).
        """
        if change.LOB_COLUMNS is None:
            return ()
        row = (change.before or change.data) if op is Op.DELETE else change.data
        row = change.unique or {} if row is None else row
        is_null = op is Op.CREATE or self._has_lob_nulls
        lob_columns = tuple(
            name
            for name in dict.fromkeys(lob_names(change.LOB_COLUMNS))
            if (name not in row or (row[name] is None and not is_null))
            and (plan.schema is None or name in plan.fields)
        )
        if ",".join(lob_columns) != change.LOB_COLUMNS:
            details["LOB_COLUMNS"] = change.LOB_COLUMNS
        return lob_columns


def blank_possible_fillers(  # noqa: PLR0917 - one kind of call
    before_image: BeforeImage,
    op: Op,
    before: JsonRow,
    after: JsonRow | None,
    key: Key | None,
    product: str | None,
    plan: RowPlan,
    details: dict[str, object],
) -> list[str]:
    """Set columns of a before image that may have fillers to ``None``, and return their names.

    "PG sources with default replica identity: DELETE carries PK only" (CDL's documentation).
    """
    if key is None or before_image is BeforeImage.FULL or details.get("image") == "unique":
        return []
    key_values = {name: before[name] for name in key.columns if name in before}
    if before_image is not BeforeImage.KEY:
        is_moved = after is not None and any(after.get(n) != v for n, v in key_values.items())
        if product not in FILLERS or not (op is Op.DELETE or is_moved):
            return []
    return blank_fillers(before, key_values, plan, details)


_UNKNOWN: Final = Completeness.UNKNOWN


def _require(parts: Mapping[str, object]) -> None:
    for name in ("OPERATION", "TABLE_NAME", "DATA_STORE"):
        if name not in parts:
            raise DecodeError("a field is missing", code=ReasonCode.MISSING_FIELD, path=f"$.{name}")


def _without_unknown_fields(
    parts: Mapping[str, msgspec.Raw], payload: bytes, details: dict[str, object]
) -> bytes:
    """Return a payload without unknown fields; they are kept in *details*."""
    extra_fields = {name: raw for name, raw in parts.items() if name not in FIELDS}
    if extra_fields:
        details["envelope"] = {
            name: other_events.loads(_ANY, raw, f"$.{name}") for name, raw in extra_fields.items()
        }
    block = other_events.object_part(parts, "transaction")
    properties = block.get("properties")
    documented: dict[str, object] = {}
    if isinstance(properties, list) and all(isinstance(part, dict) for part in properties):
        names = Property.__struct_fields__
        documented = {
            "properties": [{n: v for n, v in part.items() if n in names} for part in properties]
        }
    elif "properties" in block:
        documented = {"properties": properties}
    if block != documented:
        details["transaction"] = block
    elif not extra_fields:
        return payload
    own_fields: dict[str, object] = {name: raw for name, raw in parts.items() if name in FIELDS}
    return json.dumps({**own_fields, "transaction": documented} if block else own_fields)


def _label(change: Change) -> str:
    """Return the name of the schema of a table's messages."""
    return ".".join(part for part in (change.SEG_OWNER, change.TABLE_NAME) if part)


def coordinates(
    block: TransactionBlock | None, details: dict[str, object]
) -> tuple[Position | None, Transaction | None]:
    """Return position and transaction; other properties are kept in *details*."""
    properties = block.properties if block is not None else None
    if properties is None:
        return None, None
    property_values: Mapping[str, int | None] = {part.name: part.value for part in properties}
    lsn, scn, identity = (
        property_values.get("lsn"),
        property_values.get("scn"),
        property_values.get("txId"),
    )
    position: Position | None = None
    expected: list[tuple[str, int | None]] = []
    if lsn is not None and -_INT64 <= lsn < _INT64:
        position = PostgresPosition(lsn % _U64)
        expected.append(("lsn", lsn))
    elif scn is not None and 0 <= scn < _INT64:
        position = ScnPosition(scn)
        expected.append(("scn", scn))
    if identity is not None:
        expected.append(("txId", identity))
    if [(part.name, part.value) for part in properties] != expected:
        details["properties"] = [[part.name, part.value] for part in properties]
    return position, None if identity is None else Transaction(str(identity))


def _key(change: Change, details: dict[str, object]) -> Key | None:
    """Return the columns of the primary key; values that differ from the row's are kept."""
    unique = change.unique
    if not unique:
        if unique is not None:
            details["unique"] = {}
        return None
    row = change.data if change.data is not None else change.before
    if row is None or change.OPERATION == "DELETE":
        row = change.before or row
    if row is not None and not unique.items() <= row.items():
        details["unique"] = dict(unique)
    return Key(tuple(unique), KeyOrigin.PAYLOAD)
