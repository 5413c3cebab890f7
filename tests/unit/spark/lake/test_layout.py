"""What options say of single tables, which they name in full or by their last parts."""

from typing import Any

import pytest

from changelane.event import DataChange, Key, Op
from changelane.position import PostgresPosition
from changelane.schema import TableId
from changelane.spark.lake.layout import Layout, Layouts
from changelane.spark.lake.modes import Modes, TableMode
from changelane.testing.reference.upsert import MemoryTables

FULL = TableId("db", "shop", "orders")
PAST, LOG = TableMode("history"), TableMode("append")
ONE, TWO = Layout(("a",)), Layout(("b",))


@pytest.mark.parametrize(
    ("tables", "which"),
    [
        ({"orders": 0, "db.shop.orders": 1}, 1),
        ({"shop.orders": 1, "orders": 0}, 1),
        ({"db.shop.orders": 0, "shop.orders": 1}, 0),
        ({"orders": 1}, 1),
        ({"rders": 0, "other.orders": 0, "db.orders": 0}, None),
    ],
)
def test_the_fullest_name_that_fits_a_table_says_how_it_is_kept(
    tables: dict[str, int], which: int | None
) -> None:
    modes = Modes(tables={name: (PAST, LOG)[at] for name, at in tables.items()})
    assert modes.of(FULL) == (TableMode() if which is None else (PAST, LOG)[which])
    layouts = Layouts(tables={name: (ONE, TWO)[at] for name, at in tables.items()})
    assert layouts.of(FULL) == (Layout() if which is None else (ONE, TWO)[which])
    keys: dict[str, Any] = {name: (("a",), ("b",))[at] for name, at in tables.items()}
    held = MemoryTables(keys=keys)
    row = {"id": 1, "a": 2, "b": 3}
    held.apply([DataChange(Op.CREATE, FULL, Key(("id",)), None, row, None, PostgresPosition(1))])
    assert set(held.keyed(FULL)) == {b"[1]" if which is None else (b"[2]", b"[3]")[which]}
