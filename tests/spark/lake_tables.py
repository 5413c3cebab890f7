"""Applies events to tables as a pipeline does, and reads the tables back."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from uncommitted import COMPARES_ALWAYS, compared

from changelane import get_codec
from changelane.apply import key_bytes, unpack_orders
from changelane.event import ChangeEvent
from changelane.schema import TableId
from changelane.spark import decode
from changelane.spark.apply.applier import Applier
from changelane.spark.apply.table_writer import TableWriter
from changelane.spark.apply.upsert import UpsertWriter
from changelane.spark.lake import lake as open_lake
from changelane.spark.lake.interface import Marker, name_of
from changelane.spark.rows.added_columns import additions_of
from changelane.spark.rows.batch_stats import BatchReport
from changelane.spark.rows.schema import table_id_text
from changelane.spark.runtime.jars import spark_packages
from changelane.spark.runtime.session import LAKE_SETTINGS
from changelane.spark.runtime.sql import COLUMNS, ORDER, folder_name
from changelane.testing.reference.upsert import MemoryTables

CODEC: Final = get_codec("native-json")
LAKES: Final = tuple(name for name in spark_packages() if name in LAKE_SETTINGS)
"""The table formats of the installed Spark; a lake's folder is named after its format."""


class Landed(NamedTuple):
    """The content of a table, by canonical key."""

    rows: Mapping[bytes, Mapping[str, Any]]
    unknown: Mapping[bytes, frozenset[str]]
    orders: Mapping[bytes, Mapping[str, bytes | None]]


def messages(spark: SparkSession, events: Iterable[ChangeEvent]) -> DataFrame:
    """Return events as message rows."""
    values = [(m.value,) for event in events for m in CODEC.encode(event).messages]
    return spark.createDataFrame(values, "value binary")


def apply(
    spark: SparkSession,
    lake: str,
    events: Iterable[ChangeEvent],
    *,
    batch: int = 0,
    query: str = "test",
    is_small: bool | None = None,
    is_compared: bool = COMPARES_ALWAYS,
    **options: Any,
) -> BatchReport:
    """Apply one batch of events; every other batch as a small one, unless *is_small* is given.

    With *is_compared* the tables are compared with those of the batch without a commit.
    """
    event_rows = decode(messages(spark, events), "native-json")
    marker = Marker("test", query, batch)
    is_small = bool(batch % 2) if is_small is None else is_small
    with (
        compared(spark, lake, event_rows, marker, options, is_small=is_small)
        if is_compared
        else nullcontext()
    ):
        return Applier(spark, lake, table_format=Path(lake).name, **options).apply(
            event_rows, marker, is_small=is_small
        )


def land(
    spark: SparkSession,
    lake: str,
    batches: Sequence[Sequence[ChangeEvent]],
    *,
    first: int = 0,
    is_small: bool | None = None,
) -> list[BatchReport]:
    """Apply batches one after the other; *first* is the number of the first one."""
    return [
        apply(spark, lake, batch, batch=number, is_small=is_small)
        for number, batch in enumerate(batches, start=first)
    ]


def merges_fail(patch: pytest.MonkeyPatch, sql: str, table: TableId | None = None) -> None:
    """Let a statement fail wherever a table takes its rows, or one of them."""
    merge, append = UpsertWriter.merge, TableWriter._append

    def fail(rows: Any, one: Any) -> None:
        if table is None or one.table_batch.table_id == table_id_text(table):
            rows.sparkSession.sql(sql).collect()

    def merged(self: Any, begin: Any, rows: Any, one: Any, *rest: Any, **options: Any) -> None:
        fail(rows, one)
        merge(self, begin, rows, one, *rest, **options)

    def appended(self: Any, writing: Any, rows: Any, made: Any) -> None:
        fail(rows, writing.plan)
        append(self, writing, rows, made)

    patch.setattr(UpsertWriter, "merge", merged)
    patch.setattr(TableWriter, "_append", appended)


def path(lake: str, table: TableId) -> str:
    return f"{lake}/tables/{folder_name(table.database, table.schema, table.name)}"


def table_of(spark: SparkSession, lake: str, table: TableId | str) -> DataFrame:
    """Return a table of a lake; a text is the name of one of changelane's own tables."""
    if isinstance(table, str):
        name = table
    else:
        name = f"tables/{folder_name(table.database, table.schema, table.name)}"
    return open_lake(spark, lake, Path(lake).name).read(name)


def python(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytearray) else value


def read(
    spark: SparkSession,
    lake: str,
    table: TableId,
    keys: Sequence[str],
    convert: Mapping[str, Callable[[Any], Any]] | None = None,
) -> Landed:
    """Read a table with its state columns.

    *convert* maps the values of columns to the oracle's, where Spark has another type.
    """
    rows, unknown, orders = {}, {}, {}
    tables = open_lake(spark, lake, Path(lake).name)
    added = additions_of(tables.properties(name_of(table_id_text(table))))
    frame = table_of(spark, lake, table)
    columns = [name for name in frame.columns if name not in {ORDER, COLUMNS}]
    stored = frame.select(*(F.col(f"`{name}`") for name in [*columns, ORDER, COLUMNS])).collect()
    for one in stored:
        row = {name: python(one[index]) for index, name in enumerate(columns)}
        for name, make in (convert or {}).items():
            row[name] = make(row[name])
        key = key_bytes({name: row[name] for name in keys})
        assert key not in rows, f"two rows of the key {key!r}"
        exceptions = {name: bytes(order) for name, order in (one[COLUMNS] or {}).items()}
        rows[key], orders[key] = row, unpack_orders(bytes(one[ORDER]), exceptions, columns, added)
        if lacking := frozenset(name for name, order in orders[key].items() if not order):
            unknown[key] = lacking
    return Landed(rows, unknown, orders)


def remembered(tables: MemoryTables, table: TableId) -> Landed:
    """Return the content that the oracle expects of a table."""
    rows = tables.keyed(table)
    states, added = tables.states(table), tables.additions(table)
    orders = {
        key: {name: states[key].cell(name, added).order or None for name in row}
        for key, row in rows.items()
    }
    return Landed(rows, tables.incomplete(table), orders)


def oracle(batches: Iterable[Sequence[ChangeEvent]], **options: Any) -> MemoryTables:
    tables = MemoryTables(**options)
    for batch in batches:
        tables.apply(batch)
    return tables
