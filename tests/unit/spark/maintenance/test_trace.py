# SPDX-License-Identifier: Apache-2.0
"""``trace`` finds a table by its name at the source."""

from typing import Any

import pytest

from changelane.errors import ConfigError
from changelane.schema import TableId

trace = pytest.importorskip("changelane.spark.maintenance.trace", exc_type=ImportError)
schema = pytest.importorskip("changelane.spark.rows.schema", exc_type=ImportError)


class Tables:
    """The properties of a lake's tables."""

    def __init__(self, **properties: dict[str, str]) -> None:
        self._properties = properties

    def tables(self) -> list[str]:
        return list(self._properties)

    def properties(self, name: str) -> dict[str, str]:
        return self._properties[name]


def named(name: str) -> str:
    text: str = schema.table_id_text(TableId("shop", None, name))
    return text


@pytest.mark.parametrize(
    ("name", "lake_table"),
    [
        ("orders", "second"),
        ("shop.orders", "second"),
        ("orders_old", "first"),
        ("shop.orders_old", "first"),
        ("moved", "third"),
        ("items", "third"),
    ],
)
def test_the_present_name_of_a_table_comes_before_a_former_one(name: str, lake_table: str) -> None:
    lake: Any = Tables(
        first={"table": named("orders"), "named": named("orders_old")},
        second={"table": named("orders"), "named": ""},
        third={"table": named("items"), "named": named("moved")},
        other={},
    )
    assert trace._table_named(lake, name)[0] == lake_table


def test_a_name_that_no_table_or_several_tables_have_is_an_error() -> None:
    lake: Any = Tables(a={"table": named("orders")}, b={"table": named("orders")})
    with pytest.raises(ConfigError, match="more than one table is called 'orders'"):
        trace._table_named(lake, "orders")
    with pytest.raises(ConfigError, match="no table is called 'x'"):
        trace._table_named(lake, "x")
