"""Columns that came without a statement: what the rows from before have in them."""

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from changelane import Message, get_codec
from changelane.apply.added_columns import (
    Cause,
    ColumnTraits,
    DefaultKind,
    SchemaColumns,
    additions,
    columns_of_schema,
    later_additions,
    newest_schema,
    unlisted_order,
)
from changelane.event import Completeness, DataChange, Key, Op, Source
from changelane.position import OffsetPosition, PostgresPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.conformance import EFFORT
from changelane.testing.histories import rewound
from changelane.testing.reference.upsert import MemoryTables
from changelane.types import UNAVAILABLE, Integer, String

T: Final = TableId("shop", "public", "t")
ID: Final = ColumnTraits("id", nullable=False)
A: Final = ColumnTraits("a", nullable=True)
FIVE: Final = ColumnTraits("c", True, DefaultKind.LITERAL, ('{"v":5}', "INT"))


def listed(order: int, *columns: ColumnTraits, complete: bool = True) -> SchemaColumns:
    return columns_of_schema(bytes([order]), columns, is_complete=complete)


@pytest.mark.parametrize(
    ("before", "column", "cause"),
    [
        ((ID, A), ColumnTraits("c", nullable=True), None),
        ((ID, A), ColumnTraits("c", nullable=False), Cause.NOT_NULL),
        ((ID, A), ColumnTraits("c"), Cause.UNDECLARED),
        ((ID, A), FIVE, Cause.DEFAULT),
        ((ID, A), ColumnTraits("c", True, DefaultKind.COMPUTED), Cause.COMPUTED),
        # another column is gone: a rename is possible
        (
            (ID, A, ColumnTraits("b", nullable=True)),
            ColumnTraits("c", nullable=True),
            Cause.RENAMED,
        ),
        (
            (ID, A, ColumnTraits("b", nullable=False)),
            ColumnTraits("c", nullable=True),
            Cause.RENAMED,
        ),
        # but one that has another default was not renamed
        ((ID, A, ColumnTraits("b", nullable=True)), FIVE, Cause.DEFAULT),
        ((ID, A, ColumnTraits("b", True, DefaultKind.LITERAL, FIVE.value)), FIVE, Cause.RENAMED),
        ((ID, A, ColumnTraits("b", True, None)), FIVE, Cause.RENAMED),
    ],
)
def test_a_schema_determines_a_new_column_of_older_rows(
    before: tuple[ColumnTraits, ...], column: ColumnTraits, cause: Cause | None
) -> None:
    (held, later) = listed(1, *before), listed(5, ID, A, column)
    for earlier, batch in ((held, [later]), (None, [later, held])):
        found = additions(earlier, batch, {one.name for one in before} if earlier else ())
        assert [(one.column, one.order, one.cause) for one in found] == (
            [] if cause is None else [("c", b"\x05", cause)]
        )
        if cause is Cause.RENAMED:
            assert found[0].dropped == ("b",)
        assert not found or (found[0].value is None) is found[0].is_unknown


def test_a_column_that_went_before_another_came_was_not_renamed() -> None:
    b, c = ColumnTraits("b", nullable=True), ColumnTraits("c", nullable=True)
    batch = [listed(9, ID, c), listed(5, ID), listed(1, ID, b)]
    assert additions(None, batch) == []
    assert newest_schema(None, batch) == batch[0]


def test_an_event_that_does_not_list_all_columns_shows_none_that_is_gone() -> None:
    held = listed(1, ID, A)
    (one,) = additions(held, [listed(5, ID, ColumnTraits("c"), complete=False)], {"id", "a"})
    assert (one.cause, one.dropped) == (Cause.UNDECLARED, ())
    assert additions(held, [listed(5, ID, complete=False), listed(6, ID, A)], {"id", "a"}) == []
    assert newest_schema(held, [listed(5, ID, complete=False)]) == held
    # nor is there a first schema that a column could be new to
    assert (
        additions(None, [listed(1, ID, complete=False), listed(2, ID, A, ColumnTraits("c"))]) == []
    )


def test_the_names_of_columns_differ_by_more_than_case() -> None:
    held = listed(1, ID, ColumnTraits("Name", nullable=True))
    assert additions(held, [listed(2, ID, ColumnTraits("name"))], {"id", "name"}) == []


def test_an_order_determines_which_rows_have_a_column() -> None:
    added = additions(listed(1, ID), [listed(5, ID, ColumnTraits("N"), FIVE)], {"id"})
    assert [unlisted_order("N", bytes([base]), added) for base in (4, 5)] == [b"", b"\x05"]
    assert unlisted_order("a", b"\x04", added) == b"\x04"
    # a default is written into the rows from before
    (default,) = additions(listed(1, ID), [listed(5, ID, FIVE)], {"id"})
    assert unlisted_order("c", b"\x04", [default]) == b"\x04"
    assert later_additions(b"\x04", {"id"}, [default]) == (default,)
    assert later_additions(b"\x05", {"id"}, [default]) == ()
    assert later_additions(b"\x04", {"id", "c"}, [default]) == ()


# -- the tables in memory ----------------------------------------------------------------------


def row(op: str, at: int, columns: Mapping[str, Column], **values: Any) -> DataChange:
    schema = TableSchema(tuple(columns[name] for name in values))
    images = (values, None) if op == "d" else (None, values)
    return DataChange(
        Op(op), T, Key(("id",)), *images, schema, PostgresPosition(at, at), None,
        Source(product="postgresql"),
    )  # fmt: skip


COLUMNS: Final = {
    "id": Column("id", Integer(32), nullable=False),
    "a": Column("a", String(), nullable=True),
    "b": Column("b", String(), nullable=True),
    "c": Column("c", String(), nullable=True),
    "n": Column("n", Integer(32), nullable=False),
    "d": Column("d", Integer(32), nullable=False, default=5),
    "z": Column("z", Integer(32), nullable=False, default=0),
}


def event(op: str, at: int, **values: Any) -> DataChange:
    return row(op, at, COLUMNS, **values)


def unknown(tables: MemoryTables) -> dict[bytes, set[str]]:
    return {key: set(columns) for key, columns in tables.incomplete(T).items()}


def test_older_rows_do_not_know_a_column_that_may_have_been_renamed() -> None:
    tables = MemoryTables()
    tables.apply([event("c", 1, id=1, a="x", b="1"), event("c", 2, id=2, a="x", b="2")])
    assert unknown(tables) == {}
    tables.apply([event("c", 5, id=3, a="x", c="3")])
    assert unknown(tables) == {b"[1]": {"c"}, b"[2]": {"c"}}
    # an event that lacks the column (unchanged TOAST) inherits that it is unknown
    tables.apply([event("u", 6, id=1, a="y", c=UNAVAILABLE), event("u", 7, id=2, a="y", c="2")])
    assert unknown(tables) == {b"[1]": {"c"}}
    # late events from before it do not know it either; of the stream after it, all do
    tables.apply([event("c", 3, id=4, a="z", b="4"), event("c", 8, id=5, a="z", c=None)])
    assert unknown(tables) == {b"[1]": {"c"}, b"[4]": {"c"}}
    # but one that names it does, wherever it stands
    tables.apply([event("r", 4, id=6, a="z", c="6")])
    assert unknown(tables) == {b"[1]": {"c"}, b"[4]": {"c"}}


def test_a_key_change_takes_along_what_is_not_known() -> None:
    tables = MemoryTables()
    tables.apply([event("c", 1, id=1, a="x"), event("c", 5, id=2, a="x", n=1)])
    before, after = {"id": 1}, {"id": 9, "a": "x", "n": UNAVAILABLE}
    schema = TableSchema(tuple(COLUMNS[name] for name in after))
    position = PostgresPosition(6, 6)
    tables.apply([DataChange(Op.UPDATE, T, Key(("id",)), before, after, schema, position)])
    assert unknown(tables) == {b"[9]": {"n"}}


def test_the_default_of_the_schema_comes_first() -> None:
    tables = MemoryTables()
    tables.apply([event("c", 1, id=1, a="x")])
    tables.apply([event("c", 5, id=2, a="x", d=6)])
    tables.apply([event("c", 3, id=3, a="late")])
    assert [one["d"] for one in tables.rows(T)] == [5, 6, 5]
    assert unknown(tables) == {}
    # what the connector sends for expressions, too, is none
    tables.apply([event("c", 7, id=4, a="x", d=6, z=1)])
    assert unknown(tables) == {key: {"z"} for key in (b"[1]", b"[2]", b"[3]")}


def test_a_delete_from_before_a_column_leaves_the_row_that_came_later() -> None:
    tables = MemoryTables()
    tables.apply([event("c", 1, id=1, a="x"), event("c", 5, id=2, a="x", n=1)])
    tables.apply([event("d", 6, id=1), event("c", 7, id=1, a="x", n=2)])
    assert unknown(tables) == {}


def test_an_image_without_a_schema_has_all_columns_if_the_format_declares_it() -> None:
    def image(at: int, holds: Completeness, **values: Any) -> DataChange:
        position = PostgresPosition(at, at)
        return DataChange(
            Op.CREATE, T, Key(("id",)), None, values, position=position, after_holds=holds
        )

    for holds, expected in ((Completeness.FULL, {b"[1]": {"c"}}), (Completeness.UNKNOWN, {})):
        tables = MemoryTables()
        tables.apply([image(1, holds, id=1, a="x")])
        tables.apply([image(5, holds, id=2, a="x", c=1)])
        assert unknown(tables) == expected, holds
    # a source that tells statements would have told this one
    tables = MemoryTables(statements=frozenset({T}))
    tables.apply([event("c", 1, id=1, a="x"), event("c", 5, id=2, a="x", n=1)])
    assert unknown(tables) == {}


CAPTURED: Final = Path(__file__).resolve().parents[2] / "golden" / "debezium-json" / "captured"


@pytest.mark.parametrize("name", ["schema", "noschema"])
def test_what_a_connector_captured_of_added_and_dropped_columns(name: str) -> None:
    """``ADD COLUMN phone text DEFAULT 'n/a'``, then ``DROP COLUMN vip``."""
    codec = get_codec("debezium-json")
    tables = MemoryTables()
    customers = TableId("shop", "public", "customers")
    for line in (CAPTURED / f"debezium-postgres-{name}.jsonl").read_text("utf-8").splitlines():
        record = json.loads(line)
        told = [record[part] and record[part].encode() for part in ("value", "key")]
        message = Message(*told, topic=record["topic"], partition=0, offset=record["offset"])
        tables.apply(
            event
            for event in codec.decode(message)
            if isinstance(event, DataChange) and event.table == customers
        )
    phones = {row["id"]: row["phone"] for row in tables.rows(customers)}
    default = "n/a" if name == "schema" else None
    assert phones == {1: "+1 555", 4: default, 5: "n/a", 200: default, 1000: "n/a"}
    lacking = {b"[200]": {"phone"}, b"[4]": {"phone"}}
    found = {key: set(columns) for key, columns in tables.incomplete(customers).items()}
    assert found == ({} if name == "schema" else lacking)
    # the connector's own value for DEFAULT now() is not taken for one
    assert {one.column for one in tables.additions(customers)} == {"phone"}


@settings(max_examples=60 * EFFORT, deadline=None)
@given(st.randoms(use_true_random=False), st.sampled_from(["new", "must", "five"]))
def test_batches_and_rewinds_do_not_matter(chance: Random, column: str) -> None:
    """Whoever reads a log in order, with rewinds, knows the same of every row."""
    columns = {
        **COLUMNS,
        "new": Column("new", String(), nullable=True),
        "must": Column("must", Integer(32), nullable=False),
        "five": Column("five", Integer(32), nullable=False, default=5),
    }
    log: list[DataChange] = []
    expected: dict[int, bool] = {}
    value = "v" if column == "new" else 7
    for place in range(1, 20):
        key = chance.randrange(5)
        if place < 10:
            log.append(row("c", place, columns, id=key, a=str(place), b="v"))
            expected[key] = column == "five"
            continue
        is_sent = place == 10 or key not in expected or chance.random() < 0.4
        image = {"id": key, "a": str(place), **({} if column == "new" else {"b": "v"})}
        sent = value if is_sent else UNAVAILABLE
        log.append(row("u", place, columns, **image, **{column: sent}))
        expected[key] = is_sent or expected[key]
    outcomes = []
    for batches in ([log], rewound(chance, log)):
        tables = MemoryTables()
        for batch in batches:
            tables.apply(batch)
        outcomes.append((tables.keyed(T), tables.incomplete(T)))
    assert outcomes[0] == outcomes[1]
    rows, lacking = outcomes[0]
    assert {row["id"]: key not in lacking for key, row in rows.items()} == expected
    assert all(
        column == "five" or row[column] == value or key in lacking for key, row in rows.items()
    )


def test_offsets_of_another_partition_do_not_order_events_and_a_column() -> None:
    def image(partition: int, offset: int, **values: Any) -> DataChange:
        position = OffsetPosition("t", partition, offset)
        return msgspec.structs.replace(event("c", 1, **values), position=position)

    tables = MemoryTables()
    tables.apply([image(0, 5, id=1, a="x"), image(1, 900, id=2, a="x")])
    tables.apply([image(0, 6, id=3, a="x", n=1)])
    assert unknown(tables) == {b"[1]": {"n"}, b"[2]": {"n"}}


@pytest.mark.parametrize("cuts", [(), (1,), (2,), (1, 2)])
def test_a_snapshot_that_sorts_below_the_stream_determines_what_older_rows_lack(
    cuts: tuple[int, ...],
) -> None:
    def snapshot(at: int, **values: Any) -> DataChange:
        source = Source(product="postgresql", snapshot="true")
        return msgspec.structs.replace(event("r", at, **values), source=source)

    log: list[list[DataChange]] = [
        [event("c", 10, id=1, a="x", b="1"), event("c", 11, id=2, a="x", b="2")],
        [event("u", 50, id=3, a="x", c="3")],
        [snapshot(60, id=1, a="old", c="1"), snapshot(60, id=3, a="old", c="old")],
    ]
    # a snapshot beside the first rows of the stream may be the first one of all
    for order in ((0, 1, 2), (0, 2, 1)) if cuts != (2,) else ((0, 1, 2),):
        parts = [log[index] for index in order]
        batches = [
            [one for part in parts[start:end] for one in part]
            for start, end in zip((0, *cuts), (*cuts, 3), strict=True)
        ]
        tables = MemoryTables()
        for batch in batches:
            tables.apply(batch)
        assert unknown(tables) == {b"[2]": {"c"}}, order
        rows = {row["id"]: (row["a"], row["c"]) for row in tables.rows(T)}
        assert rows == {1: ("x", "1"), 2: ("x", None), 3: ("x", "3")}
