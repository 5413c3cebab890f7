# SPDX-License-Identifier: Apache-2.0
"""What a batch of event rows holds, in numbers: the driver never sees the rows."""

from collections.abc import Collection, Iterable
from copy import copy
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from changelane.pipeline.kafka_offsets import Lag, total_lag
from changelane.position import BY_PARTITION, LsnPosition, PostgresPosition, ScnPosition
from changelane.spark.rows.schema import REJECTED, DdlText, RowSchema

APPLIED_BEFORE: Final = "applied before"
"""The note of a table that held the batch already."""
FEW_KEYS: Final = 1_000_000
"""So many keys may pass the driver, which sends them to all executors: some 100 MB."""
TRANSACTIONAL: Final = {PostgresPosition.code, ScnPosition.code, LsnPosition.code}

INTERVAL_SEPARATOR: Final = "@"
"""What parts an event's schema from the number of a span of names in its batch, if it has one."""
_COUNT_FIELDS: Final = (
    "events",
    "out_of_order",
    "conflicts",
    "applied_before",
    "repeats",
    "possible_duplicates",
)
_STATEMENT_COORDINATES: Final = ("topic", "partition", "offset", "row_index")
"""Where a statement stands among the messages: what parts those of one place in the log."""


class TableReport(msgspec.Struct):
    """What a batch did to one table.

    Attributes:
        table: Its name at the source.
        path: Where it lies.
        events: How many events it took.
        note: What is to be said.
        failed: Its ``table_id`` when it could not take them, for the reason in *note*.
        out_of_order: How many of them came behind newer ones that it had taken in batches before.
        conflicts: For how many keys and positions there were two whole rows that differ.
        applied_before: Events of the batch that the table held already, from an earlier run.
        warning: What is to be said of the table once, when it came to be so.
        repeats: Where rows are only added: how many events came again, and added none.
        possible_duplicates: How many that added one equal another but for their message, so that
            nothing tells whether their producer told one row twice, or two rows.
    """

    table: str
    path: str
    events: int = 0
    note: str = ""
    failed: str | None = None
    out_of_order: int = 0
    conflicts: int = 0
    applied_before: int = 0
    warning: str = ""
    repeats: int = 0
    possible_duplicates: int = 0

    @property
    def is_applied(self) -> bool:
        """Whether the table took its events now, but for some of them that were quarantined."""
        return bool(self.path) and self.failed is None and self.note != APPLIED_BEFORE


class BatchReport(msgspec.Struct):
    """What a batch did.

    Attributes:
        batch: Its number.
        events: Events for tables.
        other: Events that tell of no row.
        statements: Statements about the shape of tables.
        shadows: Events of the tables that online schema changes work with, which were skipped.
        quarantined: What was quarantined, by reason code.
        tables: What tables took.
        skipped: How many of them held the batch before.
        logged: How many tables have rows of it in the change log.
        conflicts: Of plain rows, for how many keys and sequences there were rows that differ.
        files: The files that it read.
        messages: How many messages it took, by their offsets, where the source is of topics.
        lag: How many messages the topics held behind it.
        seconds: How long it took.
        is_merge: Tables took what waited for them in the change log, and nothing was read.
        unread: Messages that could not be read.
        finished_before: Batches that an earlier run had brought to their end, so that none of
            their messages was read.
    """

    batch: int
    events: int = 0
    other: int = 0
    statements: int = 0
    shadows: int = 0
    quarantined: dict[str, int] = {}
    tables: list[TableReport] = []
    skipped: int = 0
    logged: int = 0
    conflicts: int = 0
    files: list[str] = []
    messages: int | None = None
    lag: Lag | None = None
    seconds: float = 0.0
    is_merge: bool = False
    unread: int = 0
    finished_before: int = 0

    @property
    def behind(self) -> int | None:
        """How many messages its source held behind it, where that is known."""
        return total_lag(self.lag)

    @property
    def total(self) -> int:
        """How many events there were, a message that could not be read being one."""
        return self.events + self.other + self.statements + self.shadows + self.unread

    @property
    def failed(self) -> dict[str, str]:
        """Why tables could not take their events, by ``table_id``."""
        return {table.failed: table.note for table in self.tables if table.failed is not None}

    def joined(self, later: "BatchReport") -> "BatchReport":
        """Return what this batch and a later one did together."""
        tables = {table.table: table for table in self.tables}
        for table in later.tables:
            if (before := tables.get(table.table)) is not None:
                sums = {
                    name: getattr(before, name) + getattr(table, name) for name in _COUNT_FIELDS
                }
                said = {"warning": before.warning or table.warning}
                table = msgspec.structs.replace(table, **sums, **said)  # noqa: PLW2901
            tables[table.table] = table
        codes = {**self.quarantined}
        for code, count in later.quarantined.items():
            codes[code] = codes.get(code, 0) + count
        return BatchReport(
            batch=later.batch,
            events=self.events + later.events,
            other=self.other + later.other,
            statements=self.statements + later.statements,
            shadows=self.shadows + later.shadows,
            quarantined=codes,
            tables=list(tables.values()),
            skipped=self.skipped + later.skipped,
            logged=later.logged,
            conflicts=self.conflicts + later.conflicts,
            messages=_sum(self.messages, later.messages),
            lag=self.lag if later.is_merge else later.lag,
            seconds=self.seconds + later.seconds,
            unread=self.unread + later.unread,
            finished_before=self.finished_before + later.finished_before,
        )

    def count_quarantined(self, code: str, count: int) -> None:
        """Count what goes to the quarantine."""
        if count:
            self.quarantined[code] = self.quarantined.get(code, 0) + count


def _sum(first: int | None, two: int | None) -> int | None:
    return two if first is None else first + (two or 0)


class TruncateGroup(NamedTuple):
    """Truncates of one server (empty = it tells none), with one kind of positions."""

    server: str
    domain: bytes
    newest: bytes
    size: int


class TableBatch:
    """What one batch holds of one table, as the driver's statistics tell.

    Attributes:
        table_id: The table; that of the lake, once its names are read.
        source_names: What its events call it.
        schemas: The schemas of its events.
        counts: How many events have each.
        newest: The newest order of each.
        oldest: The oldest order of each.
        rows: The oldest and the newest order of those that tell a row, and are no deletes, of each
            schema and kind of positions.
        keyless: Events that name no key.
        widest_key: The characters of the longest key.
        changes: Updates and deletes.
        departures: Deletes, and updates that leave a key.
        truncate_groups: Truncates, by the server that told them and the kind of their positions.
        newest_truncate: The newest truncate with the table's kind of positions, once known.
        domains: Kinds of positions, with the version of their orders (2 bytes), and how many
            events have each.
        order_ranges: The oldest and the newest order of the changes of each schema and kind of
            positions.
        time_us: The newest time of a change at its source, microseconds since 1970-01-01 UTC.
        epoch_partitions: Where orders are offsets: epochs and partitions (12 bytes).
    """

    def __init__(self, table_id: str) -> None:
        self.table_id = table_id
        self.source_names: tuple[str, ...] = (table_id,)
        self.schemas: dict[str, RowSchema] = {}
        self.counts: dict[str, int] = {}
        self.newest: dict[str, bytes] = {}
        self.oldest: dict[str, bytes] = {}
        self.rows: dict[tuple[str, bytes], tuple[bytes, bytes]] = {}
        self.has_partial_images = False
        self.has_key_changes = False
        self.departures = 0
        self.has_other_keys = False
        self.keyless = 0
        self.widest_key = 0
        self.changes = 0
        self.truncate_groups: list[TruncateGroup] = []
        self.newest_truncate = b""
        self.time_us: int | None = None
        self.domains: dict[bytes, int] = {}
        self.order_ranges: dict[tuple[str, bytes], tuple[bytes, bytes]] = {}
        self.epoch_partitions: set[bytes] = set()

    @property
    def truncates(self) -> int:
        """How many truncates there are."""
        return sum(truncate.size for truncate in self.truncate_groups)

    @property
    def newest_truncates(self) -> dict[bytes, bytes]:
        """The newest truncate of each kind of positions."""
        newest: dict[bytes, bytes] = {}
        for truncate in self.truncate_groups:
            newest[truncate.domain] = max(newest.get(truncate.domain, b""), truncate.newest)
        return newest

    @property
    def min_order(self) -> bytes:
        """The oldest order of a change; nothing when there is none."""
        return min(self.oldest.values(), default=b"")

    @property
    def count(self) -> int:
        """How many events there are."""
        return sum(self.counts.values()) + self.truncates

    @property
    def has_few_keys(self) -> bool:
        """Whether the keys of the events are few enough to be broadcast."""
        return self.count <= FEW_KEYS

    def order_range(self, kind: bytes) -> tuple[bytes, bytes]:
        """Return the oldest and the newest order of changes of one kind of positions."""
        reaches = [reach for (_, domain), reach in self.order_ranges.items() if domain == kind]
        return (
            min((oldest for oldest, _ in reaches), default=b""),
            max((newest for _, newest in reaches), default=b""),
        )

    @property
    def has_removals(self) -> bool:
        """Whether events raise what is remembered of rows that are not there."""
        return self.departures > 0 or bool(self.newest_truncate)

    @property
    def is_transactional(self) -> bool:
        """Whether positions tell which events share a transaction."""
        return any(domain[1] in TRANSACTIONAL for domain in self.domains)

    @property
    def newest_first(self) -> list[str]:
        """The schemas, that of the newest event first; those without a key come last."""
        return sorted(
            self.schemas,
            key=lambda name: (self.schemas[name].key is not None, self.newest.get(name, b""), name),
            reverse=True,
        )

    @property
    def active_schema(self) -> RowSchema:
        """The schema of the newest event; events without a key do not count beside others."""
        return self.schemas[self.newest_first[0]]

    def without_truncates(self, truncates: Collection[TruncateGroup]) -> "TableBatch":
        """Return the same without some truncates."""
        work = self.with_schemas(self.schemas)
        work.truncate_groups = [
            truncate for truncate in self.truncate_groups if truncate not in truncates
        ]
        work.domains = dict(self.domains)
        for truncate in truncates:
            work.domains[truncate.domain] -= truncate.size
        work.domains = {domain: count for domain, count in work.domains.items() if count}
        return work

    def with_schemas(self, schemas: Iterable[str]) -> "TableBatch":
        """Return the same without the events of other schemas."""
        work = copy(self)
        work.schemas = {name: self.schemas[name] for name in schemas}
        work.counts = {name: self.counts.get(name, 0) for name in work.schemas}
        work.newest = {name: self.newest.get(name, b"") for name in work.schemas}
        work.oldest = {name: self.oldest[name] for name in work.schemas if name in self.oldest}
        work.rows = {place: reach for place, reach in self.rows.items() if place[0] in work.schemas}
        work.order_ranges = {
            place: reach for place, reach in self.order_ranges.items() if place[0] in work.schemas
        }
        return work


class StatementRow(NamedTuple):
    """A ``ddl`` row: statements, their place in the log, and the table that they are told of."""

    order: bytes
    table_id: str
    ddl_text: DdlText


class BatchStats(NamedTuple):
    """What a batch holds.

    Attributes:
        table_batches: What it holds of each table.
        schemas: The schemas of its events, by id.
        statements: What it tells of the shapes of tables.
    """

    table_batches: list[TableBatch]
    schemas: dict[str, RowSchema]
    statements: list[StatementRow]


def batch_stats(events: DataFrame, report: BatchReport) -> BatchStats:
    """Return what a batch holds, by one pass; count what is of no table into the report."""
    data, order = F.col("kind") == "data", F.col("order")
    leaves = F.col("op") == "d"
    moved = F.col("other_key").isNotNull()
    domain = F.substring(order, 1, 2)
    statement_rows = (
        events.groupBy("kind", "table_id", "schema_id", "code", domain.alias("domain"))
        .agg(
            F.count(F.lit(1)).alias("count"),
            F.max(order).alias("newest"),
            F.min(F.when(data, order)).alias("oldest"),
            F.min(F.when(data & ~leaves, order)).alias("first"),
            F.max(F.when(data & ~leaves, order)).alias("last"),
            F.max(data & ~leaves & ~F.col("whole")).alias("parts"),
            F.max(data & (F.col("op") == "u") & moved).alias("moves"),
            F.count_if(data & (leaves | ((F.col("op") == "u") & moved))).alias("leaves"),
            F.count_if(data & F.col("key").isNull()).alias("keyless"),
            F.max(F.length("key")).alias("widest_key"),
            F.max(data & moved).alias("others"),
            F.count_if(data & F.col("op").isin("u", "d")).alias("changes"),
            F.unix_micros(F.max("source_time")).alias("time_us"),
            # sets also keep Spark from sorting all rows, as it does for a maximum of bytes
            F.collect_set(epoch_partition(order)).alias("places"),
        )
        .collect()
    )
    works: dict[str, TableBatch] = {}
    for row in statement_rows:
        _add_counts(row, works, report)
    is_statement = F.col("kind") == "ddl"
    rows = (
        events.where("kind IN ('schema', 'ddl')")
        .groupBy("kind", "table_id", "schema_id", "order")
        .agg(
            F.collect_set("after").alias("after"),
            F.collect_set(F.when(is_statement, F.struct(*_STATEMENT_COORDINATES, "after"))).alias(
                "told"
            ),
        )
        .collect()
    )
    schemas: dict[str, RowSchema] = {}
    statements: list[tuple[tuple[str | int, ...], StatementRow]] = []
    for row in rows:
        if row["kind"] == "ddl":
            for topic, *numbers, text in row["told"]:
                told_at = (topic or "", *(number or 0 for number in numbers), text)
                said = msgspec.json.decode(text, type=DdlText)
                table_statements = StatementRow(bytes(row["order"]), row["table_id"], said)
                statements.append((told_at, table_statements))
            continue
        schema = msgspec.json.decode(max(row["after"]), type=RowSchema)
        schemas[row["schema_id"]] = schema
        works[row["table_id"]].schemas[row["schema_id"]] = schema
    return BatchStats(
        [works[name] for name in sorted(works)], schemas, _sorted_statements(statements)
    )


def _sorted_statements(
    statements: Iterable[tuple[tuple[str | int, ...], StatementRow]],
) -> list[StatementRow]:
    """Return statements in the order in which they were told, each once."""
    sorted_statements = sorted(
        statements, key=lambda entry: (entry[1].order, entry[0], entry[1].table_id)
    )
    return list(dict.fromkeys(table_statements for _, table_statements in sorted_statements))


def _add_counts(row: Row, works: dict[str, TableBatch], report: BatchReport) -> None:
    kind, count = row["kind"], row["count"]
    if kind == "error":
        report.count_quarantined(row["code"], count)
        report.unread += count
        return
    if kind == REJECTED:
        report.count_quarantined(row["code"], count)
        report.events += count
        return
    if kind == "other":
        report.other += count
        return
    if kind == "ddl":
        report.statements += count
        return
    work = works.setdefault(row["table_id"], TableBatch(row["table_id"]))
    if kind == "schema":
        return
    report.events += count
    newest, domain = bytes(row["newest"]), bytes(row["domain"])
    work.domains[domain] = work.domains.get(domain, 0) + count
    if kind == "truncate":
        work.truncate_groups.append(TruncateGroup(row["schema_id"], domain, newest, count))
    else:
        schema = row["schema_id"]
        work.counts[schema] = work.counts.get(schema, 0) + count
        work.newest[schema] = max(work.newest.get(schema, b""), newest)
        oldest = bytes(row["oldest"])
        work.oldest[schema] = min(work.oldest.get(schema, oldest), oldest)
        work.order_ranges[schema, domain] = oldest, newest
        if row["first"] is not None:
            work.rows[schema, domain] = bytes(row["first"]), bytes(row["last"])
    work.has_partial_images |= bool(row["parts"])
    work.has_key_changes |= bool(row["moves"])
    work.departures += row["leaves"]
    work.has_other_keys |= bool(row["others"])
    if row["time_us"] is not None:
        work.time_us = max(work.time_us or row["time_us"], row["time_us"])
    work.keyless += row["keyless"]
    work.widest_key = max(work.widest_key, row["widest_key"] or 0)
    work.changes += row["changes"]
    work.epoch_partitions.update(map(bytes, row["places"]))


def event_schema_id() -> Column:
    """Return the ``schema_id`` that an event was read with, whatever its batch made of it."""
    return F.substring_index("schema_id", INTERVAL_SEPARATOR, 1)


def epoch_partition(order: Column) -> Column:
    """Return the epoch and partition of an order of offsets (12 bytes), NULL in other domains.

    Inside one place two orders can be compared, and in two epochs (docs/merge-rule.md, Orders).
    """
    tag = order.substr(F.length(order) - 8, F.lit(8))
    codes = (F.lit(bytearray([code])) for code in sorted(BY_PARTITION))
    is_offset = F.substring(order, 2, 1).isin(*codes)
    return F.when(is_offset, F.concat(F.substring(order, 3, 4), tag))


def epoch_partition_of(order: bytes) -> set[bytes]:
    """Return the same of an order in hand; nothing in other domains, and of no order."""
    if len(order) < 2 or order[1] not in BY_PARTITION:
        return set()
    return {order[2:6] + order[-9:-1]}
