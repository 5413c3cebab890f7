# SPDX-License-Identifier: Apache-2.0
"""Arcion's JSON CDC format, beyond what its documented messages and the conformance kit show."""

import pickle
from pathlib import Path

import msgspec
import pytest

from changelane import get_codec
from changelane.apply import operations_of
from changelane.errors import ConfigError, DecodeError, UnsupportedError
from changelane.event import DataChange, Key, KeyOrigin, Op, Source, Tombstone
from changelane.position import MySqlPosition, OffsetPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing import golden
from changelane.types import Integer, String

SAMPLES = Path(__file__).parents[2] / "golden" / "arcion-json" / "documentation-5.7"
REGION = TableSchema(
    (
        Column("r_regionkey", Integer(32), nullable=False),
        Column("r_name", String(), nullable=False),
        Column("r_comment", String(), nullable=True),
    )
)
OFFSET = OffsetPosition("t", 0, 1)
ROW = {"r_regionkey": 1, "r_name": "AMERICA", "r_comment": None}


def sample(name):
    (message,) = golden.read_case(SAMPLES / name).messages
    return message


def parts(data):
    return msgspec.json.decode(data)


def compact(data):
    """The same JSON without blanks, in the same order."""
    return msgspec.json.encode(parts(data))


def spoilt(name, **changes):
    """A documented message with other fields in its payload (or its source, as source_x)."""
    message = sample(name)
    value = parts(message.value)
    for field, content in changes.items():
        place = value["payload"]
        if field.startswith("source_"):
            place, field = place["source"], field.removeprefix("source_")  # noqa: PLW2901
        place[field] = content
    return msgspec.structs.replace(message, value=msgspec.json.encode(value))


def change(op, before=None, after=None, **fields):
    table = TableId("tpch", None, "region")
    told = {"key": Key(("r_regionkey",)), "schema": REGION} | fields
    return DataChange(Op(op), table, before=before, after=after, **told)


def encoded(event, on_loss="raise", **options):
    return get_codec("arcion-json", **options).encode(event, on_loss=on_loss)


@pytest.mark.parametrize("name", ["snapshot_insert", "insert", "update", "delete", "tombstone"])
def test_a_documented_message_comes_back_as_the_same_json_in_key_and_value(name):
    codec, message = get_codec("arcion-json"), sample(name)
    (event,) = codec.decode(message)
    (again,) = codec.encode(event).messages
    assert again.key == compact(message.key)
    assert again.value == (message.value and compact(message.value))


def test_a_row_without_types_has_a_schema_of_null():
    event = change("c", after={"r_regionkey": 1}, schema=None)
    (message,) = encoded(event).messages
    value = parts(message.value)
    assert list(value) == ["schema", "payload"]
    assert value["schema"] is None
    assert message.key == b'{"schema":null,"payload":{"r_regionkey":1}}'
    assert get_codec("arcion-json").decode(message)[0].key == event.key
    tombstone = Tombstone(TableId(), {"r_regionkey": 1})
    assert encoded(tombstone).messages[0].key == message.key


def test_payload_and_source_are_in_the_order_of_the_documentation():
    codec, message = get_codec("arcion-json"), sample("insert")
    (again,) = codec.encode(codec.decode(message)[0]).messages
    one, two = parts(again.value), parts(message.value)
    assert list(one["payload"]) == ["before", "after", "source", "op", "ts_ms"]
    # "query" stands last in the samples
    assert list(one["payload"]["source"]) == list(two["payload"]["source"])


def test_thread_is_in_the_payload_and_not_in_the_schema():
    (message,) = encoded(change("c", after=ROW)).messages
    value = parts(message.value)
    (source,) = [field for field in value["schema"]["fields"] if field["field"] == "source"]
    assert "thread" not in [field["field"] for field in source["fields"]]
    assert "thread" in value["payload"]["source"]


def test_the_schema_of_an_image_lists_columns_that_the_image_lacks():
    before, after = ROW, ROW | {"r_comment": "x"}
    event = change("u", before=before, after=after)
    options = {"after_image": "updated", "before_image": "key"}
    (message,) = encoded(event, on_loss="ignore", **options).messages
    value = parts(message.value)
    assert value["payload"]["before"] == {"r_regionkey": 1}
    assert value["payload"]["after"] == {"r_regionkey": 1, "r_comment": "x"}
    for image in value["schema"]["fields"][:2]:
        assert [field["field"] for field in image["fields"]] == list(ROW)
    (upsert,) = operations_of(get_codec("arcion-json").decode(message)[0], fallback=OFFSET)
    assert not upsert.is_full_row


@pytest.mark.parametrize(("after_image", "is_full"), [("all", True), ("updated", False)])
def test_a_schema_of_changed_columns_lists_not_all_columns_of_the_table(after_image, is_full):
    value = parts(sample("update").value)
    columns = value["schema"]["fields"][1]["fields"][:2]
    for image in ("before", "after"):
        del value["payload"][image]["r_comment"]
    for image in value["schema"]["fields"][:2]:
        image["fields"] = columns
    message = msgspec.structs.replace(sample("update"), value=msgspec.json.encode(value))
    codec = get_codec("arcion-json", after_image=after_image)
    (upsert,) = operations_of(codec.decode(message)[0], fallback=OFFSET)
    assert upsert.is_full_row is is_full
    assert (codec.lanes is not None) is is_full


def test_an_empty_image_is_none_and_is_written_as_empty():
    codec = get_codec("arcion-json")
    (insert,) = codec.decode(sample("insert"))
    (delete,) = codec.decode(sample("delete"))
    assert (insert.before, delete.after) == (None, None)
    first = encoded(change("d", before=ROW)).messages[0]
    assert parts(first.value)["payload"]["after"] == {}


@pytest.mark.parametrize("name", ["insert", "update"])
def test_an_event_without_the_image_that_its_operation_needs_is_refused(name):
    with pytest.raises(DecodeError, match=r"payload\.after"):
        get_codec("arcion-json").decode(spoilt(name, after={}))


def test_a_delete_without_image_is_told_by_its_key():
    (event,) = get_codec("arcion-json").decode(spoilt("delete", before={}))
    assert event.before == {"r_regionkey": 1}
    no_key = msgspec.structs.replace(spoilt("delete", before={}), key=None)
    with pytest.raises(DecodeError, match=r"payload\.before"):
        get_codec("arcion-json").decode(no_key)


@pytest.mark.parametrize("key", [b'{"r_regionkey":"one"}', b'{"r_regionkey":[1]}', b'{"id":1}'])
def test_a_delete_that_only_a_key_of_other_types_tells_is_refused(key):
    message = msgspec.structs.replace(spoilt("delete", before={}), key=key)
    with pytest.raises(DecodeError, match="missing"):
        get_codec("arcion-json").decode(message)


def test_a_server_id_is_text_and_comes_back_as_it_was():
    codec = get_codec("arcion-json")
    for told in ("1", 1):
        (event,) = codec.decode(spoilt("insert", source_server_id=told))
        (again,) = codec.encode(event).messages
        assert parts(again.value)["payload"]["source"]["server_id"] == told


def test_numbers_may_come_as_text():
    (event,) = get_codec("arcion-json").decode(
        spoilt("insert", source_pos="30407", ts_ms="1680779196386", source_thread="309")
    )
    assert event.position == MySqlPosition("mysql-log.000013", 30407, 1)
    assert event.process_time_ns == 1680779196386 * 10**6
    assert event.details["source"]["thread"] == 309
    with pytest.raises(DecodeError, match=r"payload\.source\.pos"):
        get_codec("arcion-json").decode(spoilt("insert", source_pos="here"))


def test_fields_that_nobody_documents_are_kept_and_written_again():
    codec = get_codec("arcion-json")
    message = spoilt("insert", source_scn="17", cursor={"a": 1})
    (event,) = codec.decode(message)
    (again,) = codec.encode(event).messages
    payload = parts(again.value)["payload"]
    assert payload["source"]["scn"] == "17"
    assert payload["cursor"] == {"a": 1}
    assert codec.decode(again)[0] == event


def test_an_unknown_operation_is_an_error():
    with pytest.raises(DecodeError, match="unknown operation") as error:
        get_codec("arcion-json").decode(spoilt("insert", op="x"))
    assert error.value.path == "$.payload.op"


# -- keys ----------------------------------------------------------------------------------------


def test_a_table_without_key_has_a_null_key():
    (message,) = encoded(change("c", after=ROW, key=None)).messages
    assert message.key is None
    assert get_codec("arcion-json").decode(message)[0].key is None


def test_a_row_identifier_key_makes_the_message_key():
    options = {"row_identifier_key": {"tpch.region": ["r_name"]}}
    (message,) = encoded(change("c", after=ROW, key=None), **options).messages
    key = parts(message.key)
    assert key["payload"] == {"r_name": "AMERICA"}
    assert key["schema"]["name"] == "KAFKA_Connector.tpch.region.Key"
    bare = msgspec.structs.replace(message, key=None)
    (event,) = get_codec("arcion-json", **options).decode(bare)
    assert event.key == Key(("r_name",), KeyOrigin.CONFIG)


def test_a_row_identifier_key_that_the_row_has_not_is_refused():
    codec = get_codec("arcion-json", row_identifier_key={"region": ["nope"]})
    with pytest.raises(DecodeError, match="key column"):
        codec.decode(msgspec.structs.replace(sample("insert"), key=None))


def test_a_change_of_the_key_is_a_delete_a_tombstone_and_an_insert():
    event = change("u", before=ROW, after=ROW | {"r_regionkey": 2})
    with pytest.raises(UnsupportedError, match="key_change"):
        encoded(event)
    gone, tombstone, come = encoded(event, on_loss="warn").messages
    assert parts(gone.value)["payload"]["op"] == "d"
    assert (tombstone.value, tombstone.key) == (None, gone.key)
    assert parts(come.value)["payload"]["op"] == "c"
    assert parts(come.key)["payload"] == {"r_regionkey": 2}
    assert not any(message.headers for message in (gone, tombstone, come))


# -- deletes -------------------------------------------------------------------------------------


def test_a_tombstone_with_the_same_key_follows_a_delete():
    delete, tombstone = encoded(change("d", before=ROW)).messages
    assert delete.key is not None
    assert (tombstone.key, tombstone.value) == (delete.key, None)
    (event,) = get_codec("arcion-json").decode(tombstone)
    assert isinstance(event, Tombstone)
    assert event.key == {"r_regionkey": 1}


def test_deletes_go_without_tombstone_when_the_applier_writes_none():
    assert len(encoded(change("d", before=ROW), tombstones="false").messages) == 1


def test_a_delete_that_arcion_told_brings_its_own_tombstone():
    (event,) = get_codec("arcion-json").decode(sample("delete"))
    assert len(encoded(event).messages) == 1
    assert len(encoded(event, tombstones="true").messages) == 2


# -- modes ---------------------------------------------------------------------------------------


def test_each_mode_has_the_name_of_its_connector():
    options = {"connector_name": "cdc", "snapshot_connector_name": "snap"}
    read = change("r", after=ROW, source=Source("mysql", snapshot="true"))
    for event, name in ((read, "snap"), (change("c", after=ROW), "cdc")):
        (message,) = encoded(event, **options).messages
        value = parts(message.value)
        assert value["payload"]["source"]["name"] == name
        assert value["schema"]["name"] == f"{name}.tpch.region.Envelope"


def test_a_row_of_a_snapshot_is_a_read_without_times_and_coordinates():
    (event,) = get_codec("arcion-json").decode(sample("snapshot_insert"))
    assert (event.op, event.source.snapshot) == (Op.READ, "true")
    assert (event.position, event.source_time_ns, event.process_time_ns) == (None, None, None)


def test_another_word_than_true_for_a_snapshot_is_a_loss():
    event = change("r", after=ROW, source=Source("mysql", snapshot="first"))
    with pytest.raises(UnsupportedError, match=r"source\.snapshot"):
        encoded(event)
    (message,) = encoded(event, on_loss="warn").messages
    assert parts(message.value)["payload"]["source"]["snapshot"] == "true"


def test_a_connector_of_another_name_comes_back():
    codec = get_codec("arcion-json")
    message = spoilt("insert", source_name="mine", source_connector="MySql")
    (event,) = codec.decode(message)
    assert event.source.product == "mysql"
    (again,) = codec.encode(event).messages
    source = parts(again.value)["payload"]["source"]
    assert (source["name"], source["connector"]) == ("mine", "MySql")


def test_a_source_time_in_local_time_is_shifted_and_shifted_back():
    codec = get_codec("arcion-json", source_ts_offset_ms=-19_800_000)
    (event,) = codec.decode(sample("insert"))
    # the sample's two clocks are 5 h 30 min apart: 1680798995000 and 1680779196386
    assert event.source_time_ns == 1680779195000 * 10**6
    (again,) = codec.encode(event).messages
    assert parts(again.value)["payload"]["source"]["ts_ms"] == 1680798995000


# -- settings of the applier ---------------------------------------------------------------------


def test_an_after_image_of_updated_columns_has_the_key_and_what_changed():
    event = change("u", before=ROW, after=ROW | {"r_comment": "new"})
    done = encoded(event, on_loss="warn", after_image="updated")
    (message,) = done.messages
    assert parts(message.value)["payload"]["after"] == {"r_regionkey": 1, "r_comment": "new"}
    assert any(field == "after" for field, _ in done.losses)


def test_a_column_that_an_after_image_lacks_is_absent_and_never_null():
    (event,) = get_codec("arcion-json", after_image="updated").decode(
        spoilt("update", after={"r_regionkey": 1, "r_comment": "new"})
    )
    assert event.after == {"r_regionkey": 1, "r_comment": "new"}
    assert event.schema is not None


def test_a_before_image_of_the_key_has_the_key_only():
    event = change("d", before=ROW)
    done = encoded(event, on_loss="warn", before_image="key")
    assert parts(done.messages[0].value)["payload"]["before"] == {"r_regionkey": 1}
    assert ("before", "only the key is written (option before_image)") in done.losses


def test_a_setting_that_does_not_exist_is_refused():
    with pytest.raises(ConfigError):
        get_codec("arcion-json", after_image="some")


# -- detection -----------------------------------------------------------------------------------


def test_a_connector_in_lower_case_is_not_arcions():
    codec = get_codec("arcion-json")
    assert codec.detects(sample("insert"))
    assert not codec.detects(spoilt("insert", source_connector="mysql"))


def test_a_codec_that_was_pickled_reads_the_same():
    codec = get_codec("arcion-json", connector_name="x")
    again = pickle.loads(pickle.dumps(codec))
    assert again.decode(sample("insert")) == codec.decode(sample("insert"))
