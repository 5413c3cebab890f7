# SPDX-License-Identifier: Apache-2.0
"""What a producer's profile decides is what a real broker holds: topics, keys and partitions."""

import json
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner
from kafka_topics import Topics
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from changelane import Message
from changelane.cli import main
from changelane.profiles.partitioners import (
    hash_partition,
    java_hash,
    kafka_partition,
    xor_hash,
)

PARTITIONS: Final = 5
SCHEMA: Final = [
    {"name": "id", "type": "int64", "nullable": False},
    {"name": "v", "type": "string"},
]
KEYS: Final = [*range(40), -1, 2**62]


@pytest.fixture
def topics(broker: str) -> Topics:
    return Topics(broker)


def event(op: str, number: int, table: str = "orders", **images: Any) -> Message:
    told = {
        "op": op,
        "table": {"database": "shop", "name": table},
        "key": ["id"],
        "schema": SCHEMA,
        "position": {"domain": "mysql", "file": "binlog.000003", "pos": number + 4},
        "source": {"product": "mysql"},
    }
    return Message(json.dumps(told | images).encode())


def row(number: int, value: str = "a") -> dict[str, Any]:
    return {"id": number, "v": value}


def run(folder: Path, topics: Topics, source: str, sink: dict[str, Any]) -> str:
    """Run a pipeline; return what it says beside its report."""
    file = folder / "pipeline.yaml"
    told = {"type": "kafka", "bootstrap_servers": topics.servers}
    pipeline = {
        "name": "as-the-producer",
        "source": told | {"topics": source, "format": "native-json"},
        "sink": told | {"on_loss": "warn", "checkpoint": "state"} | sink,
    }
    file.write_text(json.dumps(pipeline))
    done = CliRunner().invoke(main, ["run", str(file)])
    assert done.exit_code == 0, done.output
    return done.stderr


def test_debeziums_keys_lie_where_kafkas_own_partitioner_puts_them(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    source = topics.create(topics.name("in"))
    target = topics.create(f"{topics.name('dbz')}.shop.orders", PARTITIONS)
    prefix = target.removesuffix(".shop.orders")
    moved = {"before": row(1), "after": row(1001)}
    topics.send(
        source,
        [
            *(event("c", number, after=row(number)) for number in KEYS),
            event("d", 0, before=row(0)),
            event("u", 1, **moved),
        ],
    )
    profile = {"profile": "debezium", "profile_options": {"topic_prefix": prefix}}
    run(tmp_path, topics, source, {"format": "debezium-json"} | profile)
    found = topics.read(target)
    # each row, a delete and its tombstone, and the three messages of a changed key
    assert len(found) == len(KEYS) + 2 + 3
    assert all(
        m.key is not None and m.partition == kafka_partition(m.key, PARTITIONS) for m in found
    )
    keys = {json.loads(m.key or b"")["payload"]["id"] for m in found}
    assert keys == {*KEYS, 1001}
    of = {
        name: [m for m in found if f"__debezium.{name}" in dict(m.headers)]
        for name in ("newkey", "oldkey")
    }
    assert [m.value is None for m in of["newkey"]] == [False, True]
    assert [json.loads(m.value or b"")["payload"]["op"] for m in of["oldkey"]] == ["c"]
    assert [dict(m.headers)["__debezium.oldkey"] for m in of["oldkey"]] == [b'{"id":1}']

    # the same keys, where Kafka's producer chooses: it is the rule that the profile states
    free = topics.create(topics.name("free"), PARTITIONS)
    rows = spark.createDataFrame([(m.key,) for m in found], "key BINARY")
    told = rows.select("key", F.lit("x").cast("binary").alias("value"))
    told.write.format("kafka").option("kafka.bootstrap.servers", topics.servers).option(
        "topic", free
    ).save()
    places = {m.key: m.partition for m in topics.read(free)}
    assert places == {m.key: m.partition for m in found}


def test_canals_messages_have_no_key_and_the_partition_of_its_hash(
    spark: SparkSession, topics: Topics, tmp_path: Path
) -> None:
    assert spark.sparkContext.appName
    source = topics.create(topics.name("in"))
    orders = topics.create(topics.name("orders").replace(".", "_"), PARTITIONS)
    others = topics.create(topics.name("others").replace(".", "_"), PARTITIONS)
    ddl = {"op": "schema", "type": "alter", "table": {"database": "shop", "name": "orders"}}
    topics.send(
        source,
        [
            *(event("c", number, after=row(number)) for number in KEYS),
            event("u", 7, before=row(7), after=row(7, "b")),
            event("d", 7, before=row(7, "b")),
            *(event("c", number, "notes", after=row(number)) for number in KEYS),
            Message(json.dumps(ddl | {"text": "alter table orders add x int"}).encode()),
        ],
    )
    options = {
        "dynamic_topic": f"{orders}:shop.orders;{others}:shop\\..*",
        "partition_hash": "shop.orders:$pk$;shop\\..*",
    }
    profile = {"profile": "canal", "profile_options": options}
    run(tmp_path, topics, source, {"format": "canal-json"} | profile)
    found = topics.read(orders)
    assert len(found) == len(KEYS) + 3
    history = []
    for one in found:
        assert (one.key, one.headers) == (None, ())
        flat = json.loads(one.value or b"")
        if flat["isDdl"]:
            assert one.partition == 0
            continue
        (told,) = flat["data"]
        number = xor_hash([told["id"]], java_hash("shop"))
        assert one.partition == hash_partition(number, PARTITIONS)
        if told["id"] == "7":
            history.append(flat["type"])
    assert history == ["INSERT", "UPDATE", "DELETE"], "in order, in one partition"
    by_table = topics.read(others)
    assert len(by_table) == len(KEYS)
    assert {m.partition for m in by_table} == {hash_partition(java_hash("notes"), PARTITIONS)}

    # one partition more, told once to the next run
    more = PARTITIONS + 1
    topics.grow(orders, more)
    topics.send(source, [event("c", number, after=row(number)) for number in range(100, 110)])
    said = run(tmp_path, topics, source, {"format": "canal-json"} | profile)
    assert f"topic {orders} had {PARTITIONS} partitions and has {more} now" in said
    assert others not in said
    flats = [(json.loads(one.value or b""), one.partition) for one in topics.read(orders)]
    later = {
        rows[0]["id"]: partition
        for flat, partition in flats
        if (rows := flat["data"]) and int(rows[0]["id"]) in range(100, 110)
    }
    assert later == {
        str(number): hash_partition(xor_hash([str(number)], java_hash("shop")), more)
        for number in range(100, 110)
    }
    topics.send(source, [event("c", 200, after=row(200))])
    said = run(tmp_path, topics, source, {"format": "canal-json"} | profile)
    assert "partitions and has" not in said
