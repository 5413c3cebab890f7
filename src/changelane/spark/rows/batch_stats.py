# SPDX-License-Identifier: Apache-2.0
"""Statistics of a batch of event rows, from one aggregation: the driver never sees the rows."""

from collections.abc import Collection, Iterable
from copy import copy
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from changelane.apply.transactions import TRANSACTION_BYTES
from changelane.pipeline.kafka_offsets import Lag, total_lag
from changelane.position import BY_PARTITION, OFFSET_ORDER_BYTES, domain_of
from changelane.spark.rows.schema import REJECTED, DdlText, RowSchema

APPLIED_BEFORE: Final = "applied before"
"""The note of a table that an earlier run has applied the batch to."""
FEW_KEYS: Final = 1_000_000
"""The maximum number of keys in a broadcast, which takes some 100 MB."""
_MAX_ROWS_OF_MESSAGE: Final = 20
"""Keys are collected only if no message has more rows: the number of messages limits them."""

INTERVAL_SEPARATOR: Final = "@"
"""Separates the two parts of a ``schema_id``: the schema, and the id of a name interval."""
_COUNT_FIELDS: Final = (
    "events",
    "out_of_order",
    "conflicts",
    "applied_before",
    "repeats",
    "possible_duplicates",
)
_STATEMENT_COORDINATES: Final = ("topic", "partition", "offset", "row_index")
"""The coordinates of a statement, which order statements at one position."""


class TableReport(msgspec.Struct):
    """The result of a batch in one table.

    Attributes:
        table: The table's name at the source.
        path: The path of the table.
        events: The number of events that the table applied.
        note: A note for the user, such as the reason of a failure.
        failed: The ``table_id`` of a table that could not apply the events; *note* has the reason.
        out_of_order: The number of events that were out of order: older than one of an earlier
            batch.
        conflicts: The number of keys and positions with two different full rows.
        applied_before: The number of events that an earlier run has applied.
        warning: A warning that is shown once, in the batch in which its cause begins.
        repeats: In a table that only adds rows, the number of repeated events that added none.
        possible_duplicates: The number of added rows that equal another except for their message:
            either the producer sent one row twice, or there are two equal rows.
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
        """Whether the table applied its events now, except quarantined ones."""
        return bool(self.path) and self.failed is None and self.note != APPLIED_BEFORE


class BatchReport(msgspec.Struct):
    """The report of a batch.

    Attributes:
        batch: The number of the batch.
        events: The number of events for tables.
        other: The number of events without a row.
        statements: The number of DDL statements.
        shadows: The number of skipped events of the shadow tables of online schema changes.
        quarantined: The number of quarantined entries, by reason code.
        tables: The results by table.
        skipped: The number of tables that an earlier run has applied the batch to.
        logged: The number of tables with rows of the batch in the change log.
        conflicts: Of plain rows, the number of keys and sequences with different rows.
        files: The files that the batch read.
        messages: The number of messages, by their offsets, if the source has topics.
        lag: The number of messages in the topics after the batch.
        seconds: The duration.
        is_merge: Whether the batch only merged events from the change log, and read nothing.
        unread: The number of messages that could not be decoded.
        finished_before: The number of batches that an earlier run completed, so that this run
            read none of their messages.
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
        """The number of messages in the source after the batch; ``None`` = unknown."""
        return total_lag(self.lag)

    @property
    def total(self) -> int:
        """The number of events of all kinds; an undecodable message counts as one."""
        return self.events + self.other + self.statements + self.shadows + self.unread

    @property
    def failed(self) -> dict[str, str]:
        """The reasons of the tables that could not apply their events, by ``table_id``."""
        return {table.failed: table.note for table in self.tables if table.failed is not None}

    def joined(self, later: "BatchReport") -> "BatchReport":
        """Return the report of this batch and a later one together."""
        tables = {table.table: table for table in self.tables}
        for table in later.tables:
            if (before := tables.get(table.table)) is not None:
                sums = {
                    name: getattr(before, name) + getattr(table, name) for name in _COUNT_FIELDS
                }
                warnings = {"warning": before.warning or table.warning}
                table = msgspec.structs.replace(table, **sums, **warnings)  # noqa: PLW2901
            tables[table.table] = table
        messages = [count for count in (self.messages, later.messages) if count is not None]
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
            messages=sum(messages) if messages else None,
            lag=self.lag if later.is_merge else later.lag,
            seconds=self.seconds + later.seconds,
            unread=self.unread + later.unread,
            finished_before=self.finished_before + later.finished_before,
        )

    def count_quarantined(self, code: str, count: int) -> None:
        """Add to the number of quarantined entries of a reason code."""
        if count:
            self.quarantined[code] = self.quarantined.get(code, 0) + count


class TruncateGroup(NamedTuple):
    """Truncates of one server (empty = unknown), with one kind of positions."""

    server: str
    domain: bytes
    newest: bytes
    size: int


class TableBatch:
    """The statistics of one table's events in a batch.

    Attributes:
        table_id: The table: at the source, or in the lake after the names are mapped.
        source_names: The ``table_id`` in the events.
        schemas: The schemas of the events, by id.
        counts: The number of events of each schema.
        newest: The newest order of each schema.
        oldest: The oldest order of each schema.
        rows: The oldest and the newest order of upserts, by schema and kind of positions.
        has_partial_images: Whether an upsert lacks columns.
        has_key_changes: Whether an update changes its key.
        has_other_keys: Whether an event has a second key, as key changes and their halves do.
        keyless: The number of events without a key.
        widest_key: The length of the longest key, characters.
        changes: The number of updates and deletes.
        departures: The number of deletes and key changes.
        truncate_groups: The truncates, by their server and the kind of their positions.
        newest_truncate: The newest truncate with the table's kind of positions, once known.
        domains: The number of events of each kind of positions: version and domain of their
            orders (2 bytes).
        order_ranges: The oldest and the newest order of changes, by schema and kind of positions.
        time_us: The newest source time of a change, microseconds since 1970-01-01 UTC.
        epoch_partitions: Epoch and partition of orders that are offsets (12 bytes).
        keys: The keys of the events, both keys of a key change; ``None`` = unknown, because the
            batch is not small.
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
        self.keys: frozenset[str] | None = None

    @property
    def truncates(self) -> int:
        """The number of truncates."""
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
        """The oldest order of a change; empty if there is none."""
        return min(self.oldest.values(), default=b"")

    @property
    def count(self) -> int:
        """The number of events."""
        return sum(self.counts.values()) + self.truncates

    @property
    def has_few_keys(self) -> bool:
        """Whether the keys of the events are few enough to be broadcast."""
        return self.count <= FEW_KEYS

    def order_range(self, kind: bytes) -> tuple[bytes, bytes]:
        """Return the oldest and the newest order of the changes with one kind of positions."""
        ranges = [orders for (_, domain), orders in self.order_ranges.items() if domain == kind]
        return (
            min((oldest for oldest, _ in ranges), default=b""),
            max((newest for _, newest in ranges), default=b""),
        )

    @property
    def has_removals(self) -> bool:
        """Whether events add tombstones or a truncate."""
        return self.departures > 0 or bool(self.newest_truncate)

    @property
    def is_transactional(self) -> bool:
        """Whether positions identify the events of one transaction."""
        return any(domain_of(domain) in TRANSACTION_BYTES for domain in self.domains)

    @property
    def newest_first(self) -> list[str]:
        """The ids of the schemas, by their newest events; schemas without a key last."""
        return sorted(
            self.schemas,
            key=lambda name: (self.schemas[name].key is not None, self.newest.get(name, b""), name),
            reverse=True,
        )

    @property
    def active_schema(self) -> RowSchema:
        """The schema of the newest event; one without a key only if there is no other."""
        return self.schemas[self.newest_first[0]]

    def without_truncates(self, truncates: Collection[TruncateGroup]) -> "TableBatch":
        """Return the statistics without some truncates."""
        table_batch = self.with_schemas(self.schemas)
        table_batch.truncate_groups = [
            truncate for truncate in self.truncate_groups if truncate not in truncates
        ]
        table_batch.domains = dict(self.domains)
        for truncate in truncates:
            table_batch.domains[truncate.domain] -= truncate.size
        table_batch.domains = {
            domain: count for domain, count in table_batch.domains.items() if count
        }
        return table_batch

    def with_schemas(self, schemas: Iterable[str]) -> "TableBatch":
        """Return the statistics without the events of other schemas."""
        table_batch = copy(self)
        table_batch.schemas = {name: self.schemas[name] for name in schemas}
        table_batch.counts = {name: self.counts.get(name, 0) for name in table_batch.schemas}
        table_batch.newest = {name: self.newest.get(name, b"") for name in table_batch.schemas}
        table_batch.oldest = {
            name: self.oldest[name] for name in table_batch.schemas if name in self.oldest
        }
        table_batch.rows = {
            key: orders for key, orders in self.rows.items() if key[0] in table_batch.schemas
        }
        table_batch.order_ranges = {
            key: orders
            for key, orders in self.order_ranges.items()
            if key[0] in table_batch.schemas
        }
        return table_batch


class StatementRow(NamedTuple):
    """A ``ddl`` row: DDL statements with their order and the table of their event."""

    order: bytes
    table_id: str
    ddl_text: DdlText


class BatchStats(NamedTuple):
    """The statistics of a batch.

    Attributes:
        table_batches: The statistics of each table.
        schemas: The schemas of the events, by id.
        statements: The DDL statements.
        servers: The server of each statement; empty = unknown.
    """

    table_batches: list[TableBatch]
    schemas: dict[str, RowSchema]
    statements: list[StatementRow]
    servers: dict[StatementRow, str]


def batch_stats(events: DataFrame, report: BatchReport, *, with_keys: bool = False) -> BatchStats:
    """Return the statistics of a batch, by one job; add the numbers of its events to the report.

    Args:
        events: Event rows.
        report: The report of the batch.
        with_keys: Whether to collect the keys, too: of small batches only.
    """
    data, order = F.col("kind") == "data", F.col("order")
    leaves = F.col("op") == "d"
    moved = F.col("other_key").isNotNull()
    domain = F.substring(order, 1, 2)
    statement = F.struct("order", *_STATEMENT_COORDINATES, "after")
    stats_rows = (
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
            # the sets also keep Spark from sorting all rows, as it does for a maximum of bytes
            F.collect_set(epoch_partition(order)).alias("epoch_partitions"),
            F.collect_set(F.when(F.col("kind") == "schema", F.col("after"))).alias("schemas"),
            F.collect_set(F.when(F.col("kind") == "ddl", statement)).alias("statements"),
            *(_key_aggregates() if with_keys else ()),
        )
        .collect()
    )
    table_batches: dict[str, TableBatch] = {}
    keys_by_table: dict[str, set[str]] = {}
    schemas: dict[str, RowSchema] = {}
    statements: list[tuple[tuple[str | int, ...], StatementRow]] = []
    servers: dict[StatementRow, str] = {}
    for row in stats_rows:
        _add_counts(row, table_batches, report)
        if with_keys:
            keys_by_table.setdefault(row["table_id"], set()).update(row["keys"])
        for order_bytes, topic, *numbers, text in row["statements"]:
            coordinates = (topic or "", *(number or 0 for number in numbers), text)
            ddl_text = msgspec.json.decode(text, type=DdlText)
            table_statements = StatementRow(bytes(order_bytes), row["table_id"], ddl_text)
            statements.append((coordinates, table_statements))
            servers[table_statements] = row["schema_id"]
        if row["schemas"]:
            schema = msgspec.json.decode(max(row["schemas"]), type=RowSchema)
            schemas[row["schema_id"]] = schema
            table_batches[row["table_id"]].schemas[row["schema_id"]] = schema
    if with_keys and not any(row["lacks_keys"] for row in stats_rows):
        for table_batch in table_batches.values():
            table_batch.keys = frozenset(keys_by_table[table_batch.table_id])
    return BatchStats(
        [table_batches[name] for name in sorted(table_batches)],
        schemas,
        _sorted_statements(statements),
        servers,
    )


def _key_aggregates() -> tuple[Column, Column]:
    """Return the keys of a group of event rows, and whether a message has too many rows."""
    is_first = F.coalesce(F.col("row_index") < _MAX_ROWS_OF_MESSAGE, F.lit(False))
    keys = [F.collect_set(F.when(is_first, F.col(name))) for name in ("key", "other_key")]
    return F.array_union(*keys).alias("keys"), F.max(~is_first).alias("lacks_keys")


def _sorted_statements(
    statements: Iterable[tuple[tuple[str | int, ...], StatementRow]],
) -> list[StatementRow]:
    """Return statements in their order, each once."""
    sorted_statements = sorted(
        statements, key=lambda entry: (entry[1].order, entry[0], entry[1].table_id)
    )
    return list(dict.fromkeys(table_statements for _, table_statements in sorted_statements))


def _add_counts(row: Row, table_batches: dict[str, TableBatch], report: BatchReport) -> None:
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
    table_batch = table_batches.setdefault(row["table_id"], TableBatch(row["table_id"]))
    if kind == "schema":
        return
    report.events += count
    newest, domain = bytes(row["newest"]), bytes(row["domain"])
    table_batch.domains[domain] = table_batch.domains.get(domain, 0) + count
    if kind == "truncate":
        table_batch.truncate_groups.append(TruncateGroup(row["schema_id"], domain, newest, count))
    else:
        schema = row["schema_id"]
        table_batch.counts[schema] = table_batch.counts.get(schema, 0) + count
        table_batch.newest[schema] = max(table_batch.newest.get(schema, b""), newest)
        oldest = bytes(row["oldest"])
        table_batch.oldest[schema] = min(table_batch.oldest.get(schema, oldest), oldest)
        table_batch.order_ranges[schema, domain] = oldest, newest
        if row["first"] is not None:
            table_batch.rows[schema, domain] = bytes(row["first"]), bytes(row["last"])
    table_batch.has_partial_images |= bool(row["parts"])
    table_batch.has_key_changes |= bool(row["moves"])
    table_batch.departures += row["leaves"]
    table_batch.has_other_keys |= bool(row["others"])
    if row["time_us"] is not None:
        table_batch.time_us = max(table_batch.time_us or row["time_us"], row["time_us"])
    table_batch.keyless += row["keyless"]
    table_batch.widest_key = max(table_batch.widest_key, row["widest_key"] or 0)
    table_batch.changes += row["changes"]
    table_batch.epoch_partitions.update(map(bytes, row["epoch_partitions"]))


def event_schema_id() -> Column:
    """Return the ``schema_id`` of an event without the name interval of its batch."""
    return F.substring_index("schema_id", INTERVAL_SEPARATOR, 1)


def epoch_partition(order: Column) -> Column:
    """Return the epoch and partition of an order of offsets (12 bytes), NULL in other domains.

    Two orders of offsets are comparable in one partition, and in two epochs (docs/merge-rule.md,
    Orders). The order of an inherited value begins with that of its key change.
    """
    tag = F.substring(order, OFFSET_ORDER_BYTES - 8, 8)
    codes = (F.lit(bytearray([code])) for code in sorted(BY_PARTITION))
    is_offset = F.substring(order, 2, 1).isin(*codes)
    return F.when(is_offset, F.concat(F.substring(order, 3, 4), tag))


def epoch_partition_of(order: bytes) -> set[bytes]:
    """Return :func:`epoch_partition` of a value as a set; empty for other domains or no order."""
    if len(order) < 2 or order[1] not in BY_PARTITION:
        return set()
    return {order[2:6] + order[-9:-1]}
