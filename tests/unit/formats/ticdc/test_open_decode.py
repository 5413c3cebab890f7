# SPDX-License-Identifier: Apache-2.0
"""Messages of TiCDC's open protocol to events: batches, rows, types, statements, refusals."""

import datetime as dt
import decimal
import json

import pytest

from changelane import DecodeError, Message, get_codec
from changelane.event import Key, KeyOrigin, Op, SchemaChange, Source, Tombstone, Truncate
from changelane.event import Watermark as WatermarkEvent
from changelane.position import SequencePosition
from changelane.reason_codes import ReasonCode
from changelane.schema import TableId
from changelane.testing import malformed
from changelane.testing.conformance import decode_or_refuse
from changelane.types import UNAVAILABLE, Bits, Bytes, Instant, Integer, String

VERSION = (1).to_bytes(8, "big")
TS = 415508878783938562
KEY = {"ts": TS, "scm": "test", "tbl": "t1", "t": 1}
ID = {"t": 3, "h": True, "f": 11, "v": 1}
SOURCE = Source(product="tidb", connector="ticdc")


def framed(*parts):
    encoded = (part if isinstance(part, bytes) else json.dumps(part).encode() for part in parts)
    return b"".join(len(part).to_bytes(8, "big") + part for part in encoded)


def message(*events):
    keys, values = zip(*events, strict=True)
    return Message(framed(*values), VERSION + framed(*keys))


def decode(value, key=KEY, **options):
    (event,) = get_codec("ticdc-open-json", **options).decode(message((key, value)))
    return event


def column(code, value, flags=64):
    return {"t": code, "f": flags, "v": value}


def value_of(code, value, flags=64, **options):
    event = decode({"u": {"id": ID, "c": column(code, value, flags)}}, **options)
    return event.after["c"], event.schema.by_name["c"]


def refused(value, key=KEY):
    with pytest.raises(DecodeError) as caught:
        decode(value, key)
    return caught.value.code, caught.value.path


# -- rows --------------------------------------------------------------------------------------


def test_a_row_without_its_old_row_is_an_update_or_an_insert():
    event = decode({"u": {"id": ID, "val": column(15, "aa")}})
    assert (event.op, event.before) == (Op.UPDATE, None)
    assert event.after == {"id": 1, "val": "aa"}
    assert event.table == TableId("test", None, "t1")
    assert event.key == Key(("id",), KeyOrigin.PAYLOAD)
    assert event.position == SequencePosition(TS)
    assert event.source == SOURCE
    assert event.source_time_ns == (TS >> 18) * 1_000_000
    assert [column.nullable for column in event.schema.columns] == [False, True]


def test_a_row_without_its_old_row_is_an_insert_if_updates_have_it():
    assert decode({"u": {"id": ID}}, output_old_value=True).op is Op.CREATE


def test_an_update_has_both_rows():
    old = {"id": ID, "val": column(15, None)}
    event = decode({"u": {"id": ID, "val": column(15, "aa")}, "p": old})
    assert (event.op, event.before) == (Op.UPDATE, {"id": 1, "val": None})


def test_an_old_row_with_only_the_changed_columns_is_completed():
    new = {"id": ID, "a": column(3, 1), "b": column(3, 2)}
    assert decode({"u": new, "p": {"b": column(3, 0)}}).before == {"id": 1, "a": 1, "b": 0}
    assert decode({"u": new, "p": {}}).before == {"id": 1, "a": 1, "b": 2}


@pytest.mark.parametrize(
    ("code", "flags", "old"),
    [
        (15, 0, ""),
        (252, 1, b""),
        (252, 64, UNAVAILABLE),
        (246, 0, UNAVAILABLE),
        (12, 64, UNAVAILABLE),
        (3, 64, None),
    ],
)
def test_null_in_a_part_of_an_old_row_may_be_an_empty_value(code, flags, old):
    new = {"id": ID, "c": column(code, None, flags)}
    assert decode({"u": new, "p": {"c": column(code, None, flags)}}).before == {"id": 1, "c": old}


def test_an_old_key_that_may_be_zero_or_null_is_refused():
    key = {"t": 246, "h": True, "f": 11, "v": None}
    row = {"u": {"k": key | {"v": "1"}, "a": column(3, 1)}, "p": {"k": key}}
    assert refused(row) == (ReasonCode.INCOMPLETE_ROW, "$.value[0].p.k.v")


def test_a_deleted_row_may_have_only_its_key():
    event = decode({"d": {"id": ID}}, KEY | {"ohk": True})
    assert (event.op, event.before, event.after) == (Op.DELETE, {"id": 1}, None)


def test_the_key_is_the_handle_key_and_not_the_primary_key():
    columns = {"a": {"t": 3, "f": 8, "v": 1}, "b": {"t": 3, "f": 2 | 16, "v": 2}}
    assert decode({"u": columns}).key == Key(("b",), KeyOrigin.PAYLOAD)
    assert decode({"u": {"a": columns["a"]}}).key is None


def test_partition_and_row_id_are_details():
    assert decode({"d": {"id": ID}}, KEY | {"ptn": 6, "rid": 7}).details == {"rid": 7, "ptn": 6}


@pytest.mark.parametrize(
    ("value", "key", "code", "path"),
    [
        ({"u": {"id": ID}}, {"ohk": True}, "incomplete_row", "$.key[0].ohk"),
        ({"u": {"id": ID}}, {"ccl": "s3://b/1"}, "incomplete_row", "$.key[0].ccl"),
        ({"u": {"id": ID}}, {"t": 4}, "unknown_kind", "$.key[0].t"),
        ({"u": {"id": ID}}, {"ts": -1}, "wrong_type", "$.key[0].ts"),
        ({}, {}, "missing_field", "$.value[0].u"),
        ({"u": {"id": ID}, "d": {"id": ID}}, {}, "unexpected_image", "$.value[0].d"),
        ({"u": {"id": {"t": 3}}}, {}, "wrong_type", "$.value[0].u[...]"),
        ({"u": {"c": column(255, "x")}}, {}, "unknown_type", "$.value[0].u.c.t"),
        ({"u": {"c": column(255, None)}}, {}, "unknown_type", "$.value[0].u.c.t"),
        ({"u": {"c": column(1, "aa")}}, {}, "wrong_type", "$.value[0].u.c.v"),
        ({"u": {"c": column(1, 200)}}, {}, "value_out_of_range", "$.value[0].u.c.v"),
        ({"u": {"c": column(252, "/w==")}}, {}, "invalid_utf8", "$.value[0].u.c.v"),
        ({"u": {"c": column(252, "=")}}, {}, "wrong_type", "$.value[0].u.c.v"),
        ({"u": {"c": column(15, "\\x8", 1)}}, {}, "wrong_type", "$.value[0].u.c.v"),
        (b"\x04\x22\x4d\x18", {}, "malformed_json", "$.value[0]"),
    ],
)
def test_other_rows_are_refused(value, key, code, path):
    assert refused(value, KEY | key) == (code, path)


# -- types -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "flags", "written", "value", "source_type"),
    [
        (1, 64, -128, -128, "tinyint"),
        (2, 128, 65535, 65535, "smallint unsigned"),
        (8, 128, 2**64 - 1, 2**64 - 1, "bigint unsigned"),
        (9, 64, -1, -1, "mediumint"),
        (4, 64, 153.125, 153.125, "float"),
        (5, 64, 1, 1.0, "double"),
        (7, 65, "1973-12-30 15:30:00", Instant(1973, 12, 30, 15, 30, tzinfo=dt.UTC), "timestamp"),
        (7, 65, "0000-00-00 00:00:00", "0000-00-00 00:00:00", "timestamp"),
        (10, 65, "2000-01-01", dt.date(2000, 1, 1), "date"),
        (14, 65, "0000-00-00", "0000-00-00", "date"),
        (11, 65, "-838:59:59", "-838:59:59", "time"),
        (12, 65, "2015-12-20 23:58:58.5", dt.datetime(2015, 12, 20, 23, 58, 58, 500000), None),
        (13, 65, 1970, 1970, "year"),
        (15, 64, "test", "test", "varchar"),
        (253, 64, "a\\x", "a\\x", "varchar"),
        (15, 65, "\\x89PNG\\r\\n\\x1a\\n", b"\x89PNG\r\n\x1a\n", "varbinary"),
        (254, 65, '\\"\\\\\\a\\u00a0\\U000e0001é', '"\\\a\xa0\U000e0001é'.encode(), "binary"),
        (16, 65, 81, "1010001", "bit"),
        (225, 65, "[1,2.5]", "[1,2.5]", "vector"),
        (245, 65, '{"key1": "value1"}', '{"key1": "value1"}', "json"),
        (246, 65, "129012.1230000", decimal.Decimal("129012.1230000"), "decimal"),
        (247, 64, 1, 1, "enum"),
        (248, 64, 2**64 - 1, 2**64 - 1, "set"),
        (252, 64, "5rWL6K+VdGV4dA==", "测试text", "text"),
        (249, 65, "iVBORw==", b"\x89PNG", "tinyblob"),
        (6, 64, None, None, "null"),
    ],
)
def test_values_have_the_types_of_their_codes(code, flags, written, value, source_type):
    got, described = value_of(code, written, flags)
    assert got == value
    assert type(got) is type(value)
    assert source_type in {described.source_type, None}


def test_numbers_of_bits_enums_and_sets_have_exact_types():
    assert value_of(16, 1)[1].type == Bits()
    assert value_of(247, 1)[1].type == Integer(16, unsigned=True)
    assert value_of(248, 1)[1].type == Integer(64, unsigned=True)
    assert value_of(252, "", 1)[1].type == Bytes()
    assert value_of(252, "", 0)[1].type == String()


def test_timestamps_are_in_the_zone_of_the_changefeed():
    value, _ = value_of(7, "2024-07-01 12:00:00.250", time_zone="Asia/Shanghai")
    assert value == dt.datetime(2024, 7, 1, 4, 0, 0, 250000, tzinfo=dt.UTC)
    assert value.digits == 3


# -- batches -----------------------------------------------------------------------------------


def test_a_message_is_a_batch_of_events():
    codec = get_codec("ticdc-open-json")
    rows = [(KEY, {"d": {"id": ID}}), ({"ts": TS, "t": 3}, b""), (KEY, {"u": {"id": ID}})]
    events = codec.decode(message(*rows))
    assert [type(event).__name__ for event in events] == ["DataChange", "Watermark", "DataChange"]
    assert codec.decode(Message(b"", VERSION)) == ()
    assert codec.decode(Message(None, VERSION)) == ()


def test_resolved_events_may_have_no_value():
    codec = get_codec("ticdc-open-json")
    resolved = WatermarkEvent("resolved", SequencePosition(TS), SOURCE, (TS >> 18) * 1_000_000)
    assert codec.decode(Message(None, VERSION + framed({"ts": TS, "t": 3}))) == (resolved,)
    assert codec.decode(message(({"ts": TS, "t": 3}, b""))) == (resolved,)


def test_a_message_without_a_key_of_the_protocol_is_a_tombstone_or_refused():
    codec = get_codec("ticdc-open-json")
    assert codec.decode(Message(None)) == (Tombstone(TableId()),)
    good = message((KEY, {"u": {"id": ID}}))
    for key, value, code, path in [
        (None, good.value, "missing_field", "$.key"),
        (b"{}", good.value, "unknown_version", "$.key"),
        (good.key, good.value * 2, "wrong_length", "$.value"),
        (good.key, None, "incomplete_message", "$.value[0]"),
        (good.key[:-1], good.value, "incomplete_message", "$.key"),
        (good.key, good.value[:-1], "incomplete_message", "$.value"),
        (good.key, good.value + b"\0", "incomplete_message", "$.value"),
    ]:
        with pytest.raises(DecodeError) as caught:
            codec.decode(Message(value, key))
        assert (caught.value.code, caught.value.path) == (code, path)


def test_malformed_messages_give_errors_without_values():
    codec = get_codec("ticdc-open-json")
    secret = {"u": {"id": ID, "note": column(15, "s3cr3t-text")}}
    good = message((KEY, secret), (KEY, secret))
    for spoil in (malformed.truncations, malformed.flipped_bits):
        for data in spoil(good.value):
            decode_or_refuse(codec, Message(data, good.key))
        for data in spoil(good.key):
            decode_or_refuse(codec, Message(good.value, data))
    for data in malformed.flipped_types(json.dumps(secret).encode()):
        decode_or_refuse(codec, message((KEY, data)))
    for data in malformed.flipped_types(json.dumps(KEY).encode()):
        decode_or_refuse(codec, message((data, secret)))
    for spoil in (malformed.huge_numbers, malformed.literals):
        for data in spoil(json.dumps({"u": {"n": column(5, 1)}}).encode()):
            decode_or_refuse(codec, message((KEY, data)))


# -- statements --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sql", "number", "action"),
    [
        ("CREATE TABLE test.t1(id int primary key)", 3, "create"),
        ("ALTER TABLE t1 ADD COLUMN c int", 5, "alter"),
        ("RENAME TABLE t1 TO t2", 14, "rename"),
        ("", 4, "drop"),
        (None, 1, "create_database"),
        ("create view v as select 1", 21, "other"),
        ("ALTER TABLE t1 TRUNCATE PARTITION p", 23, "alter"),
        ("DROP TABLE t1", None, "drop"),
    ],
)
def test_a_statement_has_the_action_of_its_text_or_its_number(sql, number, action):
    event = decode({"q": sql, "t": number}, KEY | {"t": 2})
    assert isinstance(event, SchemaChange)
    assert (event.action, event.ddl) == (action, sql or None)
    assert event.position == SequencePosition(TS)
    assert event.details == ({} if number is None else {"t": number})


def test_a_truncate_is_one():
    event = decode({"q": "TRUNCATE TABLE t1", "t": 11}, KEY | {"t": 2})
    assert isinstance(event, Truncate)
    assert event.table == TableId("test", None, "t1")


def test_a_statement_without_names_has_those_of_its_text():
    event = decode({"q": "DROP TABLE a.b", "t": 4}, {"ts": 1, "scm": "", "tbl": "", "t": 2})
    assert event.table == TableId("a", None, "b")


# -- samples -----------------------------------------------------------------------------------


def test_the_samples_of_the_producer_are_read(corpus):
    folder = corpus / "ticdc-open" / "pingcap_tiflow"
    codec = get_codec("ticdc-open-json")
    for kind in ("ddl", "rts"):
        for index, count in enumerate((1, 3, 0)):
            sample = Message(
                (folder / f"data__value__{kind}_value_{index}").read_bytes(),
                (folder / f"data__key__{kind}_key_{index}").read_bytes(),
            )
            assert len(codec.decode(sample)) == count
            assert codec.detects(sample) is (count > 0)
    for index in (0, 1):  # a text in a column of type TINYINT
        sample = Message(
            (folder / f"data__value__row_value_{index}").read_bytes(),
            (folder / f"data__key__row_key_{index}").read_bytes(),
        )
        with pytest.raises(DecodeError, match=r"not a value of int8 at \$\.value\[0\]\.u\.col1\.v"):
            codec.decode(sample)
