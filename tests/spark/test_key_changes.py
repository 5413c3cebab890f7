"""Transactions that change keys, on lake tables (docs/merge-rule.md)."""

import datetime as dt
import decimal
import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import lake_tables
import msgspec
import pytest
import yaml
from pyspark.sql import SparkSession
from spark_settings import lakes

from changelane.event import (
    ChangeEvent,
    DataChange,
    HalfUpdate,
    Image,
    Key,
    Op,
    SchemaChange,
    Source,
    Transaction,
)
from changelane.pipeline.config import parse
from changelane.position import SequencePosition
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.apply.classify import key_changes
from changelane.spark.run.tables import run
from changelane.testing.key_change_histories import TABLE, Class, deliver, play
from changelane.types import (
    UNAVAILABLE,
    Date,
    Decimal,
    InstantType,
    Integer,
    LogicalType,
    String,
    Timestamp,
)

FOUND: Final = Path(__file__).parent / "key_changes"
"""Inputs that lost a row or kept one, and the rows that their sources had in the end."""
TABLES: Final = {
    "late-event-inside-away-and-back": TableId("shop", None, "a"),
    "swap-cut-by-a-batch": TableId("shop", None, "a"),
    "swap-in-the-first-transaction": TableId("shop", "public", "full"),
}
HISTORIES: Final = 40
BATCHES: Final = 3


@pytest.mark.parametrize("lake", lakes("delta"))
def test_inputs_that_lost_or_kept_a_row_end_as_at_their_source(
    spark: SparkSession, tmp_path: Path, lake: str
) -> None:
    for name, table in TABLES.items():
        folder = tmp_path / name
        shutil.copytree(FOUND / name, folder)
        told: Any = yaml.safe_load((folder / "pipeline.yaml").read_text())
        told["source"]["path"] = str(folder / "in")
        told["sink"] = {"type": lake, "path": str(folder / lake)}
        run(spark, parse(told))
        rows = lake_tables.table_of(spark, f"{folder}/{lake}", table)
        expected = json.loads((folder / "expected.json").read_text())
        got = [row.asDict() for row in rows.select(*expected[0]).orderBy("id").collect()]
        assert got == expected, name


def shifted(event: ChangeEvent, shift: int) -> ChangeEvent:
    """Return an event of other keys, in a transaction of its own."""

    def image(told: Image | None) -> Image | None:
        return None if told is None else {**told, "id": told["id"] + shift}

    if isinstance(event, HalfUpdate):
        return HalfUpdate(shifted(event.change, shift), image(event.other_key))
    assert isinstance(event, DataChange)
    within = event.transaction and Transaction(f"{event.transaction.id} of {shift}")
    return msgspec.structs.replace(
        event, before=image(event.before), after=image(event.after), transaction=within
    )


@pytest.mark.parametrize("keys_per_task", [key_changes.KEYS_PER_TASK, 8])
def test_tables_equal_memory_in_any_batches_and_orders(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys_per_task: int
) -> None:
    """Many histories share a table, each with keys of its own."""
    monkeypatch.setattr(key_changes, "KEYS_PER_TASK", keys_per_task)
    batches: list[list[ChangeEvent]] = [[] for _ in range(BATCHES)]
    for number in range(HISTORIES):
        chance = Random(f"spark {number}")
        one = Class(
            "sequence_by",
            deferred=number % 4 != 0,
            full=number % 8 != 0,
            permuted=number % 2 == 1,
            ids=True,
            single=False,
            halves=number % 3 == 0,
            by_key=number % 5 == 4,
        )
        told = deliver(chance, one, play(chance, one).events)
        cuts = sorted(chance.randrange(len(told) + 1) for _ in range(BATCHES - 1))
        for batch, first, last in zip(batches, [0, *cuts], [*cuts, len(told)], strict=True):
            batch.extend(shifted(e, 10 * number) for part in told[first:last] for e in part)
    lake = f"{tmp_path}/{lake_tables.LAKES[0]}"
    reports: Any = lake_tables.land(spark, lake, batches)
    expected = lake_tables.oracle(batches)
    assert lake_tables.read(spark, lake, TABLE, ("id",)) == lake_tables.remembered(expected, TABLE)
    refused = sum(report.quarantined.get("ambiguous_key_move", 0) for report in reports)
    assert refused == len(expected.quarantine)


@pytest.mark.parametrize("lake", lakes("delta"), indirect=True)
def test_a_swap_that_a_batch_cuts_ends_as_at_its_source_although_columns_change(
    spark: SparkSession, lake: str
) -> None:
    table, narrow = TableId("shop", None, "orders"), {"id": Integer(32), "v": String()}

    def change(op: str, at: int, before: Image | None, after: Image, **kinds: Any) -> ChangeEvent:
        schema = TableSchema(tuple(Column(*column) for column in (kinds or narrow).items()))
        within = Transaction("swap" if op == "u" else str(at))
        place = SequencePosition(at)
        return DataChange(Op(op), table, Key(("id",)), before, after, schema, place, within)

    def statement(at: int, ddl: str) -> ChangeEvent:
        source = Source(product="mysql")
        return SchemaChange(table, "alter", ddl, position=SequencePosition(at), source=source)

    wide = {"id": Integer(32), "x": String(), "w": Integer(32)}
    batches: list[list[ChangeEvent]] = [
        [change("c", 1, None, {"id": 1, "v": "A"}), change("c", 2, None, {"id": 2, "v": "B"})],
        [change("u", 3, {"id": 1, "v": "A"}, {"id": 2, "v": "A"})],
        [
            change("u", 4, {"id": 2, "v": "B"}, {"id": 1, "v": "B"}),
            statement(5, "ALTER TABLE orders ADD COLUMN w INT NOT NULL DEFAULT 7"),
            statement(6, "ALTER TABLE orders RENAME COLUMN v TO x"),
            change("c", 7, None, {"id": 3, "x": "C", "w": 8}, **wide),
        ],
    ]
    lake_tables.land(spark, lake, batches)
    rows = lake_tables.table_of(spark, lake, table).select("id", "x", "w").orderBy("id").collect()
    assert [tuple(row) for row in rows] == [(1, "B", 7), (2, "A", 7), (3, "C", 8)]


INSTANT: Final = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
KEYS: Final[dict[str, tuple[LogicalType, Callable[[int], Any], Callable[[Any], Any]]]] = {
    "day": (Date(), lambda n: dt.date(2024, 1, n), lambda value: value),
    "time": (Timestamp(6), lambda n: dt.datetime(2024, 1, n), lambda value: value),
    "moment": (
        InstantType(6),
        lambda n: INSTANT.replace(day=n),
        lambda value: value.astimezone(dt.UTC),
    ),
    "number": (Decimal(), lambda n: decimal.Decimal(n) / 2, decimal.Decimal),
}


@pytest.mark.parametrize("lake", lakes("iceberg"), indirect=True)
def test_an_image_names_its_row_whatever_the_type_of_the_key(
    spark: SparkSession, lake: str
) -> None:
    """A row that had moved was not found: the other row with its key left instead."""
    batches: list[list[ChangeEvent]] = [[], [], []]
    tables: dict[TableId, tuple[str, Callable[[Any], Any]]] = {}
    for (name, (kind, key, python)), is_split in itertools.product(KEYS.items(), (False, True)):
        table = TableId("shop", None, f"{name} {is_split}")
        tables[table] = name, python
        schema = TableSchema((Column(name, kind), Column("v", String()), Column("w", String())))

        def change(
            op: str, at: int, before: Image | None, after: Image, of: Any = (table, schema, name)
        ) -> ChangeEvent:
            within = Transaction("moves" if op == "u" else str(at))
            where, columns, key_column = of
            place = SequencePosition(at)
            return DataChange(
                Op(op), where, Key((key_column,)), before, after, columns, place, within
            )

        def row(number: int, v: Any, w: Any, name: str = name, key: Any = key) -> Image:
            return {name: key(number), "v": v, "w": w}

        batches[0] += [
            change("c", 1, None, row(1, "A", "a")),
            change("c", 2, None, row(2, "B", "b")),
        ]
        batches[1].append(change("u", 3, row(1, "A", "a"), row(2, "A", UNAVAILABLE)))
        batches[1 + is_split].append(change("u", 4, row(2, "A", "a"), row(3, "A", UNAVAILABLE)))
    lake_tables.land(spark, lake, batches)
    oracle = lake_tables.oracle(batches)
    for table, (name, python) in tables.items():
        found = lake_tables.read(spark, lake, table, (name,), {name: python})
        assert found == lake_tables.remembered(oracle, table), table
        assert [row["v"] for _, row in sorted(found.rows.items())] == ["B", "A"]


def test_the_rule_is_applied_once_before_the_batch_writes_its_tombstones(
    spark: SparkSession, lake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, schema = (
        TableId("shop", None, "orders"),
        TableSchema((Column("id", Integer(32)), Column("v", String()))),
    )
    applied = spark.sparkContext.accumulator(0)
    resolve_keys = key_changes.resolve_keys

    def counted(*arguments: Any) -> Iterator[Any]:
        applied.add(1)
        yield from resolve_keys(*arguments)

    def change(op: str, at: int, before: Image | None, after: Image) -> ChangeEvent:
        within = Transaction("swap" if op == "u" else str(at))
        place = SequencePosition(at)
        return DataChange(Op(op), table, Key(("id",)), before, after, schema, place, within)

    monkeypatch.setattr(key_changes, "resolve_keys", counted)
    rows = [{"id": 1, "v": "A"}, {"id": 2, "v": "B"}]
    batches: list[list[ChangeEvent]] = [
        [change("c", at, None, row) for at, row in enumerate(rows, start=1)],
        [
            change("u", 3, {"id": 1, "v": "A"}, {"id": 2, "v": "A"}),
            change("u", 4, {"id": 2, "v": "B"}, {"id": 1, "v": "B"}),
        ],
    ]
    for number, batch in enumerate(batches):
        lake_tables.apply(spark, lake, batch, batch=number, is_compared=False)
    swapped = lake_tables.table_of(spark, lake, table).select("id", "v").orderBy("id").collect()
    assert [tuple(row) for row in swapped] == [(1, "B"), (2, "A")]
    assert applied.value == 1
