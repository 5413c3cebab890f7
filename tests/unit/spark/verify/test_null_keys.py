# SPDX-License-Identifier: Apache-2.0
"""Keys with NULL, which the option ``keys`` allows: a lookup by ``=`` never finds their rows."""

from typing import Any

import pytest

from changelane.capture.postgres.tables import Relation
from changelane.spark.verify.canonical_text import CanonicalText, key_field
from changelane.spark.verify.lake_rows import tombstone_key
from changelane.spark.verify.postgres_rows import PostgresTable
from changelane.spark.verify.table_plan import ComparedColumn, TablePlan

COLUMNS = tuple(
    ComparedColumn(
        name=name,
        lake_name=name,
        lake_type="string",
        text=CanonicalText("{}", "{}"),
        key_text=str,
        key_cast="{}",
    )
    for name in "ab"
)
PLAN = TablePlan(key_columns=COLUMNS, columns=COLUMNS, ranges=(), unproven_columns={})


class Connection:
    """Records the statements."""

    def __init__(self) -> None:
        self.query = ""
        self.parameters: list[Any] = []

    def execute(self, query: bytes | str, parameters: list[Any]) -> list[Any]:
        self.query = query if isinstance(query, str) else query.decode()
        self.parameters = parameters
        return []


@pytest.mark.parametrize(("key", "names"), [("1:x1:y", {"a", "b"}), ("1:x-", {"a"})])
def test_a_column_with_null_is_found_by_the_fields_of_its_key(key: str, names: set[str]) -> None:
    connection = Connection()
    table = PostgresTable(
        connection, Relation(oid=1, schema="public", name="t", kind="table"), PLAN
    )
    assert table.fields(frozenset({key})) == {}
    assert {name for name in "ab" if f't."{name}" = k.' in connection.query} == names
    assert connection.parameters[0] == [key]


def test_the_tombstone_of_a_key_with_null_has_the_fields_of_the_source() -> None:
    assert tombstone_key('["x",null]', PLAN) == key_field("x") + "-"
