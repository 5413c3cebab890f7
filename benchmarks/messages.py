# SPDX-License-Identifier: Apache-2.0
"""Debezium messages of two tables: TPC-H orders (9 columns), and one of 60 columns."""

import base64
import random
from collections.abc import Iterator
from typing import Any

import msgspec

Columns = list[tuple[str, dict[str, Any]]]

DECIMAL = {
    "type": "bytes",
    "name": "org.apache.kafka.connect.data.Decimal",
    "version": 1,
    "parameters": {"scale": "2", "connect.decimal.precision": "15"},
}
DATE = {"type": "int32", "name": "io.debezium.time.Date", "version": 1}
TIMESTAMP = {"type": "int64", "name": "io.debezium.time.MicroTimestamp", "version": 1}

ORDERS: Columns = [
    ("o_orderkey", {"type": "int64", "optional": False}),
    ("o_custkey", {"type": "int64", "optional": True}),
    ("o_orderstatus", {"type": "string", "optional": True}),
    ("o_totalprice", {**DECIMAL, "optional": True}),
    ("o_orderdate", {**DATE, "optional": True}),
    ("o_orderpriority", {"type": "string", "optional": True}),
    ("o_clerk", {"type": "string", "optional": True}),
    ("o_shippriority", {"type": "int32", "optional": True}),
    ("o_comment", {"type": "string", "optional": True}),
]
ORDERS_TYPES = {
    "o_orderkey": "int64",
    "o_custkey": "int64",
    "o_orderstatus": "string",
    "o_totalprice": "decimal(15,2)",
    "o_orderdate": "date",
    "o_orderpriority": "string",
    "o_clerk": "string",
    "o_shippriority": "int32",
    "o_comment": "string",
}
_KINDS: list[dict[str, Any]] = [
    {"type": "int64", "optional": True},
    {"type": "string", "optional": True},
    {**DECIMAL, "optional": True},
    {**TIMESTAMP, "optional": True},
    {"type": "double", "optional": True},
    {"type": "boolean", "optional": True},
]
WIDE: Columns = [
    ("id", {"type": "int64", "optional": False}),
    *((f"column_{index:02}", _KINDS[index % len(_KINDS)]) for index in range(1, 60)),
]
_SOURCE: Columns = [
    ("version", {"type": "string", "optional": False}),
    ("connector", {"type": "string", "optional": False}),
    ("name", {"type": "string", "optional": False}),
    ("ts_ms", {"type": "int64", "optional": False}),
    ("snapshot", {"type": "string", "optional": True, "default": "false"}),
    ("db", {"type": "string", "optional": False}),
    ("sequence", {"type": "string", "optional": True}),
    ("ts_us", {"type": "int64", "optional": True}),
    ("ts_ns", {"type": "int64", "optional": True}),
    ("schema", {"type": "string", "optional": False}),
    ("table", {"type": "string", "optional": False}),
    ("txId", {"type": "int64", "optional": True}),
    ("lsn", {"type": "int64", "optional": True}),
    ("xmin", {"type": "int64", "optional": True}),
]


def _struct(columns: Columns, **more: Any) -> dict[str, Any]:
    fields = [{**kind, "field": name} for name, kind in columns]
    return {"type": "struct", "fields": fields, "optional": True, **more}


def schema(columns: Columns, table: str) -> dict[str, Any]:
    """Return the schema block of a table's envelope."""
    row = _struct(columns, name=f"shop.public.{table}.Value")
    envelope: Columns = [
        ("before", row),
        ("after", row),
        ("source", _struct(_SOURCE, name="io.debezium.connector.postgresql.Source")),
        ("op", {"type": "string", "optional": False}),
        ("ts_ms", {"type": "int64", "optional": True}),
        ("ts_us", {"type": "int64", "optional": True}),
        ("ts_ns", {"type": "int64", "optional": True}),
    ]
    return _struct(envelope, name=f"shop.public.{table}.Envelope", version=2)


def _value(kind: dict[str, Any], choice: random.Random) -> Any:
    name = str(kind.get("name", "")).rpartition(".")[2]
    if name == "Decimal":
        number = choice.randrange(10**9)
        return base64.b64encode(number.to_bytes(5, "big")).decode()
    if name == "Date":
        return choice.randrange(8000, 12000)
    if name == "MicroTimestamp":
        return choice.randrange(10**15, 2 * 10**15)
    match kind["type"]:
        case "string":
            return "".join(choice.choices("abcdefghijklmnop ", k=choice.randrange(6, 14)))
        case "double":
            return choice.random() * 1000
        case "boolean":
            return choice.random() < 0.5
        case _:
            return choice.randrange(1 << 30)


def messages(
    columns: Columns, table: str, count: int, *, keys: int, with_schema: bool
) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of updates of random rows, as Debezium writes them for PostgreSQL."""
    choice = random.Random(7)  # noqa: S311 - the same messages each time
    block = msgspec.json.encode(schema(columns, table))
    name, kind = columns[0]
    key_schema = {"type": "struct", "fields": [{**kind, "field": name}], "optional": False}
    key_block = msgspec.json.encode({**key_schema, "name": f"shop.public.{table}.Key"})
    for index in range(count):
        row = {name: _value(kind, choice) for name, kind in columns}
        row[columns[0][0]] = choice.randrange(keys)
        time_ns = 1_795_248_497_484_000_000 + 1000 * index
        lsn = 1_000_000 + 100 * index
        payload = {
            "before": None,
            "after": row,
            "source": {
                "version": "3.6.1",
                "connector": "postgresql",
                "name": "shop",
                "ts_ms": time_ns // 1_000_000,
                "snapshot": "false",
                "db": "shop",
                "sequence": f'["{lsn - 50}","{lsn}"]',
                "ts_us": time_ns // 1000,
                "ts_ns": time_ns,
                "schema": "public",
                "table": table,
                "txId": 800 + index,
                "lsn": lsn,
                "xmin": None,
            },
            "op": "u",
            "ts_ms": time_ns // 1_000_000 + 250,
            "ts_us": time_ns // 1000 + 250_000,
            "ts_ns": time_ns + 250_000_000,
        }
        text = msgspec.json.encode(payload)
        key = msgspec.json.encode({columns[0][0]: row[columns[0][0]]})
        if with_schema:
            yield (
                b'{"schema":' + key_block + b',"payload":' + key + b"}",
                b'{"schema":' + block + b',"payload":' + text + b"}",
            )
        else:
            yield key, text
