"""A table follows each turn once, whatever crashes between two steps."""

from random import Random
from typing import Any, Final

import pytest

from changelane.apply.column_mapping import ColumnMapping
from changelane.apply.schema_history import TableAltered, schema_changes_of
from changelane.ddl import parse
from changelane.schema import TableId

alter = pytest.importorskip("changelane.spark.evolution.alter", exc_type=ImportError)

SCHEMA: Final = (
    '{"columns":[{"name":"id","type":"int32","spark":"INT"},'
    '{"name":"a","type":"int32","spark":"INT"}],"key":["id"]}'
)
USUAL: Final = TableId("shop", None, "t")


class CrashError(Exception):
    pass


class FakeLake:
    """One table: its columns, each known by the number it was made with, and its properties."""

    def __init__(self, columns: list[str]) -> None:
        self.held = {name: number for number, name in enumerate(columns)}
        self.told = {"schema": SCHEMA}
        self.left: int | None = None
        self.done = 0

    def _step(self) -> None:
        if self.left is not None:
            if self.left == 0:
                raise CrashError
            self.left -= 1
        self.done += 1

    def columns(self, _: str) -> dict[str, str]:
        return dict.fromkeys(self.held, "int")

    def properties(self, _: str) -> dict[str, str]:
        return dict(self.told)

    def set_properties(self, _: str, properties: dict[str, str]) -> None:
        self._step()
        self.told |= properties

    def rename_column(self, _: str, name: str, new_name: str) -> None:
        self._step()
        assert new_name not in self.held
        self.held[new_name] = self.held.pop(name)

    def drop_columns(self, _: str, names: Any) -> None:
        self._step()
        for name in names:
            del self.held[name]


def shape(*texts: str, keep: bool = True) -> ColumnMapping:
    told = [
        turn
        for number, text in enumerate(texts, 1)
        for turn in schema_changes_of(bytes([number]), parse(text, "mysql", USUAL), "mysql")
    ]
    return ColumnMapping([turn for turn in told if isinstance(turn, TableAltered)], keep=keep)


def follow(lake: FakeLake, wanted: ColumnMapping) -> None:
    """What a batch does before its rows."""
    properties = lake.properties("t")
    if (begun := alter.unfinished_alteration(properties)) is not None:
        properties = alter.finish_alteration(lake, "t", begun, properties)
    done = properties.get(alter.EXECUTED, "").split(",")
    for step in wanted.changes:
        if alter.entry_id(step.order, step.part) not in done:
            one = alter.alteration_of(step, lake.columns("t"))
            properties = alter.alter_table(lake, "t", one, properties)


STATEMENTS: Final = {
    "rename": ["ALTER TABLE t RENAME COLUMN a TO d"],
    "swap": ["ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"],
    "swap there and back": ["ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"] * 2,
    "rotate": ["ALTER TABLE t CHANGE a b int, CHANGE b c int, CHANGE c a int"],
    "drop and rename": ["ALTER TABLE t DROP COLUMN a, RENAME COLUMN b TO a"],
    "drop, add, drop": [
        "ALTER TABLE t DROP COLUMN a",
        "ALTER TABLE t RENAME COLUMN b TO a",
        "ALTER TABLE t DROP COLUMN a, RENAME COLUMN c TO a",
    ],
    "key": ["ALTER TABLE t RENAME COLUMN id TO nr, RENAME COLUMN a TO id"],
}


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize("name", STATEMENTS)
def test_a_crash_at_any_step_is_mended_by_following_again(name: str, keep: bool) -> None:
    wanted = shape(*STATEMENTS[name], keep=keep)
    whole = FakeLake(["id", "a", "b", "c"])
    follow(whole, wanted)
    for crash in range(whole.done):
        lake = FakeLake(["id", "a", "b", "c"])
        lake.left = crash
        with pytest.raises(CrashError):
            follow(lake, wanted)
        lake.left = None
        follow(lake, wanted)
        assert lake.held == whole.held, crash
        assert lake.told == whole.told, crash
        before = lake.done
        follow(lake, wanted)
        assert lake.done == before, "following again does nothing"


def test_crashes_again_and_again_are_mended() -> None:
    wanted = shape(*STATEMENTS["swap there and back"], *STATEMENTS["rotate"], *STATEMENTS["key"])
    whole = FakeLake(["id", "a", "b", "c"])
    follow(whole, wanted)
    for seed in range(200):
        chance = Random(seed)
        lake = FakeLake(["id", "a", "b", "c"])
        for _ in range(100):
            lake.left = chance.randrange(1, 5)
            try:
                follow(lake, wanted)
            except CrashError:
                continue
            break
        assert lake.held == whole.held


def test_a_rename_to_a_name_that_is_there_is_refused() -> None:
    (step,) = shape("ALTER TABLE t RENAME COLUMN a TO b").changes
    with pytest.raises(alter.ConflictError):
        alter.alteration_of(step, {"id": "int", "a": "int", "B": "int"})


def test_columns_that_the_table_never_had_are_left_alone() -> None:
    (step,) = shape("ALTER TABLE t RENAME COLUMN x TO y, DROP COLUMN z", keep=False).changes
    assert alter.alteration_of(step, {"id": "int"}).is_empty
