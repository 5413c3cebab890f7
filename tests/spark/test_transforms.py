# SPDX-License-Identifier: Apache-2.0
"""Transforms inside a pipeline: tables take what they make, and follow the statements they make."""

import base64
import hmac
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import lake_tables
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from changelane.pipeline.config import load
from changelane.schema import TableId
from changelane.spark.run.tables import RunReport, run

SECRET: Final = "a secret of the tests"
SSN: Final = "123-45-6789"
TEXT: Final = """
name: shop
source: {type: files, path: input, format: native-json, line_format: value}
transforms:
  - {type: exclude, tables: [shop.audit], operations: [delete]}
  - {type: route, pattern: 'shop\\.orders_(\\d+)', table: orders, shards: key}
  - {type: route, pattern: 'shop\\.sales', table: audit}
  - {type: rename, tables: [shop.customers], columns: {nr: id, note: remark}}
  - {type: mask, tables: [shop.customers], columns: [ssn], method: hash, secret: '${MASK_SECRET}'}
  - {type: cast, tables: [shop.orders], columns: {total: 'decimal(10,2)'}}
sink: {type: delta, path: delta}
"""
CUSTOMER: Final = {"nr": "int64", "note": "string", "ssn": "string"}
ORDER: Final = {"id": "int64", "total": "string"}


class Lines:
    """Writes messages in the order of a MySQL log."""

    def __init__(self) -> None:
        self.position = 0

    def line(self, op: str, table: str, **fields: Any) -> bytes:
        self.position += 10
        told = {
            "op": op,
            "table": {"database": "shop", "name": table},
            "position": {"domain": "mysql", "file": "binlog.000001", "pos": self.position},
            "source": {"product": "mysql", "server": "shop"},
        }
        return json.dumps(told | fields).encode() + b"\n"

    def row(self, op: str, table: str, row: dict[str, Any], **types: str) -> bytes:
        columns = [{"name": name, "type": kind} for name, kind in types.items()]
        image = {"before": row} if op == "d" else {"after": row}
        return self.line(op, table, key=[next(iter(types))], schema=columns, **image)

    def ddl(self, table: str, text: str) -> bytes:
        return self.line("schema", table, type="alter", text=text)


def first(lines: Lines) -> Iterator[bytes]:
    for shard in ("orders_1", "orders_2"):
        yield lines.row("c", shard, {"id": 1, "total": "9.5"}, **ORDER)
    yield lines.row("d", "orders_2", {"id": 1, "total": "9.5"}, **ORDER)
    yield lines.row("c", "orders_1", {"id": 2, "total": "nine"}, **ORDER)
    yield lines.line("truncate", "orders_2")
    for nr in (1, 2):
        yield lines.row("c", "customers", {"nr": nr, "note": "a", "ssn": SSN}, **CUSTOMER)
    yield lines.row("c", "customers", {"nr": 3, "note": "a", "ssn": SSN}, **CUSTOMER)[:-3] + b"\n"
    yield lines.row("c", "sales", {"id": 2}, id="int64")
    yield lines.row("c", "audit", {"id": 1}, id="int64")
    yield lines.row("d", "audit", {"id": 1}, id="int64")


def second(lines: Lines) -> Iterator[bytes]:
    yield lines.ddl(
        "customers",
        f"ALTER TABLE customers ADD COLUMN mail VARCHAR(99) DEFAULT 'x', MODIFY ssn CHAR(11) "
        f"DEFAULT '{SSN}', RENAME COLUMN note TO memo",
    )
    columns = {"nr": "int64", "memo": "string", "ssn": "string", "mail": "string"}
    row = {"nr": 2, "memo": "b", "ssn": None, "mail": "m"}
    yield lines.row("u", "customers", row, **columns)
    renamed = {"nr": "int64", "memo": "string", "social": "string", "mail": "string"}
    yield lines.row("u", "customers", {"nr": 1, "memo": "b", "social": SSN, "mail": "m"}, **renamed)
    yield lines.ddl("customers", "ALTER TABLE customers RENAME COLUMN ssn TO social")


def landed_by(spark: SparkSession, tmp_path: Path, name: str, lines: Iterator[bytes]) -> RunReport:
    (tmp_path / "input").mkdir(exist_ok=True)
    (tmp_path / "input" / f"{name}.jsonl").write_bytes(b"".join(lines))
    (tmp_path / "pipeline.yaml").write_text(TEXT)
    pipeline = load(tmp_path / "pipeline.yaml", {"MASK_SECRET": SECRET})
    return run(spark, pipeline)


def rows(spark: SparkSession, tmp_path: Path, name: str) -> list[dict[str, Any]]:
    table = lake_tables.table_of(spark, str(tmp_path / "delta"), TableId("shop", None, name))
    shown = table.drop(*(one for one in table.columns if one.startswith("_")))
    return [row.asDict() for row in shown.orderBy("id").collect()]


def test_tables_take_what_transforms_make_of_rows_and_statements(
    spark: SparkSession, tmp_path: Path
) -> None:
    lines = Lines()
    one = landed_by(spark, tmp_path, "a", first(lines))
    assert one.quarantined == {
        "cast": 1,
        "shard_statement": 1,
        "incomplete_message": 1,
        "source_conflict": 1,
    }
    orders = rows(spark, tmp_path, "orders")
    assert [(str(row["total"]), row["shard"]) for row in orders] == [("9.50", "shop.orders_1")]
    assert rows(spark, tmp_path, "audit") == [{"id": 1}]

    two = landed_by(spark, tmp_path, "b", second(lines))
    assert two.quarantined == {"mask_missing": 1, "untranslated_statement": 1}
    customers = rows(spark, tmp_path, "customers")
    token = hmac.digest(SECRET.encode(), SSN.encode(), "sha256").hex()
    assert customers == [
        {"id": 1, "memo": "a", "ssn": token, "mail": "x"},
        {"id": 2, "memo": "b", "ssn": None, "mail": "m"},
    ]
    check_files(spark, tmp_path / "delta")


def check_files(spark: SparkSession, lake: Path) -> None:
    """No file holds a masked value or the secret; what was quarantined is there as a hash."""
    aside = lake_tables.table_of(spark, str(lake), "_changelane/quarantine")
    masked = aside.where(F.col("code").isin("incomplete_message", "mask_missing", "cast"))
    kept = [bytes(row["raw_value"]) for row in masked.collect()]
    assert len(kept) == 3
    assert all(one.startswith(b"hmac-sha256:") for one in kept)
    tables = 0
    for path in (path for path in lake.rglob("*") if path.is_file()):
        data = path.read_bytes()
        if path.suffix == ".parquet":
            told = spark.read.parquet(str(path))
            data = "\n".join(told.select(F.to_json(F.struct("*"))).toPandas().iloc[:, 0]).encode()
            tables += 1
        for secret in (SSN.encode(), base64.b64encode(SSN.encode()), SECRET.encode()):
            assert secret not in data, path
    assert tables > 3
