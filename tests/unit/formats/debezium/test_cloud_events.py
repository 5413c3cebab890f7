"""CloudEvents of Debezium: the golden messages are those that its own converter wrote."""

import json
from pathlib import Path

import msgspec
import pytest

from changelane import Message, get_codec
from changelane.errors import DecodeError
from changelane.event import Op
from changelane.reason_codes import ReasonCode
from changelane.testing import golden

FOLDER = Path(__file__).resolve().parents[3] / "golden" / "debezium-json"
CONVERTER = sorted(path for path in (FOLDER / "cloudevents-3.6.1").glob("*/") if path.is_dir())
READER = get_codec("debezium-json")
EVENT = (FOLDER / "cloudevents-document" / "snapshot" / "value").read_bytes().rstrip()


def changed(**attributes):
    return json.dumps(json.loads(EVENT) | attributes).encode()


@pytest.mark.parametrize("path", CONVERTER, ids=lambda path: path.name)
def test_an_event_is_written_as_debezium_writes_it(path):
    case = golden.read_case(path)
    has_schema = not path.name.endswith("without_schema")
    writer = get_codec("debezium-json", cloud_events="structured", schemas_enable=has_schema)
    written = writer.encode(case.events[0]).messages[0]
    message = case.messages[0]
    assert written.value.replace("😀".encode(), rb"\uD83D\uDE00") == message.value
    assert written.headers == message.headers


@pytest.mark.parametrize("path", CONVERTER, ids=lambda path: path.name)
def test_the_binary_mode_has_the_same_content(path):
    (event,) = golden.read_case(path).events
    message = get_codec("debezium-json", cloud_events="binary").encode(event).messages[0]
    assert json.loads(message.value).keys() in ({"before", "after"}, {"schema", "payload"})
    headers = dict(message.headers)
    assert headers["content-type"] == b"application/json"
    assert headers["ce_specversion"] == b"1.0"
    assert headers["ce_iodebeziumtable"] == event_table(event).name.encode()
    assert "ce_iodebeziumxmin" not in headers
    assert READER.detects(message)
    assert READER.decode(message) == (event,)


def event_table(event):
    return getattr(event, "change", event).table


def test_a_stray_copy_of_the_headers_is_not_read_as_data():
    message = Message(EVENT, headers=(("ce_specversion", b"1.0"), ("ce_id", b"1")))
    with pytest.raises(DecodeError) as error:
        READER.decode(message)
    assert error.value.path == "$.iodebeziumop"


def test_the_transaction_is_not_the_id_of_the_source_block():
    (event,) = READER.decode(Message(changed(iodebeziumtxId="804", iodebeziumtxid="804:12")))
    assert event.transaction.id == "804:12"
    assert event.details["source"]["txId"] == 804


def test_names_in_lower_case_are_read():
    fields = json.loads(changed(iodebeziumconnector="oracle", iodebeziumusername="APP"))
    del fields["iodebeziumlsn"]
    (event,) = READER.decode(Message(json.dumps(fields | {"iodebeziumscn": "7"}).encode()))
    assert event.details["source"]["user_name"] == "APP"
    assert event.position.scn == 7


def test_an_attribute_of_a_newer_version_is_kept_as_text():
    (event,) = READER.decode(Message(changed(iodebeziumfuture="x1")))
    assert event.details["source"]["future"] == "x1"
    written = get_codec("debezium-json", cloud_events="structured").encode(event).messages[0]
    assert json.loads(written.value)["iodebeziumfuture"] == "x1"


def test_data_may_be_anywhere_and_of_any_spacing():
    fields = json.loads(EVENT)
    value = json.dumps({"data": fields.pop("data"), **fields}, indent=1).encode()
    assert READER.decode(Message(value)) == READER.decode(Message(EVENT))


@pytest.mark.parametrize(
    ("attributes", "code", "path"),
    [
        ({"data": "AAAAAAEAAgICAg=="}, ReasonCode.WRONG_TYPE, "$.data"),
        ({"data": None}, ReasonCode.WRONG_TYPE, "$.data"),
        ({"data": {}}, ReasonCode.MISSING_FIELD, "$.data.after"),
        ({"data": {"before": None, "after": 1}}, ReasonCode.WRONG_TYPE, "$.data.after"),
        ({"iodebeziumop": 1}, ReasonCode.MISSING_FIELD, "$.iodebeziumop"),
        ({"iodebeziumlsn": "x"}, ReasonCode.WRONG_TYPE, "$.iodebeziumlsn"),
        ({"iodebeziumtxtotalorder": "x"}, ReasonCode.WRONG_TYPE, "$.iodebeziumtxtotalorder"),
        ({"iodebeziumtable": {}}, ReasonCode.WRONG_TYPE, "$.iodebeziumtable"),
        (
            {"data": {"schema": {"type": "struct", "fields": 1}, "payload": {}}},
            None,
            "$.data.schema",
        ),
    ],
)
def test_a_wrong_event_is_rejected_with_its_path(attributes, code, path):
    with pytest.raises(DecodeError) as error:
        READER.decode(Message(changed(**attributes)))
    assert error.value.path.startswith(path)
    assert code is None or error.value.code == code


def test_avro_data_is_rejected_with_the_way_out():
    with pytest.raises(DecodeError, match=r"data\.serializer\.type=json"):
        READER.decode(
            Message(changed(data="AAAAAAEAAgICAg==", dataschema="http://r/schemas/ids/1"))
        )


def test_other_cloud_events_are_not_debeziums():
    value = json.dumps({"specversion": "1.0", "id": "1", "type": "x", "data": {"id": 1}}).encode()
    assert not READER.detects(Message(value))
    with pytest.raises(DecodeError):
        READER.decode(Message(value))


def test_an_event_without_position_has_an_id_of_its_content():
    (event,) = READER.decode(Message(EVENT))
    event = msgspec.structs.replace(event, position=None, details={})
    writer = get_codec("debezium-json", cloud_events="structured")
    ids = {
        json.loads(writer.encode(each).messages[0].value)["id"]
        for each in (event, event, msgspec.structs.replace(event, after={"pk": 2, "name": "Bob"}))
    }
    assert len(ids) == 2
    assert {len(identity) for identity in ids} == {64}


def test_the_whole_envelope_in_the_data_of_mariadb_is_read():
    (event,) = golden.read_case(FOLDER / "cloudevents-mariadb-3.5.0" / "update").events
    assert event.op is Op.UPDATE
    assert event.process_time_ns is not None
    encoded = get_codec("debezium-json", cloud_events="structured").encode(event)
    assert ("process_time", "not written") in encoded.losses
    value = json.loads(encoded.messages[0].value)
    assert value["id"].startswith("name:dbz_my;file:binlog.000001;pos:")
    assert value["iodebeziumrow"] == 0
    assert value["iodebeziumserverid"] == "4711"


def test_a_tombstone_follows_a_delete():
    (event,) = golden.read_case(FOLDER / "cloudevents-3.6.1" / "delete").events
    writer = get_codec("debezium-json", cloud_events="structured", tombstones="true")
    delete, tombstone = writer.encode(event).messages
    assert tombstone.value is None
    assert tombstone.key == delete.key
