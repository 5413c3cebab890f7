# SPDX-License-Identifier: Apache-2.0
"""Rows of Avro files that fastavro wrote, and files that are damaged or hostile."""

import datetime as dt
import io
import json
import uuid
import zlib
from decimal import Decimal
from typing import Any

import fastavro
import pytest
from data_file_rows import changes, opened, types

from changelane.data_files import avro
from changelane.errors import DecodeError
from changelane.pipeline.row_options import RowOptions

ORDERS = RowOptions(table="orders", keys={"orders": ["id"]})
UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")
NOON = dt.datetime(2024, 2, 29, 12, 0, 0, 123_456)

FIELDS: list[tuple[str, Any, Any, str, Any]] = [
    ("boolean", "boolean", True, "boolean", True),
    ("int", "int", -(2**31), "int32", -(2**31)),
    ("long", "long", 2**63 - 1, "int64", 2**63 - 1),
    ("float", "float", 0.1, "float32", 0.1),
    ("double", "double", 1e300, "float64", 1e300),
    ("bytes", "bytes", b"\x00\xff", "bytes", b"\x00\xff"),
    ("string", "string", "ü\0", "string", "ü\0"),
    ("null", "null", None, "unknown", None),
    ("optional", ["null", "string"], None, "string", None),
    ("default", ["string", "null"], "x", "string", "x"),
    ("single", ["long"], 7, "int64", 7),
    ("choice", ["null", "string", "long"], 2**60, "unknown", 2**60),
    ("fixed", {"type": "fixed", "name": "F", "size": 2}, b"ab", "bytes", b"ab"),
    ("again", "F", b"cd", "bytes", b"cd"),
    ("enum", {"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "enum('A','B')", "B"),
    ("array", {"type": "array", "items": ["null", "int"]}, [1, None], "array<int32>", [1, None]),
    ("map", {"type": "map", "values": "double"}, {"k": 1.5}, "map<string,float64>", [("k", 1.5)]),
    (
        "record",
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": ["null", "E"]}]},
        {"a": "A"},
        "record<'a' enum('A','B')>",
        {"a": "A"},
    ),
    (
        "decimal",
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 10},
        Decimal("-0.0000000001"),
        "decimal(38,10)",
        Decimal("-1E-10"),
    ),
    (
        "fixed decimal",
        {
            "type": "fixed",
            "name": "D",
            "size": 8,
            "logicalType": "decimal",
            "precision": 9,
            "scale": 2,
        },
        Decimal("1.20"),
        "decimal(9,2)",
        Decimal("1.20"),
    ),
    ("date", {"type": "int", "logicalType": "date"}, NOON.date(), "date", NOON.date()),
    (
        "time",
        {"type": "int", "logicalType": "time-millis"},
        dt.time(1, 2, 3),
        "time(3)",
        "01:02:03.000",
    ),
    (
        "time us",
        {"type": "long", "logicalType": "time-micros"},
        dt.time(1, 2, 3, 4),
        "time(6)",
        "01:02:03.000004",
    ),
    (
        "instant",
        {"type": "long", "logicalType": "timestamp-micros"},
        NOON.replace(tzinfo=dt.UTC),
        "instant(6)",
        NOON.replace(tzinfo=dt.UTC),
    ),
    (
        "local",
        {"type": "long", "logicalType": "local-timestamp-micros"},
        NOON,
        "timestamp(6)",
        NOON,
    ),
    (
        "nanos",
        {"type": "long", "logicalType": "timestamp-nanos"},
        1,
        "instant(9)",
        "1970-01-01T00:00:00.000000001Z",
    ),
    ("uuid", {"type": "string", "logicalType": "uuid"}, UUID, "uuid", str(UUID)),
    ("unknown", {"type": "string", "logicalType": "varchar"}, "x", "string", "x"),
    (
        "no decimal",
        {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 3},
        b"\x01",
        "bytes",
        b"\x01",
    ),
]
SIMPLE = {"type": "record", "name": "r", "fields": [{"name": "id", "type": "long"}]}


def written(schema: Any, records: list[Any], codec: str = "null", **options: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.writer(stream, schema, records, codec=codec, **options)
    return stream.getvalue()


def valid_name(name: str) -> str:
    return name.replace(" ", "_")


def test_a_row_has_the_types_and_values_of_the_file() -> None:
    fields = [{"name": valid_name(name), "type": kind} for name, kind, *_ in FIELDS]
    fields = [field for field in fields if field["name"] != "no_decimal"]  # fastavro refuses it
    record = {valid_name(name): value for name, _, value, *_ in FIELDS}
    data = written(
        {"type": "record", "name": "r", "namespace": "n", "fields": fields}, [record] * 2
    )
    rows = changes(data, "x.avro", RowOptions(table="t"))
    names = {field["name"] for field in fields}
    assert types(rows[0]) == {
        valid_name(n): kind for n, _, _, kind, _ in FIELDS if valid_name(n) in names
    }
    expected = {valid_name(n): value for n, *_, value in FIELDS if valid_name(n) in names}
    assert [row.after for row in rows] == [expected] * 2


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_blocks_of_each_codec(codec: str) -> None:
    data = written(SIMPLE, [{"id": n} for n in range(10_000)], codec, sync_interval=1_000)
    rows = changes(data, "x.avro", ORDERS)
    assert [row.after for row in rows] == [{"id": n} for n in range(10_000)]


def container(codec: str, block: bytes, count: int) -> bytes:
    """Return a file with one block, for codecs that fastavro has not here."""
    data = bytearray(written(SIMPLE, []).replace(b"avro.codec\x08null", avro_text(codec)))
    sync = data[-16:]
    return bytes(data + long(count) + long(len(block)) + block + sync)


def avro_text(codec: str) -> bytes:
    return b"avro.codec" + long(len(codec)) + codec.encode()


def long(number: int) -> bytes:
    out, number = b"", number << 1
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def test_snappy_and_zstandard_are_read_and_checksums_verified() -> None:
    import pyarrow as pa
    import zstandard

    content = long(5) + long(7)
    snappy = pa.Codec("snappy").compress(content, asbytes=True)
    block = snappy + zlib.crc32(content).to_bytes(4, "big")
    for codec, data in (("snappy", block), ("zstandard", zstandard.compress(content))):
        rows = changes(container(codec, data, 2), "x.avro", ORDERS)
        assert [row.after for row in rows] == [{"id": 5}, {"id": 7}]
    with pytest.raises(DecodeError, match="damaged snappy"):
        opened(container("snappy", snappy + b"abcd", 2), "x.avro", ORDERS).check()


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz"])
def test_a_file_that_is_cut_or_changed_is_malformed(codec: str) -> None:
    data = written(SIMPLE, [{"id": n * n} for n in range(3_000)], codec, sync_interval=500)
    for cut in [*range(0, 200, 7), len(data) - 1, len(data) - 17, len(data) - 40]:
        if codec == "null" and data[:cut].endswith(data[-16:]):
            continue
        with pytest.raises(DecodeError) as error:
            opened(data[:cut], "x.avro", ORDERS).check()
        assert error.value.code == "malformed_file"
    changed = bytearray(data)
    changed[-30] ^= 0xFF
    with pytest.raises(DecodeError):
        opened(bytes(changed[:-1]), "x.avro", ORDERS).check()


def test_records_that_do_not_fill_their_block_are_malformed() -> None:
    content = long(5) + long(7)
    for block, count, reason in (
        (content, 1, "bytes follow"),
        (content[:1], 2, "fewer bytes"),
        (b"\xff" * 12, 1, "does not fit"),
    ):
        with pytest.raises(DecodeError, match=reason):
            opened(container("null", block, count), "x.avro", ORDERS).check()


def test_a_block_that_expands_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = container("deflate", zlib.compress(bytes(300_000), wbits=-15), 300_000)
    opened(bomb, "x.avro", ORDERS).check()
    monkeypatch.setattr(avro, "FREE_EXPANSION", 100_000)
    monkeypatch.setattr(avro, "MAX_EXPANSION", 100)
    with pytest.raises(DecodeError) as error:
        opened(bomb, "x.avro", ORDERS).check()
    assert error.value.code == "expansion"
    monkeypatch.setattr(avro, "FREE_EXPANSION", 1_000_000)
    monkeypatch.setattr(avro, "MAX_BLOCK_BYTES", 100_000)
    with pytest.raises(DecodeError) as error:
        opened(bomb, "x.avro", ORDERS).check()
    assert error.value.code == "expansion"


RECURSIVE = {"type": "record", "name": "r", "fields": [{"name": "next", "type": ["null", "r"]}]}


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ('"long"', "not a record"),
        ("[", "not JSON"),
        ('{"type":"record","name":"r"}', "not an Avro schema"),
        ('{"type":"record","name":"r","fields":[]}', "no columns"),
        (json.dumps(SIMPLE).replace("long", "missing"), "does not define"),
        (json.dumps(RECURSIVE), "does not define|contains itself"),
        (
            '{"type":"record","name":"r","fields":[{"name":"id","type":["bytes","string"]}]}',
            "look alike",
        ),
        (
            '{"type":"record","name":"r","fields":[{"name":"a","type":"int"},{"name":"a","type":"int"}]}',
            "one name",
        ),
    ],
)
def test_a_schema_that_makes_no_table_is_refused(schema: str, reason: str) -> None:
    header = b"Obj\x01" + long(1) + long(11) + b"avro.schema" + long(len(schema)) + schema.encode()
    with pytest.raises(DecodeError, match=reason):
        opened(header + b"\0" + b"s" * 16, "x.avro", RowOptions(table="t"))
