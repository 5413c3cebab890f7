# SPDX-License-Identifier: Apache-2.0
"""Debezium's messages about MongoDB to change events."""

from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Completeness,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    Source,
    Tombstone,
    Transaction,
)
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.mongodb.debezium.wire import Envelope, Row, load, other_messages
from changelane.formats.mongodb.document_texts import DocumentTexts
from changelane.formats.mongodb.documents import (
    DOCUMENT,
    SCHEMA,
    Form,
    Patch,
    completeness,
    id_of,
    patched_row,
    row_of,
)
from changelane.formats.mongodb.extended_json import ID, key_text, parse
from changelane.message import Message
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

CONNECTOR: Final = "debezium"
PRODUCT: Final = "mongodb"
OPERATIONS: Final = {"c": Op.CREATE, "u": Op.UPDATE, "d": Op.DELETE, "r": Op.READ}
MOST_MS: Final = 253_402_300_800_000
U32: Final = 1 << 32
SOURCE_FIELDS: Final = frozenset(
    {"version", "connector", "name", "ts_ms", "snapshot", "db", "ts_us", "ts_ns"}
    | {"collection", "ord", "wallTime"}
)
"""The fields of a source block that are no details."""

_KEY: Final = Key((ID,), KeyOrigin.MESSAGE)
_NOT_A_SNAPSHOT: Final = frozenset({None, "false"})
_MAX_TABLES: Final = 4096


class Reader:
    """Decodes messages.

    Attributes:
        texts: The canonical texts of documents.
    """

    def __init__(self, form: Form) -> None:
        """Create the reader.

        Args:
            form: The form of rows.
        """
        self.texts: Final = DocumentTexts()
        self._form = form
        self._tables: BoundedCache[tuple[str, str], TableId] = BoundedCache(_MAX_TABLES)

    def __call__(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a change, a tombstone, or a message that is no change."""
        if not message.value:  # some producers write an empty value for null
            key = None if message.key is None else _message_id(message.key)
            return (Tombstone(TableId(), None if key is None else {ID: key_text(key)}),)
        envelope = load(message.value)
        if envelope is None:
            return other_messages(message, message.value)
        return (self._change(envelope, message.key),)

    def _change(self, envelope: Envelope, key: bytes | None) -> DataChange:
        op = OPERATIONS.get(envelope.op)
        if op is None:
            raise DecodeError(
                "an unknown operation", code=ReasonCode.UNKNOWN_OPERATION, path="$.op"
            )
        source = envelope.source
        before = self._image(envelope.before, "$.before")
        after = self._image(envelope.after, "$.after")
        details = {name: source[name] for name in source if name not in SOURCE_FIELDS}
        is_patch = False
        if op is Op.DELETE:
            if after is not None:
                raise _unexpected("$.after")
            if before is None:
                before = {ID: required_id(key)}
        elif op is Op.UPDATE:
            if after is None:
                after, is_patch = self._patch(envelope, key), True
            elif envelope.updateDescription is not None:
                details["lookup"] = True
        elif after is None:
            raise DecodeError("no document", code=ReasonCode.MISSING_IMAGE, path="$.after")
        elif before is not None:
            raise _unexpected("$.before")
        if envelope.updateDescription is not None:
            details["updateDescription"] = msgspec.to_builtins(envelope.updateDescription)
        details = {name: field for name, field in details.items() if field is not None}
        holds = completeness(self._form, is_patch=is_patch)
        before_holds = Completeness.UNKNOWN
        if before is not None and self._form == "columns":
            before_holds = Completeness.KEY if envelope.before is None else Completeness.FULL
        return DataChange(
            op,
            self._table(source),
            _KEY,
            before,
            after,
            SCHEMA if self._form == "json" else None,
            place_of(source.get("ts_ms"), source.get("ord")),
            transaction_of(envelope.transaction),
            _source(source),
            source_time_ns(source.get("wallTime"), source.get("ts_ms")),
            None if envelope.ts_ms is None else nanoseconds(envelope.ts_ms, "$.ts_ms"),
            before_holds,
            Completeness.UNKNOWN if after is None else holds,
            details or NO_DETAILS,
        )

    def _patch(self, envelope: Envelope, key: bytes | None) -> dict[str, Any]:
        """Return the columns of an update without its document."""
        path = "$.updateDescription"
        description = envelope.updateDescription
        if description is None:
            raise DecodeError(
                "an update without its document: let the connector send full documents",
                code=ReasonCode.INCOMPLETE_ROW,
                path="$.after",
            )
        updated = {}
        if description.updatedFields is not None:
            updated = _parsed(description.updatedFields, f"{path}.updatedFields")
        patch = Patch(updated, description.removedFields or [], description.truncatedArrays or [])
        identity = required_id(key) if self._form == "columns" else ""
        return patched_row(identity, patch, self._form, path)

    def _image(self, text: str | None, path: str) -> dict[str, Any] | None:
        """Return the row of a document, which may be missing."""
        if text is None:
            return None
        if self._form == "columns":
            return row_of(_parsed(text, path), self._form, path)
        try:
            key, document = self.texts.read(text)
        except DecodeError as error:
            raise DecodeError(error.reason, code=error.code, path=path) from None
        return {ID: key, DOCUMENT: document}

    def _table(self, source: Row) -> TableId:
        names = source.get("db"), source.get("collection")
        if not isinstance(names[0], str) or not isinstance(names[1], str):
            raise DecodeError(
                "no collection", code=ReasonCode.MISSING_FIELD, path="$.source.collection"
            )
        table = self._tables.get((names[0], names[1]))
        if table is None:
            table = self._tables.add((names[0], names[1]), TableId(names[0], None, names[1]))
        return table


def _parsed(text: str, path: str) -> Row:
    try:
        return parse(text)
    except DecodeError as error:
        raise DecodeError(error.reason, code=error.code, path=path) from None


def _unexpected(path: str) -> DecodeError:
    return DecodeError(
        "an image that the operation does not have", code=ReasonCode.UNEXPECTED_IMAGE, path=path
    )


def _message_id(key: bytes) -> Any:
    """Return the canonical ``_id`` in a message key: ``{"id": "<Extended JSON>"}``.

    Raises:
        DecodeError: The key has none.
    """
    fields = json.loads(key, Row)
    payload = fields.get("payload")
    if isinstance(payload, dict):
        fields = payload
    text = fields.get("id")
    if not isinstance(text, str):
        raise DecodeError("no id in the message key", code=ReasonCode.MISSING_FIELD, path="$key.id")
    try:
        return id_of(text)
    except DecodeError as error:
        raise DecodeError(error.reason, code=error.code, path="$key.id") from None


def required_id(key: bytes | None) -> str:
    """Return the text of the ``_id`` in a message key.

    Raises:
        DecodeError: There is none.
    """
    if key is None:
        raise DecodeError("no message key", code=ReasonCode.MISSING_FIELD, path="$key")
    return key_text(_message_id(key))


def place_of(time_ms: object, ordinal: object) -> SequencePosition | None:
    """Return the position of an entry in the oplog, if the source block has both parts.

    Args:
        time_ms: Its time in milliseconds, ``ts_ms``.
        ordinal: Its number among those of the same second, ``ord``.

    Raises:
        DecodeError: A part is out of range.
    """
    if ordinal is None or time_ms is None:
        return None
    if type(ordinal) is not int or not 0 <= ordinal < U32:
        raise DecodeError("not a number", code=ReasonCode.WRONG_TYPE, path="$.source.ord")
    if type(time_ms) is not int or not 0 <= time_ms < MOST_MS:
        raise DecodeError("not a time", code=ReasonCode.WRONG_TYPE, path="$.source.ts_ms")
    return SequencePosition((time_ms // 1000 << 32) | ordinal)


def source_time_ns(wall_time: object, time_ms: object) -> int | None:
    """Return the time of a change in nanoseconds: its wall time, or that of its entry in the oplog.

    Raises:
        DecodeError: A time is none, or out of range.
    """
    entry_ns = None if time_ms is None else nanoseconds(time_ms, "$.source.ts_ms")
    return entry_ns if wall_time is None else nanoseconds(wall_time, "$.source.wallTime")


def nanoseconds(value: object, path: str) -> int:
    """Return milliseconds in nanoseconds.

    Raises:
        DecodeError: They are no whole number, or out of range.
    """
    if type(value) is not int:
        raise DecodeError("not a time", code=ReasonCode.WRONG_TYPE, path=path)
    if not -MOST_MS < value < MOST_MS:
        raise DecodeError("out of range", code=ReasonCode.VALUE_OUT_OF_RANGE, path=path)
    return value * 1_000_000


def _source(source: Row) -> Source:
    texts: list[str | None] = []
    for name in ("name", "version", "snapshot"):
        text = source.get(name)
        if name == "snapshot" and isinstance(text, bool):
            text = "true" if text else "false"
        if text is not None and not isinstance(text, str):
            raise DecodeError("not a text", code=ReasonCode.WRONG_TYPE, path=f"$.source.{name}")
        texts.append(text)
    server, version, snapshot = texts
    is_stream = snapshot in _NOT_A_SNAPSHOT
    return Source(PRODUCT, CONNECTOR, server, version, None if is_stream else snapshot)


def transaction_of(block: Row | None) -> Transaction | None:
    """Return the transaction of a block, if it has one.

    Raises:
        DecodeError: Its id is no text, or a number in it is out of range.
    """
    if block is None or block.get("id") is None:
        return None
    identity, order = block.get("id"), block.get("total_order")
    table_order = block.get("data_collection_order")
    counts = (order, table_order)
    if not isinstance(identity, str) or any(
        count is not None and (type(count) is not int or not 1 <= count < 1 << 63)
        for count in counts
    ):
        raise DecodeError("no transaction", code=ReasonCode.WRONG_TYPE, path="$.transaction")
    return Transaction(identity, order, table_order)
