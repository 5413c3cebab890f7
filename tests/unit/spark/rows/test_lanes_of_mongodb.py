# SPDX-License-Identifier: Apache-2.0
"""Lanes of MongoDB's formats give the rows and the errors of the event path."""

import json
from typing import Any

import pytest
from lane_checks import check_generated, check_mutated, check_stored, count

from changelane import get_codec
from changelane.message import Message

pytestmark = pytest.mark.usefixtures("early_lanes")

DEBEZIUM = "debezium-mongodb-json"
STREAM = "mongodb-change-stream-json"
FORMATS: dict[str, tuple[dict[str, Any], ...]] = {
    DEBEZIUM: ({}, {"documents": "columns"}),
    STREAM: ({}, {"documents": "columns"}),
}
OID = {"$oid": "67ab25755c0d5ac87eb8c632"}
TOKEN = "82636D399B000000012B022C0100296E5A100444B0F5E386F04767814F28CB4AAE7FEE46645F69640064"


@pytest.mark.parametrize("format", FORMATS)
def test_stored_messages(format: str) -> None:
    check_stored(format, FORMATS[format][:1])


@pytest.mark.parametrize("format", FORMATS)
def test_mutated_messages(format: str) -> None:
    check_mutated(format, FORMATS[format][:1])


@pytest.mark.parametrize("format", FORMATS)
def test_generated_events(format: str) -> None:
    check_generated(format)


@pytest.mark.parametrize("format", FORMATS)
def test_documents_as_columns_have_no_lane(format: str) -> None:
    assert get_codec(format, documents="columns").lanes is None


# -- debezium-mongodb-json -------------------------------------------------------------------------


def debezium(op: str, after: Any, before: Any = None, **more: Any) -> Message:
    """Return a message of Debezium; documents are texts or values."""
    before, after = [
        json.dumps(image) if isinstance(image, dict) else image for image in (before, after)
    ]
    source = {"version": "2.7.0.Final", "connector": "mongodb", "name": "shop", "ts_ms": 7000}
    source |= {"snapshot": "false", "db": "shop", "sequence": None, "collection": "orders"}
    source |= {"ord": 28, "lsid": None, "wallTime": None} | more.pop("source", {})
    key = more.pop("key", {"id": json.dumps(OID)})
    value = {"before": before, "after": after, "updateDescription": None, "source": source}
    value |= {"op": op, "ts_ms": 7001, "transaction": None} | more
    return encoded({"schema": None, "payload": value} if more.pop("wrapped", 0) else value, key)


def encoded(value: Any, key: Any) -> Message:
    texts = [None if part is None else json.dumps(part).encode() for part in (value, key)]
    return Message(texts[0], texts[1], (), "t")


ROW = {"_id": OID, "name": "a", "n": 1}
DESCRIPTION = {"updatedFields": '{"n":1}', "removedFields": None, "truncatedArrays": None}
TRANSACTION = {"id": "7:1", "total_order": 1, "data_collection_order": 2}


def test_plain_messages_of_debezium() -> None:
    schema = {"schema": {"type": "struct"}}
    for one in (
        *(debezium(op, ROW) for op in "cru"),
        *(
            debezium("c", {"_id": key})
            for key in (1, 1.5, "a", None, True, {"a": 1, "b": [2]}, [1])
        ),
        debezium("u", ROW, ROW | {"n": 2}),
        debezium("u", ROW, updateDescription=DESCRIPTION),
        debezium("d", None),
        debezium("d", None, ROW),
        debezium("c", ROW, transaction=TRANSACTION),
        debezium("c", ROW, source={"ord": None, "wallTime": 5000}),
        debezium("c", ROW, source={"lsid": '{"id": 1}', "ts_us": 7000000, "sequence": "x"}),
        debezium("r", ROW, source={"snapshot": "true"}),
        debezium("c", ROW, ts_us=7001000),
        Message(
            json.dumps({"payload": json.loads(debezium("c", ROW).value or b"")} | schema).encode()
        ),
        Message(json.dumps({"payload": json.loads(debezium("c", ROW).value or b"")}).encode()),
    ):
        assert count(DEBEZIUM, [one] * 3) == 2, one
        assert count(DEBEZIUM, [one] * 3, images=False) == 2


@pytest.mark.parametrize(
    "other",
    [
        debezium("u", None),
        debezium("u", None, updateDescription=DESCRIPTION),
        debezium("c", None),
        debezium("c", ROW, ROW),
        debezium("x", ROW),
        debezium("d", ROW),
        debezium("d", None, ROW),
        debezium("d", None, key=None),
        debezium("d", None, key={"id": "x y"}),
        debezium("c", {"name": "a"}),
        debezium("c", '{"_id": 1,}'),
        debezium("c", "[]"),
        debezium("c", '{"$oid": "67ab25755c0d5ac87eb8c632"}'),
        debezium("c", ROW, source={"ord": 1 << 32}),
        debezium("c", ROW, source={"ord": 1.0}),
        debezium("c", ROW, source={"ts_ms": "7000"}),
        debezium("c", ROW, source={"ts_ms": 1 << 62, "ord": None}),
        debezium("c", ROW, source={"wallTime": True}),
        debezium("c", ROW, source={"db": "other"}),
        debezium("c", ROW, source={"collection": None}),
        debezium("c", ROW, source={"snapshot": "last"}),
        debezium("c", ROW, source={"snapshot": True}),
        debezium("c", ROW, source={"version": None}),
        debezium("c", ROW, source={"txnNumber": 1}),
        debezium("c", ROW, source={"lsid": "x"}),
        debezium("c", ROW, ts_ms=1 << 62),
        debezium("c", ROW, ts_ms="7"),
        debezium("c", ROW, transaction={"id": 7}),
        debezium("c", ROW, transaction=TRANSACTION | {"total_order": 0}),
        debezium("c", ROW, updateDescription={"updatedFields": 1}),
    ],
)
def test_other_messages_of_debezium(other: Message) -> None:
    plain = debezium("u", ROW)
    assert count(DEBEZIUM, [plain, plain, other]) == 1
    count(DEBEZIUM, [other, other, plain, other, plain], images=False)


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("value", [b'"\xff"', b"1e999999999999999999999"])
@pytest.mark.parametrize("place", [b"ts_us", b"added", b"removedFields", b"of_description"])
def test_unreadable_fields_of_debezium(place: bytes, value: bytes, wrapped: bool) -> None:
    plain = debezium("u", ROW, ts_us=5, updateDescription=DESCRIPTION, wrapped=wrapped)
    field = b'"' + place + b'": '
    text = {
        b"ts_us": (b'"ts_us": 5', field + value),
        b"added": (b'"ts_us": 5', b'"ts_us": 5, ' + field + value),
        b"removedFields": (field + b"null", field + value),
        b"of_description": (b'"removedFields": null', b'"removedFields": null, ' + field + value),
    }
    changed = (plain.value or b"").replace(*text[place])
    assert changed != plain.value
    assert count(DEBEZIUM, [plain, plain, Message(changed, plain.key, (), "t"), plain]) == 2


def test_deletes_of_debezium_with_and_without_their_documents() -> None:
    short, whole = debezium("d", None), debezium("d", None, ROW)
    assert count(DEBEZIUM, [short, short, short, debezium("c", ROW)]) == 3
    assert count(DEBEZIUM, [whole, whole, whole, debezium("c", ROW)]) == 3
    count(DEBEZIUM, [short, short, whole, short, whole, whole, short])
    update = debezium("u", ROW, ROW | {"_id": 2})
    assert count(DEBEZIUM, [debezium("u", ROW, ROW)] * 3 + [update]) == 2


# -- mongodb-change-stream-json --------------------------------------------------------------------


def event(kind: str, document: Any = None, before: Any = None, **more: Any) -> Message:
    value = {
        "_id": {"_data": TOKEN},
        "operationType": kind,
        "clusterTime": {"$timestamp": {"t": 1668102555, "i": 1}},
        "wallTime": {"$date": 1668102555704},
        "ns": {"db": "shop", "coll": "orders"},
        "documentKey": {"_id": OID},
        "fullDocument": document,
        "fullDocumentBeforeChange": before,
    } | more
    return encoded({name: part for name, part in value.items() if part != "absent"}, None)


SESSION = {"id": {"$binary": {"base64": "uE2/4v5MSVOiJZkOo3APKQ==", "subType": "04"}}}
COPY = {"_id": OID, "copyingData": True}


def test_plain_events() -> None:
    for one in (
        event("insert", ROW),
        event("replace", ROW),
        event("update", ROW, updateDescription={"updatedFields": {"n": 1}, "removedFields": []}),
        event("update", ROW, ROW | {"n": 2}),
        event("delete"),
        event("delete", None, ROW),
        event("insert", ROW, _id=COPY),
        event("insert", ROW, _id="absent", clusterTime="absent", wallTime="absent"),
        event("insert", ROW, wallTime={"$date": {"$numberLong": "5"}}),
        event("insert", ROW, wallTime={"$date": "1970-01-01T00:00:00Z"}),
        event("insert", ROW, wallTime="1970-01-01T00:00:00Z", clusterTime=None),
        event("insert", ROW, lsid=SESSION, txnNumber={"$numberLong": "7"}),
        event("insert", ROW, lsid=SESSION | {"uid": "x"}, txnNumber=7),
        event("insert", ROW, collectionUUID="x"),
        event("insert", ROW, documentKey="absent"),
        event("insert", {"_id": 1, "n": 1.5}, documentKey={"_id": 1}),
        event("insert", {"_id": "a,"}, documentKey={"_id": "a,"}),
        event("insert", {"_id": {"a": 1}, "b": 1}, documentKey={"_id": {"a": 1}}),
        event("delete", None, None, documentKey={"_id": {"a": 1}}),
    ):
        assert count(STREAM, [one] * 3) == 2, one
        assert count(STREAM, [one] * 3, images=False) == 2
        compact = Message(json.dumps(json.loads(one.value or b""), separators=(",", ":")).encode())
        assert count(STREAM, [compact] * 3) == 2, one


@pytest.mark.parametrize(
    "other",
    [
        event("update"),
        event("update", None, updateDescription={"updatedFields": {"n": 1}}),
        event("insert"),
        event("insert", ROW, ROW),
        event("delete", ROW),
        event("delete", None, ROW),
        event("delete", None, None, documentKey="absent"),
        event("drop"),
        event("invalidate"),
        event("x", ROW),
        event("insert", ROW, documentKey={"_id": 1}),
        event("insert", {"_id": 12}, documentKey={"_id": 1}),
        event("insert", ROW, documentKey={"_id": OID, "n": 1}),
        event("insert", ROW, documentKey={"n": 1}),
        event("insert", json.dumps(ROW)),
        event("insert", {"name": "a"}),
        event("insert", {"name": "a", "_id": OID}),
        event("insert", [1]),
        event("insert", ROW, ns={"db": "shop"}),
        event("insert", ROW, ns={"db": "shop", "coll": "other"}),
        event("insert", ROW, clusterTime={"$timestamp": {"t": 1.0, "i": 1}}),
        event("insert", ROW, clusterTime={"$timestamp": {"t": 1 << 32, "i": 1}}),
        event("insert", ROW, clusterTime='{"$timestamp": {"t": 1, "i": 1}}'),
        event("insert", ROW, wallTime=5),
        event("insert", ROW, wallTime={"$date": 1 << 62}),
        event("insert", ROW, wallTime={"$date": {"$numberLong": "1 "}}),
        event("insert", ROW, wallTime={"$date": {"$numberLong": "\u0661"}}),
        event("insert", ROW, wallTime={"$date": 1.5}),
        event("insert", ROW, _id=COPY),
        event("update", ROW, _id=COPY),
        event("insert", ROW, _id="x"),
        event("insert", ROW, splitEvent={"fragment": 1, "of": 2}),
        event("insert", ROW, lsid={"id": 1}, txnNumber=1),
        event("insert", ROW, txnNumber="x", lsid=SESSION),
        event("insert", ROW, further=None),
        encoded({"schema": None, "payload": json.loads(event("insert", ROW).value or b"")}, None),
        encoded((event("insert", ROW).value or b"").decode(), None),
    ],
)
def test_other_events(other: Message) -> None:
    plain = event("replace", ROW)
    count(STREAM, [plain, plain, other, plain, other])
    copied = event("insert", ROW, _id=COPY)
    count(STREAM, [copied, copied, other, copied, other])
    for first in (other, event("delete", None, ROW)):
        count(STREAM, [first, first, other, plain, first])


@pytest.mark.parametrize("value", [b'"\xff"', b"1e999999999999999999999"])
@pytest.mark.parametrize("name", [b"removedFields", b"n", b"x"])
def test_unreadable_fields_of_an_event(name: bytes, value: bytes) -> None:
    plain = event("update", ROW, updateDescription={"updatedFields": {"n": 1}, "x": 1})
    description = {b"n": b'"updatedFields": {"n": 1}', b"x": b'"x": 1'}
    place = description.get(name, b'"x": 1')
    changed = (plain.value or b"").replace(place, b'"' + name + b'": ' + value)
    assert changed != plain.value
    known = event("update", ROW, updateDescription={"updatedFields": {"n": 1}})
    assert count(STREAM, [known, known, Message(changed, None, (), "t"), known]) == 2


def test_copies_are_of_another_lane() -> None:
    copied, plain = event("insert", ROW, _id=COPY), event("insert", ROW)
    assert count(STREAM, [copied, copied, plain, plain, copied, plain]) == 4
