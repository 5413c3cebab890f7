# SPDX-License-Identifier: Apache-2.0
"""Readers of a snapshot without Spark, and the records that they wrote."""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from changelane import Message, get_codec
from changelane.capture.manifest import CapturedRecord
from changelane.capture.segment_store import CaptureLog
from changelane.capture.snapshot.first_load import ReadChunks
from changelane.capture.snapshot.reader_config import (
    ReaderConfig,
    ReaderEnd,
    encode_reader_config,
)
from changelane.capture.snapshot.reader_start import run_reader
from changelane.event import ChangeEvent, DataChange, HalfUpdate
from changelane.schema import TableId
from changelane.spark.sources.segments import record_lines
from changelane.testing.reference.upsert import MemoryTables

Row = tuple[str | None, str]


def read_in_processes(configs: Sequence[ReaderConfig]) -> list[ReaderEnd]:
    with ThreadPoolExecutor(len(configs)) as pool:
        return list(pool.map(run_reader, map(encode_reader_config, configs)))


def changing(changes: Sequence[Callable[[], object]], attempts: list[list[int]]) -> ReadChunks:
    """Return a function that runs readers after a change of the first attempts."""

    def read_chunks(configs: Sequence[ReaderConfig]) -> list[ReaderEnd]:
        attempts.append(sorted(chunk.number for config in configs for chunk in config.chunks))
        index = len(attempts) - 1
        if index < len(changes):
            changes[index]()
        return read_in_processes(configs[:1] if index < len(changes) else configs)

    return read_chunks


def records_of(log: CaptureLog) -> list[CapturedRecord]:
    """The records of a log, whose segments have all of them."""
    records: list[CapturedRecord] = []
    for manifest in log.manifests_after(0):
        for segment in manifest.segments:
            assert segment.first_offset == len(records)
            lines = [json.loads(line) for line in record_lines(log.folder, segment)]
            assert len(lines) == segment.record_count
            records += [
                CapturedRecord(x["topic"], x["key"], x["value"], headers=x.get("headers", ()))
                for x in lines
            ]
    return records


def lake_rows(
    log: CaptureLog,
    table: TableId,
    columns: Sequence[str],
    is_lost: Callable[[CapturedRecord], bool] = lambda _: False,
) -> Counter[tuple[Any, ...]]:
    """The rows of a table that has all records of a log but the lost ones, in small batches."""
    decode = get_codec("debezium-json").decode
    events: list[ChangeEvent] = []
    for record in records_of(log):
        if record.value is not None and not is_lost(record):
            key = None if record.key is None else record.key.encode()
            headers = tuple((name, text.encode()) for name, text in record.headers)
            events += decode(Message(record.value.encode(), key, headers, record.topic))
    changes = [event for event in events if isinstance(event, DataChange | HalfUpdate)]
    tables = MemoryTables()
    for start in range(0, len(changes), 50):
        tables.apply(changes[start : start + 50])
    assert not tables.quarantine
    return Counter(tuple(row.get(column) for column in columns) for row in tables.rows(table))


def rows_by_topic(records: Sequence[CapturedRecord], op: str) -> dict[str, Counter[Row]]:
    """The rows of an operation with their schemas, as the texts that the log has."""
    rows: dict[str, Counter[Row]] = {}
    for record in records:
        envelope = json.loads(record.value or "null")
        if envelope is None or envelope["payload"].get("op") != op:
            continue
        text = json.dumps([envelope["schema"], envelope["payload"]["after"]])
        rows.setdefault(record.topic, Counter())[record.key, text] += 1
    return rows


def values_by_column(rows: Counter[Row]) -> dict[tuple[int, int], str]:
    """The type and the value of each column, by the row's id and the column's place."""
    values = {}
    for _, text in rows:
        schema, after = json.loads(text)
        (fields,) = (part["fields"] for part in schema["fields"] if part["field"] == "after")
        for index, field in enumerate(fields):
            values[after["id"], index] = json.dumps([field, after[field["field"]]])
    return values
