"""What a check says of the first messages, without Spark: they go through the code of a run."""

import json
from typing import Any

import pytest
from registry_server import RegistryServer

from changelane import Message
from changelane.errors import DecodeError, UnreachableError
from changelane.pipeline.config import parse
from changelane.pipeline.config_checks import Finding
from changelane.pipeline.kafka_sink import KafkaSink
from changelane.pipeline.kafka_source import KafkaSource
from changelane.position import MySqlPosition, encode_order
from changelane.spark.check import dry_run

SOURCE = {"type": "kafka", "bootstrap_servers": "here:1", "topics": "in", "format": "native-json"}
TABLES = {"type": "delta", "path": "/lake"}
TOPICS = {
    "type": "kafka",
    "bootstrap_servers": "here:1",
    "format": "native-json",
    "checkpoint": "/state",
}
FIELDS = [{"name": "id", "type": "int64"}, {"name": "v", "type": "string"}]


def told(number: int, **more: Any) -> Message:
    event = {"op": "c", "table": {"database": "shop", "name": "orders"}, "key": ["id"]}
    event |= {"after": {"id": number, "v": "hunter2"}, "schema": FIELDS}
    event |= {"position": {"domain": "sequence", "value": number}} | more
    return Message(json.dumps(event).encode(), b"k", (), "in", 0, number)


def broken(number: int = 0) -> Message:
    return Message(b'{"op": "hunter2', b"k", (), "in", 0, number)


class Lake:
    """Tables that are there, by name, with their properties."""

    def __init__(self, **tables: dict[str, str]) -> None:
        self._tables = {f"tables/shop.{name}": told for name, told in tables.items()}

    def exists(self, table: str) -> bool:
        return table in self._tables

    def properties(self, table: str) -> dict[str, str]:
        return self._tables[table]

    def path(self, table: str) -> str:
        return f"/lake/{table}"


def tables(*messages: Any, lake: Lake | None = None, **more: Any) -> list[Finding]:
    source = SOURCE | more.pop("source", {})
    pipeline = parse({"name": "shop", "source": source, "sink": TABLES} | more)
    found = dry_run.TableDryRun(pipeline)
    return [*found.read({"in": list(messages)}), *found.tables(lake or Lake())]  # type: ignore[arg-type]


def topics(*messages: Any, counts: dict[str, int] | None = None, **more: Any) -> list[Finding]:
    sink = TOPICS | ({} if "profile" in more else {"topic": "out"}) | more
    pipeline = parse({"name": "shop", "source": SOURCE, "sink": sink})
    assert isinstance(pipeline.source, KafkaSource)
    assert isinstance(pipeline.sink, KafkaSink)
    counts = {"out": 3} if counts is None else counts
    first = {"in": list(messages)}
    return list(dry_run.delivery_findings(pipeline.source, pipeline.sink, counts, pipeline, first))


def lines(found: list[Finding]) -> list[str]:
    text = [str(one) for one in found]
    assert "hunter2" not in "".join(text)
    return text


def test_messages_that_fit_are_told_with_their_table_and_order() -> None:
    assert lines(tables(*(told(n) for n in range(98)))) == [
        "ok       messages of in: all 98 first messages read as native-json",
        (
            "ok       table shop.orders: 98 events, key (id), 2 columns, mode upsert; "
            "a run would create the table"
        ),
        "ok       order: the order of events is by numbers of a sequence",
    ]


def test_messages_that_do_not_fit_are_counted_with_their_reason() -> None:
    misfit = DecodeError("no record", code="malformed_record")
    first, *_ = lines(tables(told(1), broken(), broken(), misfit))
    assert first.startswith(
        "warning  messages of in: 1 of 4 first messages read as native-json; 3 would be "
        "quarantined: "
        "2 incomplete_message ("
    )
    assert first.endswith("; 1 malformed_record (no record)")


def test_where_none_fits_the_format_that_they_look_like_is_named() -> None:
    (one,) = tables(told(1), source={"format": "canal-json"})
    assert (one.state, one.fix) == ("problem", "they look like native-json: set source.format")
    (one,) = tables(broken())
    assert (one.state, one.fix) == ("problem", "no format recognises them")
    (one,) = tables(DecodeError("the file is damaged", code="malformed_file"))
    assert (one.state, one.fix) == ("problem", "")
    keyed = tables(told(1, after={"v": "x"}, schema=FIELDS[1:]))
    assert keyed[0].state == "problem"
    assert keyed[0].fix.startswith("the format is right: check ")


def test_transforms_that_let_nothing_pass_are_a_warning() -> None:
    found = lines(tables(told(1), transforms=[{"type": "exclude", "tables": ["shop.orders"]}]))
    assert found == [
        "ok       messages of in: all 1 first messages read as native-json",
        "warning  messages of in: the transforms exclude all of the first messages",
    ]


@pytest.mark.parametrize(
    ("options", "warns"),
    [({}, True), ({"tables_without_key": "append"}, False), ({"keys": {"orders": ["id"]}}, False)],
)
def test_events_without_a_key_are_told_unless_options_say_what_becomes_of_them(
    options: dict[str, Any], warns: bool
) -> None:
    found = lines(tables(told(1, key=None), options=options))
    assert any("`no_key`" in line for line in found) == warns


LSN = {"domain": "postgresql", "lsn": 5}
PLACELESS = "warning  table shop.orders: its events have no positions: "
SHARED = "warning  table shop.orders: 2 events have a position that several rows may share"


@pytest.mark.parametrize("options", [{"tables_without_key": "append"}, {"mode": "append"}])
@pytest.mark.parametrize(
    ("more", "start"),
    [
        ({"position": None}, PLACELESS),
        ({"position": LSN}, SHARED),
        ({"position": LSN, "transaction": {"id": "7", "order": 1}}, None),
        ({"position": LSN, "op": "r", "source": {"snapshot": "true"}}, None),
    ],
)
def test_where_rows_are_added_it_is_told_that_events_sent_again_are_not_known(
    options: dict[str, Any], more: dict[str, Any], start: str | None
) -> None:
    found = lines(tables(told(1, key=None, **more), told(2, key=None, **more), options=options))
    warnings = [line for line in found if line.startswith("warning")]
    assert len(warnings) == (start is not None)
    assert not warnings or warnings[0].startswith(start or "")
    # a version is known by its key and its position
    past = lines(tables(told(1, **more), options={"mode": "history"}))
    assert any(line.startswith(PLACELESS) for line in past) == (start == PLACELESS)
    assert not any("several rows" in line for line in past)
    # a row that has a key is the same row again
    keyed = lines(tables(told(1, **more), options={"tables_without_key": "append"}))
    assert not [line for line in keyed if line.startswith("warning")]


def test_a_name_in_the_options_that_is_nearly_that_of_a_table_is_told() -> None:
    options = {
        "keys": {"ordrs": ["id"], "customers": ["id"]},
        "tables": {"SHOP.ORDERS": {"mode": "append"}},
        "maintenance": {"cluster_by": {"orders": ["id"], "shop.orders2": ["id"]}},
    }
    found = [one for one in tables(told(1), options=options) if one.state == "warning"]
    assert [(one.about, one.fix) for one in found] == [
        ("options.keys", "did you mean orders?"),
        ("options.tables", "did you mean shop.orders?"),
    ]


def test_several_servers_are_told_unless_they_may_feed_a_table() -> None:
    both = [told(n, source={"server": f"db{n}"}) for n in (1, 2)]
    assert any("2 servers or routed tables write it" in line for line in lines(tables(*both)))
    found = lines(tables(*both, options={"source_servers": "multiple"}))
    assert not any("write it" in line for line in found)


def test_positions_of_another_kind_than_the_table_compares_are_told() -> None:
    odd = told(3, position={"domain": "mysql", "file": "bin.000001", "pos": 4})
    found = lines(tables(told(1), told(2), odd))
    (line,) = [line for line in found if line.startswith("warning")]
    assert line.startswith(
        "warning  table shop.orders: its order is by positions in MySQL's binary log"
    )
    assert line.endswith("2 of 3 would be quarantined as `unordered`")

    order = encode_order(MySqlPosition("bin.000001", 4)).hex()
    lake = Lake(orders={"schema": "{}", "order": order})
    found = lines(tables(told(1), lake=lake))
    assert any("the table exists" in line for line in found)
    assert any("1 of 1 would be quarantined as `unordered`" in line for line in found)
    # without a position, offsets order events
    assert lines(tables(told(1, position=None)))[-1] == (
        "ok       order: the order of events is by offsets within one partition or file"
    )


def test_a_table_of_another_mode_and_one_that_is_not_ours_are_problems() -> None:
    lake = Lake(orders={"schema": "{}", "mode": "append"})
    assert tables(told(1), lake=lake)[1].text == (
        "it has the mode append, and the pipeline has upsert"
    )
    foreign = tables(told(1), lake=Lake(orders={}))[1]
    assert (foreign.state, foreign.text) == (
        "problem",
        "changelane did not create the table /lake/tables/shop.orders",
    )


def test_what_would_be_sent_is_told_by_topic() -> None:
    assert lines(topics(*(told(n) for n in range(5)))) == [
        "ok       messages of in: all 5 first messages read as native-json",
        "ok       sink: they would be 5 native-json messages in out (5)",
    ]
    (one,) = topics(told(1), topic="cdc.{table}")
    assert (one.state, one.text) == (
        "problem",
        (
            "none of the 1 first messages can be used: "
            "1 no_topic (there is no topic cdc.orders: create it)"
        ),
    )


def test_what_the_target_cannot_carry_is_set_aside_or_told_as_lost() -> None:
    strict = {"format": "debezium-json", "topic": "out", "on_loss": "raise"}
    (refused,) = lines(topics(told(1), **strict))
    assert "1 unsupported (debezium-json cannot carry " in refused
    place = {"domain": "sequence", "value": 1}
    sent, _, lost, position = lines(
        topics(told(1, position=place), format="canal-json", topic="out")
    )
    assert sent.startswith("ok ")
    assert position.startswith("warning  sink: canal-json does not carry position (a sequence ")
    assert lost.startswith("ok       sink: canal-json would lose metadata: 1 ")
    data = {"after": {"id": "NaN"}, "schema": [{"name": "id", "type": "float64"}]}
    found = lines(topics(told(1, **data), format="canal-json", topic="out", on_loss="warn"))
    assert found[-3].startswith("warning  sink: canal-json would lose data: 1 value:float (NaN")


def test_no_schema_is_registered_and_names_that_avro_lacks_are_found() -> None:
    with RegistryServer() as registry:
        options = {"serde": "avro-registry", "registry": registry.address}
        avro = {"format": "debezium-json", "format_options": options, "on_loss": "warn"}
        found = lines(topics(told(1), **avro))
        assert "ok       sink: they would be 1 debezium-json messages in out (1)" in found
        row = {"after": {"id": 1, "a b": "x"}}
        row |= {"schema": [FIELDS[0], {"name": "a b", "type": "string"}]}
        (refused,) = lines(topics(told(1, **row), **avro))
        assert "set avro_names to unicode" in refused
        assert set(registry.requests) == {"POST /subjects/out-value", "POST /subjects/out-key"}
        assert not registry.schemas
        with pytest.raises(UnreachableError, match="no such schema of the subject out-value"):
            topics(told(1), **avro | {"format_options": {**options, "register_schemas": False}})
    with pytest.raises(UnreachableError, match="does not answer"):
        topics(told(1, table={"name": "t"}), **avro)


def test_a_producer_that_needs_a_key_is_a_conflict_with_messages_that_have_none() -> None:
    keyless = told(1, key=None, schema=[{"name": "id", "type": "int64"}])
    options = {"profile": "cdl", "format": "cdl-json", "on_loss": "warn"}
    topic = {"profile_options": {"topic": "cdl"}}
    (found,) = topics(keyless, counts={"cdl": 1}, **options, **topic)
    assert found.state == "problem", str(found)
    assert "accept it with the profile's option null_keys=true" in found.text
