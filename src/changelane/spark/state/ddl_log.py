# SPDX-License-Identifier: Apache-2.0
"""The schema log: the statements about shapes that a stream told, each at its place in the log.

One table per lake, made with the first statement and written before any table follows one: what a
table's columns are at an order is a function of it, so that a replay reads each event with the
names of its time. Repeating a statement adds nothing.
"""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import SparkSession

from changelane.apply.schema_history import Turn, turns_of
from changelane.apply.table_mapping import Tables
from changelane.ddl import dialect_of, parse
from changelane.spark.lake.interface import Lake
from changelane.spark.rows.batch_stats import Statements
from changelane.spark.rows.schema import Told, table_id_of
from changelane.spark.runtime.sql import quoted

NAME: Final = "_changelane/schemas"
COLUMNS: Final = {
    "table_id": "STRING",
    "order": "BINARY",
    "product": "STRING",
    "ddl": "STRING",
    "before": "INT",
}
"""*before*: how many other texts were told of the same place before this one."""


class SchemaLog:
    """The schema log of one lake.

    Args:
        spark: The session.
        lake: The tables.
        shadows: Tables of online schema changes are shadows of others; else they are tables.
    """

    def __init__(self, spark: SparkSession, lake: Lake, *, shadows: bool = True) -> None:
        self._spark = spark
        self._lake = lake
        self._shadows = shadows
        self._kept: dict[Statements, None] | None = None
        self._before: dict[bytes, dict[str, int]] = {}
        self._tables = Tables()

    @property
    def kept(self) -> dict[Statements, None]:
        """All statements, each once."""
        if self._kept is None:
            self._kept = {}
            if self._lake.exists(NAME):
                for row in self._lake.read(NAME).collect():
                    told = Told(row["ddl"], row["product"])
                    one = Statements(bytes(row["order"]), row["table_id"], told)
                    self._kept[one] = None
                    # a log of an older version does not tell it
                    before = row.asDict().get("before") or 0
                    self._before.setdefault(one.order, {})[told.ddl] = before
            self._tables = self._read()
        return self._kept

    @property
    def tables(self) -> Tables:
        """The tables in the course of the log."""
        _ = self.kept
        return self._tables

    def add(self, told: Iterable[Statements]) -> list[Statements]:
        """Keep statements, in the order in which they were told; return those that are new."""
        kept = self.kept
        fresh = [one for one in told if one not in kept]
        if not fresh:
            return []
        self._lake.create(NAME, COLUMNS, {})
        lacking = {c: k for c, k in COLUMNS.items() if c not in self._lake.columns(NAME)}
        if lacking:
            self._lake.add_columns(NAME, lacking)
        for one in fresh:
            here = self._before.setdefault(one.order, {})
            here.setdefault(one.told.ddl, len(here))
        rows = [
            (one.table_id, one.order, one.told.product, one.told.ddl, self._told_before(one))
            for one in fresh
        ]
        kinds = ", ".join(f"{quoted(name)} {kind}" for name, kind in COLUMNS.items())
        self._lake.append(self._spark, NAME, self._spark.createDataFrame(rows, kinds))
        kept.update(dict.fromkeys(fresh))
        self._tables = self._read()
        return fresh

    def _read(self) -> Tables:
        return Tables(turn for one in self._kept or () for turn in self.turns(one))

    def turns(self, one: Statements) -> list[Turn]:
        """Return what statements do to the tables that are followed."""
        dialect = dialect_of(one.told.product)
        if dialect is None:
            return []
        usual = table_id_of(one.table_id)
        found = parse(one.told.ddl, dialect, usual)
        before = self._told_before(one)
        return turns_of(one.order, found, dialect, shadows=self._shadows, before=before)

    def _told_before(self, one: Statements) -> int:
        return self._before.get(one.order, {}).get(one.told.ddl, 0)
