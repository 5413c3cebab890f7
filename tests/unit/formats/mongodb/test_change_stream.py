# SPDX-License-Identifier: Apache-2.0
"""Events of change streams: documents, patches, positions, transactions, fragments, and writing."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelane import DecodeError, Message, get_codec
from changelane.event import Completeness, Control, Op, SchemaChange, Tombstone, Transaction
from changelane.position import SequencePosition
from changelane.schema import TableId

CODEC = get_codec("mongodb-change-stream-json")
COLUMNS = get_codec("mongodb-change-stream-json", documents="columns")
NS = {"db": "shop", "coll": "t"}
KEY = {"_id": 1}
DOCUMENT = {"_id": 1, "a": "x"}
TEXT = '{"_id":{"$numberInt":"1"},"a":"x"}'
SESSION = "b84dbfe2-fe4c-4953-a225-990ea3700f29"
LSID = {"id": {"$binary": {"base64": "uE2/4v5MSVOiJZkOo3APKQ==", "subType": "04"}}}


def fields(kind="insert", **more):
    images = {"fullDocument": DOCUMENT} if kind in {"insert", "replace"} else {}
    event = {"operationType": kind, "ns": NS, "documentKey": KEY} | images | more
    return {name: value for name, value in event.items() if value is not None}


def message(kind="insert", **more):
    return Message(json.dumps(fields(kind, **more)).encode())


def decode(wire, codec=CODEC):
    (event,) = codec.decode(wire)
    return event


def described(**description):
    return message("update", updateDescription=description)


def time(seconds=7, increment=1):
    return {"$timestamp": {"t": seconds, "i": increment}}


def token(seconds=7, increment=1, number="29"):
    return {"_data": f"82{seconds:08X}{increment:08X}2B042C0100{number}6E5A1004AB"}


def refused(wire, codec=CODEC):
    with pytest.raises(DecodeError) as caught:
        codec.decode(wire)
    return caught.value.code, caught.value.path


@pytest.mark.parametrize(
    ("wire", "op", "before", "after"),
    [
        (message(), Op.CREATE, None, TEXT),
        (message(_id={"_id": 1, "copyingData": True}), Op.READ, None, TEXT),
        (message("replace"), Op.UPDATE, None, TEXT),
        (message("update", fullDocument=DOCUMENT), Op.UPDATE, None, TEXT),
        (message("replace", fullDocumentBeforeChange=DOCUMENT), Op.UPDATE, TEXT, TEXT),
        (message("delete", fullDocumentBeforeChange=DOCUMENT), Op.DELETE, TEXT, None),
    ],
)
def test_an_operation_has_the_documents_of_its_event(wire, op, before, after):
    event = decode(wire)
    rows = [document and {"_id": "1", "document": document} for document in (before, after)]
    assert (event.op, event.before, event.after) == (op, *rows)
    assert event.table == TableId("shop", None, "t")


def test_a_delete_without_a_document_has_the_id_of_its_key():
    event = decode(message("delete"), COLUMNS)
    assert (event.before, event.before_holds) == ({"_id": "1"}, Completeness.KEY)
    assert refused(message("delete", documentKey=None)) == ("missing_field", "$.documentKey")


def test_a_patch_is_a_partial_update_of_columns_only():
    event = decode(described(updatedFields={"a": 2, "b": {"c": 1}}, removedFields=["d"]), COLUMNS)
    row = {"_id": "1", "a": 2, "b": '{"c":{"$numberInt":"1"}}', "d": None}
    assert (event.after, event.after_holds) == (row, Completeness.CHANGED)
    assert refused(described(updatedFields={"a": 2})) == ("incomplete_row", "$.updateDescription")
    assert refused(message("update")) == ("incomplete_row", "$.fullDocument")
    array = described(truncatedArrays=[{"field": "a", "newSize": 1}])
    path = "$.updateDescription.truncatedArrays"
    assert refused(array, COLUMNS) == ("incomplete_row", path)


def test_a_name_with_a_dot_is_a_column_if_the_event_says_so():
    changed = {"a.b": 1}
    event = decode(described(updatedFields=changed, disambiguatedPaths={"a.b": ["a.b"]}), COLUMNS)
    assert event.after == {"_id": "1", "a.b": 1}
    for paths in (None, {}, {"a.b": ["a", "b"]}, {"b": ["b"]}):
        wire = described(updatedFields=changed, disambiguatedPaths=paths)
        assert refused(wire, COLUMNS) == ("incomplete_row", "$.updateDescription")


def test_the_cluster_time_and_the_number_in_the_transaction_are_the_position():
    for number, row in (
        ("29", 0),
        ("2B02", 1),
        ("2BFE", 127),
        ("2C0100", 128),
        ("2D020000", 2**16),
    ):
        event = decode(message(clusterTime=time(), _id=token(number=number)))
        assert event.position == SequencePosition((7 << 32) | 1, row)
    event = decode(message(clusterTime=time(), _id=token(8, number="2B02")))
    assert event.position == SequencePosition((7 << 32) | 1)  # the token of another time
    assert event.source_time_ns == 7 * 10**9
    assert decode(message(wallTime={"$date": 7123})).source_time_ns == 7123 * 10**6
    assert decode(message()).position is None


def test_a_transaction_is_a_session_and_a_number():
    for number in (3, {"$numberLong": "3"}):
        event = decode(message(lsid=LSID, txnNumber=number))
        assert event.transaction == Transaction(f"{SESSION}:3")
    assert refused(message(lsid={}, txnNumber=3)) == ("wrong_type", "$.lsid.id")
    assert refused(message(lsid=LSID, txnNumber="x")) == ("wrong_type", "$.txnNumber")


@pytest.mark.parametrize(
    "wrap",
    [
        json.dumps,
        lambda text: json.dumps({"schema": {"type": "string"}, "payload": text}),
        lambda text: json.dumps({"schema": {"type": "struct"}, "payload": json.loads(text)}),
    ],
)
def test_connects_converter_may_write_the_event_as_a_text(wrap):
    text = json.dumps(fields(clusterTime=time(), _id=token()))
    wrapped = Message(wrap(text).encode())
    assert decode(wrapped) == decode(Message(text.encode()))
    assert CODEC.detects(wrapped)


def test_documents_may_be_texts_inside_of_an_event_with_a_schema():
    parts = {
        "_id": token(),
        "clusterTime": time(),
        "fullDocument": DOCUMENT,
        "fullDocumentBeforeChange": DOCUMENT,
        "documentKey": KEY,
    }
    texts = {name: json.dumps(part) for name, part in parts.items()}
    objects = message("replace", wallTime={"$date": 7123}, **parts)
    assert decode(message("replace", wallTime=7123, **texts)) == decode(objects)
    description = {"updatedFields": '{"a":1}', "disambiguatedPaths": "{}"}
    assert decode(described(**description), COLUMNS).after == {"_id": "1", "a": 1}


def test_doubles_that_are_not_finite_may_have_no_quotes():
    wire = Message(json.dumps(fields(fullDocument={"_id": 1, "a": float("nan")})).encode())
    assert decode(wire, COLUMNS).after == {"_id": "1", "a": "NaN"}


@pytest.mark.parametrize(
    ("kind", "action"),
    [("drop", "drop"), ("rename", "rename"), ("create", "create"), ("modify", "alter")],
)
def test_a_change_of_a_collection_is_a_schema_change(kind, action):
    event = decode(message(kind, documentKey=None, to={"db": "shop", "coll": "u"}))
    assert event == SchemaChange(
        TableId("shop", None, "t"),
        action,
        source=event.source,
        details={"to": {"db": "shop", "coll": "u"}},
    )


def test_an_invalidation_is_a_control_event_and_null_a_tombstone():
    event = decode(message("invalidate", ns=None, documentKey=None))
    assert event == Control("invalidate", source=event.source)
    assert decode(Message(None)) == Tombstone(TableId())


@pytest.mark.parametrize(
    ("wire", "refusal"),
    [
        (message("x"), ("unknown_operation", "$.operationType")),
        (message(fullDocument=None), ("missing_image", "$.fullDocument")),
        (message("replace", fullDocument=None), ("missing_image", "$.fullDocument")),
        (message("delete", fullDocument=DOCUMENT), ("unexpected_image", "$.fullDocument")),
        (
            message(fullDocumentBeforeChange=DOCUMENT),
            ("unexpected_image", "$.fullDocumentBeforeChange"),
        ),
        (message(documentKey={"_id": 2}), ("wrong_image", "$.fullDocument")),
        (message(documentKey={"a": 2}), ("missing_field", "$.documentKey")),
        (message(fullDocument={"a": 1}), ("missing_field", "$.fullDocument")),
        (message(fullDocument={"_id": {"$oid": "x"}}), ("wrong_type", "$.fullDocument")),
        (message(ns={"db": "shop"}), ("missing_field", "$.ns.coll")),
        (message(ns=None), ("missing_field", "$.ns.coll")),
        (message(clusterTime={"$date": 1}), ("wrong_type", "$.clusterTime")),
        (message(wallTime="x"), ("wrong_type", "$.wallTime")),
        (message(wallTime=10**16), ("value_out_of_range", "$.wallTime")),
        (message(splitEvent={"fragment": 1, "of": 2}), ("incomplete_message", "$.splitEvent")),
        (Message(b"[1]"), ("wrong_type", "$")),
        (Message(b'"{"'), ("incomplete_message", "$")),
    ],
)
def test_a_wrong_message_is_refused_with_its_path(wire, refusal):
    assert refused(wire) == refusal


# -- fragments -----------------------------------------------------------------------------------


def fragment(number, count=2, **parts):
    split = {"fragment": number, "of": count}
    return Message(json.dumps(parts | {"splitEvent": split}).encode())


FIRST = fragment(1, _id={"_data": "1"}, operationType="replace", ns=NS)
LAST = fragment(2, _id={"_data": "2"}, documentKey=KEY, fullDocument=DOCUMENT)


def test_the_fragments_of_an_event_are_joined_in_their_stream():
    read = CODEC.open_stream()
    assert (read(FIRST), read(FIRST)) == ((), ())  # repeated after a restart
    assert read(LAST) == CODEC.decode(message("replace", _id={"_data": "2"}))
    assert read(message()) == CODEC.decode(message())


@pytest.mark.parametrize(
    "messages",
    [
        (LAST,),
        (FIRST, message()),
        (FIRST, fragment(1, _id={"_data": "3"})),
        (FIRST, fragment(3, 3)),
    ],
)
def test_a_missing_fragment_is_an_error(messages):
    read = CODEC.open_stream()
    for wire in messages[:-1]:
        read(wire)
    with pytest.raises(DecodeError) as caught:
        read(messages[-1])
    assert (caught.value.code, caught.value.path) == ("incomplete_message", "$.splitEvent")
    assert read(message()) == CODEC.decode(message())


# -- writing -------------------------------------------------------------------------------------

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.text(st.characters(codec="utf-8"), max_size=5)
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.builds(lambda text: {"$oid": text}, st.text("0123456789abcdef", min_size=24, max_size=24))
    | st.builds(lambda ms: {"$date": ms}, st.integers(-(2**63), 2**63 - 1)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner),
    max_leaves=8,
)


@settings(max_examples=40, deadline=None)
@given(
    VALUES.filter(lambda value: not isinstance(value, list)),
    VALUES,
    st.sampled_from(["insert", "replace", "update", "delete", "copy"]),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["29", "2B02"]),
)
def test_an_event_comes_back_without_loss(identity, value, kind, seconds, number):
    document = {"_id": identity, "v": value}
    is_copy = kind == "copy"
    wire = {
        "operationType": "insert" if is_copy else kind,
        "_id": {"_id": identity, "copyingData": True} if is_copy else token(seconds, 5, number),
        "clusterTime": time(seconds, 5),
        "ns": NS,
        "documentKey": {"shard": 1, "_id": identity},
        "lsid": LSID | {"uid": {"$binary": {"base64": "", "subType": "00"}}},
        "txnNumber": 4,
        "collectionUUID": {"$uuid": SESSION},
    }
    if kind in {"update", "delete"}:
        wire["fullDocumentBeforeChange"] = document
    if kind != "delete":
        wire["fullDocument"] = document
    if kind == "update":
        wire["updateDescription"] = {"updatedFields": {"v": value}, "removedFields": []}
    event = decode(Message(json.dumps(wire).encode()))
    encoded = CODEC.encode(event)
    assert {field for field, _ in encoded.losses} == {"schema"}  # it has no types of columns
    assert decode(encoded.messages[0]) == event
    assert json.loads(encoded.messages[0].value)["operationType"] == wire["operationType"]


def losses(event):
    return {field for field, _ in CODEC.encode(event, on_loss="ignore").losses}


def test_details_that_contradict_the_event_are_losses():
    event = decode(message(clusterTime=time(), _id=token(number="2B02")))
    for name, value in (
        ("documentKey", {"a": 1, "_id": 2}),
        ("updateDescription", {"x": 1}),
        ("lsid", LSID),
        ("_id", {"copyingData": True}),
        ("ns", {}),
    ):
        wrong = type(event)(
            event.op, event.table, event.key, after=event.after, details={name: value}
        )
        encoded = CODEC.encode(wrong, on_loss="ignore")
        assert f"details.{name}" in {field for field, _ in encoded.losses}
    moved = type(event)(
        event.op, event.table, event.key, after=event.after, position=event.position
    )
    losses = {field for field, _ in CODEC.encode(moved, on_loss="ignore").losses}
    assert losses == {"position.row", "source_time"}
