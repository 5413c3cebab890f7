"""From topic to topic, without a broker: what goes where, in which order, and what is
quarantined."""

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from registry_server import RegistryServer

from changelane import Message, get_codec, profiles
from changelane.cli.convert import Conversion
from changelane.codec import OnLoss
from changelane.conversion import join_update_halves
from changelane.conversion.destinations import Address, DestinationError, EventEncoder
from changelane.conversion.message_files import LineFormat, Lines, line_of
from changelane.conversion.partition import (
    EVENT_ID,
    Delivery,
    Outcomes,
    RejectedMessage,
    empty_counts,
)
from changelane.conversion.summary import Summary
from changelane.errors import ConfigError
from changelane.event import HalfUpdate
from changelane.formats.contract.losses import DEFAULT
from changelane.pipeline.config import load, parse
from changelane.pipeline.error_budget import Budget
from changelane.pipeline.kafka_sink import KafkaSink
from changelane.profiles.partitioners import kafka_partition
from changelane.transforms.chain import Chain
from changelane.transforms.registry import transforms_of

NATIVE = "native-json"
CAPTURED = Path(__file__).resolve().parents[2] / "golden" / "debezium-json" / "captured"
IDS = [{"name": "id", "type": "int64"}]


def told(offset: int, id: int = 1, *, value: bytes | None = None, **more: Any) -> Message:
    event = {"op": "c", "table": {"database": "shop", "name": "orders"}, "key": ["id"]}
    event |= {"after": {"id": id}, "schema": IDS} | more
    body = json.dumps(event).encode() if value is None else value
    return Message(body, b"k", (), "in", 3, offset)


def delivery(
    topic: str = "out", *, source: str = NATIVE, target: str = NATIVE, **more: Any
) -> Delivery:
    on_loss = more.pop("on_loss", "raise")
    place = {name: more.pop(name) for name in ("by_source", "is_same_broker") if name in more}
    partitions = {"out": 4, "in": 8, "cdc.shop.orders": 2}
    write = EventEncoder(get_codec(target), on_loss, Address(topic, **place), partitions.get)
    return Delivery(get_codec(source), write, counts=more.pop("counts", empty_counts()), **more)


def sent(found: Outcomes) -> list[Message]:
    assert all(isinstance(one, Message) for one in found), found
    return [one for one in found if isinstance(one, Message)]


def refused(found: Outcomes) -> list[str]:
    return [one.code for one in found if isinstance(one, RejectedMessage)]


def test_a_message_without_a_key_keeps_the_partition_that_it_came_from() -> None:
    (one,) = sent(delivery(target="canal-json", on_loss="warn").push(told(0)))
    assert (one.topic, one.key, one.partition) == ("out", None, 3)
    (one,) = sent(delivery("cdc.{database}.{table}").push(told(0)))
    assert (one.topic, one.partition) == ("cdc.shop.orders", 3 % 2)


def test_kafka_chooses_the_partition_by_the_key_unless_that_of_the_source_is_kept() -> None:
    for by_source, partition in ((False, None), (True, 3)):
        # Debezium's messages have a key
        target = delivery(target="debezium-json", on_loss="warn", by_source=by_source)
        (one,) = sent(target.push(told(0, position=None)))
        assert one.key is not None
        assert one.partition == partition


def test_event_ids_name_the_message_the_event_and_the_message_of_it() -> None:
    target = delivery(event_id=True)
    found = [*sent(target.push(told(17))), *sent(target.push(told(18)))]
    assert [dict(one.headers)[EVENT_ID] for one in found] == [b"in-3-17-0-0", b"in-3-18-0-0"]
    again = delivery(event_id=True)
    assert sent(again.push(told(17))) == found[:1]


@pytest.mark.parametrize(
    ("topic", "message", "code"),
    [
        ("out", told(0, value=b"{broken"), "malformed_json"),
        ("none", told(0), "no_topic"),
        ("cdc.{schema}.{table}", told(0), "no_topic_name"),
        ("{table}", told(0, table={"name": "a b"}), "no_topic_name"),
        ("{table}", told(0, table={"name": ".."}), "no_topic_name"),
        ("{topic}", told(0), "same_topic"),
    ],
)
def test_what_has_no_place_is_set_aside_and_the_rest_goes_on(
    topic: str, message: Message, code: str
) -> None:
    counted = empty_counts()
    target = delivery(topic, is_same_broker=True, counts=counted)
    assert refused(target.push(message)) == [code]
    assert counted.refused == {code: 1}
    assert counted.totals["written"] == 0


def test_losses_are_set_aside_or_counted() -> None:
    counted = empty_counts()
    strict = delivery(target="lindorm-json", counts=counted)
    assert refused(strict.push(told(0, position={"domain": "sequence", "value": 1}))) == [
        "unsupported"
    ]
    assert not counted.losses  # it is quarantined whole
    counted = empty_counts()
    usual = delivery(target="canal-json", on_loss=DEFAULT, counts=counted)
    assert len(sent(usual.push(told(0, position={"domain": "sequence", "value": 1})))) == 1
    assert counted.losses["position", "a sequence position is not written"] == 1
    unknown = {"schema": [{"name": "id", "type": "float64"}], "after": {"id": "NaN"}}
    assert refused(usual.push(told(0, **unknown))) == ["unsupported"]
    counted = empty_counts()
    lenient = delivery(target="canal-json", on_loss="warn", counts=counted)
    assert len(sent(lenient.push(told(0, position={"domain": "sequence", "value": 1})))) == 1
    assert counted.losses["position", "a sequence position is not written"] == 1


@pytest.mark.parametrize("target", ["debezium-json", "canal-json", "dts-avro", NATIVE])
@pytest.mark.parametrize("name", sorted(path.name for path in CAPTURED.glob("*.jsonl")))
def test_one_partition_becomes_what_convert_makes_of_it(name: str, target: str) -> None:
    """With changes of keys, tombstones and statements, as Debezium told them."""
    lines = Lines(io.BytesIO((CAPTURED / name).read_bytes()), LineFormat.RECORD)
    read = [line.content for line in lines if isinstance(line.content, Message)]
    messages = [
        msgspec.structs.replace(one, partition=0, offset=number) for number, one in enumerate(read)
    ]
    summary = Summary("debezium-json", target, OnLoss.WARN, Budget.parse("0", "--max-errors"))
    conversion = Conversion(get_codec("debezium-json"), get_codec(target), summary)
    text = b"".join(line_of(one, LineFormat.RECORD) or b"" for one in messages)
    output = io.BytesIO()
    for _ in conversion.run(Lines(io.BytesIO(text), LineFormat.RECORD), output):
        pass
    told = [line.content for line in Lines(io.BytesIO(output.getvalue()), LineFormat.RECORD)]
    expected = [(m.key, m.value, m.headers) for m in told if isinstance(m, Message)]

    counted = empty_counts()
    write = delivery("out", source="debezium-json", target=target, on_loss="warn", counts=counted)
    found = [one for message in messages for one in write.push(message)] + [*write.flush()]
    assert [(m.key, m.value, m.headers) for m in found if isinstance(m, Message)] == expected
    assert counted.refused.total() == summary.failures.total()
    assert counted.losses == summary.losses
    assert len(expected) > 10


def halves(*shapes: tuple[str, int, str]) -> list[Message]:
    """Return halves of updates as the native form writes them: operation, id, pair."""
    native, found = get_codec(NATIVE), []
    for offset, (op, number, pair) in enumerate(shapes):
        image = {"before" if op == "d" else "after": {"id": number}}
        body = {"op": op, "table": {"name": "t"}, "key": ["id"], "schema": IDS} | image
        (change,) = native.decode(Message(json.dumps(body).encode()))
        (message,) = native.encode(HalfUpdate(change, pair=pair)).messages
        found.append(Message(message.value, None, (), "in", 3, offset))
    return found


def test_halves_of_one_batch_become_an_update_and_others_are_set_aside_with_their_own_message() -> (
    None
):
    target = delivery(event_id=True)
    found: list[Message | RejectedMessage] = []
    for message in halves(("d", 1, "p"), ("d", 2, "q"), ("c", 1, "p")):
        found += target.push(message)
    (joined,) = sent(found)
    assert json.loads(joined.value or b"")["op"] == "u"
    assert dict(joined.headers)[EVENT_ID] == b"in-3-2-0-0"
    (left,) = target.flush()
    assert isinstance(left, RejectedMessage)
    assert (left.code, left.origin.message.offset) == ("orphan_half", 1)
    assert target.flush() == []


def test_what_is_remembered_of_joined_halves_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("changelane.conversion.partition.MAX_WAITING", 5)
    assert join_update_halves.MAX_WAITING == 10_000
    target = delivery()
    waiting, *_ = halves(("d", 0, "first"))
    target.push(waiting)
    for number in range(1, 100):
        for message in halves(("d", number, str(number)), ("c", number, str(number))):
            target.push(message)
    assert len(target._origins) <= 4 * 5 + 4
    (left,) = target.flush()
    assert isinstance(left, RejectedMessage)
    assert left.origin.message == waiting


SINK: dict[str, Any] = {
    "type": "kafka",
    "bootstrap_servers": "b:9092",
    "topic": "out",
    "format": "canal-json",
    "checkpoint": "/state",
}
SOURCE: dict[str, Any] = {
    "type": "kafka",
    "bootstrap_servers": "b:9092",
    "topics": "in",
    "format": "debezium-json",
}


def test_transforms_come_before_the_target_and_a_mask_hides_what_is_set_aside() -> None:
    route = {"type": "route", "pattern": r"shop\.orders", "table": "new"}
    mask = {"type": "mask", "columns": ["v"], "method": "null", "when_missing": "pass"}
    steps = transforms_of(
        [
            {"type": "exclude", "tables": ["*.secrets"]},
            route | {"topic": "cdc.shop.orders"},
            mask,
        ]
    )
    counted = empty_counts()
    target = delivery("out", chain=Chain(steps), counts=counted)
    (one,) = sent(target.push(told(0)))
    assert (one.topic, json.loads(one.value or b"")["table"]["name"]) == ("cdc.shop.orders", "new")
    assert target.push(told(1, table={"database": "shop", "name": "secrets"})) == []
    assert counted.totals["excluded"] == 1
    (refused_one,) = target.push(told(2, value=b"{broken secret"))
    assert isinstance(refused_one, RejectedMessage)
    assert b"secret" not in (refused_one.origin.message.value or b"")


def test_a_profile_sets_topic_key_and_partition_and_missing_topics_are_reported() -> None:
    profile = profiles.load("debezium", {"topic_prefix": "shop"})
    for known, codes in (({"shop.orders": 5, "shop.shop.orders": 5}, []), ({}, ["no_topic"])):
        codec = profile.codec("debezium-json")
        write = EventEncoder(codec, "warn", Address(""), known.get, profile)
        target = Delivery(get_codec(NATIVE), write, counts=empty_counts(), event_id=True)
        found = target.push(told(0))
        assert refused(found) == codes
        for one in found:
            if isinstance(one, Message):
                assert one.topic in known
                assert one.partition is not None
                assert EVENT_ID in dict(one.headers)


def test_schemas_are_registered_for_the_topic_of_their_message() -> None:
    """The topic of the source may have a producer, whose schemas the registry compares with."""
    with RegistryServer() as registry:
        options = {"serde": "avro-registry", "registry": registry.address}
        codec = get_codec("debezium-json", **options)
        write = EventEncoder(codec, "warn", Address("cdc.{database}.{table}"), {}.get)
        target = Delivery(get_codec(NATIVE), write, counts=empty_counts())
        assert refused(target.push(told(0))) == ["no_topic"]
        assert not registry.subjects
        write = EventEncoder(codec, "warn", Address("cdc.{database}.{table}"), lambda _: 2)
        target = Delivery(get_codec(NATIVE), write, counts=empty_counts())
        (one,) = sent(target.push(told(0)))
        assert one.topic == "cdc.shop.orders"
        assert set(registry.subjects) == {"cdc.shop.orders-key", "cdc.shop.orders-value"}
        (event,) = codec.decode(one)
        assert event.after == {"id": 1}


def test_a_profile_has_the_topic_of_the_schema_and_the_partition_of_the_framed_key() -> None:
    with RegistryServer() as registry:
        profile = profiles.load("flink", {"topic": "flink.{table}"})
        options = {"serde": "avro-registry", "registry": registry.address}
        codec = profile.codec("plain-json", options)
        for known in ({}, {"flink.orders": 7}):
            write = EventEncoder(codec, "warn", Address(""), known.get, profile)
            found = Delivery(get_codec(NATIVE), write, counts=empty_counts()).push(told(0))
            assert bool(registry.subjects) == bool(known)
        (one,) = sent(found)
        assert set(registry.subjects) == {"flink.orders-key", "flink.orders-value"}
        assert one.topic == "flink.orders"
        assert one.key is not None
        assert one.key.startswith(b"\0")
        assert one.partition == kafka_partition(one.key, 7)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sink": {"checkpoint": ""}}, "a kafka sink needs checkpoint: a folder for"),
        ({"sink": {"topic": "{tabel}"}}, "unknown placeholder"),
        ({"sink": {"topic": "a b"}}, "not a valid topic name"),
        ({"sink": {"topic": ""}}, "needs a topic or a profile"),
        ({"sink": {"profile": "canal"}}, "the profile determines topic and partition"),
        ({"sink": {"profile_options": {"x": 1}}}, "profile_options need a profile"),
        ({"sink": {"topic": "in"}}, "each message would come again"),
        ({"sink": {"topic": "{topic}"}}, "each message would come again"),
        ({"sink": {"spark_options": {"kafka.acks": "1"}}}, "must be `all`"),
        ({"sink": {"spark_options": {"kafka.enable.idempotence": "false"}}}, "may overtake"),
        ({"source": {"spark_options": {"minPartitions": "9"}}}, "loses their order"),
        ({"options": {"mode": "append"}}, "options.mode is for tables"),
        ({"source": {"type": "files", "path": "in"}}, "a kafka sink needs a kafka source"),
    ],
)
def test_a_sink_that_would_lose_messages_or_their_order_is_refused(
    change: dict[str, Any], message: str
) -> None:
    source, sink = SOURCE | change.get("source", {}), SINK | change.get("sink", {})
    if source["type"] == "files":
        source = {k: v for k, v in source.items() if k in {"type", "path", "format"}}
    raw = {"name": "x", "source": source, "sink": sink, "options": change.get("options", {})}
    with pytest.raises(ConfigError, match=message):
        parse(raw)


def test_a_sink_keeps_its_state_in_the_folder_of_its_checkpoint(tmp_path: Path) -> None:
    file = tmp_path / "p.yaml"
    told = {"name": "x", "source": SOURCE, "sink": SINK | {"checkpoint": "state"}}
    file.write_text(json.dumps(told))
    found = load(file)
    assert isinstance(found.sink, KafkaSink)
    assert found.folder == str(tmp_path / "state")
    assert found.checkpoint == str(tmp_path / "state/_changelane/checkpoints/x")
    assert found.packages == ("delta", "kafka")


def keyed(offset: int, key: bytes | None, *, good: bool = True, partition: int = 3) -> Message:
    one = told(offset, value=None if good else b"{broken")
    return msgspec.structs.replace(one, key=key, partition=partition)


def test_once_a_message_is_set_aside_later_ones_of_its_key_wait_in_its_partition() -> None:
    counted = empty_counts()
    target = delivery(blocks_keys=True, counts=counted)
    stream = [
        keyed(0, b"a"),
        keyed(1, b"a", good=False),
        keyed(2, b"b"),
        keyed(3, b"a"),
        keyed(4, None, good=False),
        keyed(5, None),
        keyed(6, b"a", partition=4),
    ]
    found = [one for message in stream for one in target.push(message)]
    told_of = [
        (one.code, one.origin.message.offset) for one in found if isinstance(one, RejectedMessage)
    ]
    # messages without a key are of one key of their partition
    assert told_of == [("malformed_json", 1), ("held", 3), ("malformed_json", 4), ("held", 5)]
    assert counted.refused == {"malformed_json": 2, "held": 2}
    assert counted.totals["written"] == 3
    assert refused(delivery().push(keyed(1, b"a", good=False))) == ["malformed_json"]
    assert delivery().push(keyed(1, b"a"), is_blocked=True), "nothing waits unless the sink says so"
    held = delivery(blocks_keys=True).push(keyed(1, b"a"), is_blocked=True)
    assert refused(held) == ["held"]
    assert held[0].origin.number is None  # type: ignore[union-attr] - it is refused


def test_of_a_message_only_the_events_behind_one_that_is_set_aside_wait() -> None:
    rows = [{"id": "1"}, {"id": "2"}, {"id": "3"}]
    body = {"database": "shop", "table": "orders", "type": "INSERT", "isDdl": False, "id": 1}
    body |= {"data": rows, "pkNames": ["id"], "es": 1, "ts": 1, "old": None, "sql": ""}
    message = Message(json.dumps(body).encode(), b"k", (), "in", 3, 7)

    def refusing(number: int | None, only: int | None = None) -> Outcomes:
        target = delivery(source="canal-json", blocks_keys=True)
        deliver = target._deliver
        seen = iter(range(9)) if only is None else iter([only])

        def fails(event: Any, origin: Any, topic: Any) -> Any:
            if next(seen) == number:
                raise DestinationError("no_topic", "there is no such topic")
            return deliver(event, origin, topic)

        target._deliver = fails  # type: ignore[method-assign]
        return target.push(message, event_index=only)

    found = refusing(1)
    assert [isinstance(one, Message) for one in found] == [True, False, False]
    aside = [(one.code, one.origin.number) for one in found if isinstance(one, RejectedMessage)]
    assert aside == [("no_topic", 1), ("held", 2)]
    # and each comes again alone
    (one,) = sent(refusing(None, only=2))
    assert json.loads(one.value or b"")["after"]["id"] in {3, "3"}
    # somebody who mends a message must not lose an event with it
    assert refused(refusing(None, only=3)) == ["no_such_event"]


def test_keys_are_not_held_where_what_waits_could_not_be_replayed() -> None:
    pipeline: dict[str, Any] = {
        "name": "x",
        "source": {
            "type": "kafka",
            "bootstrap_servers": "b:1",
            "topics": "a",
            "format": "debezium-json",
        },
        "sink": {
            "type": "kafka",
            "bootstrap_servers": "b:1",
            "topic": "b",
            "format": "canal-json",
            "checkpoint": "/s",
            "block_keys_on_error": True,
        },
    }
    assert parse(pipeline).sink.block_keys_on_error
    mask = {"type": "mask", "columns": ["v"], "method": "null"}
    for more, words in (
        ({"transforms": [mask]}, "not available with a mask"),
        ({"options": {"on_error": "stop"}}, "remove sink.block_keys_on_error"),
    ):
        with pytest.raises(ConfigError, match=words):
            parse(pipeline | more)


def replayed(aside: list[RejectedMessage], target: Delivery) -> Outcomes:
    """Deliver rejected messages again, as a replay of their entries does."""
    found = [
        made
        for one in aside
        for made in target.push(one.origin.message, event_index=one.origin.number)
    ]
    return [*found, *target.flush()]


def test_halves_that_the_end_of_a_batch_parted_are_joined_when_both_are_replayed() -> None:
    aside: list[RejectedMessage] = []
    for message in halves(("d", 1, "p"), ("c", 1, "p")):
        target = delivery()
        assert target.push(message) == []
        aside += [one for one in target.flush() if isinstance(one, RejectedMessage)]
    assert [one.code for one in aside] == ["orphan_half", "orphan_half"]
    (joined,) = sent(replayed(aside, delivery()))
    assert json.loads(joined.value or b"")["op"] == "u"


def key_change(old: int, new: int) -> list[Message]:
    """Return a change of a key as Debezium writes it: a delete, its tombstone, and an insert."""
    found: list[Message] = []
    for op, key, other in (("d", old, new), ("", old, new), ("c", new, old)):
        name = json.dumps({"id": key}).encode()
        header = f"__debezium.{'oldkey' if op == 'c' else 'newkey'}"
        headers = ((header, json.dumps({"id": other}).encode()),)
        source = {"version": "2.7.0.Final", "connector": "mysql", "name": "s", "ts_ms": 1}
        source |= {"db": "shop", "table": "orders", "file": "b.000001", "pos": 9, "row": 0}
        images = {"before": {"id": key} if op == "d" else None}
        images["after"] = {"id": key} if op == "c" else None
        value = json.dumps({**images, "source": source, "op": op, "ts_ms": 1}).encode()
        found.append(Message(value if op else None, name, headers, "in", 3, len(found)))
    return found


@pytest.mark.parametrize(
    ("source", "messages"),
    [
        (NATIVE, halves(("d", 1, "p"), ("c", 1, "p"))),
        ("debezium-json", key_change(1, 2)),
    ],
)
def test_a_joined_update_is_set_aside_with_both_of_its_messages(
    source: str, messages: list[Message]
) -> None:
    """A replay of the second half alone would lose the first one, or leave the old key's row."""
    counted = empty_counts()
    target = delivery("none", source=source, on_loss="warn", counts=counted)
    found = [one for message in messages for one in target.push(message)] + target.flush()
    aside = [one for one in found if isinstance(one, RejectedMessage)]
    assert [(one.code, one.origin.message, one.origin.number) for one in aside] == [
        ("no_topic", messages[0], 0),
        ("no_topic", messages[-1], 0),
    ]
    assert counted.refused == {"no_topic": 2}
    (joined,) = sent(replayed(aside, delivery(source=source, on_loss="warn")))
    assert json.loads(joined.value or b"")["op"] == "u"
