# SPDX-License-Identifier: Apache-2.0
"""Messages of Qlik Replicate to events: images, masks, tables, positions, metadata, refusals."""

import decimal
import json

import pytest

from changelane import ConfigError, DecodeError, Message, get_codec
from changelane.event import (
    Completeness,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    Transaction,
)
from changelane.position import SequencePosition
from changelane.schema import TableId
from changelane.types import Bytes, Decimal, Integer, String, Timestamp

SEQUENCE = "20230911032325000000000000000000005"
HEADERS = {
    "changeSequence": SEQUENCE,
    "timestamp": "2023-09-11T03:23:25.250",
    "transactionId": "0006",
    "transactionEventCounter": 2,
    "transactionLastEvent": False,
}
ROW = {"ID": "1", "NAME": "a", "NOTE": None}
SCHEMAS = {"schemas": {"HR.T": {"ID": "int32 key", "NAME": "string", "NOTE": "string"}}}


def decode(message, topic="HR.T", **options):
    value = message if isinstance(message, bytes) else json.dumps(message).encode()
    (event,) = get_codec("qlik-json", **options).decode(Message(value, topic=topic))
    return event


def change(operation="INSERT", data=ROW, before=None, **headers):
    all_headers = {"operation": operation} | HEADERS | headers
    return {"data": data, "beforeData": before, "headers": all_headers}


def enveloped(message, kind="DT", **fields):
    envelope = {"magic": "atMSG", "type": kind, "headers": None, "messageSchemaId": None}
    return envelope | {"messageSchema": None, "message": message} | fields


def refused(message, **options):
    with pytest.raises(DecodeError) as caught:
        decode(message, **options)
    return caught.value.code, caught.value.path


# -- operations and images ---------------------------------------------------------------------


@pytest.mark.parametrize("wrap", [enveloped, dict])
@pytest.mark.parametrize(
    ("operation", "op"), [("REFRESH", Op.READ), ("INSERT", Op.CREATE), ("UPDATE", Op.UPDATE)]
)
def test_a_message_has_the_same_event_with_and_without_the_envelope(wrap, operation, op):
    event = decode(wrap(change(operation)))
    assert (event.op, event.before, event.after) == (op, None, ROW)
    assert event.after_holds is Completeness.FULL
    snapshot = "REFRESH" if op is Op.READ else None
    assert event.source == Source(connector="qlik", snapshot=snapshot)


def test_an_update_has_both_images():
    before = ROW | {"NAME": "b"}
    event = decode(change("UPDATE", before=before))
    assert (event.before, event.after) == (before, ROW)
    assert event.before_holds is Completeness.FULL


@pytest.mark.parametrize(
    ("data", "before"), [(ROW, None), (None, ROW), (ROW, ROW)], ids=["data", "before", "both"]
)
def test_the_row_of_a_delete_is_in_either_place(data, before):
    event = decode(change("DELETE", data, before))
    assert (event.op, event.before, event.after) == (Op.DELETE, ROW, None)


def test_an_empty_object_is_no_image():
    assert decode(change("INSERT", before={})) == decode(change("INSERT"))
    assert decode(change("UPDATE", before={})) == decode(change("UPDATE"))
    assert decode(change("DELETE", {}, ROW)) == decode(change("DELETE", ROW))


def test_wrong_images_are_errors():
    image = ("unexpected_image", "$.beforeData")
    assert refused(change("INSERT", before=ROW)) == image
    assert refused(change("DELETE", ROW, ROW | {"ID": "2"})) == image
    assert refused(enveloped(change("REFRESH", before=ROW)))[1] == "$.message.beforeData"
    assert refused(change("UPDATE", None, ROW)) == ("missing_field", "$.data")
    assert refused(change("DELETE", None)) == ("missing_field", "$.data")


@pytest.mark.parametrize("operation", ["insert", "UPSERT", ""])
def test_an_unknown_operation_is_an_error(operation):
    assert refused(change(operation)) == ("unknown_operation", "$.headers.operation")


def test_a_message_without_value_is_a_tombstone():
    assert get_codec("qlik-json").decode(Message(None)) == (Tombstone(TableId()),)


# -- masks and declared columns ------------------------------------------------------------------


def test_a_null_column_that_is_not_in_the_mask_is_absent_if_its_ordinal_is_declared():
    row = {"ID": "1", "NAME": None, "NOTE": None}
    event = decode(change("UPDATE", row, row, columnMask="05"), **SCHEMAS)
    assert event.after == {"ID": 1, "NOTE": None}
    assert event.before == {"ID": 1, "NOTE": None}
    assert event.key == Key(("ID",), KeyOrigin.CONFIG)


def test_a_mask_is_little_endian():
    columns = {f"C{number}": "string" for number in range(1, 11)}
    row = dict.fromkeys(columns) | {"C1": "x"}
    event = decode(change("INSERT", row, columnMask="0B02"), schemas={"T": columns})
    assert list(event.after) == ["C1", "C2", "C4", "C10"]


def test_without_declared_ordinals_a_null_column_is_null_and_the_mask_is_kept():
    event = decode(change("UPDATE", ROW, columnMask="03"))
    assert event.after == ROW
    assert event.after_holds is Completeness.UNKNOWN
    assert event.details["columnMask"] == "03"
    assert decode(change("UPDATE", ROW, columnMask="07")).after_holds is Completeness.FULL
    assert decode(change("DELETE", ROW, columnMask="07")).before_holds is Completeness.FULL
    assert decode(change("DELETE", ROW)).before_holds is Completeness.UNKNOWN
    assert decode(change("INSERT", ROW, columnMask="01")).after_holds is Completeness.FULL


def test_a_value_that_the_mask_does_not_have_stays():
    event = decode(change("UPDATE", ROW, columnMask="01"), **SCHEMAS)
    assert event.after == {"ID": 1, "NAME": "a"}


def test_a_column_that_a_row_without_a_mask_lacks_is_null():
    assert decode(change("UPDATE", {"ID": "1"}), **SCHEMAS).after == {
        "ID": 1,
        "NAME": None,
        "NOTE": None,
    }
    assert decode(change("DELETE", {"ID": "1"}), **SCHEMAS).before == {"ID": 1}
    assert refused(change("INSERT", {"NAME": "a"}), **SCHEMAS) == ("missing_field", "$.data")


@pytest.mark.parametrize("mask", ["0", "7"])
def test_a_mask_may_have_one_digit(mask):
    assert decode(change(columnMask=mask)).details["columnMask"] == mask


@pytest.mark.parametrize("mask", ["0x07", "G0", "0 7 ", "\u0660\u0660"])
def test_a_mask_has_hexadecimal_digits(mask):
    assert refused(change(columnMask=mask)) == ("wrong_type", "$.headers.columnMask")


def test_values_are_text_or_of_the_declared_types():
    columns = {"ID": "int64 key", "PRICE": "decimal(10,2)", "RAW": "bytes", "F": "float64"}
    row = {"ID": "7", "PRICE": "1.50", "RAW": "00FF", "F": 0.5}
    assert decode(change(data=row)).after == row | {"F": decimal.Decimal("0.5")}
    event = decode(change(data=row), schemas={"HR.T": columns})
    want = {"ID": 7, "PRICE": decimal.Decimal("1.50"), "RAW": b"\x00\xff", "F": 0.5}
    assert event.after == want
    wrong = enveloped(change("UPDATE", row, row | {"ID": "x"}))
    path = "$.message.beforeData.ID"
    assert refused(wrong, schemas={"HR.T": columns}) == ("wrong_type", path)


# -- tables -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topic", "table"),
    [
        ("HR.T", TableId(schema="HR", name="T")),
        ("T", TableId(name="T")),
        ("a.b.T", TableId(schema="a.b", name="T")),
        (None, TableId()),
    ],
)
def test_the_topic_is_the_table(topic, table):
    assert decode(change(), topic).table == table


def test_a_column_may_have_the_name_of_the_table():
    row = {"ID": "1", "tbl": "HR.KIT"}
    event = decode(change("UPDATE", row, row), table_from="column:tbl")
    assert event.table == TableId(schema="HR", name="KIT")
    assert event.before == event.after == {"ID": "1"}
    for value in (None, "", 5):
        wrong = change(data=row | {"tbl": value})
        assert refused(wrong, table_from="column:tbl") == ("missing_field", "$.data.tbl")


def test_the_id_of_a_schema_may_name_the_table():
    message = enveloped(change(), messageSchemaId="87A6")
    event = decode(message, "all", tables={"87A6": "HR.EMP"})
    assert event.table == TableId(schema="HR", name="EMP")
    assert event.details["envelope"] == {"messageSchemaId": "87A6"}


def test_a_message_may_name_its_table():
    event = decode(change() | {"schema": "A", "table": "B"})
    assert event.table == TableId(schema="A", name="B")


def test_a_table_may_be_unknown():
    assert decode(change(), table_from="none").table == TableId()


@pytest.mark.parametrize("place", ["column:", "header", ""])
def test_a_wrong_place_of_the_table_is_refused(place):
    with pytest.raises(ConfigError, match="none of topic, none and column:NAME"):
        get_codec("qlik-json", table_from=place)


# -- headers ------------------------------------------------------------------------------------


def test_headers_are_position_transaction_and_time():
    event = decode(change())
    assert event.position == SequencePosition(int(SEQUENCE))
    assert event.transaction == Transaction("0006", 2, last=False)
    assert event.source_time_ns == 1694402605_250_000_000
    assert event.details == {}


def test_empty_headers_are_none():
    empty = dict.fromkeys(HEADERS) | dict.fromkeys(["changeSequence", "transactionId"], "")
    event = decode(change("REFRESH", **empty | {"timestamp": "", "streamPosition": ""}))
    assert (event.position, event.transaction, event.source_time_ns) == (None, None, None)
    assert event.details == {}


def test_other_headers_and_fields_become_details():
    message = change(streamPosition="1", changeMask="02", externalSchemaId="7", own=[1])
    event = decode(enveloped(message | {"more": 1}, headers={"h": "x"}, extra=2))
    assert event.details == {
        "streamPosition": "1",
        "changeMask": "02",
        "externalSchemaId": "7",
        "own": [1],
        "message": {"more": 1},
        "envelope": {"headers": {"h": "x"}, "extra": 2},
    }


def test_counts_without_a_transaction_become_details():
    event = decode(change(transactionId=None))
    assert event.transaction is None
    assert event.details == {"transactionEventCounter": 2, "transactionLastEvent": False}
    assert decode(change(transactionEventCounter=0)).details == {"transactionEventCounter": 0}


def test_a_shorter_change_sequence_keeps_its_text():
    event = decode(change(changeSequence="0100"))
    assert (event.position, event.details) == (SequencePosition(100), {"changeSequence": "0100"})


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("changeSequence", "x"),
        ("changeSequence", "\u0661"),
        ("changeSequence", "1" * 39),
        ("timestamp", "11.9.2023"),
    ],
)
def test_wrong_headers_are_errors(field, text):
    assert refused(change(**{field: text})) == ("wrong_type", f"$.headers.{field}")


# -- metadata messages ---------------------------------------------------------------------------


def column(ordinal, kind, *, key=0, **sizes):
    empty = {"length": 0, "precision": 0, "scale": 0}
    return empty | {"ordinal": ordinal, "type": kind, "primaryKeyPosition": key} | sizes


METADATA = {
    "schemaId": "87A6",
    "lineage": {"server": "s", "task": "t", "schema": "HR", "table": "EMP", "tableVersion": 3},
    "tableStructure": {
        "tableColumns": {
            "NAME": column(3, "WSTRING", length=40, key=2),
            "ID": column(1, "INT8", key=1),
            "PAY": column(2, "NUMERIC", precision=10, scale=2),
            "AT": column(4, "DATETIME"),
            "RAW": column(5, "BYTES", length=16),
        }
    },
    "dataSchema": None,
}


@pytest.mark.parametrize("wrap", [lambda message: enveloped(message, "MD"), dict])
def test_a_metadata_message_describes_a_table(wrap):
    event = decode(wrap(METADATA))
    assert isinstance(event, SchemaChange)
    assert (event.action, event.ddl) == ("alter", None)
    assert event.table == TableId(schema="HR", name="EMP")
    assert event.key == Key(("ID", "NAME"), KeyOrigin.PAYLOAD)
    assert [part.name for part in event.schema.columns] == ["ID", "PAY", "NAME", "AT", "RAW"]
    kinds = [part.type for part in event.schema.columns]
    assert kinds == [Integer(64), Decimal(10, 2), String(), Timestamp(), Bytes()]
    texts = [part.source_type for part in event.schema.columns]
    assert texts == ["INT8", "NUMERIC(10,2)", "WSTRING(40)", "DATETIME", "BYTES(16)"]
    assert event.details["lineage"]["tableVersion"] == 3


def test_a_metadata_message_with_an_unknown_type_is_an_error():
    columns = {"C": column(1, "GEOMETRY")}
    message = METADATA | {"tableStructure": {"tableColumns": columns}}
    path = "$.tableStructure.tableColumns.C.type"
    assert refused(message) == ("unknown_type", path)
    assert refused(enveloped(message, "MD")) == ("unknown_type", path.replace("$", "$.message"))


# -- what is no message --------------------------------------------------------------------------


def test_wrong_messages_are_errors():
    assert refused(enveloped(change()) | {"magic": "atmsg"}) == ("unknown_kind", "$.magic")
    assert refused(enveloped(change(), "XX")) == ("unknown_kind", "$.type")
    message = enveloped(change())
    del message["type"]
    assert refused(message) == ("missing_field", "$.type")
    assert refused(enveloped("text"))[0] == "wrong_type"
    assert refused(enveloped(change(), messageSchemaId=[])) == ("wrong_type", "$.messageSchemaId")
    assert refused(b'{"id":1}')[0] == "wrong_type"
    assert refused(b'{"data":')[0] == "incomplete_message"
    assert refused(change() | {"headers": {}}) == ("wrong_type", "$.headers")
