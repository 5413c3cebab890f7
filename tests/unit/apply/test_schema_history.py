"""What statements do to tables that follow them, and which column and table an event means."""

import datetime as dt
import decimal
from typing import Final

import pytest

from changelane.apply.column_mapping import Shape
from changelane.apply.schema_history import (
    Altered,
    Ended,
    EndedAll,
    Fill,
    Renamed,
    Swapped,
    Turn,
    shadowed,
    turns_of,
)
from changelane.apply.table_mapping import Place, Tables
from changelane.ddl import Dialect, parse
from changelane.schema import TableId

USUAL: Final = TableId("shop")
T: Final = TableId("shop", None, "t")
U: Final = TableId("shop", None, "u")


def at(number: int) -> bytes:
    return b"\x01\x05" + number.to_bytes(8, "big") + b"\0"


def event(number: int) -> bytes:
    return at(number)[:-1] + b"\1"


def turns(number: int, text: str, dialect: Dialect = "mysql") -> list[Turn]:
    return turns_of(at(number), parse(text, dialect, USUAL), dialect)


def log(*told: tuple[int, str]) -> Tables:
    return Tables(turn for number, text in told for turn in turns(number, text))


def columns(*told: tuple[int, str], keep: bool = True) -> Shape:
    return Shape([one for one in log(*told).turns if isinstance(one, Altered)], keep=keep)


@pytest.mark.parametrize(
    ("text", "fill", "value"),
    [
        ("a int", Fill.NULL, None),
        ("a int DEFAULT NULL", Fill.NULL, None),
        ("a int DEFAULT 5", Fill.VALUE, 5),
        ("a varchar(9) NOT NULL DEFAULT 'n/a'", Fill.VALUE, "n/a"),
        ("a int NOT NULL", Fill.VALUE, 0),
        ("a varchar(9) NOT NULL", Fill.VALUE, ""),
        ("a decimal(9,2) NOT NULL", Fill.VALUE, decimal.Decimal(0)),
        ("a datetime DEFAULT CURRENT_TIMESTAMP", Fill.UNKNOWN, None),
        ("a int DEFAULT (1 + 1)", Fill.UNKNOWN, None),
        ("a timestamp", Fill.UNKNOWN, None),
        ("a datetime NOT NULL", Fill.UNKNOWN, None),
        ("a int AS (b + 1)", Fill.UNKNOWN, None),
        ("a int NOT NULL AUTO_INCREMENT, ADD UNIQUE KEY (a)", Fill.UNKNOWN, None),
    ],
)
def test_rows_get_in_a_new_column_of_mysql_what_the_statement_says(text, fill, value):
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
    fill = Fill.UNKNOWN if value is None else Fill.VALUE
    assert [(one.fill, one.value) for one in turn.added] == [(fill, value)]


@pytest.mark.parametrize("text", ["a varchar2(9) DEFAULT ''", "a char(4) DEFAULT 'x'"])
def test_oracle_pads_char_and_has_no_empty_text(text):
    (turn,) = turns(1, f"ALTER TABLE t ADD ({text})", "oracle")
    assert turn.added[0].fill is Fill.UNKNOWN


def test_other_databases_refuse_not_null_without_a_default_on_rows():
    (turn,) = turns(1, "ALTER TABLE t ADD a number NOT NULL", "oracle")
    assert turn.added[0].fill is Fill.NULL


def test_one_statement_is_one_turn_of_each_table():
    assert [type(one) for one in turns(1, "DROP TABLE t, u")] == [Ended, Ended]
    found = turns(1, "ALTER TABLE t DROP a, CHANGE b c int, ADD d int, RENAME TO u")
    assert [type(one) for one in found] == [Altered, Renamed]
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
    found = shadowed(TableId("shop", None, name))
    assert found == (None if of is None else TableId("shop", None, of))


def test_a_shadow_that_takes_its_tables_place_is_a_swap_and_no_rename():
    (turn,) = turns(1, "RENAME TABLE t TO _t_del, _t_gho TO t")
    assert isinstance(turn, Swapped)
    assert (turn.table, turn.shadow.name) == (T, "_t_gho")
    landed = turns_of(
        at(1),
        parse("RENAME TABLE t TO _t_del, _t_gho TO t", "mysql", USUAL),
        "mysql",
        shadows=False,
    )
    assert [type(one) for one in landed] == [Renamed, Renamed]


def test_tables_that_one_statement_renames_may_be_told_one_by_one():
    """Debezium tells each in a message of its own, all at the same position."""
    clauses = ["t TO a", "u TO t", "a TO u"]
    told = [parse(f"RENAME TABLE {clause}", "mysql", USUAL) for clause in clauses]
    tables = Tables(
        turn
        for before, statements in enumerate(told)
        for turn in turns_of(at(5), statements, "mysql", before=before)
    )
    assert tables.place(T, event(6)) == Place(U)
    assert tables.place(U, event(6)) == Place(T)


def test_a_table_takes_what_was_done_to_its_shadow_since_it_was_made():
    tables = log(
        (1, "ALTER TABLE _t_gho DROP COLUMN z"),  # of an attempt before
        (2, "DROP TABLE _t_gho"),
        (3, "CREATE TABLE _t_gho LIKE t"),
        (4, "ALTER TABLE _t_gho RENAME COLUMN a TO b"),
        (5, "RENAME TABLE t TO _t_del, _t_gho TO t"),
    )
    (turn,) = tables.altered(Place(T))
    assert (turn.order, turn.renamed, turn.dropped) == (at(5), (("a", "b"),), ())


# -- columns -----------------------------------------------------------------------------------


def test_an_event_from_before_a_rename_means_the_column_that_has_another_name_now():
    shape = columns((5, "ALTER TABLE t RENAME COLUMN a TO b"))
    assert shape.reading(["a"], event(4)).columns == {"a": "b"}
    assert shape.reading(["b"], event(6)).columns == {"b": "b"}


def test_names_change_hands_all_at_once():
    shape = columns((5, "ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"))
    assert shape.reading(["a", "b"], event(4)).columns == {"a": "b", "b": "a"}
    (step,) = shape.steps
    names = ["a", "b"]
    for old, new in step.renamed:
        assert new not in names
        names[names.index(old)] = new
    assert names == ["b", "a"]


def test_an_event_from_before_a_drop_does_not_bring_the_column_back():
    shape = columns((5, "ALTER TABLE t DROP COLUMN a"), keep=False)
    assert shape.reading(["a"], event(4)).columns == {"a": None}
    assert shape.steps[0].dropped == ("a",)


def test_a_dropped_column_that_is_kept_steps_aside_for_a_new_one_of_its_name():
    shape = columns((5, "ALTER TABLE t DROP COLUMN a"), (7, "ALTER TABLE t ADD COLUMN a int"))
    assert shape.reading(["a"], event(4)).columns == {"a": "a__dropped_2"}
    assert shape.reading(["a"], event(8)).columns == {"a": "a"}
    assert [step.renamed for step in shape.steps] == [(), (("a", "a__dropped_2"),)]


def test_a_column_may_come_and_go_in_one_statement():
    shape = columns((5, "ALTER TABLE t DROP COLUMN a, ADD COLUMN a int"), keep=False)
    assert shape.reading(["a"], event(4)).columns == {"a": None}
    assert shape.reading(["a"], event(6)).columns == {"a": "a"}


def test_older_events_leave_the_default_in_a_column_that_came_after_them():
    shape = columns((5, "ALTER TABLE t ADD COLUMN a int DEFAULT 5"))
    (filling,) = shape.reading(["id"], event(4)).fillings
    assert (filling.column, filling.added.value) == ("a", 5)
    assert not shape.reading(["id", "a"], event(6)).fillings


def test_a_snapshot_below_the_stream_may_know_names_of_later():
    shape = columns((5, "ALTER TABLE t RENAME COLUMN a TO b"), (6, "ALTER TABLE t ADD c int"))
    assert shape.reading(["b", "c"], event(1)).columns == {"b": "b", "c": "c"}
    assert shape.reading(["b"], event(1)).columns == {"b": "b"}


def test_names_that_differ_by_case_are_one():
    shape = columns((5, "ALTER TABLE t RENAME COLUMN Abc TO ABC"), (6, "ALTER TABLE t DROP abc"))
    assert [step.renamed for step in shape.steps] == [(), ()]
    assert shape.reading(["aBc"], event(4)).columns == {"aBc": "abc"}


def test_a_table_that_does_not_follow_keeps_its_names_and_takes_the_new_ones():
    turn = columns((5, "ALTER TABLE t RENAME COLUMN a TO b")).turns
    shape = Shape(turn, turned=0)
    assert shape.reading(["b"], event(6)).columns == {"b": "a"}


# -- tables ------------------------------------------------------------------------------------


def test_a_renamed_table_goes_on_under_its_new_name():
    tables = log((5, "RENAME TABLE t TO u"))
    assert tables.place(T, event(4)) == Place(T)
    assert tables.place(U, event(6)) == Place(T)
    assert tables.called(Place(T)) == U


def test_the_old_name_is_another_table_from_then_on():
    tables = log((5, "RENAME TABLE t TO u"), (6, "CREATE TABLE t (id int)"))
    new = tables.place(T, event(7))
    assert new.table == T
    assert new.generation
    assert [end.order for end in tables.ends(new)] == [at(6)]
    assert not tables.ends(Place(T))


def test_a_table_that_went_before_another_got_its_name_is_not_that():
    tables = log((3, "DROP TABLE u"), (5, "RENAME TABLE t TO u"))
    assert tables.place(U, event(2)) == Place(U)
    assert tables.place(U, event(6)) == Place(T)
    assert [end.order for end in tables.ends(Place(U))] == [at(3)]
    assert not tables.ends(Place(T))


def test_a_name_that_is_told_too_early_is_the_table_that_gets_it():
    assert log((5, "RENAME TABLE t TO u")).place(U, event(2)) == Place(T)


def test_tables_may_swap_their_names():
    tables = log((5, "RENAME TABLE t TO x, u TO t, x TO u"))
    assert tables.place(T, event(6)) == Place(U)
    assert tables.place(U, event(6)) == Place(T)


def test_a_database_goes_with_all_its_tables():
    tables = log((5, "DROP DATABASE shop"))
    assert isinstance(tables.turns[0], EndedAll)
    assert [end.order for end in tables.ends(Place(T))] == [at(5)]
    assert not tables.ends(Place(TableId("other", None, "t")))


def test_a_statement_that_is_told_twice_is_one_turn():
    tables = log((5, "ALTER TABLE t DROP a"), (5, "ALTER TABLE t DROP a"))
    assert len(tables.turns) == 1
