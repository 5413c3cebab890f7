# SPDX-License-Identifier: Apache-2.0
"""A table of transformed events is the transformed table of the events."""

import copy
import datetime as dt
from contextlib import suppress
from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from changelane.apply.schema_history import table_of_shadow
from changelane.errors import TransformError
from changelane.event import DataChange, Key, Op
from changelane.position import PostgresPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.conformance import EFFORT
from changelane.testing.histories import KEY, SCHEMA, TABLE, Profile, history, shuffled
from changelane.testing.reference.schema_changes import FollowingTables
from changelane.testing.reference.upsert import MemoryTables
from changelane.testing.schema_histories import Database
from changelane.transforms.cast import Cast
from changelane.transforms.chain import Chain
from changelane.transforms.include_exclude import Include
from changelane.transforms.mask import Mask
from changelane.transforms.project_rename import Project, Rename
from changelane.transforms.route import Route
from changelane.types import Date, InstantType, Integer, String, Timestamp

SECRET = "a secret of the tests"
ROWS = Chain(
    [
        Route(pattern=r"shop\.public\.orders", table="sales"),
        Project(drop=("note",)),
        Rename(columns={"id": "nr", "state": "status"}),
        Mask(columns=("status",), method="hash", secret=SECRET),
        Mask(columns=("total",), method="null"),
        Cast(columns={"count": "string", "nr": "decimal(30,0)"}),
    ]
)


@settings(
    max_examples=20 * EFFORT, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
@given(st.randoms(use_true_random=False), st.booleans(), st.sampled_from(["key", "full"]))
def test_applying_what_was_transformed_is_transforming_what_was_applied(chance, halves, before):
    told = history(chance, Profile(size=16, halves=halves, before=before))
    events = [event for batch in shuffled(chance, told.events) for event in batch]
    plain, made = MemoryTables(), MemoryTables()
    plain.apply(events)
    transformed = [ROWS(event) for event in events]
    assert None not in transformed
    made.apply(one for one in transformed if one is not None)

    def of(row):
        whole = DataChange(Op.CREATE, TABLE, Key(KEY), None, row, SCHEMA)
        return dict(ROWS(whole).after)

    target = TableId("shop", "public", "sales")
    expected = sorted((of(row) for row in plain.rows(TABLE)), key=lambda row: row["nr"])
    found = sorted((dict(row) for row in made.rows(target)), key=lambda row: row["nr"])
    assert found == expected


def test_a_date_that_is_cast_to_a_timestamp_goes_on_when_its_source_makes_it_one():
    def events(*kinds):
        values = {Date(): dt.date(2026, 2, 28), Timestamp(6): dt.datetime(2026, 2, 28)}
        for number, kind in enumerate(kinds):
            schema = TableSchema((Column("id", Integer()), Column("created", kind)))
            row = {"id": number, "created": values[kind]}
            yield DataChange(
                Op.CREATE, TABLE, Key(("id",)), None, row, schema, PostgresPosition(number)
            )

    chain = Chain([Cast(columns={"created": "timestamp(6)"})])
    made, plain = MemoryTables(), MemoryTables()
    told = [chain(event) for event in events(Date(), Timestamp(6), Date())]  # one is late
    assert len({event.schema for event in told}) == 1
    made.apply(told)
    plain.apply(events(Timestamp(6), Timestamp(6), Timestamp(6)))
    assert made.rows(TABLE) == plain.rows(TABLE)
    assert {type(row["created"]) for row in made.rows(TABLE)} == {dt.datetime}


HASH = Mask(columns=("new",), method="hash", secret=SECRET, when_missing="pass")
NULL = Mask(columns=("new",), method="null", when_missing="pass")
EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("declared", "step", "older"),
    [
        # the default of older rows, or unknown where the source may have computed it
        (Column("new", Integer(), nullable=True, default=5), Cast(columns={"new": "string"}), "5"),
        (Column("new", Integer(), nullable=True, default=0), Cast(columns={"new": "string"}), ...),
        (Column("new", Integer(), nullable=False, default=0), Cast(columns={"new": "string"}), ...),
        (Column("new", Integer(), nullable=True, default=0), Cast(columns={"new": "boolean"}), ...),
        (Column("new", InstantType(), default=EPOCH), Cast(columns={"new": "string"}), ...),
        (Column("new", String(), nullable=True, default="-"), Cast(columns={"new": "int8"}), ...),
        (Column("new", String(), nullable=True), Cast(columns={"new": "int8"}), None),
        (Column("new", String(), nullable=True, default="5"), HASH, ...),
        (Column("new", String(), nullable=True, default=""), HASH, ...),
        (Column("new", String(), nullable=True, generated=True), HASH, ...),
        (Column("new", Integer(), generated=True), Cast(columns={"new": "string"}), ...),
        (Column("new", String(), nullable=True), HASH, None),
        (Column("new", String(), nullable=False, default="5"), NULL, None),
    ],
)
def test_a_column_without_a_statement_declares_nothing_false_about_older_rows(
    declared, step, older
):
    new = {Integer: 1, String: "1", InstantType: EPOCH}[type(declared.type)]
    tables, chain = MemoryTables(), Chain([step])
    for number, columns in enumerate([(), (declared,)], 1):
        schema = TableSchema((Column("id", Integer()), *columns))
        row = {"id": number} | {column.name: new for column in columns}
        event = DataChange(
            Op.CREATE, TABLE, Key(("id",)), None, row, schema, PostgresPosition(number)
        )
        tables.apply([chain(event)])
    assert tables.rows(TABLE)[0]["new"] == (None if older is ... else older)
    assert tables.counts["incomplete"] == (older is ...)


STEPS = (
    Include(tables=("shop.t", "shop.u")),
    Rename(tables=("shop.t", "shop.u"), columns={"id": "nr", "a": "alpha", "D": "a column"}),
    Route(pattern=r"shop\..*", database="{database}_lake", table="ods `{table}"),
)
STATEMENTS = Chain([Rename(columns=STEPS[1].columns), STEPS[2]])
# the steps are not about the copies of gh-ost, which take the place of their tables
WITHOUT_SHADOWS = Chain(STEPS, skips_shadows=True)


def is_row_of_a_shadow(event):
    return isinstance(event, DataChange) and table_of_shadow(event.table) is not None


@settings(
    max_examples=20 * EFFORT, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
@given(st.randoms(use_true_random=False), st.sampled_from([STATEMENTS, WITHOUT_SHADOWS]))
def test_tables_follow_transformed_statements_as_the_database_went(chance: Random, steps: Chain):
    story = Database(chance).play(40)
    tables = FollowingTables(keep=False)
    told = [steps(event) for event in story.events]
    assert steps is STATEMENTS or not [one for one in told if is_row_of_a_shadow(one)]
    tables.apply(event for event in told if event is not None)
    names = {"id": "nr", "a": "alpha", "D": "a column"}
    for table, rows in story.tables.items():
        target = TableId("shop_lake", None, f"ods `{table.name}")
        found = {row["nr"]: row for row in tables.rows(target)}
        assert found.keys() == rows.keys()
        for key, row in rows.items():
            for name, value in row.items():
                held = found[key].get(names.get(name, name))
                if (table, name.lower()) in story.computed and held is None:
                    continue  # unknown, and said so
                assert held == value, (table, key, name)


COLUMN_STEPS = {
    "cast": [Cast(columns={"a": "string", "b": "decimal(20,2)", "id": "int64"})],
    "hash": [Mask(columns=("a", "D"), method="hash", secret=SECRET, when_missing="pass")],
    "null": [Mask(columns=("b",), method="null", when_missing="pass")],
    "project": [Project(drop=("a",)), Rename(columns={"b": "a", "c": "x"})],
    "swap": [Rename(columns={"a": "b", "b": "a"})],
}


@settings(
    max_examples=20 * EFFORT, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
@given(st.randoms(use_true_random=False), st.sampled_from(sorted(COLUMN_STEPS)))
def test_tables_have_transformed_rows_up_to_a_rejected_statement(chance: Random, name: str):
    database, chain = Database(chance), Chain(COLUMN_STEPS[name])
    told, story = [], database.play(0)
    with suppress(TransformError):
        for _ in range(40):
            told += [chain(event) for event in database.events[len(told) :]]
            story = copy.deepcopy(database.story())
            database.play(1)
    tables = FollowingTables(keep=False)
    tables.apply(event for event in told if event is not None)
    for table, rows in story.tables.items():
        found = {int(row["id"]): row for row in tables.rows(table)}
        assert found.keys() == rows.keys()
        computed = {
            moved.name.lower()
            for computed_table, column in story.computed
            for moved in [chain.target(table).resolve(column, None).moved]
            if computed_table == table and moved is not None
        }
        for key, row in rows.items():
            schema = TableSchema(tuple(Column(column, Integer(32)) for column in row))
            whole = chain(DataChange(Op.CREATE, table, Key(("id",)), None, row, schema))
            held = {column.lower(): value for column, value in found[key].items()}
            for column, value in whole.after.items():
                if held.get(column.lower()) is None and column.lower() in computed:
                    continue  # unknown, and said so
                assert held.get(column.lower()) == value, (table, key, column)
