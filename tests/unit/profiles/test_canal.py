# SPDX-License-Identifier: Apache-2.0
"""Where Canal's messages go: topics, partitions and rules of ``canal.mq``."""

import json
import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelane import ConfigError, EncodeError, get_codec, profiles
from changelane.conversion.message_files import read_record
from changelane.event import (
    Completeness,
    DataChange,
    Key,
    Op,
    SchemaChange,
    Source,
    Tombstone,
    Transaction,
    TransactionMarker,
    Truncate,
    Watermark,
)
from changelane.profiles.partitioners import hash_partition, java_hash, xor_hash
from changelane.schema import TableId

ROOT = Path(__file__).resolve().parents[3]
TABLE = TableId("test", None, "t_user")
SOURCE = Source(product="mysql", connector="canal")
KEY = Key(("id",))


def change(op=Op.CREATE, table=TABLE, key=KEY, **parts):
    return DataChange(op, table, key=key, source=SOURCE, **({"after": {"id": "1"}} | parts))


def placed(event, count=4, **options):
    profile = profiles.load("canal", {"topic": "example"} | options)
    return profile.encode(event, profile.codec("canal-json").encode, lambda _: count)


def place(event, count=4, **options):
    (message,) = placed(event, count, **options).messages
    assert message.key is None
    assert message.headers == ()
    return message.topic, message.partition


def partitions(event, **options):
    return " ".join(
        str(place(event, count, **options)[1]) for count in (1, 2, 3, 4, 6, 7, 8, 12, 16)
    )


def test_without_a_rule_all_goes_to_the_partition_of_the_option():
    assert place(change()) == ("example", 0)
    assert place(change(), partition="2") == ("example", 2)
    assert place(SchemaChange(TABLE, "alter", "alter table t_user"), partition="2")[1] == 2


# computed on a JVM (A 2.5)
@pytest.mark.parametrize(
    ("database", "row", "expected"),
    [
        ("test", {"id": "1"}, "0 1 0 3 3 4 3 3 3"),
        ("test", {"id": "500000287"}, "0 0 0 0 0 0 4 0 4"),
        ("inventory", {"id": "101"}, "0 0 2 2 2 4 2 2 2"),
        ("mytest", {"id": "1", "b": "2"}, "0 1 2 3 5 4 3 11 3"),
        ("mytest", {"id": "2", "b": "1"}, "0 1 2 3 5 4 3 11 3"),
        ("mytest", {"id": "1", "b": "1"}, "0 0 1 2 4 3 2 10 2"),
        ("test", {"id": ""}, "0 0 1 2 4 1 2 10 2"),
        ("test", {"id": None}, "0 0 1 2 4 1 2 10 2"),
        ("test", {"id": "中文"}, "0 0 1 0 4 5 0 4 8"),
        ("test", {"id": "😀"}, "0 1 2 1 5 0 1 5 1"),
    ],
)
def test_the_hash_of_the_primary_key_is_canals(database, row, expected):
    event = change(table=TableId(database, None, "t"), key=Key(tuple(row)), after=row)
    assert partitions(event, partition_hash=".*\\..*:$pk$") == expected
    assert partitions(event, partition_hash=f"{database}.t:{'^'.join(row)}") == expected


def test_the_databases_name_can_stay_out_of_the_hash():
    event = change(after={"id": "polygenelubricants"})
    options = {"partition_hash": "test.t_user:$pk$", "database_hash": "false"}
    assert partitions(event, **options) == "0 0 2 0 2 2 0 8 0"


def test_a_rule_without_columns_hashes_the_tables_name():
    assert partitions(change(), partition_hash="test.t_user") == "0 0 0 2 0 5 2 6 10"


def test_the_hash_takes_the_row_after_an_update_and_the_deleted_row():
    images = {"before": {"id": "1"}, "after": {"id": "500000287"}}
    update = change(Op.UPDATE, **images, before_holds=Completeness.FULL)
    delete = change(Op.DELETE, before={"id": "1"}, after=None)
    assert partitions(update, partition_hash="test.t_user:$pk$") == "0 0 0 0 0 0 4 0 4"
    assert partitions(delete, partition_hash="test.t_user:$pk$") == "0 1 0 3 3 4 3 3 3"


def test_what_no_rule_matches_and_all_ddl_goes_to_partition_0():
    rule = {"partition_hash": "test.t_user", "partition": "3"}
    assert place(change(table=TableId("test", None, "other")), **rule)[1] == 0
    assert place(SchemaChange(TABLE, "alter", "alter table t_user"), **rule)[1] == 0
    assert place(Truncate(TABLE), **rule)[1] == 0


def test_the_first_rule_that_matches_counts():
    event = change(after={"id": "1", "b": "7"})
    first = {"partition_hash": "test.t_user:b,test.t_user:id"}
    assert place(event, **first) == place(event, partition_hash="test\\..*:b")


def test_a_missing_column_and_a_table_without_key_count_as_nothing():
    database = hash_partition(java_hash("test"), 4)
    assert place(change(), partition_hash="test.t_user:no_such")[1] == database
    assert place(change(key=None), partition_hash="test.t_user:$pk$")[1] == database


@pytest.mark.parametrize(
    ("rule", "matches"),
    [
        ("test.t_user", True),
        ("TEST.T_User", True),  # no expression: compared without regard to case
        ("test\\.t_.*", True),
        ("TEST\\..*", True),  # PatternUtils compiles with CASE_INSENSITIVE_MASK
        ("t_user", False),
        ("test\\.t_us", False),
        ("est\\.t_user", False),
        ("test.t_usex?r", True),
        ("test\\.t|test\\.t_user", False),  # the first alternative matches, and not to the end
        ("(test\\.t|test\\.t_user)", True),
    ],
)
def test_patterns_match_as_canals_do(rule, matches):
    found = place(change(), count=7, partition_hash=rule)[1]
    assert found == (5 if matches else 0)  # 5: the hash of the table's name


def test_the_number_of_partitions_is_the_option_then_the_topics_own():
    rule = {"partition_hash": "test.t_user"}
    assert place(change(), 12, **rule, partitions_num="7")[1] == 5
    by_topic = {"dynamic_topic_partition_num": "other:9;exam.*:6,example:2"}
    assert place(change(), 12, **rule, **by_topic, partitions_num="7")[1] == 0
    with pytest.raises(EncodeError, match="the number of partitions of topic example is unknown"):
        place(change(), None, **rule)
    with pytest.raises(EncodeError, match="topic example has no partition 5, only 4"):
        place(change(), 4, **rule, partitions_num="7")


@pytest.mark.parametrize(
    ("rules", "topic"),
    [
        (".*\\..*", "test_t_user"),
        ("test\\.t_.*", "test_t_user"),
        ("test", "test"),
        (".*", "test"),  # an expression without "\." is one of databases
        ("users:test.t_user", "users"),
        ("a.b:test\\..*,c:.*\\..*", "a_b"),
        ("nothing", "my_example"),
    ],
)
def test_dynamic_topics_are_canals(rules, topic):
    assert place(change(), dynamic_topic=rules, topic="my.example")[0] == topic


def test_a_topic_is_the_lower_case_name_of_the_table():
    event = change(table=TableId("Shop", None, "Order_Items"))
    assert place(event, dynamic_topic=".*\\..*")[0] == "shop_order_items"


def test_what_names_no_table_goes_to_the_topic_of_the_option():
    event = SchemaChange(TableId("test"), "create_database", "create database test")
    assert place(event, dynamic_topic=".*\\..*")[0] == "example"
    with pytest.raises(EncodeError, match="the message has no topic"):
        place(event, dynamic_topic=".*\\..*", topic=None)


def test_a_table_name_that_is_no_topic_name_is_rejected():
    event = change(table=TableId("test", None, "bad name"))
    with pytest.raises(EncodeError, match="'test_bad name' is not a valid topic name"):
        place(event, dynamic_topic=".*\\..*")


@pytest.mark.parametrize(
    "event", [TransactionMarker("begin", Transaction("1")), Watermark(), Tombstone(TABLE)]
)
def test_what_canal_has_no_message_for_is_dropped_and_counted(event):
    found = placed(event)
    assert found.messages == ()
    assert found.losses == ((f"event:{event.__struct_config__.tag}", "canal does not write it"),)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"topic": None}, "set the option topic"),
        ({"partition_hash": "a(b"}, "not a regular expression"),
        ({"partition_hash": "a.b:id, c.d:id"}, "spaces around 'c.d:id'"),
        ({"dynamic_topic": "topic:"}, "write TOPIC:PATTERN"),
        ({"dynamic_topic_partition_num": "topic:none"}, "write PATTERN:NUMBER"),
        ({"partitions_num": "0"}, "partitions_num at least 1"),
        ({"partition_hsah": "a"}, "did you mean 'partition_hash'"),
    ],
)
def test_errors_of_options_name_the_remedy(options, reason):
    with pytest.raises(ConfigError, match=reason):
        profiles.load("canal", {"topic": "example"} | options)


def test_another_producers_format_is_refused():
    profile = profiles.load("canal", {"topic": "example"})
    with pytest.raises(ConfigError, match="writes canal-json, canal-protobuf, not debezium-json"):
        profile.codec("debezium-json")


def test_the_message_of_another_format_is_refused():
    profile = profiles.load("canal", {"topic": "example"})
    codec = get_codec("dts-avro")
    with pytest.raises(EncodeError, match="not one of Canal's messages"):
        profile.encode(change(), lambda event: codec.encode(event, on_loss="ignore"))


def test_what_canal_wrote_keeps_its_rows_in_the_partitions_of_its_formula():
    rule = {"partition_hash": ".*\\..*:$pk$", "topic": "example"}
    profile = pickle.loads(pickle.dumps(profiles.load("canal", rule)))
    codec = profile.codec("canal-json")
    rows = 0
    path = ROOT / "demo" / "input" / "shop-mysql.canal.jsonl"
    for line in path.read_bytes().splitlines():
        captured = read_record(line)
        flat = json.loads(captured.value)
        for event in codec.decode(captured):
            (message,) = profile.encode(event, codec.encode, lambda _: 5).messages
            expected = 0
            if flat["data"] and not flat["isDdl"]:
                rows += 1
                row = json.loads(message.value)["data"][0]
                texts = [row[name] or "" for name in flat["pkNames"] or ()]
                expected = hash_partition(xor_hash(texts, java_hash(flat["database"])), 5)
            assert message.partition == expected
    assert rows > 5


@settings(deadline=None)
@given(st.text(), st.text(min_size=1), st.integers(1, 9))
def test_rows_of_one_key_share_a_partition_whatever_else_they_hold(key, other, count):
    rule = {"partition_hash": ".*\\..*:$pk$"}
    key, other = (text.encode("utf-8", "replace").decode() for text in (key, other))
    one = change(after={"id": key, "x": other})
    two = change(Op.DELETE, before={"x": None, "id": key}, after=None)
    assert place(one, count, **rule) == place(two, count, **rule)


@pytest.mark.parametrize(
    "event",
    [
        change(after={"id": "17", "note": "x"}),
        change(
            Op.UPDATE,
            before=None,
            after={"id": "17", "note": "x"},
            after_holds=Completeness.FULL,
        ),
        change(Op.DELETE, before={"id": "18", "note": None}, after=None),
        SchemaChange(TABLE, "drop", "DROP TABLE t_user", source=SOURCE),
    ],
)
@pytest.mark.parametrize(
    "options",
    [{}, {"partition_hash": ".*\\..*:$pk$"}, {"partition_hash": ".*\\..*:note"}, {"partition": 1}],
)
def test_a_binary_message_has_the_place_of_the_flat_one(event, options):
    profile = profiles.load("canal", {"topic": "example"} | options)
    places = [
        profile.encode(event, profile.codec(name).encode, lambda _: 7).messages[0]
        for name in profile.formats
    ]
    assert places[0].value != places[1].value
    assert len({(each.topic, each.partition, each.key) for each in places}) == 1


def test_only_in_binary_messages_are_columns_found_without_regard_to_case():
    event = change(key=Key(("Id",)), after={"Id": "17", "note": "x"})
    options = {"partition_hash": ".*\\..*:ID^NOTE"}
    profile = profiles.load("canal", {"topic": "example"} | options)
    flat, binary = (
        profile.encode(event, profile.codec(name).encode, lambda _: 7).messages[0].partition
        for name in ("canal-json", "canal-protobuf")
    )
    database = java_hash("test")
    assert flat == hash_partition(database, 7)
    assert binary == hash_partition(xor_hash(["17", "x"], database), 7) != flat
