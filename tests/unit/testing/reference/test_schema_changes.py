"""Tables that follow statements end as the database itself that was told of."""

from random import Random
from typing import Any, Final

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from changelane.event import ChangeEvent, DataChange, Image, Key, Op, SchemaChange
from changelane.position import MySqlPosition
from changelane.schema import Column, TableId, TableSchema
from changelane.testing.conformance import EFFORT
from changelane.testing.histories import rewound, shuffled
from changelane.testing.reference.schema_changes import FollowingTables
from changelane.testing.schema_histories import SOURCE, Database, Story
from changelane.types import UNAVAILABLE, Integer

T: Final = TableId("shop", None, "t")


def at(place: int) -> MySqlPosition:
    return MySqlPosition("binlog.000001", place)


def row(place: int, op: Op, before: Image | None, after: Image) -> DataChange:
    schema = TableSchema(tuple(Column(name, Integer(32)) for name in after))
    return DataChange(op, T, Key(("id",)), before, after, schema, at(place), source=SOURCE)


def check(story: Story, batches: list[list[ChangeEvent]], *, keep: bool) -> None:
    tables = FollowingTables(keep=keep)
    for batch in batches:
        tables.apply(batch)
    for table, rows in story.tables.items():
        found = {row["id"]: row for row in tables.rows(table)}
        assert found.keys() == rows.keys(), table
        for key, row in rows.items():
            told: dict[str, Any] = {name.lower(): value for name, value in row.items()}
            for name, value in told.items():
                held = found[key].get(name)
                if (table, name) in story.computed and held is None:
                    continue  # unknown, and said so
                assert held == value, (table, key, name)
            if not keep:
                assert found[key].keys() <= told.keys(), (table, key)


def test_a_row_that_moved_whole_by_its_before_image_gets_the_default_of_a_later_column():
    told = [
        row(1, Op.CREATE, None, {"id": 1, "a": 1}),
        row(2, Op.UPDATE, {"id": 1, "a": 1}, {"id": 2, "a": UNAVAILABLE}),
        SchemaChange(T, "alter", "ALTER TABLE t ADD b int NOT NULL", position=at(3), source=SOURCE),
        row(4, Op.CREATE, None, {"id": 3, "a": 3, "b": 3}),
    ]
    tables = FollowingTables()
    tables.apply(told)
    assert tables.rows(T) == [{"id": 2, "a": 1, "b": 0}, {"id": 3, "a": 3, "b": 3}]


# a smaller history says little more than the one that failed, and takes minutes to find
@settings(
    max_examples=20 * EFFORT, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
@given(st.randoms(use_true_random=False), st.booleans(), st.booleans())
def test_following_tables_equal_the_database(chance: Random, keep: bool, in_order: bool) -> None:
    story = Database(chance).play(40)
    deliver = rewound if in_order else shuffled
    check(story, deliver(chance, story.events), keep=keep)
