# SPDX-License-Identifier: Apache-2.0
"""What a batch of event rows holds, in numbers: the driver never sees the rows."""

from typing import Any, Final

import msgspec
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from changelane.position import LsnPosition, OffsetPosition, PostgresPosition, ScnPosition
from changelane.spark.rows import RowSchema

TRANSACTIONAL: Final = {PostgresPosition.code, ScnPosition.code, LsnPosition.code}


class TableReport(msgspec.Struct):
    """What a batch did to one table."""

    table: str
    path: str
    events: int = 0
    note: str = ""


class BatchReport(msgspec.Struct):
    """What a batch did."""

    batch: int
    events: int = 0
    other: int = 0
    quarantined: dict[str, int] = {}
    tables: list[TableReport] = []
    skipped: int = 0

    def set_aside(self, code: str, count: int) -> None:
        """Count what goes to the quarantine."""
        self.quarantined[code] = self.quarantined.get(code, 0) + count


class Work:
    """What one batch holds of one table, as the driver's statistics tell."""

    def __init__(self, table_id: str) -> None:
        self.table_id = table_id
        self.count = 0
        self.schemas: dict[str, RowSchema] = {}
        self.newest: dict[str, bytes] = {}
        self.has_parts = False
        self.has_moves = False
        self.has_departures = False
        self.has_other_keys = False
        self.keyless = 0
        self.changes = 0
        self.truncated = b""
        self.domains: set[bytes] = set()

    @property
    def is_raising(self) -> bool:
        """Whether events raise what is remembered of rows that are not there."""
        return self.has_departures or bool(self.truncated)

    @property
    def is_transactional(self) -> bool:
        """Whether positions tell which events share a transaction."""
        return any(domain[1] in TRANSACTIONAL for domain in self.domains)

    @property
    def active(self) -> RowSchema:
        """The schema of the newest event; events without a key do not count beside others."""
        keyed = [name for name, schema in self.schemas.items() if schema.key is not None]
        newest = max(keyed or self.schemas, key=lambda name: (self.newest.get(name, b""), name))
        return self.schemas[newest]


def survey(events: DataFrame, report: BatchReport) -> list[Work]:
    """Return what a batch holds of each table, by one pass; count the rest into the report."""
    data, order = F.col("kind") == "data", F.col("order")
    leaves = F.col("op") == "d"
    moved = F.col("other_key").isNotNull()
    found = (
        events.groupBy("kind", "table_id", "schema_id", "code")
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.max(order).alias("newest"),
            F.max(data & ~leaves & ~F.col("whole")).alias("parts"),
            F.max(data & (F.col("op") == "u") & moved).alias("moves"),
            F.max(data & (leaves | ((F.col("op") == "u") & moved))).alias("leaves"),
            F.count_if(data & F.col("key").isNull()).alias("keyless"),
            F.max(data & moved).alias("others"),
            F.count_if(data & F.col("op").isin("u", "d")).alias("changes"),
            F.min(F.substring(order, 1, 2)).alias("domain"),
            F.max(F.substring(order, 1, 2)).alias("domain_2"),
            F.min(_tag()).alias("tag"),
            F.max(_tag()).alias("tag_2"),
        )
        .collect()
    )
    works: dict[str, Work] = {}
    for row in found:
        _count(row, works, report)
    told = (
        events.where("kind = 'schema'")
        .groupBy("table_id", "schema_id")
        .agg(F.first("after").alias("after"))
        .collect()
    )
    for row in told:
        schema = msgspec.json.decode(row["after"], type=RowSchema)
        works[row["table_id"]].schemas[row["schema_id"]] = schema
    return [works[name] for name in sorted(works)]


def _count(row: Row, works: dict[str, Work], report: BatchReport) -> None:
    kind, count = row["kind"], row["count"]
    if kind == "error":
        report.set_aside(row["code"], count)
        return
    if kind == "other":
        report.other += count
        return
    work = works.setdefault(row["table_id"], Work(row["table_id"]))
    if kind == "schema":
        return
    report.events += count
    work.count += count
    newest = bytes(row["newest"])
    if kind == "truncate":
        work.truncated = max(work.truncated, newest)
    else:
        work.newest[row["schema_id"]] = newest
    work.has_parts |= bool(row["parts"])
    work.has_moves |= bool(row["moves"])
    work.has_departures |= bool(row["leaves"])
    work.has_other_keys |= bool(row["others"])
    work.keyless += row["keyless"]
    work.changes += row["changes"]
    for domain, tag in ((row["domain"], row["tag"]), (row["domain_2"], row["tag_2"])):
        work.domains.add(bytes(domain) + bytes(tag or b""))


def _tag() -> Any:
    """Return what tells partitions apart in an order of offsets, NULL in other domains."""
    length = F.length("order")
    tag = F.substring("order", length - 8, F.lit(8))
    return F.when(F.substring("order", 2, 1) == F.lit(bytearray([OffsetPosition.code])), tag)
