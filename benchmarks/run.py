# SPDX-License-Identifier: Apache-2.0
"""Speed as ratios against named baselines, measured in the same run. See README.md beside this.

Usage: run.py [formats|decode|convert|rows|spark|apply] ...   (all of them when none is named)
"""

import argparse
import gc
import io
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import local_spark, seconds
from messages import ORDERS, ORDERS_TYPES, WIDE, Columns, messages

from changelane import Message, get_codec
from changelane import formats as names
from changelane.codec import Codec, OnLoss
from changelane.conversion.lines import Conversion
from changelane.conversion.message_files import Lines, record_of
from changelane.conversion.summary import Summary
from changelane.errors import EncodeError
from changelane.event import DataChange
from changelane.formats.canal.entries import entries_of
from changelane.formats.canal.protobuf_wire import (
    COLUMN,
    ENTRY,
    ROW_CHANGE,
    ROW_DATA,
)
from changelane.formats.contract import json
from changelane.formats.contract.lane import row_class
from changelane.formats.contract.protobuf import loads
from changelane.formats.decoderbufs.wire import DATUM, ROW
from changelane.formats.dts.avro import SCHEMA_V2
from changelane.formats.pgoutput import wire
from changelane.pipeline.error_budget import Budget
from changelane.spark.rows.builder import RowBuilder, row_builder

ROUNDS = 5


class Case(NamedTuple):
    """A table and its messages."""

    name: str
    columns: Columns
    table: str
    with_schema: bool
    count: int


CASES = (
    Case("orders, 0.5 kB", ORDERS, "orders", with_schema=False, count=20_000),
    Case("orders, 3 kB with schema", ORDERS, "orders", with_schema=True, count=20_000),
    Case("60 columns, 1.8 kB", WIDE, "wide", with_schema=False, count=8_000),
    Case("60 columns, 13 kB with schema", WIDE, "wide", with_schema=True, count=4_000),
)
_PYTHON: dict[str, Any] = {
    "int64": int,
    "int32": int,
    "string": str,
    "bytes": str,
    "double": float,
    "boolean": bool,
}
_WIDE_TYPES = {"int64": "int64", "string": "string", "double": "float64", "boolean": "boolean"}


def types_of(case: Case) -> dict[str, str]:
    """Return the column types that a schemaless message needs from the configuration."""
    if case.table == "orders":
        return ORDERS_TYPES
    named = {"Decimal": "decimal(15,2)", "MicroTimestamp": "timestamp(6)"}
    return {
        name: named.get(str(kind.get("name", "")).rpartition(".")[2])
        or _WIDE_TYPES[str(kind["type"])]
        for name, kind in case.columns
    }


def options(case: Case) -> dict[str, Any]:
    """Return the options of ``debezium-json`` to decode into typed events."""
    return {} if case.with_schema else {"schemas": {case.table: types_of(case)}}


def bare(case: Case) -> Callable[[bytes], object]:
    """Return msgspec's own decoder into Structs with every field typed."""
    row = msgspec.defstruct("Row", [(n, _PYTHON[k["type"]] | None) for n, k in case.columns])
    source = msgspec.defstruct(
        "Source",
        [
            *((name, str) for name in ("version", "connector", "name")),
            ("ts_ms", int),
            *((name, str) for name in ("snapshot", "db", "sequence")),
            *((name, int) for name in ("ts_us", "ts_ns")),
            *((name, str) for name in ("schema", "table")),
            ("txId", int),
            ("lsn", int),
            ("xmin", int | None),
        ],
    )
    fields = [("before", row | None), ("after", row | None), ("source", source)]
    times = [(name, int) for name in ("ts_ms", "ts_us", "ts_ns")]
    envelope = msgspec.defstruct("Envelope", [*fields, ("op", str), *times])
    if case.with_schema:
        envelope = msgspec.defstruct("Wrapped", [("schema", dict), ("payload", envelope)])
    return msgspec.json.Decoder(envelope).decode


def rate(run: Callable[[Any], object], items: list[Any]) -> float:
    """Return items a second of processor time, of the best of some rounds."""
    best = float("inf")
    gc.collect()
    for _ in range(ROUNDS):
        started = time.process_time()
        for item in items:
            run(item)
        best = min(best, time.process_time() - started)
    return len(items) / best


def messages_of(case: Case, count: int | None = None) -> list[Message]:
    """Return the first messages of a case, as a consumer of its topic gets them."""
    values = messages(
        case.columns, case.table, count or case.count, keys=5000, with_schema=case.with_schema
    )
    topic = f"shop.public.{case.table}"
    return [Message(value, key, (), topic, 0, index) for index, (key, value) in enumerate(values)]


def line(what: str, case: Case, ours: float, base: float, unit: str = "messages/s") -> None:
    """Print a rate, and its ratio to the baseline."""
    print(f"{what:<24} {case.name:<30} {ours:>11,.0f} {unit}   {ours / base:5.2f} x", flush=True)


def decode() -> None:
    """Per core: message to typed event, against msgspec into typed Structs."""
    for case in CASES:
        records = messages_of(case)
        base = rate(bare(case), [message.value for message in records])
        line("bare msgspec", case, base, base)
        codec = get_codec("debezium-json", **options(case))
        line("decode to events", case, rate(codec.decode, records), base)


def convert() -> None:
    """Per core: Debezium lines to Canal lines, against the same baseline.

    *events* decodes and encodes each message; *command* is the loop of ``changelane convert`` over
    the lines of a file, with and without lanes.
    """
    for case in CASES:
        records = messages_of(case, 4000)
        base = rate(bare(case), [message.value for message in records])
        reader, writer = get_codec("debezium-json", **options(case)), get_codec("canal-json")

        def one(message: Message, reader: Any = reader, writer: Any = writer) -> None:
            for event in reader.decode(message):
                writer.encode(event, on_loss="warn")

        line("convert, events", case, rate(one, records), base)
        lines = b"".join((message.value or b"") + b"\n" for message in records)
        for has_lanes in (False, True):
            run, conversion = _command(reader, writer, lines, has_lanes=has_lanes)
            ours = len(records) * rate(lambda _, run=run: run(), [None])
            what = "convert, command" if has_lanes else "without lanes"
            line(what, case, ours, base)
            if conversion.lanes is not None:
                share = conversion.lanes.count / (len(records) * ROUNDS)
                print(f"{'':<24} {share:.1%} in lanes", flush=True)
    _convert_to_debezium()


def _convert_to_debezium() -> None:
    """Lines of other formats to Debezium's, by the command."""
    case = CASES[0]
    source = get_codec("debezium-json", **options(case))
    events = [event for message in messages_of(case, 4000) for event in source.decode(message)]
    sources = {"canal-json": {}, "dts-avro": {}, "maxwell-json": {}, "plain-json": _DECLARED}
    for name, read_options in sources.items():
        reader = get_codec(name, **read_options)
        written = [get_codec(name).encode(event, on_loss="ignore").messages for event in events]
        records = [Message(m.value, m.key, m.headers, "orders") for each in written for m in each]
        lines = b"".join(json.dumps(record_of(message)) + b"\n" for message in records)
        for target in ({}, {"schemas_enable": False}):
            found = []
            for has_lanes in (False, True):
                writer = get_codec("debezium-json", **target)
                run, _ = _command(reader, writer, lines, has_lanes=has_lanes)
                found.append(len(records) * rate(lambda _, run=run: run(), [None]))
            rates = f"of events {found[0]:>8,.0f}/s   in lanes {found[1]:>8,.0f}/s"
            block = "without" if target else "with"
            print(f"{name} to debezium-json, {block} schema block   {rates}", flush=True)


def _command(
    reader: Codec, writer: Codec, lines: bytes, *, has_lanes: bool
) -> tuple[Callable[[], None], Conversion]:
    """Return the conversion of the lines of a file, as the command does it."""
    summary = Summary(reader.name, writer.name, OnLoss.WARN, Budget.parse("0", "--max-errors"))
    conversion = Conversion(reader, writer, summary, lanes=has_lanes)

    def run() -> None:
        for _ in conversion.run(Lines(io.BytesIO(lines)), io.BytesIO()):
            pass

    return run, conversion


def rows() -> None:
    """Per core: message to event row, which is what a Spark worker does.

    Plain messages take the lanes of the format; *events* is the same without lanes.
    """
    for case in CASES:
        records = messages_of(case)
        base = rate(bare(case), [message.value for message in records])
        codec = get_codec("debezium-json", **options(case))
        events = RowBuilder(codec, images=False, lanes=False)
        line("event rows, events", case, rate(events.rows, records), base)
        builder = RowBuilder(codec, images=False)
        line("event rows", case, rate(builder.rows, records), base)
        print(f"{'':<24} {plain_share(builder, records)}", flush=True)


def plain_share(builder: RowBuilder, records: list[Message]) -> str:
    """Return the share of messages that take the lanes of a builder, as text."""
    if builder.lanes is None:
        return "no lanes"
    before = builder.lanes.result_count
    for message in records:
        builder.rows(message)
    return f"{(builder.lanes.result_count - before) / len(records):.1%} in lanes"


def _stored(spark: Any, case: Case, count: int, folder: Path) -> Any:
    path = str(folder / f"{case.table}{case.with_schema}")
    values = messages(
        case.columns, case.table, count, keys=count // 3, with_schema=case.with_schema
    )
    keys, bodies = zip(*values, strict=True)
    table = pa.table(
        {
            "value": pa.array(bodies, pa.binary()),
            "key": pa.array(keys, pa.binary()),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": pa.array(range(count), pa.int64()),
        }
    )
    Path(path).mkdir(parents=True, exist_ok=True)
    for part in range(4):
        piece = table.slice(part * count // 4, count // 4)
        pq.write_table(piece, f"{path}/{part}.parquet")
    return spark.read.parquet(path)


def _from_json_type(columns: Columns) -> str:
    kinds = {
        "int64": "BIGINT",
        "int32": "INT",
        "string": "STRING",
        "bytes": "STRING",
        "double": "DOUBLE",
        "boolean": "BOOLEAN",
    }
    return ", ".join(f"{name}: {kinds[kind['type']]}" for name, kind in columns)


def spark() -> None:
    """local[2]: message bytes to typed table rows, against ``from_json`` with the full schema."""
    from pyspark.sql import functions as F

    from changelane.spark import decode as decode_rows
    from changelane.spark.rows import latest_per_key
    from changelane.spark.rows.schema import RowSchema

    engine = local_spark()
    folder = Path(tempfile.mkdtemp())
    try:
        for case in CASES[:2]:
            count = 200_000 if not case.with_schema else 60_000
            records = _stored(engine, case, count, folder)
            row = _from_json_type(case.columns)
            source = (
                "version: STRING, connector: STRING, name: STRING, ts_ms: BIGINT, snapshot: STRING,"
                " db: STRING, sequence: STRING, ts_us: BIGINT, ts_ns: BIGINT, schema: STRING,"
                " table: STRING, txId: BIGINT,"
                " lsn: BIGINT, xmin: BIGINT"
            )
            envelope = (
                f"before STRUCT<{row}>, after STRUCT<{row}>, source STRUCT<{source}>, "
                "op STRING, ts_ms BIGINT, ts_us BIGINT, ts_ns BIGINT"
            )
            if case.with_schema:
                inner = envelope.replace("before STRUCT", "before: STRUCT")
                for name in ("after", "source", "op", "ts_ms", "ts_us", "ts_ns"):
                    inner = inner.replace(f", {name} ", f", {name}: ")
                envelope = f"schema STRING, payload STRUCT<{inner}>"
            parsed = records.select(F.from_json(F.col("value").cast("string"), envelope).alias("e"))
            base = count / seconds(lambda parsed=parsed: _drain(parsed.select("e.*")))
            line("Spark from_json", case, base, base, "rows/s")
            least = _parsed_only(records, row, with_schema=case.with_schema)
            parsed_rate = count / seconds(lambda least=least: _drain(least))
            line("parsed in Python only", case, parsed_rate, base, "rows/s")
            events = decode_rows(records, "debezium-json", options=options(case), images=False)
            # not `first`, which ends workers, and with them their processor time
            (schema_row, *_) = events.where("kind = 'schema'").collect()
            schema = msgspec.json.decode(schema_row["after"], type=RowSchema)
            columns = {column.name: column.spark for column in schema.columns}
            target = latest_per_key.Target(
                columns, schema.key or (), {schema_row["schema_id"]: schema}
            )
            rows = events.where("kind = 'data'")
            text, schema_id, state = F.col("after"), F.col("schema_id"), {"o": F.col("order")}
            typed = latest_per_key.typed_rows(rows, text, schema_id, target, state)
            ours = count / seconds(lambda typed=typed: _drain(typed))
            line("bytes to typed rows", case, ours, base, "rows/s")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _parsed_only(records: Any, row: str, *, with_schema: bool) -> Any:
    """Return typed rows of messages that a worker only parses: no key, order, check or schema.

    No decoder in Python takes less time than this.
    """
    from pyspark.sql import functions as F

    def images(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        envelope = msgspec.defstruct("Envelope", [("after", msgspec.Raw)])
        message = msgspec.defstruct("Message", [("payload", envelope)])
        read = msgspec.json.Decoder(message if with_schema else envelope).decode
        for batch in batches:
            parsed = map(read, batch.column(0).to_pylist())
            envelopes = (each.payload for each in parsed) if with_schema else parsed
            texts = [str(each.after, "utf-8") for each in envelopes]
            yield pa.RecordBatch.from_arrays([pa.array(texts, pa.string())], ["after"])

    texts = records.select("value").mapInArrow(images, "after STRING")
    return texts.select(F.from_json("after", f"STRUCT<{row}>").alias("row")).select("row.*")


def _drain(frame: Any) -> None:
    frame.write.format("noop").mode("overwrite").save()


def apply() -> None:
    """local[2]: messages to a Delta table, against a bare MERGE of typed, de-duplicated rows."""
    from changelane.spark import apply_changes
    from changelane.spark import decode as decode_rows

    engine = local_spark()
    folder = Path(tempfile.mkdtemp())
    try:
        case = CASES[1]
        count = 100_000
        records = _stored(engine, case, count, folder)
        lake = str(folder / "lake")
        events = decode_rows(records, "debezium-json", options=options(case), images=False)
        apply_changes(events, lake)  # the table exists, Spark is warm
        table = f"{lake}/tables/shop.public.orders"
        typed = engine.read.format("delta").load(table).drop("_changelane_columns")
        typed.write.format("delta").save(str(folder / "bare"))
        typed.withColumn("o_clerk", typed["o_custkey"].cast("string")).write.parquet(
            str(folder / "typed")
        )
        newer = engine.read.parquet(str(folder / "typed"))
        newer.createOrReplaceTempView("newer")
        statement = (
            f"MERGE INTO delta.`{folder / 'bare'}` t USING newer s ON t.o_orderkey = s.o_orderkey "
            "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
        )
        bare_rows = newer.count()
        bare_seconds = seconds(lambda: engine.sql(statement).collect())
        line("bare MERGE of typed rows", case, bare_rows / bare_seconds, bare_rows / bare_seconds)
        ours = seconds(lambda: apply_changes(events, lake, query=f"{time.monotonic()}"))
        line("messages to table", case, count / ours, bare_rows / bare_seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _parse_entries(data: bytes) -> list[dict[str, Any]]:
    """Return the columns in a packet of Canal."""
    return [
        loads(column, COLUMN, "$")
        for entry in entries_of(data)
        for row in loads(loads(entry, ENTRY, "$")["storeValue"], ROW_CHANGE, "$")["rowDatas"]
        for columns in loads(row, ROW_DATA, "$").values()
        for column in columns
    ]


def _parse_data(data: bytes) -> list[dict[str, Any]]:
    """Return the columns in a message of postgres-decoderbufs."""
    row = loads(data, ROW, "$")
    return [loads(datum, DATUM, "$") for datum in row.get("new_tuple", row.get("old_tuple", ()))]


def _parse(name: str) -> Callable[[bytes], object]:
    """Return the bare parse of a format's bytes: no types, no events."""
    if name == "pgoutput":
        return _pgoutput_fields
    if name == "canal-protobuf":
        return _parse_entries
    if name == "decoderbufs":
        return _parse_data
    if name != "dts-avro":
        parse = msgspec.json.Decoder().decode
        # the value of one event of TiCDC's open protocol is behind its length
        return (lambda data: parse(data[8:])) if name == "ticdc-open-json" else parse
    schema = fastavro.parse_schema(SCHEMA_V2)
    return lambda data: fastavro.schemaless_reader(io.BytesIO(data), schema, schema)


def _pgoutput_fields(data: bytes) -> list[object]:
    """The fields of the messages of one row: begin, types, relation, row; values as bytes."""
    cursor, fields = wire.Cursor(data), []
    while cursor.at < len(data):
        match cursor.byte():
            case wire.BEGIN:
                fields.append(cursor.fields(wire.BEGIN_BODY))
            case wire.RELATION:
                fields.append(cursor.relation())
            case wire.TYPE:
                fields.append((cursor.integer(wire.UINT32), cursor.text(), cursor.text()))
            case wire.INSERT | wire.UPDATE | wire.DELETE as kind:
                fields.append((cursor.integer(wire.UINT32), cursor.byte(), cursor.cells()))
                if kind == wire.UPDATE and cursor.at < len(data):
                    fields.append((cursor.byte(), cursor.cells()))
    return fields


_DECLARED: dict[str, Any] = {"schemas": {"orders": ORDERS_TYPES}}
_VARIANTS: tuple[tuple[str, dict[str, Any], dict[str, Any]], ...] = (
    *((name, {}, {}) for name in names.FORMATS),
    *(
        (name, {}, _DECLARED)
        for name in (
            *("aws-dms-json", "changelog-json", "cockroachdb-json", "datastream-json"),
            *("dynamodb-json", "plain-json", "qlik-json"),
        )
    ),
    ("shareplex-json", {"dialect": "native"}, {}),
    ("debezium-json", {"cloud_events": "structured"}, {}),
)
"""Formats, with options of the writer, and further ones of the reader."""


def formats() -> None:
    """Per core: orders in each format against the bare parse: decode, read in lanes, rows, encode.

    *reading* is the part of a lane up to the images, which decoding is to the other path.
    """
    case = CASES[0]
    reader = get_codec("debezium-json", **options(case))
    events = [event for message in messages_of(case, 4000) for event in reader.decode(message)]
    for name, written_options, read_options in _VARIANTS:
        writer = get_codec(name, **written_options)
        try:
            written = [writer.encode(event, on_loss="ignore").messages for event in events]
        except EncodeError as error:
            print(f"{name:<20} {error}", flush=True)
            continue
        placed = [
            Message(one.value, one.key, one.headers, "orders", 0, offset)
            for offset, one in enumerate(each for messages in written for each in messages)
        ]
        base = rate(_parse(name), [message.value for message in placed])
        size = sum(len(message.value or b"") for message in placed) // len(placed)
        codec_options = written_options | read_options
        builder = row_builder(name, codec_options)
        rates = {
            "decode": rate(get_codec(name, **codec_options).decode, placed),
            "reading": _reading_rate(get_codec(name, **codec_options), placed),
            "event rows of events": rate(
                RowBuilder(get_codec(name, **codec_options), lanes=False).rows, placed
            ),
            "in lanes": rate(builder.rows, placed),
            "encode": rate(lambda event, to=writer: to.encode(event, on_loss="warn"), events),
        }
        shown = "   ".join(
            f"{what} {each:>8,.0f}/s {base / each:5.1f} x" for what, each in rates.items() if each
        )
        label = name + (" typed" if read_options else "") + "".join(written_options.values())
        share = plain_share(builder, placed)
        print(f"{label:<20} {size:>5} B   parse {base:>9,.0f}/s   {shown}   {share}", flush=True)


def _reading_rate(codec: Codec, records: list[Message]) -> float | None:
    """Return the plain messages that a lane reads a second; ``None`` if there is no lane."""
    if codec.lanes is None:
        return None
    lane: Any = None
    for message in records[:100]:
        change = codec.decode(message)[0]
        with suppress(Exception):  # the lane of another message is opened
            if isinstance(change, DataChange):
                lane = codec.lanes.open(message, change)
    if lane is None:
        return None
    columns = [column.column.name for column in lane.columns]
    row = dict if lane.is_named else row_class(columns, [column.json for column in lane.columns])
    read, plain = lane.reader(row), []
    for message in records:
        with suppress(Exception):  # few messages are not plain
            if read(message.value, message.key) is not None:
                plain.append((message.value, message.key))

    def read_all(pairs: list[tuple[bytes | None, bytes | None]]) -> None:
        for value, key in pairs:
            read(value, key)  # frees the images at once, as the parse does

    return len(plain) * rate(read_all, [plain])


PARTS: dict[str, Callable[[], None]] = {
    "formats": formats,
    "decode": decode,
    "convert": convert,
    "rows": rows,
    "spark": spark,
    "apply": apply,
}


def main(argv: Iterable[str] | None = None) -> int:
    """Run the named parts, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[])
    for name in parser.parse_args(None if argv is None else list(argv)).parts or PARTS:
        doc = PARTS[name].__doc__ or ""
        print(f"\n{name}: {doc}", flush=True)
        PARTS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main())
