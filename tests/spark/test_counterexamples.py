"""The histories that broke simpler rules, and an example (docs/merge-rule.md, Counterexamples).

Every order of arrival is a story of its own, with keys of its own, in one table: each batch holds
the next step of all stories.
"""

import itertools
from collections.abc import Sequence
from typing import Any, Final

import lake_tables
import msgspec
import pytest
from pyspark.sql import SparkSession
from spark_settings import lakes

from changelane.event import (
    ChangeEvent,
    DataChange,
    HalfUpdate,
    Image,
    Key,
    Op,
    Source,
    Transaction,
    Truncate,
)
from changelane.position import PostgresPosition, SequencePosition, encode_order
from changelane.schema import Column, TableId, TableSchema
from changelane.spark.apply import upsert
from changelane.types import UNAVAILABLE, Integer, String

TABLE: Final = TableId("shop", "public", "stories")
SCHEMA: Final = TableSchema((Column("id", Integer()), Column("a", String()), Column("b", String())))
STEPS: Final = 4

Batches = Sequence[Sequence[ChangeEvent]]


def change(
    op: str,
    at: int,
    after: Image | None = None,
    before: Image | None = None,
    *,
    tx: str | None = None,
    source: Source = Source(),  # noqa: B008 - frozen
) -> DataChange:
    place = None if tx is None else Transaction(tx)
    return DataChange(
        Op(op), TABLE, Key(("id",)), before, after, SCHEMA, PostgresPosition(at), place, source
    )


def insert(at: int, id: int, a: str, b: str) -> DataChange:
    return change("c", at, {"id": id, "a": a, "b": b})


def delete(at: int, id: int) -> DataChange:
    return change("d", at, None, {"id": id})


def update(at: int, id: int, *, old: int | None = None, before: Any = None, **more: Any) -> Any:
    tx = more.pop("tx", None)
    after = {"id": id, "a": UNAVAILABLE, "b": UNAVAILABLE, **more}
    if before is None and old is not None:
        before = {"id": old}
    return change("u", at, after, before, tx=tx)


def placed(event: DataChange, commit: int) -> DataChange:
    """Return an event whose position, not its transaction, tells what belongs together."""
    position = PostgresPosition(event.position.lsn, commit)
    return msgspec.structs.replace(event, position=position, transaction=None)


def load(a: str) -> DataChange:
    return insert(1, 1, a, "b")


def one_by_one(*events: ChangeEvent) -> list[Batches]:
    return [[[event] for event in arrival] for arrival in itertools.permutations(events)]


BIRTHS: Final = [change("c", 1, {"id": 1, "a": "A", "b": "toast A"}), insert(2, 2, "B", "toast B")]
SWAP: Final = [
    update(10, 2, before=BIRTHS[0].after, a="A", tx="x"),
    update(11, 1, before=BIRTHS[1].after, a="B", tx="x"),
]
LEAN_SWAP: Final = [
    update(10, 2, before={"id": 1, "a": "A"}, a="A", tx="x"),
    update(11, 1, before={"id": 2, "a": "B"}, a="B", tx="x"),
]
CHAIN: Final = [update(10, 2, old=1, a="A", tx="x"), update(11, 3, old=2, a="A", tx="x")]
SHIFT: Final = [
    update(10, 2, before=BIRTHS[0].after, a="A", tx="x"),
    update(11, 3, before=BIRTHS[1].after, a="B", tx="x"),
]
UNTOLD: Final = {"id": 2, "a": "H", "b": "toast H"}
MEET: Final = [
    placed(update(10, 2, before=BIRTHS[0].after, a="A"), 9),
    placed(update(11, 3, before=UNTOLD, a="H"), 9),
]
MEET_HALVES: Final = [
    HalfUpdate(placed(change("d", 10, None, BIRTHS[0].after), 9), {"id": 2}),
    HalfUpdate(placed(change("c", 10, {"id": 2, "a": "A", "b": "toast A"}), 9), {"id": 1}),
]
MEET_ON: Final = [MEET[0], placed(update(11, 3, before={**BIRTHS[0].after, "id": 2}, a="A"), 9)]
LEAN_ON: Final = [placed(event, 9) for event in CHAIN]
MOVE: Final = [insert(1, 1, "a", "toast"), update(2, 2, old=1, a="a2"), update(3, 2, a="a3")]
LEFT: Final = HalfUpdate(delete(2, 1), {"id": 2})
ARRIVED: Final = HalfUpdate(change("c", 2, {"id": 2, "a": "a2", "b": UNAVAILABLE}), {"id": 1})
SNAPSHOT_ROW: Final = change(
    "r", 50, {"id": 1, "a": "old", "b": "b"}, source=Source(snapshot="true")
)

STORIES: Final[dict[str, list[Batches]]] = {
    "1 a late delete and insert": one_by_one(
        insert(1, 1, "a1", "b1"), delete(2, 1), insert(3, 1, "a3", "b3"), update(4, 1, a="a4")
    ),
    "3 a partial update before its row": one_by_one(update(100, 1, a="new"), SNAPSHOT_ROW),
    "6 a move takes columns along": [
        [MOVE],
        [MOVE[:1], MOVE[1:]],
        [[event] for event in MOVE],
    ],
    "6 late events follow": one_by_one(
        insert(1, 1, "a", "b1"), update(2, 1, b="b2"), update(3, 2, old=1, a="a3")
    ),
    "6 late events follow over two moves": [
        [
            [update(3, 2, old=1, a="a3")],
            [update(4, 3, old=2, a="a4")],
            [insert(1, 1, "a", "b1")],
            [update(2, 1, b="b2")],
        ]
    ],
    "6 an earlier life does not follow": [
        [
            [
                insert(1, 1, "other", "other"),
                delete(2, 1),
                update(3, 1, old=9, a="a"),
                update(4, 2, old=1, a="a"),
            ],
            [insert(1, 1, "other", "other")],
        ]
    ],
    "6 the before image fills": [
        [[update(2, 2, before={"id": 1, "a": "a", "b": "toast"}, a="a2")]]
    ],
    "6 halves": [
        [[insert(1, 1, "a", "toast")], [LEFT], [ARRIVED]],
        [[insert(1, 1, "a", "toast")], [ARRIVED], [LEFT]],
        [[insert(1, 1, "a", "toast")], [ARRIVED, LEFT]],
        [[insert(1, 1, "a", "toast"), ARRIVED, LEFT]],
    ],
    "7 swaps": [
        [BIRTHS, SWAP],
        [BIRTHS + SWAP],
        [SWAP, BIRTHS],
        [SWAP[::-1], BIRTHS],
        [BIRTHS, LEAN_SWAP],
        [BIRTHS, *([placed(event, 9)] for event in SWAP)],
        [[*BIRTHS, placed(SWAP[0], 9)], [placed(SWAP[1], 9)]],
    ],
    "7 a row that nothing told leaves in a later batch": [
        [BIRTHS[:1], MEET[:1], MEET[1:]],
        [BIRTHS[:1] + MEET[:1], MEET[1:]],
        [MEET[:1], MEET[1:], MEET[:1], MEET[1:]],
        [BIRTHS[:1], MEET, MEET[1:]],
        [BIRTHS[:1], MEET_HALVES[:1], MEET_HALVES[1:], MEET[1:]],
        [BIRTHS[:1], MEET_HALVES[:1], [*MEET_HALVES[1:], *MEET[1:]]],
        [BIRTHS[:1], MEET_HALVES, MEET[1:]],
        [BIRTHS, MEET_HALVES[:1], MEET_HALVES[1:], MEET[1:]],
        [BIRTHS[:1], MEET_ON[:1], MEET_ON[1:]],
        [BIRTHS[:1], LEAN_ON[:1], LEAN_ON[1:]],
    ],
    "7 chains": [
        [BIRTHS[:1], CHAIN],
        [BIRTHS[:1], CHAIN[:1], CHAIN[1:]],
        [CHAIN, BIRTHS[:1]],
    ],
    "7 all keys shift": [[BIRTHS, SHIFT]],
    "8 equal orders": [
        [[load("x")], [load("y")]],
        [[load("y")], [load("x")]],
        [[load("x"), load("y")]],
    ],
    "8 delete and insert at one position": [
        [[insert(1, 1, "old", "b")], *rest]
        for rest in one_by_one(delete(5, 1), insert(5, 1, "new", "b"))
    ],
    "8 halves whose key stays": [
        [
            [insert(1, 1, "x", "toast")],
            *([HalfUpdate(half, other)] for half in halves),
        ]
        for other in (None, {"id": 1})
        for halves in itertools.permutations(
            [
                change("d", 5, None, {"id": 1, "a": "x"}),
                change("c", 5, {"id": 1, "a": "y", "b": UNAVAILABLE}),
            ]
        )
    ],
    "a delete of a row that was never seen": [
        [[delete(5, 1)]],
        [[delete(5, 1)], [insert(1, 1, "a", "b")]],
    ],
    "events before the insert": [
        [[update(9, 1, a="z")], [delete(4, 1)], [insert(3, 1, "a", "b")], [insert(6, 1, "c", "d")]]
    ],
}


def moved(event: ChangeEvent, shift: int) -> ChangeEvent:
    """Return an event of other keys."""

    def image(told: Image | None) -> Image | None:
        return {**told, "id": told["id"] + shift} if told else told

    if isinstance(event, HalfUpdate):
        return HalfUpdate(moved(event.change, shift), image(event.other_key))
    assert isinstance(event, DataChange)
    place = event.transaction and Transaction(f"{event.transaction.id} {shift}")
    return msgspec.structs.replace(
        event, before=image(event.before), after=image(event.after), transaction=place
    )


def of_table(event: ChangeEvent, name: str) -> ChangeEvent:
    return msgspec.structs.replace(event, table=TableId("shop", None, name))


def truncate(at: int, name: str) -> Truncate:
    return Truncate(TableId("shop", None, name), position=PostgresPosition(at))


LATE_INSERT: Final = [[truncate(2, "t1")], [of_table(insert(1, 1, "a", "b"), "t1")]]
LATE_TRUNCATE: Final = [
    [of_table(insert(5, 1, "a", "b"), "t2")],
    [of_table(insert(1, 2, "a", "b"), "t2"), of_table(update(3, 3, a="a"), "t2")],
    [truncate(2, "t2")],
    [truncate(4, "t2")],
]
COLUMNS: Final = ["id", *(f"c{number}" for number in range(29))]
WIDE: Final = TableSchema(tuple(Column(name, Integer()) for name in COLUMNS))
NEWER: Final = {**dict.fromkeys(COLUMNS, 2), "id": 1, "c7": UNAVAILABLE}
MISSED: Final = [
    msgspec.structs.replace(of_table(event, "wide"), schema=WIDE)
    for event in (change("u", 9, NEWER), change("c", 1, dict.fromkeys(COLUMNS, 1)))
]
ORDERS: Final = TableSchema(tuple(Column(name, Integer()) for name in ("id", "state", "total")))
EXAMPLE: Final = [
    msgspec.structs.replace(of_table(event, "example"), schema=ORDERS)
    for event in (
        change("u", 100, {"id": 1, "state": 2}),
        change("c", 130, {"id": 1, "state": 1, "total": 99}),
        change("r", 50, {"id": 1, "state": 1, "total": 10}),
        change("d", 120, None, {"id": 1}),
    )
]
"""The contract's example gives the snapshot row the position 50 among the stream's."""


def order(at: int, phase: int = 1) -> bytes:
    return encode_order(PostgresPosition(at), phase=phase)


@pytest.fixture(scope="module")
def batches() -> list[list[ChangeEvent]]:
    told: list[list[ChangeEvent]] = [[] for _ in range(STEPS)]
    every = [batches for arrivals in STORIES.values() for batches in arrivals]
    for number, story in enumerate(every):
        for batch, step in zip(told, story, strict=False):
            batch.extend(moved(event, number * 10) for event in step)
    for tables in (LATE_INSERT, LATE_TRUNCATE, [[e] for e in MISSED], [[e] for e in EXAMPLE]):
        for batch, step in zip(told, tables, strict=False):
            batch.extend(step)
    return told


@pytest.fixture(scope="module", params=lakes("iceberg"))
def lake(
    spark: SparkSession,
    batches: list[list[ChangeEvent]],
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> str:
    lake = str(tmp_path_factory.mktemp("counterexamples") / request.param)
    with pytest.MonkeyPatch.context() as patch:
        # key by key, as where much is remembered
        patch.setattr(upsert, "MAX_TOMBSTONE_BYTES", -1)
        lake_tables.land(spark, lake, batches)
    return lake


def test_every_story_ends_as_in_memory(
    spark: SparkSession, lake: str, batches: list[list[ChangeEvent]]
) -> None:
    expected = lake_tables.remembered(lake_tables.oracle(batches), TABLE)
    found = lake_tables.read(spark, lake, TABLE, ("id",))
    start = 0
    for name, arrivals in STORIES.items():
        keys = {b"[%d]" % key for key in range(start * 10, (start + len(arrivals)) * 10)}
        for part in ("rows", "unknown", "orders"):
            got, want = getattr(found, part), getattr(expected, part)
            assert {k: got[k] for k in keys & got.keys()} == {
                k: want[k] for k in keys & want.keys()
            }, f"{name}: {part}"
        start += len(arrivals)
    assert found == expected


@pytest.mark.parametrize("name", ["t2", "wide", "example"])
def test_tables_of_their_own_end_as_in_memory(
    spark: SparkSession, lake: str, batches: list[list[ChangeEvent]], name: str
) -> None:
    table = TableId("shop", None, name)
    expected = lake_tables.remembered(lake_tables.oracle(batches), table)
    assert lake_tables.read(spark, lake, table, ("id",)) == expected


def test_2_a_late_insert_does_not_survive_the_truncate_that_came_first(
    spark: SparkSession, lake: str
) -> None:
    assert lake_tables.read(spark, lake, TableId("shop", None, "t1"), ("id",)).rows == {}


def test_2_a_late_truncate_takes_only_older_rows(spark: SparkSession, lake: str) -> None:
    found = lake_tables.read(spark, lake, TableId("shop", None, "t2"), ("id",))
    assert found.rows == {b"[1]": {"id": 1, "a": "a", "b": "b"}}


def test_5_an_update_that_misses_one_of_30_columns_lists_that_one(
    spark: SparkSession, lake: str
) -> None:
    (row,) = lake_tables.table_of(spark, lake, TableId("shop", None, "wide")).collect()
    assert bytes(row["_changelane_order"]) == order(9)
    assert {c: bytes(o) for c, o in row["_changelane_columns"].items()} == {"c7": order(1)}
    assert [row[name] for name in COLUMNS] == [1, *([2] * 7), 1, *([2] * 21)]


def test_the_worked_example_is_stored_as_the_contract_shows(spark: SparkSession, lake: str) -> None:
    """After each batch: version 0 made the table, and not every batch changes it."""
    (row,) = lake_tables.table_of(spark, lake, TableId("shop", None, "example")).collect()
    assert (row["id"], row["state"], row["total"]) == (1, 1, 99)
    assert (bytes(row["_changelane_order"]), row["_changelane_columns"]) == (order(130), None)
    side = lake_tables.table_of(spark, lake, "_changelane/side")
    (remembered,) = side.where("""table_id = '["shop",null,"example"]'""").collect()
    assert bytes(remembered["deleted"]) == order(120, 0)


def test_7_a_swap_that_nothing_decides_is_set_aside(spark: SparkSession, tmp_path: Any) -> None:
    lake = f"{tmp_path}/{lake_tables.LAKES[0]}"
    swap = [update(10, 2, old=1, a="A", tx="x"), update(11, 1, old=2, a="B", tx="x")]
    at = SequencePosition
    told = [
        msgspec.structs.replace(event, position=at(event.position.lsn))
        for event in (*BIRTHS, *swap)
    ]
    (report,) = lake_tables.land(spark, lake, [told])
    expected = lake_tables.oracle([told])
    assert [refused.code for refused in expected.quarantine] == ["ambiguous_key_move"]
    assert report.quarantined == {"ambiguous_key_move": 1}
    aside = lake_tables.table_of(spark, lake, "_changelane/quarantine").collect()
    assert [row["code"] for row in aside] == ["ambiguous_key_move"]
    assert aside[0]["event"]
    assert lake_tables.read(spark, lake, TABLE, ("id",)) == lake_tables.remembered(expected, TABLE)
