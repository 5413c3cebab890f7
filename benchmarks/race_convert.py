# SPDX-License-Identifier: Apache-2.0
"""The same messages to canal-json, by Flink and by changelane: file to file, topic to topic.

Flink writes an update as a delete and an insert, without key columns and types, where changelane
writes one message; so the rows that result from the messages are compared, not the messages.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import flink
import msgspec
import orders
import pipelines
import readers
import topics
from process_tree import Job, Usage

PARTITIONS: Final = 4


def from_files(count: int, folder: Path, *, with_flink: bool) -> Iterator[tuple[str, Usage]]:
    """Convert a file of messages; yield each peer with its figures."""
    shop = orders.Shop()
    source = folder / "messages" / "orders.jsonl"
    source.parent.mkdir()
    with source.open("wb") as file:
        for at, (op, before, after) in enumerate(shop.changes(count), start=1):
            file.write(orders.message(op, before, after, at, "orders") + b"\n")
    target = folder / "canal.jsonl"
    usage = Job(pipelines.convert(source, target), folder / "convert.log").wait()
    with target.open("rb") as file:
        _check("file by changelane", file, shop, folder)
    yield "changelane", usage
    if with_flink:
        target = folder / "flink"
        statements = flink.copy(
            flink.file(source, "debezium-json"), flink.file(target, "canal-json")
        )
        script = flink.Script(flink.settings(), statements)
        usage = Job(script.command(folder / "a.json"), folder / "flink.log").wait()
        lines = (line for path in sorted(target.iterdir()) for line in path.open("rb"))
        _check("files by Flink", lines, shop, folder)
        yield "Flink", usage


def from_topic(
    count: int, folder: Path, servers: str, *, with_flink: bool
) -> Iterator[tuple[str, Usage]]:
    """Convert the messages of a topic; yield each peer with its figures."""
    shop = orders.Shop()
    topics.Stream(servers, "source", PARTITIONS).send(shop.changes(count))
    topics.create(servers, "by-changelane", PARTITIONS)
    pipeline = pipelines.pipeline(
        pipelines.source_topic(servers, "source"),
        pipelines.sink_topic(servers, "by-changelane", folder),
    )
    command = pipelines.run(pipeline, folder / "topic.yaml")
    usage = Job(command, folder / "run.log").wait()
    _check("topic by changelane", topics.values(servers, "by-changelane"), shop, folder)
    yield "changelane", usage
    if with_flink:
        topics.create(servers, "by-flink", PARTITIONS)
        statements = flink.copy(
            flink.source_topic(servers, "source", is_bounded=True),
            flink.sink_topic(servers, "by-flink"),
        )
        script = flink.Script(flink.settings(checkpoint_s=10), statements)
        usage = Job(script.command(folder / "b.json"), folder / "flink-b.log").wait()
        _check("topic by Flink", topics.values(servers, "by-flink"), shop, folder)
        yield "Flink", usage


def rows_of(messages: Iterable[bytes]) -> Iterable[orders.Row]:
    """Return the rows that result from canal-json messages, in any representation of values."""
    rows: dict[int, orders.Row] = {}
    convert = {"int64": int, "int32": int, "float64": float, "string": str}
    for text in messages:
        message = msgspec.json.decode(text)
        for image in message["data"]:
            key = int(image[orders.KEY])
            if message["type"] == "DELETE":
                rows.pop(key, None)
            else:
                rows[key] = {
                    name: convert[kind](image[name]) for name, kind in orders.TYPES.items()
                }
    return rows.values()


def _check(name: str, messages: Iterable[bytes], shop: orders.Shop, folder: Path) -> None:
    connection = readers.connect()
    expected, found = folder / name / "expected", folder / name / "rows"
    readers.store(shop.rows(), expected)
    readers.store(rows_of(messages), found)
    readers.check_equal(
        connection,
        name,
        readers.table("parquet", found),
        readers.table("parquet", expected),
    )
