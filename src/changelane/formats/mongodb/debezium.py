# SPDX-License-Identifier: Apache-2.0
r"""``debezium-mongodb-json``: the messages of Debezium's connector for MongoDB.

Product: Debezium (https://debezium.io/documentation/reference/stable/connectors/mongodb.html).
Versions studied: the documentation of 1.9 to 3.0, and published messages of 2.7.

Sample::

    {"before":null,
     "after":"{\"_id\": {\"$oid\": \"67ab25755c0d5ac87eb8c632\"},\"by\": \"peter\"}",
     "updateDescription":null,
     "source":{"version":"2.7.0.Final","connector":"mongodb","name":"shop","ts_ms":1739321992000,
      "snapshot":"false","db":"shop","sequence":null,"ts_us":1739321992000000,
      "ts_ns":1739321992000000000,"collection":"orders","ord":28,"lsid":null,"txnNumber":null,
      "wallTime":null},
     "op":"u","ts_ms":1739321992890,"transaction":null}

Choices: a row is one document in canonical Extended JSON and its ``_id`` (option ``documents``);
the position is the time and the number of the entry in the oplog; an update without its document
is rejected, unless fields are columns.

Known gaps: changes of one transaction share a position. See
``docs/formats/debezium-mongodb-json.md``.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError, EncodeError
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
from changelane.formats.contract.capabilities import AbsentMeans, Carries
from changelane.formats.contract.details import add_further
from changelane.formats.contract.format import Format, Report
from changelane.formats.debezium_envelope.registry.options import SerdeOptions
from changelane.formats.debezium_envelope.registry.registry_format import with_serde
from changelane.formats.debezium_envelope.source_block import topic_of
from changelane.formats.mongodb.documents import (
    ID,
    SCHEMA,
    Form,
    Patch,
    completeness,
    document_of,
    id_of,
    id_of_row,
    patched_row,
    row_of,
)
from changelane.formats.mongodb.extended_json import (
    canonical,
    key_text,
    parse,
    strict_text,
    text_of,
    value_of,
)
from changelane.formats.mongodb.wire import (
    Envelope,
    Row,
    UpdateDescription,
    load,
    other_messages,
)
from changelane.message import Message
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId
from changelane.types import Boolean, Decimal, Float, Integer, Json, String

CONNECTOR: Final = "debezium"
PRODUCT: Final = "mongodb"
_OPERATIONS: Final = {"c": Op.CREATE, "u": Op.UPDATE, "d": Op.DELETE, "r": Op.READ}
_KEY: Final = Key((ID,), KeyOrigin.MESSAGE)
_NOT_A_SNAPSHOT: Final = frozenset({None, "false"})
_MAX_TABLES: Final = 4096
_U32: Final = 1 << 32
_MOST_MS: Final = 253_402_300_800_000
_SOURCE_FIELDS: Final = frozenset(
    {"version", "connector", "name", "ts_ms", "snapshot", "db", "ts_us", "ts_ns"}
    | {"collection", "ord", "wallTime"}
)


class Options(SerdeOptions, frozen=True, kw_only=True):
    """Options of ``debezium-mongodb-json``, beside those of its serde.

    Attributes:
        documents: The form of rows: ``json``, the columns ``_id`` and ``document``; ``columns``, a
            column for each top-level field.
    """

    documents: Form = "json"


class DebeziumMongoDb:
    """The format ``debezium-mongodb-json``."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._form = options.documents
        self._tables: BoundedCache[tuple[str, str], TableId] = BoundedCache(_MAX_TABLES)
        is_document = self._form == "json"
        self.carries: Final = Carries(
            operations=frozenset(Op),
            before=True,
            absent=not is_document,
            absent_means=AbsentMeans.UNCHANGED if is_document else AbsentMeans.NULL,
            types=frozenset({Boolean, Integer, Json, String}),
            forms=frozenset({(Float, "number"), (Decimal, "number")}),
            key=True,
            table=frozenset({"database", "name"}),
            positions=frozenset({"sequence"}),
            shared_positions=frozenset({"sequence"}),
            transaction=frozenset({"id", "order", "table_order"}),
            source=frozenset({"server", "version", "snapshot"}),
            stamp=Source(product=PRODUCT, connector=CONNECTOR),
            source_time="ms",
            process_time="ms",
            details=True,
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (DebeziumMongoDb, (self._options,))

    # -- reading -------------------------------------------------------------------------------

    def decode(self, message: Message) -> tuple[ChangeEvent, ...]:
        """Decode a change, a tombstone, or a message that is no change."""
        if not message.value:  # some producers write an empty value for null
            key = None if message.key is None else _message_id(message.key)
            return (Tombstone(TableId(), None if key is None else {ID: key_text(key)}),)
        envelope = load(message.value)
        if envelope is None:
            return other_messages(message, message.value)
        return (self._change(envelope, message.key),)

    def _change(self, envelope: Envelope, key: bytes | None) -> DataChange:
        op = _OPERATIONS.get(envelope.op)
        if op is None:
            raise DecodeError(
                "an unknown operation", code=ReasonCode.UNKNOWN_OPERATION, path="$.op"
            )
        source = envelope.source
        before = _image(envelope.before, self._form, "$.before")
        after = _image(envelope.after, self._form, "$.after")
        details = {name: source[name] for name in source if name not in _SOURCE_FIELDS}
        is_patch = False
        if op is Op.DELETE:
            if after is not None:
                raise _unexpected("$.after")
            if before is None:
                before = {ID: key_text(_required_id(key))}
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
        seconds, ordinal = _place(source)
        return DataChange(
            op,
            self._table(source),
            _KEY,
            before,
            after,
            SCHEMA if self._form == "json" else None,
            None if seconds is None else SequencePosition((seconds << 32) | ordinal),
            _transaction(envelope.transaction),
            _source(source),
            _time(source, "wallTime", _time(source, "ts_ms", None)),
            None if envelope.ts_ms is None else _nanoseconds(envelope.ts_ms, "$.ts_ms"),
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
        identity = key_text(_required_id(key)) if self._form == "columns" else ""
        return patched_row(identity, patch, self._form, path)

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

    # -- writing -------------------------------------------------------------------------------

    def encode(self, event: ChangeEvent, *, report: Report) -> tuple[Message, ...]:
        """Encode a row change."""
        if not isinstance(event, DataChange):
            raise EncodeError(f"the connector has no message for {type(event).__name__}")
        message = self._written(event, report)
        if event.op is not Op.DELETE:
            return (message,)
        return message, Message(None, message.key, topic=message.topic)

    def _written(self, event: DataChange, report: Report) -> Message:
        key = () if event.key is None else event.key.columns
        if key != (ID,):
            report(("key", "readers return _id"))
        row = event.before if event.op is Op.DELETE else event.after
        if row is None:
            raise EncodeError("the change has no row image")
        details = dict(event.details)
        before = after = None
        is_key = event.op is Op.DELETE and row.keys() == {ID} and isinstance(row[ID], str)
        if is_key:
            identity = id_of_row(str(row[ID]), report)
        else:
            document = document_of(row, key or tuple(row)[:1], self._form, report)
            identity = document[ID]
            before, after = (
                (text_of(document), None) if event.op is Op.DELETE else (None, text_of(document))
            )
        if event.op is Op.UPDATE and event.before is not None:
            before = text_of(document_of(event.before, key, self._form, report))
        description = details.pop("updateDescription", None)
        details.pop("lookup", None)
        if description is not None and not _is_description(description):
            report(("details.updateDescription", "not the description of an update"))
            description = None
        time_ms = None if event.process_time_ns is None else event.process_time_ns // 1_000_000
        value = {
            "before": before,
            "after": after,
            "updateDescription": description,
            "source": _source_block(event, details, report),
            "op": event.op.value,
            "ts_ms": time_ms,
            "transaction": _transaction_block(event, report),
        }
        topic = topic_of(event.source, event.table)
        return Message(json.dumps(value), _key_bytes(identity), topic=topic or None)

    def detects(self, message: Message) -> bool:
        """Return whether a message is a change of the connector for MongoDB."""
        value = message.value
        if value is None or b'"collection"' not in value:
            return False
        try:
            envelope = load(value)
        except (DecodeError, RecursionError):
            return False
        return (
            envelope is not None
            and envelope.source.get("connector") == PRODUCT
            and envelope.op in _OPERATIONS
        )


def _parsed(text: str, path: str) -> Row:
    try:
        return parse(text)
    except DecodeError as error:
        raise DecodeError(error.reason, code=error.code, path=path) from None


def _image(text: str | None, form: Form, path: str) -> dict[str, Any] | None:
    return None if text is None else row_of(_parsed(text, path), form, path)


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


def _required_id(key: bytes | None) -> Any:
    if key is None:
        raise DecodeError("no message key", code=ReasonCode.MISSING_FIELD, path="$key")
    return _message_id(key)


def _place(source: Row) -> tuple[int | None, int]:
    """Return the seconds and the number of an entry in the oplog, if the source has both."""
    time_ms, ordinal = source.get("ts_ms"), source.get("ord")
    if ordinal is None or time_ms is None:
        return None, 0
    if type(ordinal) is not int or not 0 <= ordinal < _U32:
        raise DecodeError("not a number", code=ReasonCode.WRONG_TYPE, path="$.source.ord")
    if type(time_ms) is not int or not 0 <= time_ms < _MOST_MS:
        raise DecodeError("not a time", code=ReasonCode.WRONG_TYPE, path="$.source.ts_ms")
    return time_ms // 1000, ordinal


def _time(source: Row, name: str, default: int | None) -> int | None:
    value = source.get(name)
    if value is None:
        return default
    if type(value) is not int:
        raise DecodeError("not a time", code=ReasonCode.WRONG_TYPE, path=f"$.source.{name}")
    return _nanoseconds(value, f"$.source.{name}")


def _nanoseconds(value: int, path: str) -> int:
    if not -_MOST_MS < value < _MOST_MS:
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


def _transaction(block: Row | None) -> Transaction | None:
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


# -- writing -------------------------------------------------------------------------------------


def _key_bytes(identity: Any) -> bytes:
    """Return the message key: an ``_id`` that is a whole number has no type in it."""
    value = canonical(value_of(identity))
    match value:
        case {"$numberLong": str(text)} if len(value) == 1:
            return json.dumps({"id": text})
        case _:
            return json.dumps({"id": strict_text(value)})


def _is_description(value: object) -> bool:
    try:
        msgspec.convert(value, UpdateDescription)
    except msgspec.ValidationError:
        return False
    return isinstance(value, Mapping) and value.keys() <= set(UpdateDescription.__struct_fields__)


def _source_block(event: DataChange, details: Row, report: Report) -> Row:
    time_ms = None if event.source_time_ns is None else event.source_time_ns // 1_000_000
    seconds, ordinal = _coordinates(event, report)
    oplog_ms = time_ms if seconds is None else seconds * 1000
    if oplog_ms is None:
        oplog_ms = 0
        report(("source_time", "a message has a time"))
    if time_ms is None and seconds is not None:
        report(("source_time", "read as the time of the entry in the oplog"))
    snapshot = event.source.snapshot
    if snapshot == "false":
        report(("source.snapshot", "read as none"))
    if not event.table.name or not event.table.database:
        report(("table.name", "a message has a database and a collection"))
    block = {
        "version": event.source.version,
        "connector": PRODUCT,
        "name": event.source.server,
        "ts_ms": oplog_ms,
        "snapshot": "false" if snapshot is None else snapshot,
        "db": event.table.database or "",
        "collection": event.table.name or "",
        "ord": ordinal,
        "wallTime": None if time_ms == oplog_ms else time_ms,
    }
    add_further(block, details, _SOURCE_FIELDS, report)
    return block


def _coordinates(event: DataChange, report: Report) -> tuple[int | None, int | None]:
    position = event.position
    if position is None:
        return None, None
    if isinstance(position, SequencePosition) and position.row == 0 and position.value >= 0:
        seconds, ordinal = divmod(position.value, _U32)
        if seconds * 1000 < _MOST_MS:
            return seconds, ordinal
    report(("position", "not an entry of the oplog"))
    return None, None


def _transaction_block(event: DataChange, report: Report) -> Row | None:
    transaction = event.transaction
    if transaction is None:
        return None
    if any(
        count is not None and not 1 <= count < 1 << 63
        for count in (transaction.order, transaction.table_order)
    ):
        report(("transaction.order", "out of range"))
        return None
    return {
        "id": transaction.id,
        "total_order": transaction.order,
        "data_collection_order": transaction.table_order,
    }


def make(options: Options) -> Format:
    """Return the format."""
    return with_serde(make, options, DebeziumMongoDb(options))
