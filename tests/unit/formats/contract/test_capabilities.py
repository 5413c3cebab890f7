# SPDX-License-Identifier: Apache-2.0
"""What is left of an event in a format that carries less, and which losses are named."""

import msgspec
import pytest

from changelane.event import Completeness, DataChange, HalfUpdate, Key, Op, Source, Truncate
from changelane.formats.contract.capabilities import Carries, SchemaDetail
from changelane.formats.contract.losses import LossPolicy, LossWarnings
from changelane.formats.contract.reducer import Reducer
from changelane.schema import Column, TableId, TableSchema
from changelane.types import UNAVAILABLE, Bytes, Integer, String

SCHEMA = TableSchema((Column("id", Integer(64)), Column("note", String()), Column("n", Integer())))
ROW = {"id": 1, "note": "a", "n": 2}
MOST = Carries(
    operations=frozenset(Op),
    before=True,
    partial_before=True,
    absent=True,
    unavailable=True,
    schema=SchemaDetail.FULL,
    column_flags=True,
    unknown_nullability=True,
    types=frozenset({Integer, String}),
    key=True,
    key_change=True,
    table=frozenset({"database", "schema", "name"}),
)


def change(op=Op.UPDATE, **fields):
    parts = {"key": Key(("id",)), "before": ROW, "after": ROW, "schema": SCHEMA} | fields
    return DataChange(op, **({"table": TableId(name="t")} | parts))


def reduce(event, **less):
    return Reducer(msgspec.structs.replace(MOST, **less))(event)


def test_what_is_carried_stays_the_same_object_in_content():
    event = change()
    assert reduce(event) == ((event,), ())


def test_a_missing_column_becomes_null_only_where_absence_is_not_carried():
    event = change(before=None, after={"id": 1, "n": 2})
    (reduced,), losses = reduce(event, absent=False)
    assert reduced.after == {"id": 1, "note": None, "n": 2}
    assert losses == (("absent", "a missing column is written as NULL"),)


def test_an_unavailable_column_becomes_absent_and_then_null():
    event = change(before=None, after=ROW | {"note": UNAVAILABLE})
    (reduced,), losses = reduce(event, unavailable=False)
    assert reduced.after == {"id": 1, "n": 2}
    assert losses == (("unavailable", "written as an absent column"),)
    (reduced,), losses = reduce(event, unavailable=False, absent=False)
    assert reduced.after == {"id": 1, "n": 2, "note": None}
    assert [field for field, _ in losses] == ["unavailable", "absent"]


def test_a_partial_delete_is_filled_only_where_a_delete_needs_the_whole_row():
    event = change(Op.DELETE, before={"id": 1}, after=None)
    assert reduce(event, absent=False) == ((event,), ())
    (reduced,), losses = reduce(event, delete_partial=False)
    assert reduced.before == {"id": 1, "note": None, "n": None}
    assert [field for field, _ in losses] == ["absent"]


def test_a_partial_before_image_is_dropped_where_only_full_ones_are_carried():
    event = change(before={"id": 1, "note": "b"})
    (reduced,), losses = reduce(event, partial_before=False)
    assert reduced.before is None
    assert losses == (("before", "a partial image"),)


@pytest.mark.parametrize("less", [{"key_change": False}, {"before": False}])
def test_a_key_change_is_split_where_one_update_cannot_say_it(less):
    event = change(after=ROW | {"id": 7})
    (left, came), losses = reduce(event, **less)
    assert (left.op, left.before, left.after) == (Op.DELETE, ROW, None)
    assert (came.op, came.before, came.after) == (Op.CREATE, None, ROW | {"id": 7})
    assert [field for field, _ in losses] == ["key_change"]


def test_an_operation_that_does_not_exist_is_a_loss_of_the_event():
    event = change(Op.DELETE, after=None)
    assert reduce(event, operations=frozenset({Op.CREATE})) == (
        (),
        (("operation:d", "the format has no such operation"),),
    )


def test_a_snapshot_read_becomes_an_insert_where_there_are_only_inserts():
    event = change(Op.READ, before=None)
    (reduced,), losses = reduce(event, operations=frozenset({Op.CREATE}))
    assert reduced.op is Op.CREATE
    assert [field for field, _ in losses] == ["operation:r"]


def test_a_kind_that_does_not_exist_is_a_loss_of_the_event():
    assert reduce(Truncate(TableId(name="t")))[0] == ()


def test_without_a_schema_the_word_on_completeness_stays():
    event = change(schema=None, before_holds=Completeness.FULL, after_holds=Completeness.FULL)
    assert reduce(event) == ((event,), ())


@pytest.mark.parametrize("other", [None, {"id": 7}])
def test_half_an_update_loses_what_pairs_it_where_there_are_no_pairs(other):
    half = HalfUpdate(change(Op.DELETE, after=None), other, pair="7")
    kinds = frozenset({"half"})
    assert reduce(half, kinds=kinds, pair=True) == ((half,), ())
    (reduced,), losses = reduce(half, kinds=kinds)
    assert reduced == (half.change if other is None else HalfUpdate(half.change, other))
    assert [field for field, _ in losses] == ["pair"]


def test_a_type_that_does_not_exist_becomes_text():
    (reduced,), losses = reduce(change(Op.CREATE, before=None), types=frozenset({String}))
    assert reduced.after == {"id": "1", "note": "a", "n": "2"}
    assert {type(column.type) for column in reduced.schema.columns} == {String}
    assert losses == (("type:int64", "no such type; the value is written as text"),)


def test_a_type_that_does_not_exist_takes_the_form_that_a_format_states():
    schema = TableSchema((Column("raw", Bytes()),))
    event = change(Op.CREATE, before=None, after={"raw": b"\xff"}, schema=schema)
    (reduced,), losses = reduce(event, forms=frozenset({(Bytes, "hex")}))
    assert reduced.after == {"raw": "FF"}
    assert losses == (("type:bytes", "no such type; the value is written as hexadecimal text"),)


@pytest.mark.parametrize(
    ("table", "part", "reduced_table"),
    [
        (TableId("a", None, "t"), "schema", TableId(None, "a", "t")),
        (TableId(None, "a", "t"), "database", TableId("a", None, "t")),
        (TableId("a", "b", "t"), "schema", TableId(None, "b", "t")),
        (TableId("a", "b", "t"), "database", TableId("a", None, "t")),
    ],
)
def test_a_table_keeps_its_database_or_schema_in_the_place_that_there_is(
    table, part, reduced_table
):
    event = change(Op.CREATE, before=None, table=table)
    (reduced,), losses = reduce(event, table=frozenset({part, "name"}))
    assert reduced.table == reduced_table
    (loss,) = losses
    assert loss[0].startswith("table.")
    is_kept = None in (table.database, table.schema)
    assert is_kept is not bool(list(LossWarnings(LossPolicy(), "x").of(losses)))


def test_an_unknown_nullability_is_a_loss_where_a_format_has_no_word_for_it():
    carries = msgspec.structs.replace(MOST, unknown_nullability=False)
    schema = TableSchema((Column("id", Integer(64)), Column("n", Integer(64), nullable=False)))
    (reduced,), losses = Reducer(carries)(DataChange(Op.CREATE, TableId(), schema=schema))
    assert [column.nullable for column in reduced.schema.columns] == [None, False]
    assert losses == (("schema.nullable", "unknown; written as may be NULL"),)


@pytest.mark.parametrize(("connector", "foreign"), [("b", True), ("a", False), (None, False)])
def test_details_and_version_of_another_connector_are_not_carried(connector, foreign):
    carries = msgspec.structs.replace(
        MOST,
        details=True,
        source=frozenset({"product", "server", "version", "snapshot"}),
        stamp=Source(connector="a"),
    )
    source = Source("mysql", connector, version="1")
    event = DataChange(Op.CREATE, TableId(), after={}, source=source, details={"x": 1})
    (reduced,), losses = Reducer(carries)(event)
    told = {"source.connector", "source.version", "details"}
    assert {what for what, _ in losses} == (told if foreign else set())
    assert reduced.source == Source("mysql", "a", version=None if foreign else "1")
    assert reduced.details == ({} if foreign else {"x": 1})


def test_a_partial_before_image_of_a_key_change_may_be_carried_as_that_of_a_delete():
    carries = msgspec.structs.replace(
        MOST, before=True, key=True, key_change=True, partial_before=False, key_change_partial=True
    )
    schema = TableSchema((Column("id", Integer(64)), Column("n", Integer(64))))
    for after, kept in (({"id": 2, "n": 1}, {"id": 1}), ({"id": 1, "n": 1}, None)):
        event = DataChange(Op.UPDATE, TableId(), Key(("id",)), {"id": 1}, after, schema)
        (reduced,), losses = Reducer(carries)(event)
        assert reduced.before == kept
        assert bool(losses) == (kept is None)


@pytest.mark.parametrize(
    "holds", [Completeness.UNKNOWN, Completeness.CHANGED, Completeness.KEY], ids=str
)
def test_a_row_that_may_lack_columns_is_a_loss_where_readers_take_it_for_a_whole_one(holds):
    event = change(schema=None, before=None, after={"id": 1, "n": 2}, after_holds=holds)
    (reduced,), losses = reduce(event)
    assert reduced.after_holds is Completeness.FULL
    assert [field for field, _ in losses] == ["absent"]
    assert reduce(event, partial_after=True) == ((event,), ())


def test_a_row_with_all_columns_of_a_full_before_image_lacks_none():
    event = change(schema=None, before_holds=Completeness.FULL)
    assert reduce(event) == ((event,), ())


def test_the_new_row_of_a_split_key_change_has_the_values_that_did_not_change():
    event = change(after={"id": 2, "note": UNAVAILABLE})
    (_, inserted), losses = reduce(event, key_change=False)
    assert inserted.after == {"id": 2, "note": "a", "n": 2}
    assert [field for field, _ in losses] == ["key_change"]
    event = change(before={"id": 1, "note": "a"}, after={"id": 2})
    (_, inserted), losses = reduce(event, key_change=False)
    assert inserted.after == {"id": 2, "note": "a"}
    assert [field for field, _ in losses] == ["absent", "key_change"]
