# SPDX-License-Identifier: Apache-2.0
"""Canal messages to events: shapes, images, dialects, and what is no Canal message."""

import contextlib
import datetime as dt
import json
import pickle
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changelane import DecodeError, Message, get_codec
from changelane.errors import ConfigError, UnknownNameError
from changelane.event import (
    Completeness,
    Control,
    DataChange,
    Key,
    KeyOrigin,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    Truncate,
    is_complete,
    lists_sent_columns_only,
)
from changelane.schema import TableId
from changelane.types import UNKNOWN

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "canal-json"
CASES = sorted(path.parent for path in GOLDEN.rglob("value"))
CANAL = get_codec("canal-json")
NATIVE = get_codec("native-json")


def decode(message, **options):
    value = message if isinstance(message, bytes) else json.dumps(message).encode()
    codec = get_codec("canal-json", **options) if options else CANAL
    return codec.decode(Message(value))


def flat(**changes):
    return {
        "data": [{"id": "1", "name": "a"}],
        "database": "shop",
        "es": 1589373546000,
        "gtid": "",
        "id": 4,
        "isDdl": False,
        "mysqlType": {"id": "int(11)", "name": "varchar(20)"},
        "old": None,
        "pkNames": ["id"],
        "sql": "",
        "sqlType": {"id": 4, "name": 12},
        "table": "products",
        "ts": 1589373546301,
        "type": "INSERT",
    } | changes


def lines(path):
    return [line for line in path.read_bytes().splitlines() if line.startswith(b"{")]


# -- goldens and the corpus --------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_golden_message_gives_its_events(case):
    events = decode((case / "value").read_bytes())
    expected = [NATIVE.decode(Message(line)) for line in lines(case / "event.jsonl")]
    assert [(event,) for event in events] == expected


@pytest.mark.parametrize("name", ["canal-data", "canal-data-with-init"])
def test_flinks_messages_add_up_to_their_table(corpus, name):
    table = {}
    for line in lines(corpus / "canal" / f"apache_flink__{name}.txt"):
        for event in decode(line):
            if isinstance(event, DataChange):
                if event.before is not None:
                    del table[event.before["id"]]
                if event.after is not None:
                    table[event.after["id"]] = event.after
    # the inserts, updates and deletes of the file, added up by hand
    assert {key: (row["name"], row["weight"]) for key, row in table.items()} == {
        101: ("scooter", 5.17),
        104: ("hammer", 0.75),
        105: ("hammer", 0.875),
        106: ("hammer", 1.0),
        107: ("rocks", 5.1),
        108: ("jacket", 0.1),
        109: ("spare tire", 22.2),
        110: ("jacket", 0.5),
    }


def test_init_is_a_snapshot_read_and_a_ragged_row_lacks_its_column(corpus):
    first = lines(corpus / "canal" / "apache_flink__canal-data-with-init.txt")[0]
    events = decode(first)
    assert [event.op for event in events] == [Op.READ] * 9
    assert [event.after["id"] for event in events] == list(range(101, 110))
    assert events[0].after["other"] == "val1"
    assert "other" not in events[1].after
    assert events[5].after["description"] is None
    assert events[0].schema.by_name["other"].type == UNKNOWN
    assert len({id(event.schema) for event in events}) == 1


@pytest.mark.parametrize("types", [{}, {"id": "int"}])
def test_columns_without_a_type_keep_the_order_of_the_row(types):
    (event,) = decode(flat(data=[{"id": "1", "z": "2", "b": "3"}], mysqlType=types))
    assert [column.name for column in event.schema.columns] == ["id", "z", "b"]


def test_flink_cdc_writes_typed_values_and_no_types(corpus):
    path = corpus / "canal" / "flinkcdc__mysqlToKafka-canal-json.txt"
    events = [event for line in lines(path) for event in decode(line)]
    assert len(events) == 20
    update = next(event for event in events if event.op is Op.UPDATE)
    assert update.schema is None
    assert update.before["weight"] == Decimal("5.3")
    assert update.after["weight"] == Decimal("5.1")
    assert update.after["id"] == 107
    assert update.before_holds is update.after_holds is Completeness.FULL


def test_inlong_writes_numbers_for_typed_columns(corpus):
    path = corpus / "canal" / "inlong__canal-json-inlong-data.txt"
    events = [event for line in lines(path) for event in decode(line)]
    assert [event.after for event in events] == [
        {"id": 2, "name": "xixi"},
        {"id": 1, "name": "oooooo"},
        {"id": 3, "name": "HAHA"},
    ]
    assert events[0].source_time_ns is None
    assert events[2].source_time_ns == 1651208797000 * 10**6


def test_tencent_writes_seconds(corpus):
    path = corpus / "canal" / "tencent_ckafka_doc597_83345.jsonl"
    events = [event for line in lines(path) for event in decode(line)]
    assert all(isinstance(event, SchemaChange) for event in events)
    assert events[0].source_time_ns == 1655812326 * 10**9
    assert events[0].table == TableId("dip_test")
    assert [event.action for event in events] == ["create_database", "drop_database"]


# -- rows --------------------------------------------------------------------------------------


def test_rows_become_events_in_their_order():
    rows = [{"id": str(n), "name": None} for n in range(5)]
    events = decode(flat(data=rows))
    assert [event.after["id"] for event in events] == [0, 1, 2, 3, 4]


def test_event_says_what_the_message_says():
    (event,) = decode(flat(gtid="u:1-5"))
    assert event.op is Op.CREATE
    assert event.table == TableId("shop", None, "products")
    assert event.key == Key(("id",), KeyOrigin.PAYLOAD)
    assert event.source == Source(product="mysql", connector="canal")
    assert event.source_time_ns == 1589373546000 * 10**6
    assert event.process_time_ns == 1589373546301 * 10**6
    assert event.position is None
    assert event.details == {"id": 4, "gtid": "u:1-5"}
    assert [(str(c.type), c.source_type) for c in event.schema.columns] == [
        ("int32", "int(11)"),
        ("string", "varchar(20)"),
    ]


def test_an_update_of_a_minimal_log_is_no_whole_row():
    update = flat(type="UPDATE", old=[{"name": "b"}])
    (event,) = decode(update)
    assert not lists_sent_columns_only(event)
    (event,) = decode(update, row_image="minimal")
    assert lists_sent_columns_only(event)
    assert event.before == {"id": 1, "name": "b"}
    for other in (flat(), flat(type="DELETE")):
        assert decode(other, row_image="minimal") == decode(other)


def test_before_is_data_overlaid_with_old():
    (event,) = decode(flat(type="UPDATE", old=[{"name": None}]))
    assert event.before == {"id": 1, "name": None}
    assert event.after == {"id": 1, "name": "a"}


def test_update_without_old_has_no_before():
    (event,) = decode(flat(type="UPDATE"))
    assert event.before is None
    (event,) = decode(flat(type="UPDATE", old=[None]))
    assert event.before is None


def test_update_with_empty_old_changed_nothing():
    (event,) = decode(flat(type="UPDATE", old=[{}]))
    assert event.before == event.after


@pytest.mark.parametrize("old", [[{"name": "x"}], [{"name": "x"}] * 3])
def test_old_that_cannot_be_paired_with_data_gives_no_before(old):
    rows = [{"id": "1", "name": "a"}, {"id": "2", "name": "b"}]
    events = decode(flat(type="UPDATE", data=rows, old=old))
    assert [event.before for event in events] == [None, None]
    assert [event.after["id"] for event in events] == [1, 2]


def test_missing_column_is_absent_and_not_null():
    (event,) = decode(flat(type="UPDATE", data=[{"id": "1"}], old=[{"name": "a"}]))
    assert event.after == {"id": 1}
    assert event.before == {"id": 1, "name": "a"}
    assert not is_complete(event.after, event.schema, event.after_holds)


def test_delete_takes_the_row_from_either_list():
    (event,) = decode(flat(type="DELETE"))
    assert event.before == {"id": 1, "name": "a"}
    assert event.after is None
    (event,) = decode(flat(type="DELETE", data=None, old=[{"name": "a"}]))
    assert event.before == {"name": "a"}
    (event,) = decode(flat(type="DELETE", data=[], old=[{"name": "a"}], mysqlType=None))
    assert event.before_holds is Completeness.UNKNOWN


def test_delete_with_both_lists_is_read_as_the_dialect_says():
    message = flat(type="DELETE", old=[{"id": "2", "name": "b"}])
    assert decode(message)[0].before["id"] == 1
    assert decode(message, dialect="dts_legacy")[0].before["id"] == 2


def test_legacy_dts_swaps_the_images_of_an_update():
    message = flat(type="UPDATE", old=[{"id": "1", "name": "new"}])
    (event,) = decode(message, dialect="dts_legacy")
    assert event.before == {"id": 1, "name": "a"}
    assert event.after == {"id": 1, "name": "new"}


def test_no_key_columns_is_no_key():
    assert decode(flat(pkNames=None))[0].key is None
    assert decode(flat(pkNames=[]))[0].key is None


def test_without_types_values_stay_text():
    (event,) = decode(flat(mysqlType=None, sqlType=None, type="UPDATE", old=[{"name": "b"}]))
    assert event.schema is None
    assert event.after == {"id": "1", "name": "a"}
    assert event.before_holds is event.after_holds is Completeness.FULL


def test_mysql_type_wins_over_sql_type():
    (event,) = decode(flat(sqlType={"id": -4, "name": 2004}))
    assert event.after == {"id": 1, "name": "a"}
    assert event.details["sqlType"] == {"id": -4, "name": 2004}


def test_times_are_seconds_when_they_are_small_unless_the_dialect_knows():
    assert decode(flat(es=1655812326))[0].source_time_ns == 1655812326 * 10**9
    event = decode(flat(es=1655812326), dialect="canal")[0]
    assert event.source_time_ns == 1655812326 * 10**6


def test_timestamps_stand_in_the_zone_of_the_producer():
    message = flat(data=[{"id": "2024-01-01 08:00:00"}], mysqlType={"id": "timestamp"})
    expected = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    for zone in ("Asia/Shanghai", "+08:00"):
        assert decode(message, time_zone=zone)[0].after["id"] == expected


def test_hidden_columns_are_dropped_unless_they_are_the_key():
    hidden = "__#alibaba_rds_row_id#__"
    message = flat(
        type="UPDATE",
        data=[{"id": "1", hidden: "7"}],
        old=[{"name": "b", hidden: "7"}],
        mysqlType={"id": "int", "name": "text", hidden: "bigint"},
    )
    (event,) = decode(message)
    assert event.after == {"id": 1}
    assert event.before == {"id": 1, "name": "b"}
    assert hidden not in event.schema.by_name
    assert decode(message, drop_hidden=False)[0].after == {"id": 1, hidden: 7}
    assert decode(message | {"pkNames": [hidden]})[0].after == {"id": 1, hidden: 7}
    assert decode(message | {"mysqlType": None})[0].after == {"id": "1"}


def test_row_query_beside_rows_is_kept():
    assert decode(flat(sql="insert ..."))[0].details["sql"] == "insert ..."


def test_duplicate_keys_take_the_last():
    (event,) = decode(b'{"type":"INSERT","type":"DELETE","data":[{"a":"1","a":"2"}]}')
    assert event.op is Op.DELETE
    assert event.before == {"a": "2"}


# -- everything else ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        ("CREATE", "create"),
        ("ALTER", "alter"),
        ("ERASE", "drop"),
        ("RENAME", "rename"),
        ("CINDEX", "create_index"),
        ("DINDEX", "drop_index"),
        ("QUERY", "other"),
        ("SOMETHING", "other"),
    ],
)
def test_ddl_is_a_schema_change(kind, action):
    (event,) = decode(flat(type=kind, isDdl=True, data=None, mysqlType=None, sql="alter x"))
    assert isinstance(event, SchemaChange)
    assert (event.action, event.ddl) == (action, "alter x")
    assert event.table == TableId("shop", None, "products")


@pytest.mark.parametrize(
    ("sql", "action"),
    [
        ("CREATE TABLE t (a int)", "create"),
        ("/* a */ -- b\n alter table t add c int", "alter"),
        ("DROP TABLE t", "drop"),
        ("rename table a to b", "rename"),
        ("create unique index i on t (a)", "create_index"),
        ("drop index i on t", "drop_index"),
        ("grant all on x to y", "other"),
        ("eg: create xxx", "other"),
        ("/*" * 2000, "other"),
        ("/**/" * 1000 + "x", "other"),
    ],
)
def test_ddl_of_dts_is_told_by_its_statement(sql, action):
    (event,) = decode(flat(type="DDL", isDdl=True, data=None, sql=sql))
    assert event.action == action


def test_truncate_is_an_event_of_its_own():
    for message in (
        flat(type="TRUNCATE", isDdl=True, data=None, sql="truncate t"),
        flat(type="DDL", isDdl=True, data=None, sql="truncate t"),
    ):
        (event,) = decode(message)
        assert isinstance(event, Truncate)
        assert event.ddl == "truncate t"


@pytest.mark.parametrize(
    "message",
    [
        flat(type="QUERY", data=None, sql="insert into t values (1)"),
        flat(type="INSERT", data=None, sql="insert into t values (1)"),
        flat(type="DELETE", data=[], old=[], sql=""),
        flat(type="XACOMMIT", data=None, sql="XA COMMIT 'x'"),
        flat(type="XAROLLBACK", data=None, sql="XA ROLLBACK 'x'"),
        flat(type="NEW_KIND", data=None),
    ],
)
def test_what_is_neither_rows_nor_ddl_is_kept(message):
    (event,) = decode(message)
    assert isinstance(event, Control)
    assert event.type == message["type"]
    assert event.text == (message["sql"] or None)


def test_message_without_a_value_is_a_tombstone_of_no_table():
    assert CANAL.decode(Message(None)) == (Tombstone(TableId()),)


# -- bad input ---------------------------------------------------------------------------------

BAD = [
    (b"", "incomplete_message", "$"),
    (b"null", "wrong_type", "$"),
    (b"[]", "wrong_type", "$"),
    (b"{}", "wrong_type", "$"),
    (b'{"type":"INSERT"}', "missing_field", "$.data"),
    (b'{"type":"INSERT","data":[{"a":"1"}', "incomplete_message", "$"),
    (b'{"type":"INSERT","data":{"a":"1"}}', "wrong_type", "$.data"),
    (b'{"type":"INSERT","data":[null]}', "wrong_type", "$.data[0]"),
    (b'{"type":"INSERT","data":["secret"]}', "wrong_type", "$.data[0]"),
    (b'{"type":"INSERT","data":[{"a":"\xff"}]}', "invalid_utf8", "$"),
    (b'{"type":"INSERT","data":[{"a":' + b"[" * 100_000, "too_deep", "$"),
    (b'{"type":"DELETE","old":[null]}', "malformed", "$.old[0]"),
    (flat(type="UPSERT"), "unknown_operation", "$.type"),
    (flat(type="ALTER", isDdl=True, sql="alter table t add c int"), "unknown_operation", "$.type"),
    (flat(type="CREATE", data=None, old=[{"id": "1"}]), "unknown_operation", "$.type"),
    (flat(type="INSERT", isDdl=True), "unknown_operation", "$.isDdl"),
    (flat(type="INSERT", old=[{"id": "1"}]), "unexpected_image", "$.old"),
    (flat(type="INIT", updateBefore=[{"id": "1"}]), "unexpected_image", "$.updateBefore"),
    (
        flat(type="UPDATE", data=None, old=[{"id": "1"}], sql="update t set a = 1"),
        "missing_field",
        "$.data",
    ),
    (flat(es=1 << 62), "value_out_of_range", "$.es"),
    (flat(ts=-(10**15)), "value_out_of_range", "$.ts"),
    (flat(type=None), "wrong_type", "$.type"),
    (flat(es="soon"), "wrong_type", "$.es"),
    (flat(mysqlType=[]), "wrong_type", "$.mysqlType"),
    (flat(mysqlType={"id": 4}), "wrong_type", "$.mysqlType[...]"),
    (flat(sqlType="none"), "wrong_type", "$.sqlType"),
    (flat(pkNames="id"), "wrong_type", "$.pkNames"),
    (flat(data=[{"id": "secret"}]), "wrong_type", "$.data[0].id"),
    (flat(data=[{"id": "1"}, {"id": "99999999999"}]), "wrong_type", "$.data[1].id"),
    (flat(data=[{"id": ["secret"]}]), "wrong_type", "$.data[0].id"),
    (flat(data=[{"id": "1", "name": True}]), "wrong_type", "$.data[0].name"),
    (flat(type="UPDATE", old=[{"id": "secret"}]), "wrong_type", "$.old[0].id"),
    (flat(type="UPDATE", old=[{"id": 1.5}]), "wrong_type", "$.old[0].id"),
]


@pytest.mark.parametrize(("message", "code", "path"), BAD)
def test_bad_message_is_refused_with_its_place_and_without_its_values(message, code, path):
    with pytest.raises(DecodeError) as caught:
        decode(message)
    assert (caught.value.code, caught.value.path) == (code, path)
    assert "secret" not in str(caught.value)


def test_error_names_the_coordinates():
    with pytest.raises(DecodeError, match="in shop-0@17"):
        CANAL.decode(Message(b"{", topic="shop", partition=0, offset=17))


def test_large_values_and_hostile_names_are_data():
    big = "x" * 10_000_000
    (event,) = decode(flat(data=[{"id": "1", "name": big}]))
    assert event.after["name"] == big
    (event,) = decode(flat(table='a"; DROP TABLE b', database="../../x"))
    assert event.table == TableId("../../x", None, 'a"; DROP TABLE b')
    types = {"id": "int", "ID": "int"}
    (event,) = decode(flat(data=[{"id": "1", "ID": "2"}], mysqlType=types))
    assert event.after == {"id": 1, "ID": 2}


@given(st.data())
def test_flipped_bytes_give_events_or_a_decode_error(data):
    value = bytearray(json.dumps(flat(type="UPDATE", old=[{"name": "b"}])).encode())
    for _ in range(data.draw(st.integers(1, 3))):
        value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(DecodeError):
        decode(bytes(value[: data.draw(st.integers(0, len(value)))]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@given(st.sampled_from(sorted(flat())), JSON)
def test_any_json_in_any_field_gives_events_or_a_decode_error(field, value):
    with contextlib.suppress(DecodeError):
        decode(flat(**{field: value}))


# -- options and the codec ---------------------------------------------------------------------


def test_wrong_options_are_named():
    with pytest.raises(ConfigError, match="Mars/Olympus"):
        get_codec("canal-json", time_zone="Mars/Olympus")
    with pytest.raises(ConfigError, match="dialect"):
        get_codec("canal-json", dialect="canel")
    with pytest.raises(UnknownNameError, match="did you mean 'time_zone'"):
        get_codec("canal-json", timezone="UTC")
    with pytest.raises(ConfigError, match="25:00"):
        get_codec("canal-json", time_zone="+25:00")


def test_format_pickles():
    codec = pickle.loads(pickle.dumps(get_codec("canal-json", dialect="dts")._format))
    assert codec.decode(Message(json.dumps(flat()).encode()))[0].after == {"id": 1, "name": "a"}


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.parent.name}-{case.name}")
def test_golden_message_is_detected(case):
    assert CANAL.detects(Message((case / "value").read_bytes()))


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"{}",
        b'{"op":"c","after":{}}',
        b'{"type":"insert","data":{"id":1},"database":"d","table":"t"}',
        b'{"op":"schema","type":"CREATE","table":{"name":"t"}}',
    ],
)
def test_other_messages_are_not_detected(value):
    assert not CANAL.detects(Message(value))


def test_native_lines_are_not_detected():
    (event,) = decode(flat())
    assert not CANAL.detects(NATIVE.encode(event).messages[0])
