"""What statements do to tables that follow them, and which column and table an event means."""

import datetime as dt
import decimal
from typing import Final

import pytest

from changelane.apply.column_mapping import ColumnMapping
from changelane.apply.schema_history import (
    Backfill,
    SchemaChangeEntry,
    SchemaDropped,
    ShadowSwapped,
    TableAltered,
    TableDropped,
    TableRenamed,
    schema_changes_of,
    table_of_shadow,
)
from changelane.apply.table_mapping import LakeTable, TableMapping
from changelane.ddl import Dialect, parse
from changelane.schema import TableId

USUAL: Final = TableId("shop")
T: Final = TableId("shop", None, "t")
U: Final = TableId("shop", None, "u")


def at(number: int) -> bytes:
    return b"\x01\x05" + number.to_bytes(8, "big") + b"\0"


def event(number: int) -> bytes:
    return at(number)[:-1] + b"\1"


def turns(number: int, text: str, dialect: Dialect = "mysql") -> list[SchemaChangeEntry]:
    return schema_changes_of(at(number), parse(text, dialect, USUAL), dialect)


def log(*told: tuple[int, str]) -> TableMapping:
    return TableMapping(turn for number, text in told for turn in turns(number, text))


def columns(*told: tuple[int, str], keep: bool = True) -> ColumnMapping:
    return ColumnMapping(
        [one for one in log(*told).entries if isinstance(one, TableAltered)], keep=keep
    )


@pytest.mark.parametrize(
    ("text", "fill", "value"),
    [
        ("a int", Backfill.NULL, None),
        ("a int DEFAULT NULL", Backfill.NULL, None),
        ("a int DEFAULT 5", Backfill.VALUE, 5),
        ("a varchar(9) NOT NULL DEFAULT 'n/a'", Backfill.VALUE, "n/a"),
        ("a int NOT NULL", Backfill.VALUE, 0),
        ("a varchar(9) NOT NULL", Backfill.VALUE, ""),
        ("a decimal(9,2) NOT NULL", Backfill.VALUE, decimal.Decimal(0)),
        ("a datetime DEFAULT CURRENT_TIMESTAMP", Backfill.UNKNOWN, None),
        ("a int DEFAULT (1 + 1)", Backfill.UNKNOWN, None),
        ("a timestamp", Backfill.UNKNOWN, None),
        ("a datetime NOT NULL", Backfill.UNKNOWN, None),
        ("a int AS (b + 1)", Backfill.UNKNOWN, None),
        ("a int NOT NULL AUTO_INCREMENT, ADD UNIQUE KEY (a)", Backfill.UNKNOWN, None),
    ],
)
def test_rows_get_the_default_of_the_statement_in_a_new_column_of_mysql(text, fill, value):
    (turn,) = turns(1, f"ALTER TABLE t ADD COLUMN {text}")
    assert [(one.fill, one.value) for one in turn.added] == [(fill, value)]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a enum('x', 'y') DEFAULT 'y'", "y"),
        ("a set('x', 'y') DEFAULT 'x,y'", "x,y"),
        ("a char(4) DEFAULT 'x'", "x"),
        ("a varchar(4) DEFAULT 'x '", "x "),
        (
            "a datetime(1) DEFAULT '2020-01-05 10:00:00.5'",
            dt.datetime(2020, 1, 5, 10, 0, 0, 500000),
        ),
        ("a double DEFAULT 1.25", 1.25),
        ("a decimal(5,1) DEFAULT 1.20", decimal.Decimal("1.2")),
        # it stores another value than the literal spells
        ("a enum('x', 'y') DEFAULT 'Y'", None),
        ("a set('x', 'y') DEFAULT 'y,x'", None),
        ("a char(4) DEFAULT 'x '", None),
        ("a datetime DEFAULT '2020-01-05 10:00:00.5'", None),
        ("a double(5,1) DEFAULT 1.25", None),
        ("a decimal(5,1) DEFAULT 1.25", None),
        ("a decimal DEFAULT 1.5", None),
        ("a uuid NOT NULL", None),
        ("a serial", None),
    ],
)
def test_a_default_is_what_rows_get_only_where_the_source_keeps_it_as_it_is_spelled(text, value):
    (turn,) = turns(1, f"ALTER TABLE t ADD COLUMN {text}")
    fill = Backfill.UNKNOWN if value is None else Backfill.VALUE
    assert [(one.fill, one.value) for one in turn.added] == [(fill, value)]


@pytest.mark.parametrize("text", ["a varchar2(9) DEFAULT ''", "a char(4) DEFAULT 'x'"])
def test_oracle_pads_char_and_has_no_empty_text(text):
    (turn,) = turns(1, f"ALTER TABLE t ADD ({text})", "oracle")
    assert turn.added[0].fill is Backfill.UNKNOWN


def test_other_databases_refuse_not_null_without_a_default_on_rows():
    (turn,) = turns(1, "ALTER TABLE t ADD a number NOT NULL", "oracle")
    assert turn.added[0].fill is Backfill.NULL


def test_one_statement_is_one_turn_of_each_table():
    assert [type(one) for one in turns(1, "DROP TABLE t, u")] == [TableDropped, TableDropped]
    found = turns(1, "ALTER TABLE t DROP a, CHANGE b c int, ADD d int, RENAME TO u")
    assert [type(one) for one in found] == [TableAltered, TableRenamed]
    assert found[0].dropped == ("a",)
    assert found[0].renamed == (("b", "c"),)
    assert [one.part for one in found] == [0, 1]


@pytest.mark.parametrize(
    "text",
    [
        "CREATE TABLE IF NOT EXISTS t (a int)",
        "CREATE TEMPORARY TABLE t (a int)",
        "DROP TEMPORARY TABLE t",
        "ALTER TABLE t MODIFY a bigint NOT NULL",
        "ALTER TABLE t ENGINE = InnoDB",
        "CREATE INDEX i ON t (a)",
        "ALTER TABLE t ALTER a SET DEFAULT 5",
    ],
)
def test_statements_that_move_no_names_are_no_turns(text):
    assert not turns(1, text)


@pytest.mark.parametrize(
    ("name", "of"),
    [
        ("_orders_gho", "orders"),
        ("_orders_ghc", "orders"),
        ("_orders_20240101120000_del", "orders"),
        ("_orders_new", "orders"),
        ("__orders_old", "orders"),
        ("orders_new", None),
        ("_orders", None),
        (None, None),
    ],
)
def test_shadow_tables_are_known_by_their_names(name, of):
    found = table_of_shadow(TableId("shop", None, name))
    assert found == (None if of is None else TableId("shop", None, of))


def test_a_shadow_that_takes_its_tables_place_is_a_swap_and_no_rename():
    (turn,) = turns(1, "RENAME TABLE t TO _t_del, _t_gho TO t")
    assert isinstance(turn, ShadowSwapped)
    assert (turn.table, turn.shadow.name) == (T, "_t_gho")
    landed = schema_changes_of(
        at(1),
        parse("RENAME TABLE t TO _t_del, _t_gho TO t", "mysql", USUAL),
        "mysql",
        shadows=False,
    )
    assert [type(one) for one in landed] == [TableRenamed, TableRenamed]


def test_a_rename_of_several_tables_may_arrive_one_table_at_a_time():
    """Debezium tells each in a message of its own, all at the same position."""
    clauses = ["t TO a", "u TO t", "a TO u"]
    told = [parse(f"RENAME TABLE {clause}", "mysql", USUAL) for clause in clauses]
    tables = TableMapping(
        turn
        for before, statements in enumerate(told)
        for turn in schema_changes_of(at(5), statements, "mysql", before=before)
    )
    assert tables.lake_table(T, event(6)) == LakeTable(U)
    assert tables.lake_table(U, event(6)) == LakeTable(T)


def test_a_table_takes_what_was_done_to_its_shadow_since_it_was_made():
    tables = log(
        (1, "ALTER TABLE _t_gho DROP COLUMN z"),  # of an attempt before
        (2, "DROP TABLE _t_gho"),
        (3, "CREATE TABLE _t_gho LIKE t"),
        (4, "ALTER TABLE _t_gho RENAME COLUMN a TO b"),
        (5, "RENAME TABLE t TO _t_del, _t_gho TO t"),
    )
    (turn,) = tables.alterations(LakeTable(T))
    assert (turn.order, turn.renamed, turn.dropped) == (at(5), (("a", "b"),), ())


# -- columns -----------------------------------------------------------------------------------


def test_an_event_from_before_a_rename_writes_the_renamed_column():
    shape = columns((5, "ALTER TABLE t RENAME COLUMN a TO b"))
    assert shape.event_columns(["a"], event(4)).columns == {"a": "b"}
    assert shape.event_columns(["b"], event(6)).columns == {"b": "b"}


def test_names_change_hands_all_at_once():
    shape = columns((5, "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"))
    assert shape.event_columns(["a", "b"], event(4)).columns == {"a": "b", "b": "a"}
    (step,) = shape.changes
    names = ["a", "b"]
    for old, new in step.renamed:
        assert new not in names
        names[names.index(old)] = new
    assert names == ["b", "a"]


def test_an_event_from_before_a_drop_does_not_bring_the_column_back():
    shape = columns((5, "ALTER TABLE t DROP COLUMN a"), keep=False)
    assert shape.event_columns(["a"], event(4)).columns == {"a": None}
    assert shape.changes[0].dropped == ("a",)


def test_a_dropped_column_that_is_kept_steps_aside_for_a_new_one_of_its_name():
    shape = columns((5, "ALTER TABLE t DROP COLUMN a"), (7, "ALTER TABLE t ADD COLUMN a int"))
    assert shape.event_columns(["a"], event(4)).columns == {"a": "a__dropped_2"}
    assert shape.event_columns(["a"], event(8)).columns == {"a": "a"}
    assert [step.renamed for step in shape.changes] == [(), (("a", "a__dropped_2"),)]


def test_a_column_may_come_and_go_in_one_statement():
    shape = columns((5, "ALTER TABLE t DROP COLUMN a, ADD COLUMN a int"), keep=False)
    assert shape.event_columns(["a"], event(4)).columns == {"a": None}
    assert shape.event_columns(["a"], event(6)).columns == {"a": "a"}


def test_older_events_leave_the_default_in_a_column_that_came_after_them():
    shape = columns((5, "ALTER TABLE t ADD COLUMN a int DEFAULT 5"))
    (filling,) = shape.event_columns(["id"], event(4)).backfills
    assert (filling.column, filling.added.value) == ("a", 5)
    assert not shape.event_columns(["id", "a"], event(6)).backfills


def test_a_snapshot_below_the_stream_may_know_names_of_later():
    shape = columns((5, "ALTER TABLE t RENAME COLUMN a TO b"), (6, "ALTER TABLE t ADD c int"))
    assert shape.event_columns(["b", "c"], event(1)).columns == {"b": "b", "c": "c"}
    assert shape.event_columns(["b"], event(1)).columns == {"b": "b"}


def test_names_that_differ_by_case_are_one():
    shape = columns((5, "ALTER TABLE t RENAME COLUMN Abc TO ABC"), (6, "ALTER TABLE t DROP abc"))
    assert [step.renamed for step in shape.changes] == [(), ()]
    assert shape.event_columns(["aBc"], event(4)).columns == {"aBc": "abc"}


def test_a_table_that_does_not_follow_keeps_its_names_and_takes_the_new_ones():
    turn = columns((5, "ALTER TABLE t RENAME COLUMN a TO b")).entries
    shape = ColumnMapping(turn, followed_count=0)
    assert shape.event_columns(["b"], event(6)).columns == {"b": "a"}


# -- tables ------------------------------------------------------------------------------------


def test_a_renamed_table_goes_on_under_its_new_name():
    tables = log((5, "RENAME TABLE t TO u"))
    assert tables.lake_table(T, event(4)) == LakeTable(T)
    assert tables.lake_table(U, event(6)) == LakeTable(T)
    assert tables.current_name(LakeTable(T)) == U


def test_the_old_name_is_another_table_from_then_on():
    tables = log((5, "RENAME TABLE t TO u"), (6, "CREATE TABLE t (id int)"))
    new = tables.lake_table(T, event(7))
    assert new.table == T
    assert new.generation
    assert [end.order for end in tables.ends(new)] == [at(6)]
    assert not tables.ends(LakeTable(T))


def test_a_table_that_went_before_another_got_its_name_is_not_that():
    tables = log((3, "DROP TABLE u"), (5, "RENAME TABLE t TO u"))
    assert tables.lake_table(U, event(2)) == LakeTable(U)
    assert tables.lake_table(U, event(6)) == LakeTable(T)
    assert [end.order for end in tables.ends(LakeTable(U))] == [at(3)]
    assert not tables.ends(LakeTable(T))


def test_an_event_with_a_name_from_before_its_rename_is_of_the_renamed_table():
    assert log((5, "RENAME TABLE t TO u")).lake_table(U, event(2)) == LakeTable(T)


def test_tables_may_swap_their_names():
    tables = log((5, "RENAME TABLE t TO x, u TO t, x TO u"))
    assert tables.lake_table(T, event(6)) == LakeTable(U)
    assert tables.lake_table(U, event(6)) == LakeTable(T)


def test_a_database_goes_with_all_its_tables():
    tables = log((5, "DROP DATABASE shop"))
    assert isinstance(tables.entries[0], SchemaDropped)
    assert [end.order for end in tables.ends(LakeTable(T))] == [at(5)]
    assert not tables.ends(LakeTable(TableId("other", None, "t")))


def test_a_repeated_statement_is_one_entry():
    tables = log((5, "ALTER TABLE t DROP a"), (5, "ALTER TABLE t DROP a"))
    assert len(tables.entries) == 1
