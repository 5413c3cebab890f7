# SPDX-License-Identifier: Apache-2.0
"""Events of MongoDB's change streams to change events."""

from typing import Any, Final

import msgspec

from changelane.errors import DecodeError
from changelane.event import (
    NO_DETAILS,
    ChangeEvent,
    Completeness,
    Control,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
    Transaction,
)
from changelane.formats.contract import json
from changelane.formats.contract.bounded_cache import BoundedCache
from changelane.formats.mongodb.change_stream.resume_token import number_in_transaction
from changelane.formats.mongodb.change_stream.wire import (
    EVENT_FIELDS,
    Event,
    Namespace,
    Row,
    UpdateDescription,
    read_document,
    read_value,
)
from changelane.formats.mongodb.document_texts import DocumentTexts
from changelane.formats.mongodb.documents import (
    SCHEMA,
    Form,
    Patch,
    completeness,
    patched_row,
    row_of,
)
from changelane.formats.mongodb.extended_json import ID, column_value, key_text, loads
from changelane.position import Position, SequencePosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId

SOURCE: Final = Source(product="mongodb", connector="change-streams")
COPYING: Final = "copyingData"
"""The mark of the documents that the Kafka connector copies before it reads the stream."""
COPIED: Final = msgspec.structs.replace(SOURCE, snapshot=COPYING)
FRAGMENT: Final = "splitEvent"
KEY: Final = Key((ID,), KeyOrigin.PAYLOAD)
MOST_MS: Final = 253_402_300_800_000

OPERATIONS: Final = {
    "insert": Op.CREATE,
    "update": Op.UPDATE,
    "replace": Op.UPDATE,
    "delete": Op.DELETE,
}
_ACTIONS: Final = {
    "create": "create",
    "modify": "alter",
    "drop": "drop",
    "rename": "rename",
    "createIndexes": "create_index",
    "dropIndexes": "drop_index",
    "dropDatabase": "drop_database",
}
_CONTROLS: Final = frozenset(
    {"invalidate", "shardCollection", "refineCollectionShardKey", "reshardCollection"}
)
KINDS: Final = OPERATIONS.keys() | _ACTIONS.keys() | _CONTROLS
"""The documented values of ``operationType``."""

_MAX_TABLES: Final = 4096
_UNKNOWN: Final = Completeness.UNKNOWN


class Reader:
    """Decodes events.

    Attributes:
        texts: The canonical texts of documents.
        keys: Those of documents with an ``_id`` only.
    """

    def __init__(self, form: Form) -> None:
        """Create the reader.

        Args:
            form: The form of rows.
        """
        self.texts: Final = DocumentTexts()
        self.keys: Final = DocumentTexts()
        self._form = form
        self._tables: BoundedCache[tuple[str, str | None], TableId] = BoundedCache(_MAX_TABLES)

    def __call__(self, fields: Row) -> ChangeEvent:
        """Return the event of its fields.

        Raises:
            DecodeError: The fields are no event, or a fragment of one.
        """
        event = json.convert(fields, Event)
        if event.splitEvent is not None:
            reason = "a fragment of a split event, whose other fragments are other messages"
            raise DecodeError(reason, code=ReasonCode.INCOMPLETE_MESSAGE, path=f"$.{FRAGMENT}")
        details = {name: value for name, value in fields.items() if name not in EVENT_FIELDS}
        token = _loaded(event.token, "$._id")
        is_copy = isinstance(token, dict) and token.get(COPYING) is True
        if token is not None and not is_copy:
            details["_id"] = token
        position = position_of(event.clusterTime, token)
        source_time_ns = wall_time_ns(event.wallTime)
        if source_time_ns is None and position is not None:
            source_time_ns = cluster_time_ns(position.value)
        kind = event.operationType
        if (op := OPERATIONS.get(kind)) is not None:
            if op is Op.CREATE and is_copy:
                op = Op.READ
            return self._row(op, event, position, source_time_ns, details)
        table = TableId() if event.ns is None else self._table(event.ns)
        coordinates = (position, SOURCE, source_time_ns, None, details or NO_DETAILS)
        if (action := _ACTIONS.get(kind)) is not None:
            return SchemaChange(table, action, None, None, None, *coordinates)
        if kind in _CONTROLS:
            return Control(kind, None, table, *coordinates)
        code = ReasonCode.UNKNOWN_OPERATION
        raise DecodeError("an unknown operation", code=code, path="$.operationType")

    def _row(
        self,
        op: Op,
        event: Event,
        position: Position | None,
        source_time_ns: int | None,
        details: Row,
    ) -> DataChange:
        if event.ns is None or event.ns.coll is None:
            raise DecodeError("no collection", code=ReasonCode.MISSING_FIELD, path="$.ns.coll")
        identity = _identity(event, details)
        before = self._image(event.fullDocumentBeforeChange, identity, "fullDocumentBeforeChange")
        after = self._image(event.fullDocument, identity, "fullDocument")
        description = event.updateDescription
        if description is not None:
            details["updateDescription"] = _present(description)
        is_patch = False
        if op is Op.DELETE:
            if after is not None:
                raise _unexpected("$.fullDocument")
            if before is None:
                before = {ID: _required(identity)}
        elif op is Op.UPDATE and after is None and event.operationType == "update":
            after, is_patch = self._patch(description, identity), True
        elif after is None:
            code = ReasonCode.MISSING_IMAGE
            raise DecodeError("no document", code=code, path="$.fullDocument")
        elif op is not Op.UPDATE and before is not None:
            raise _unexpected("$.fullDocumentBeforeChange")
        before_holds = _UNKNOWN
        if before is not None and self._form == "columns":
            is_key = event.fullDocumentBeforeChange is None
            before_holds = Completeness.KEY if is_key else Completeness.FULL
        return DataChange(
            op,
            self._table(event.ns),
            KEY,
            before,
            after,
            SCHEMA if self._form == "json" else None,
            position,
            transaction_of(event, details),
            COPIED if op is Op.READ else SOURCE,
            source_time_ns,
            None,
            before_holds,
            _UNKNOWN if after is None else completeness(self._form, is_patch=is_patch),
            details or NO_DETAILS,
        )

    def _image(self, document: Row | str | None, identity: str | None, name: str) -> Any:
        """Return the row of a document, which may be missing."""
        if document is None:
            return None
        path = f"$.{name}"
        row = row_of(read_document(document, path), self._form, path)
        if identity is not None and row[ID] != identity:
            reason = "another _id than that of documentKey"
            raise DecodeError(reason, code=ReasonCode.WRONG_IMAGE, path=path)
        return row

    def _patch(self, description: UpdateDescription | None, identity: str | None) -> Row:
        """Return the columns of an update without its document."""
        path = "$.updateDescription"
        if description is None:
            reason = "an update without its document: let the stream look up full documents"
            raise DecodeError(reason, code=ReasonCode.INCOMPLETE_ROW, path="$.fullDocument")
        updated = read_document(description.updatedFields or {}, f"{path}.updatedFields")
        paths = description.disambiguatedPaths or {}
        if isinstance(paths, str):
            paths = read_document(paths, f"{path}.disambiguatedPaths")
        patch = Patch(
            updated, description.removedFields or [], description.truncatedArrays or [], paths
        )
        return patched_row(_required(identity), patch, self._form, path)

    def _table(self, namespace: Namespace) -> TableId:
        names = namespace.db, namespace.coll
        table = self._tables.get(names)
        return table or self._tables.add(names, TableId(namespace.db, None, namespace.coll))


def _unexpected(path: str) -> DecodeError:
    reason = "an image that the operation does not have"
    return DecodeError(reason, code=ReasonCode.UNEXPECTED_IMAGE, path=path)


def _identity(event: Event, details: Row) -> str | None:
    """Return the text of ``_id`` in ``documentKey``, if there is one; a shard key is a detail."""
    if event.documentKey is None:
        return None
    path = "$.documentKey"
    document = read_document(event.documentKey, path)
    if ID not in document:
        raise DecodeError("no _id", code=ReasonCode.MISSING_FIELD, path=path)
    if len(document) > 1:
        details["documentKey"] = document
    return key_text(document[ID])


def _required(identity: str | None) -> str:
    if identity is None:
        code = ReasonCode.MISSING_FIELD
        raise DecodeError("no key of the document", code=code, path="$.documentKey")
    return identity


def _present(description: UpdateDescription) -> Row:
    fields = msgspec.structs.asdict(description)
    return {name: value for name, value in fields.items() if value is not None}


def position_of(cluster_time: Row | str | None, token: Any) -> SequencePosition | None:
    """Return the position of an event, if it has a cluster time.

    Args:
        cluster_time: The field ``clusterTime``, or its text.
        token: The resume token, the field ``_id``.

    Raises:
        DecodeError: The time is no timestamp.
    """
    path = "$.clusterTime"
    if cluster_time is None:
        return None
    time = read_value(_loaded(cluster_time, path), path)
    if not isinstance(time, dict) or time.keys() != {"$timestamp"}:
        raise DecodeError("not a timestamp", code=ReasonCode.WRONG_TYPE, path=path)
    value = time["$timestamp"]["t"] << 32 | time["$timestamp"]["i"]
    return SequencePosition(value, number_in_transaction(token, value))


def cluster_time_ns(cluster_time: int) -> int:
    """Return a cluster time, whose seconds are in the upper 32 bits, in nanoseconds."""
    return (cluster_time >> 32) * 1_000_000_000


def _loaded(value: Any, path: str) -> Any:
    """Return a value, which may be a text with it."""
    try:
        return loads(value) if isinstance(value, str) else value
    except DecodeError as error:
        raise DecodeError(error.reason, code=error.code, path=path) from None


def wall_time_ns(value: Row | str | int | None) -> int | None:
    """Return a time in nanoseconds, if there is one.

    Args:
        value: An object, or with simplified JSON a text, or with a schema a number.

    Raises:
        DecodeError: It is no date, or out of range.
    """
    path = "$.wallTime"
    if value is None:
        return None
    if not isinstance(value, int):
        date = read_value({"$date": value} if isinstance(value, str) else value, path)
        if not isinstance(date, dict) or date.keys() != {"$date"}:
            raise DecodeError("not a date", code=ReasonCode.WRONG_TYPE, path=path)
        value = int(date["$date"]["$numberLong"])
    return nanoseconds(value)


def nanoseconds(milliseconds: int) -> int:
    """Return a wall time in nanoseconds.

    Raises:
        DecodeError: It is out of range.
    """
    if not -MOST_MS < milliseconds < MOST_MS:
        code = ReasonCode.VALUE_OUT_OF_RANGE
        raise DecodeError("out of range", code=code, path="$.wallTime")
    return milliseconds * 1_000_000


def transaction_of(event: Event, details: Row) -> Transaction | None:
    """Return the transaction, which its session and a number in it identify.

    Args:
        event: The event.
        details: The details of the event, to which further fields of the session are added.

    Raises:
        DecodeError: The session or the number has another type.
    """
    if event.lsid is None or event.txnNumber is None:
        return None
    session = column_value(read_value(event.lsid.get("id"), "$.lsid.id"))
    number = column_value(read_value(event.txnNumber, "$.txnNumber"))
    if not isinstance(session, str):
        raise DecodeError("not a UUID", code=ReasonCode.WRONG_TYPE, path="$.lsid.id")
    if type(number) is not int:
        raise DecodeError("not a number", code=ReasonCode.WRONG_TYPE, path="$.txnNumber")
    if event.lsid.keys() > {"id"}:
        details["lsid"] = event.lsid
    return Transaction(f"{session}:{number}")
