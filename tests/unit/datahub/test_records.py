"""Messages into DataHub's topics, without the service: which topic, shard and fields."""

import decimal
import json
from collections import Counter
from typing import Any

import msgspec
import pytest
from datahub_fake import FakeService, Time, even_shards

from changelane import Message, get_codec
from changelane.conversion.destinations import DestinationError, Origin
from changelane.conversion.partition import IncomingMessage, RejectedMessage, empty_counts
from changelane.datahub.records import MOST_RECORD_BYTES, with_sequence
from changelane.datahub.sender import Sending
from changelane.datahub.service import Content, ServiceError, Topic
from changelane.event import DataChange
from changelane.pipeline.config import Pipeline, parse
from changelane.pipeline.datahub_sink import DataHubSink
from changelane.pipeline.kafka_source import KafkaSource
from changelane.position import SequencePosition
from changelane.profiles.datahub import hash_of
from changelane.transforms.chain import Chain
from changelane.transforms.registry import transforms_of

TABLE = {"database": "shop", "name": "orders"}
SCHEMA = [{"name": "id", "type": "int64"}, {"name": "v", "type": "string"}]
METADATA = [
    ("_sequence_id_", "STRING"),
    ("_operation_type_", "STRING"),
    ("_excute_time_", "BIGINT"),
    ("_source_table_", "STRING"),
    ("_before_image_", "STRING"),
    ("_after_image_", "STRING"),
]
FIELDS = [*METADATA, ("id", "BIGINT"), ("v", "STRING")]


def topic(fields: list[tuple[str, str]]) -> Topic:
    told = [{"name": name, "type": kind} for name, kind in fields]
    return Topic("TUPLE", json.dumps({"fields": told}))


def pipeline(**sink: Any) -> Pipeline:
    told = {
        "name": "x",
        "source": {
            "type": "kafka",
            "bootstrap_servers": "b:9092",
            "topics": "in",
            "format": "native-json",
        },
        "sink": {
            "type": "datahub",
            "endpoint": "https://dh.example.com",
            "project": "shop",
            "topic": "orders",
            "format": "datahub-tuple",
            "access_id": "a",
            "access_key": "b",
            "checkpoint": "state",
            "on_loss": "warn",
        }
        | sink,
    }
    return parse(told)


def message(offset: int, op: str = "c", **more: Any) -> Message:
    event = {"op": op, "table": TABLE, "key": ["id"], "schema": SCHEMA} | more
    return Message(json.dumps(event).encode(), b"k", (), "in", 3, offset)


def insert(offset: int, id: int = 1, **more: Any) -> Message:
    return message(offset, after={"id": id, "v": "x"}, **more)


def sent(
    service: FakeService, *messages: Message, steps: list[Any] | None = None, **sink: Any
) -> list[RejectedMessage]:
    told = pipeline(**sink)
    assert isinstance(told.source, KafkaSource)
    assert isinstance(told.sink, DataHubSink)
    chain = Chain(transforms_of(steps or []))
    sending = Sending(
        told.source, told.sink, service, Time().patience(), chain=chain, counts=empty_counts()
    )
    return list(sending.send(map(IncomingMessage, messages)))


def tuples(fields: list[tuple[str, str]] = FIELDS, **more: Any) -> FakeService:
    service = FakeService(even_shards(4), **more)
    service.topics["orders"] = topic(fields)
    return service


# -- TUPLE


def test_a_row_is_the_fields_of_its_topic_in_their_order() -> None:
    service = tuples([("v", "STRING"), *METADATA, ("id", "BIGINT")])
    assert not sent(service, insert(7))
    sequence = str(7 << 23 | 3 << 11)
    assert service.of("orders") == [("x", sequence, "I", None, "orders", "N", "Y", 1)]


def test_an_update_is_two_rows_of_one_sequence_beside_each_other() -> None:
    service = tuples()
    assert not sent(service, message(9, "u", before={"id": 1, "v": "a"}, after={"id": 1, "v": "b"}))
    rows = service.of("orders")
    assert [(r[1], r[4], r[5], r[7]) for r in rows] == [("U", "Y", "N", "a"), ("U", "N", "Y", "b")]
    assert rows[0][0] == rows[1][0] == str(9 << 23 | 3 << 11)


def test_rows_of_one_key_lie_in_one_shard_and_changed_keys_each_in_their_own() -> None:
    service = tuples()
    told = [insert(n, id=n % 10) for n in range(100)]
    told.append(message(100, "u", before={"id": 1, "v": "a"}, after={"id": 2, "v": "a"}))
    assert not sent(service, *told)
    shards: dict[int, set[str]] = {}
    for _, shard, row in service.written:
        assert isinstance(row, tuple)
        shards.setdefault(row[6], set()).add(shard)
    assert all(len(found) == 1 for found in shards.values())
    assert shards == {n: {str(hash_of(str(n)) * 4 >> 128)} for n in range(10)}


def test_an_update_without_a_key_before_goes_to_the_shard_of_the_row_after() -> None:
    told = message(1, "u", before={"v": "a"}, after={"id": 5, "v": "b"})
    for service, sink in ((tuples(), {}), (blobs(), {"topic": "all", "format": "datahub-blob"})):
        assert not sent(service, told, **sink)
        expected = str(hash_of("5") * 4 >> 128)
        assert {shard for _, shard, _ in service.written} == {expected}


def test_without_a_key_rows_are_spread_and_go_to_the_same_shard_in_each_attempt() -> None:
    told = [insert(n, key=None) for n in range(400)]
    first, second = tuples(), tuples()
    assert not sent(first, *told)
    assert not sent(second, *told)
    spread = Counter(shard for _, shard, _ in first.written)
    assert len(spread) == 4
    assert min(spread.values()) > 60
    assert sorted(first.written, key=str) == sorted(second.written, key=str)


def test_rows_are_sharded_by_the_columns_that_the_user_names() -> None:
    service = tuples()
    told = [message(n, after={"id": n, "v": "same"}) for n in range(50)]
    assert not sent(service, *told, keys={"orders": ["v"]})
    assert {shard for _, shard, _ in service.written} == {str(hash_of("same") * 4 >> 128)}


def test_values_are_as_the_client_takes_them() -> None:
    fields = [
        ("b", "BOOLEAN"),
        ("d", "DECIMAL"),
        ("f", "DOUBLE"),
        ("t", "TIMESTAMP"),
        ("n", "STRING"),
    ]
    schema = [
        {"name": "b", "type": "boolean"},
        {"name": "d", "type": "decimal(20,4)"},
        {"name": "f", "type": "float64"},
        {"name": "t", "type": "instant(6)"},
        {"name": "n", "type": "string"},
    ]
    row = {"b": True, "d": "123456789012345.1000", "f": 0.1, "t": "2022-04-15T03:00:10.688001Z"}
    service = tuples([*METADATA, *fields])
    refused = sent(service, message(1, key=None, schema=schema, after={**row, "n": None}))
    assert not refused, refused
    (found,) = service.of("orders")
    instant = 1649991610688001
    assert found[6:] == (True, decimal.Decimal("123456789012345.1000"), 0.1, instant, None)
    assert [type(one) for one in found[6:]] == [bool, decimal.Decimal, float, int, type(None)]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (FIELDS[:-1], "topic orders has no column 'v': a topic's schema is fixed: append"),
        ([*FIELDS[:-1], ("v", "BIGINT")], "column 'v' is STRING and topic orders has BIGINT: a"),
        (FIELDS[1:], "topic orders has no column _sequence_id_"),
        ([*FIELDS, ("w", "WORD")], "unknown type"),
    ],
)
def test_rows_that_do_not_fit_the_topic_are_set_aside_with_the_way_out(
    fields: list[tuple[str, str]], words: str
) -> None:
    service = tuples(fields)
    (refused,) = sent(service, insert(1), on_loss="ignore")
    assert refused.code in {"topic_schema", "wrong_topic"}
    assert words in refused.reason
    assert refused.origin.message.value == insert(1).value
    assert not service.written


def test_a_schema_that_changes_under_way_is_refused_until_it_fits_again() -> None:
    wider = [*SCHEMA, {"name": "w", "type": "string"}]
    service = tuples()
    told = [
        insert(1),
        message(2, after={"id": 2, "v": "x", "w": "y"}, schema=wider),
        insert(3, id=3),
        message(4, after={"id": 4}, schema=SCHEMA[:1]),
    ]
    (refused,) = sent(service, *told)
    assert (refused.origin.message.offset, refused.code) == (2, "topic_schema")
    assert sorted(row[6:] for row in service.of("orders")) == [(1, "x"), (3, "x"), (4, None)]


def test_rows_without_types_are_checked_by_their_columns() -> None:
    service = tuples()
    told = [
        message(1, after={"id": 1, "v": "x"}, schema=None),
        message(2, after={"id": 1, "other": "x"}, schema=None),
        message(3, after={"id": "no number", "v": "x"}, schema=None),
    ]
    refused = sent(service, *told)
    assert [(one.origin.message.offset, one.code) for one in refused] == [
        (2, "topic_schema"),
        (3, "not_encodable"),
    ]
    assert "no number" not in refused[1].reason


def test_a_missing_topic_is_created_from_the_table_if_the_sink_allows_it() -> None:
    service = FakeService(even_shards(4))
    refused = sent(service, insert(1), topic="dh_{database}_{table}")
    assert [one.code for one in refused] == ["no_topic"]
    assert "sink.create" in refused[0].reason
    told = [insert(0, schema=None), insert(1), insert(2)]
    refused = sent(service, *told, topic="dh_{database}_{table}", create={"shards": 4, "days": 3})
    assert [(one.origin.message.offset, one.code) for one in refused] == [(0, "no_schema")]
    assert service.created == [("dh_shop_orders", 4, 3)]
    made = json.loads(service.topics["dh_shop_orders"].schema or "")["fields"]
    assert [(one["name"], one["type"]) for one in made] == FIELDS
    assert len(service.of("dh_shop_orders")) == 2


@pytest.mark.parametrize(
    ("table", "sink", "code"),
    [
        ({"database": "sh.op", "name": "orders"}, {"topic": "{database}_{table}"}, "no_topic_name"),
        ({"name": "orders"}, {"topic": "{database}_{table}"}, "no_topic_name"),
        ({"name": "orders"}, {"topic": "blobs"}, "wrong_topic"),
    ],
)
def test_a_row_without_a_topic_for_it_is_set_aside(
    table: dict[str, str], sink: dict[str, str], code: str
) -> None:
    service = tuples()
    service.topics["blobs"] = Topic("BLOB")
    (refused,) = sent(service, insert(1, table=table), **sink)
    assert refused.code == code


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"database": "web", "name": "orders"}, "{table}"),
        ({"database": "shop", "name": "notes"}, "orders"),
        # one name, in upper and lower case
        ({"database": "shop", "name": "Orders"}, "{table}"),
    ],
)
def test_a_second_table_does_not_come_into_a_topic(other: dict[str, str], told: str) -> None:
    service = tuples()
    service.topics["Orders"] = service.topics["orders"]
    (refused,) = sent(service, insert(1), insert(2, table=other), insert(3), topic=told)
    assert (refused.code, refused.origin.message.offset) == ("two_tables", 2)
    assert '["shop",null,"orders"]' in refused.reason
    assert len(service.of("orders")) == 2
    # unless a route makes them one
    one = {"type": "route", "pattern": ".*", "database": "shop", "table": "orders"}
    one["shards"] = "apart"
    assert not sent(tuples(), insert(1), insert(2, table=other), topic=told, steps=[one])


def test_a_route_may_set_the_topic_of_rows_if_datahub_allows_its_name() -> None:
    service = tuples()
    step = {"type": "route", "pattern": r"shop\.orders"}
    assert not sent(service, insert(1), topic="other", steps=[step | {"topic": "orders"}])
    assert len(service.of("orders")) == 1
    (refused,) = sent(service, insert(1), steps=[step | {"topic": "shop.orders"}])
    assert refused.code == "no_topic_name"
    (refused,) = sent(
        blobs(), insert(1), topic="all", format="datahub-blob", steps=[step | {"topic": "a"}]
    )
    assert refused.code == "two_topics"


def test_a_topic_of_a_table_may_have_its_time_as_text_in_the_right_spelling() -> None:
    fields = [(f, k) for f, k in FIELDS if f != "_excute_time_"] + [("_execute_time_", "STRING")]
    service = tuples(fields)
    assert not sent(service, insert(1, source_time_ns=1649991726000_000_000))
    assert service.of("orders")[0][-1] == "1649991726000"


def test_losses_in_a_tuple_topic_are_counted_but_a_truncate_is_quarantined() -> None:
    service = tuples()
    told = [
        message(1, "truncate", key=None, schema=None),
        Message(b'{"op":"watermark","type":"heartbeat"}', b"k", (), "in", 3, 2),
        Message(b'{"op":"tombstone","after":{"id":1}}', b"k", (), "in", 3, 3),
    ]
    assert [one.code for one in sent(service, *told)] == ["truncate"]
    assert not service.written


# -- BLOB


def blobs(**more: Any) -> FakeService:
    service = FakeService(even_shards(4), **more)
    service.topics["all"] = Topic("BLOB")
    return service


def blob(found: Content) -> Any:
    assert isinstance(found, bytes)
    return json.loads(found)


def test_a_topic_of_blobs_takes_all_tables_by_key_or_table() -> None:
    service = blobs()
    other = {"database": "shop", "name": "notes"}
    told = [insert(1, id=5), insert(2, id=6, table=other), insert(3, table=other, key=None)]
    assert not sent(service, *told, topic="all", format="datahub-blob")
    places = {
        (blob(one)["schema"]["source"]["tableName"], blob(one)["payload"]["sequenceId"]): shard
        for _, shard, one in service.written
    }
    expected = {1: ("orders", "5"), 2: ("notes", "6"), 3: ("notes", "shop.notes")}
    assert places == {
        (table, str(offset << 23 | 3 << 11)): str(hash_of(text) * 4 >> 128)
        for offset, (table, text) in expected.items()
    }


def test_the_order_of_messages_is_kept_with_their_keys() -> None:
    service = blobs(faults=["limit", "down", "split", "", "limit"])
    told = [insert(n, id=n % 7) for n in range(300)]
    assert not sent(service, *told, topic="all", format="datahub-blob", batch_records=20)
    found: dict[int, list[int]] = {}
    for one in service.of("all"):
        body = blob(one)["payload"]
        found.setdefault(body["after"]["dataColumn"]["id"], []).append(int(body["sequenceId"]))
    numbers = {key: [n << 23 | 3 << 11 for n in range(300) if n % 7 == key] for key in range(7)}
    assert found == numbers


# -- what is refused on the way


def test_a_record_that_the_service_never_takes_is_set_aside_with_its_message() -> None:
    service = tuples(bad=lambda row: row[6] == 3)
    refused = sent(service, *(insert(n, id=n) for n in range(10)))
    assert [(one.code, one.origin.message.offset) for one in refused] == [("refused_by_datahub", 3)]
    assert "MalformedRecord" in refused[0].reason
    assert len(service.written) == 9


def test_an_update_whose_two_records_are_refused_is_one_entry() -> None:
    service = tuples(bad=lambda _: True)
    update = message(4, "u", before={"id": 1, "v": "a"}, after={"id": 2, "v": "a"})
    refused = sent(service, update, insert(5, id=3))
    aside = [(one.code, one.origin.message.offset) for one in refused]
    assert sorted(aside) == [("refused_by_datahub", 4), ("refused_by_datahub", 5)]


def test_what_waits_behind_a_refused_record_is_set_aside_once_and_not_written() -> None:
    def update(offset: int) -> Message:
        return message(offset, "u", before={"id": 1, "v": "a"}, after={"id": 1, "v": str(offset)})

    # an update is two records: where the first is refused, so is the event, and nothing more of it
    service = tuples(bad=lambda row: row[6:] == (1, "a") and row[0] == str(4 << 23 | 3 << 11))
    broken = Message(b"[]", b"k", (), "in", 3, 7)
    refused = sent(
        service, update(3), update(4), update(5), update(6), broken, block_keys_on_error=True
    )
    aside = [(one.code, one.origin.message.offset) for one in refused]
    assert sorted(aside, key=lambda one: one[1] or 0) == [
        ("refused_by_datahub", 4),
        ("held", 5),
        ("held", 6),
        ("wrong_type", 7),
    ]
    assert [row[-1] for row in service.of("orders")] == ["a", "3"]


def test_what_is_set_aside_holds_no_masked_value() -> None:
    service = tuples(bad=lambda _: True)
    step = {"type": "mask", "columns": ["v"], "method": "null"}
    (refused,) = sent(service, insert(1), steps=[step])
    assert b'"x"' not in (refused.origin.message.value or b"")


def test_records_that_are_too_large_are_set_aside_and_not_sent() -> None:
    service = tuples()
    (refused,) = sent(service, message(1, after={"id": 1, "v": "x" * (2 << 20 | 1)}))
    assert refused.code == "record_too_large"
    large = blobs()
    value = "x" * MOST_RECORD_BYTES
    told = message(1, after={"id": 1, "v": value})
    (refused,) = sent(large, told, topic="all", format="datahub-blob")
    assert refused.code == "record_too_large"
    assert not service.written
    assert not large.written


def test_a_service_that_denies_ends_the_batch_and_sets_nothing_aside() -> None:
    with pytest.raises(ServiceError, match="NoPermission"):
        sent(tuples(faults=["denied"]), insert(1))

    class Denying(FakeService):
        def topic(self, name: str) -> Topic | None:
            raise ServiceError("Unauthorized", 401) if name else AssertionError

    with pytest.raises(ServiceError, match="Unauthorized"):
        sent(Denying(even_shards(1)), insert(1))


# -- sequences


def event(position: Any = None) -> DataChange:
    (found,) = get_codec("native-json").decode(insert(1))
    assert isinstance(found, DataChange)
    return msgspec.structs.replace(found, position=position)


def test_a_sequence_rises_with_the_offset_and_fits_into_64_bits() -> None:
    def sequence(offset: int, partition: int, number: int) -> int:
        origin = Origin(Message(b"", None, (), "in", partition, offset), number)
        position = getattr(with_sequence(event(), origin), "position", None)
        assert isinstance(position, SequencePosition)
        return position.value

    told = [
        (0, 0, 0),
        (0, 0, 1),
        (0, 4095, 2047),
        (1, 0, 0),
        (1, 1, 0),
        ((1 << 40) - 1, 4095, 2047),
    ]
    found = [sequence(*one) for one in told]
    assert found == sorted(set(found))
    assert found[-1] == (1 << 63) - 1
    for wrong in ((1 << 40, 0, 0), (0, 4096, 0), (0, 0, 2048)):
        with pytest.raises(DestinationError, match="do not fit into a sequence"):
            sequence(*wrong)


def test_an_event_keeps_the_sequence_that_it_has() -> None:
    told = event(SequencePosition(17))
    assert with_sequence(told, Origin(insert(5), 0)) is told
