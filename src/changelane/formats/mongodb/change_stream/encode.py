# SPDX-License-Identifier: Apache-2.0
"""Change events to events of MongoDB's change streams, in canonical Extended JSON."""

import binascii
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from changelane.errors import DecodeError, EncodeError
from changelane.event import ChangeEvent, DataChange, Op
from changelane.formats.contract import json
from changelane.formats.contract.details import add_further, other_content, take_documented
from changelane.formats.contract.format import Report
from changelane.formats.mongodb.change_stream.decode import COPYING, MOST_MS
from changelane.formats.mongodb.change_stream.resume_token import number_in_transaction
from changelane.formats.mongodb.change_stream.wire import EVENT_FIELDS, Row, UpdateDescription
from changelane.formats.mongodb.documents import Form, document_of, id_of_row
from changelane.formats.mongodb.extended_json import ID, canonical, column_value, key_text, value_of
from changelane.message import Message
from changelane.position import SequencePosition

_DETAILS: Final[dict[str, type]] = {
    "_id": dict,
    "documentKey": dict,
    "updateDescription": dict,
    "lsid": dict,
}
_TRANSACTION: Final = re.compile(
    r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}):(0|-?[1-9][0-9]{0,17})"
)


class Writer:
    """Encodes events that are reduced to the capabilities of change streams.

    Args:
        form: The form of rows.
    """

    def __init__(self, form: Form) -> None:
        self._form = form

    def __call__(self, event: ChangeEvent, report: Report) -> Message:
        """Return the message of an event."""
        if not isinstance(event, DataChange):
            raise EncodeError(f"a change stream has no row for {type(event).__name__}")
        if event.source.snapshot != (COPYING if event.op is Op.READ else None):
            report(("source.snapshot", "readers take it from the operation"))
        key = () if event.key is None else event.key.columns
        if key != (ID,):
            report(("key", "readers return _id"))
        if not event.table.name or not event.table.database:
            report(("table.name", "an event has a database and a collection"))
        before, after, identity = self._documents(event, key, report)
        details = dict(event.details)
        documented = take_documented(details, _DETAILS, report)
        token = _token(event.op, documented.pop("_id", None), identity, report)
        description = documented.pop("updateDescription", None)
        if description is not None and not (event.op is Op.UPDATE and _is_description(description)):
            report(other_content("updateDescription"))
            description = None
        document_key = documented.get("documentKey")
        if document_key is not None and not _is_key_of(document_key, identity):
            report(other_content("documentKey"))
            document_key = None
        cluster_time = _cluster_time(event, token, report)
        wire = {
            "_id": token,
            "operationType": _operation(event.op, is_patched=description is not None),
            "clusterTime": cluster_time,
            "wallTime": _wall_time(event, cluster_time, report),
            "fullDocument": after,
            "fullDocumentBeforeChange": before,
            "ns": {"db": event.table.database or "", "coll": event.table.name or ""},
            "documentKey": document_key or {ID: identity},
            "updateDescription": description,
            **_transaction(event, documented.get("lsid"), report),
        }
        message = {name: value for name, value in wire.items() if value is not None}
        add_further(message, details, EVENT_FIELDS, report)
        return Message(json.dumps(message), json.dumps({ID: identity}))

    def _documents(
        self, event: DataChange, key: tuple[str, ...], report: Report
    ) -> tuple[Row | None, Row | None, Any]:
        """Return the documents before and after the change, and their ``_id``."""
        row = event.before if event.op is Op.DELETE else event.after
        if row is None:
            raise EncodeError("the change has no row image")
        if event.op is Op.DELETE and row.keys() == {ID} and isinstance(row[ID], str):
            return None, None, canonical(value_of(id_of_row(str(row[ID]), report)))
        document = document_of(row, key or tuple(row)[:1], self._form, report)
        if event.op is Op.DELETE:
            return document, None, document[ID]
        before = None
        if event.op is Op.UPDATE and event.before is not None:
            before = document_of(event.before, key, self._form, report)
            if key_text(canonical(before[ID])) != key_text(canonical(document[ID])):
                report(("before", "the image of another document"))
                before = None
        return before, document, document[ID]


def _operation(op: Op, *, is_patched: bool) -> str:
    """Return the type: an update describes its changes, a replacement does not."""
    match op:
        case Op.CREATE | Op.READ:
            return "insert"
        case Op.UPDATE:
            return "update" if is_patched else "replace"
        case Op.DELETE:
            return "delete"


def _token(op: Op, token: Row | None, identity: Any, report: Report) -> Row | None:
    if op is Op.READ:
        if token is not None:
            report(other_content("_id"))
        return {ID: identity, COPYING: True}
    if token is not None and COPYING in token:
        report(other_content("_id"))
        return None
    return token


def _is_description(value: Row) -> bool:
    if not value.keys() <= set(UpdateDescription.__struct_fields__):
        return False
    try:
        msgspec.convert(value, UpdateDescription)
    except msgspec.ValidationError:
        return False
    return None not in value.values()


def _is_key_of(document_key: Row, identity: Any) -> bool:
    """Return whether a document key is one with a shard key, of the same document."""
    try:
        document = canonical(document_key)
    except (DecodeError, RecursionError):
        return False
    return (
        isinstance(document, dict)
        and document == document_key
        and len(document) > 1
        and ID in document
        and key_text(document[ID]) == key_text(canonical(identity))
    )


def _cluster_time(event: DataChange, token: Row | None, report: Report) -> Row | None:
    position = event.position
    if position is None:
        return None
    if not isinstance(position, SequencePosition) or not 0 <= position.value < 1 << 64:
        report(("position", "not a cluster time"))
        return None
    seconds, increment = divmod(position.value, 1 << 32)
    if number_in_transaction(token, position.value) != position.row:
        report(("position.row", "readers take it from the resume token"))
    return {"$timestamp": {"t": seconds, "i": increment}}


def _wall_time(event: DataChange, cluster_time: Row | None, report: Report) -> Row | None:
    cluster_ms = None if cluster_time is None else cluster_time["$timestamp"]["t"] * 1000
    if event.source_time_ns is None:
        if cluster_ms is not None:
            report(("source_time", "read as the cluster time"))
        return None
    time_ms = event.source_time_ns // 1_000_000
    if not -MOST_MS < time_ms < MOST_MS:
        report(("source_time", "out of range"))
        return None
    return None if time_ms == cluster_ms else {"$date": {"$numberLong": str(time_ms)}}


def _transaction(event: DataChange, lsid: Row | None, report: Report) -> Mapping[str, Any]:
    """Return the fields of the transaction: its session and its number."""
    identity = "" if event.transaction is None else event.transaction.id
    match = _TRANSACTION.fullmatch(identity)
    if match is None:
        if event.transaction is not None:
            report(("transaction.id", "not a session and a number"))
        if lsid is not None:
            report(other_content("lsid"))
        return {}
    data = binascii.b2a_base64(uuid.UUID(match[1]).bytes, newline=False).decode()
    session = {"$binary": {"base64": data, "subType": "04"}}
    if lsid is not None and not _is_session(lsid, match[1]):
        report(other_content("lsid"))
        lsid = None
    return {"txnNumber": {"$numberLong": match[2]}, "lsid": lsid or {"id": session}}


def _is_session(lsid: Row, session: str) -> bool:
    try:
        return lsid.keys() > {"id"} and column_value(canonical(lsid["id"])) == session
    except (DecodeError, RecursionError):
        return False
