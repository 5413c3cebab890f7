# SPDX-License-Identifier: Apache-2.0
"""The lakes with tables that SQL creates and changes: Delta and Iceberg."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from threading import Lock
from typing import ClassVar, Final

import msgspec
from pyspark.sql import Column, DataFrame, DataFrameWriterV2, SparkSession
from pyspark.sql import functions as F

from changelane.spark.lake import table_sql
from changelane.spark.lake.interface import (
    LAST,
    TABLES,
    Commit,
    Files,
    folders,
    in_session,
    prefixed_properties,
    retry_conflicts,
    session_view,
    types_of,
    widens,
)
from changelane.spark.lake.layout import PLAIN, Layout
from changelane.spark.lake.merge import Merge
from changelane.spark.runtime.computed import computed_once

ANY_TABLE: Final = "{table}"
_CREATION: Final = Lock()


class SqlLake:
    """The tables of one format under one folder.

    Args:
        spark: The session.
        root: The folder.
        location: The location of the sources' tables, if another; it ends in ``/{table}``.
    """

    has_one_writer = False
    can_rename = True
    lost_partitions: ClassVar[Sequence[str]] = ()
    using: ClassVar[str]
    """The format's name in SQL."""
    needs_location: ClassVar[bool]
    """Whether a table with another location needs a LOCATION clause; else its name has the path."""
    defaults: ClassVar[Mapping[str, str]]
    """The properties of every new table."""

    def __init__(self, spark: SparkSession, root: str, location: str | None = None) -> None:
        self.spark = spark
        self._root = root
        self._location = location

    def path(self, table: str) -> str:
        return self.location_of(table) or f"{self._root}/{table}"

    def location_of(self, table: str) -> str | None:
        """Return the configured location of a table; ``None`` = it is under the folder."""
        kind, _, name = table.partition("/")
        if self._location is None or kind != TABLES:
            return None
        return self._location.removesuffix(ANY_TABLE) + name

    def sql(self, table: str) -> str:
        raise NotImplementedError

    def read(self, table: str) -> DataFrame:
        return self.spark.table(self.sql(table))

    def tables(self) -> list[str]:
        if self._location is None:
            return [f"{TABLES}/{name}" for name in folders(self.spark, self.path(TABLES))]
        names = folders(self.spark, self._location.removesuffix(f"/{ANY_TABLE}"))
        return self.own_tables(f"{TABLES}/{name}" for name in names)

    def own_tables(self, tables: Iterable[str]) -> list[str]:
        """Return the tables that changelane created: the folder may have others."""
        return [name for name in tables if self.exists(name) and self.properties(name)]

    def exists(self, table: str) -> bool:
        raise NotImplementedError

    def properties(self, table: str) -> dict[str, str]:
        raise NotImplementedError

    def marked_commits(self, table: str) -> Iterator[Commit]:
        raise NotImplementedError

    def last_commit(self, table: str) -> Commit | None:
        for commit in self.marked_commits(table):
            return commit
        last_marker = self.properties(table).get(LAST)
        return None if last_marker is None else msgspec.json.decode(last_marker, type=Commit)

    def columns(self, table: str) -> dict[str, str]:
        return types_of(self.read(table))

    def create(
        self,
        table: str,
        columns: Mapping[str, str],
        properties: Mapping[str, str],
        layout: Layout = PLAIN,
    ) -> None:
        chosen = {key.lower() for key in layout.properties}  # Delta ignores the case of names
        defaults = {key: value for key, value in self.defaults.items() if key.lower() not in chosen}
        table_properties = {**defaults, **layout.properties, **prefixed_properties(properties)}
        statement = table_sql.create_table(
            self.sql(table),
            columns,
            using=self.using,
            properties=table_properties,
            partitions=layout.partitions(columns),
            location=self.location_of(table) if self.needs_location else None,
        )
        # Delta refuses all but one of several creations of a table at the same moment, and takes
        # the files of an unfinished one for those of somebody else; other processes may do so, too
        with _CREATION:
            retry_conflicts(lambda: self._create(table, statement))

    def _create(self, table: str, statement: str) -> None:  # noqa: ARG002  subclasses use the table
        """Run the statement that creates a table unless it exists."""
        self.spark.sql(statement)

    def add_columns(self, table: str, columns: Mapping[str, str]) -> None:
        self.spark.sql(table_sql.add_columns(self.sql(table), columns))

    def partition_names(self, table: str) -> frozenset[str]:
        del table
        return frozenset()

    def widens(self, current: str, wanted_type: str) -> bool:
        return widens(current, wanted_type)

    def widen_columns(self, table: str, columns: Mapping[str, str]) -> None:
        for statement in table_sql.widen_columns(self.sql(table), columns):
            self.spark.sql(statement)

    def rename_column(self, table: str, name: str, new_name: str) -> None:
        self.spark.sql(table_sql.rename_column(self.sql(table), name, new_name))

    def drop_columns(self, table: str, names: Iterable[str]) -> None:
        self.spark.sql(table_sql.drop_columns(self.sql(table), names))

    def set_properties(self, table: str, properties: Mapping[str, str]) -> None:
        self.set_format_properties(table, prefixed_properties(properties))

    def set_format_properties(self, table: str, properties: Mapping[str, str]) -> None:
        self.spark.sql(table_sql.set_properties(self.sql(table), properties))

    def merge(self, session: SparkSession, table: str, source: DataFrame, merge: Merge) -> None:
        with computed_once(source) as rows, session_view(session, rows) as view:
            session.sql(table_sql.merge(self.sql(table), view, merge))

    def append(self, session: SparkSession, table: str, rows: DataFrame) -> None:
        self._writer(session, table, rows).append()

    def _writer(self, session: SparkSession, table: str, rows: DataFrame) -> DataFrameWriterV2:
        """Return the writer of rows with all columns of a table."""
        table_rows = in_session(session, rows)
        kinds = types_of(session.table(self.sql(table)))
        missing = (
            F.lit(None).cast(kind).alias(name)
            for name, kind in kinds.items()
            if name not in rows.columns
        )
        return table_rows.select("*", *missing).writeTo(self.sql(table))

    def update(
        self, session: SparkSession, table: str, sets: Mapping[str, str], condition: str
    ) -> None:
        session.sql(table_sql.update(self.sql(table), sets, condition))

    def delete(self, session: SparkSession, table: str, condition: str) -> None:
        session.sql(table_sql.delete(self.sql(table), condition))


def inserted_rows(source: DataFrame, merge: Merge) -> DataFrame:
    """Return the rows that a merge adds to an empty table."""
    rows = source.alias("s")
    if merge.inserts:
        rows = rows.where(merge.inserts)
    return rows.select(*(F.expr(value).alias(name) for name, value in merge.values.items()))


def files_of(
    files: DataFrame, small_bytes: int, size: Column, rows: Column, deleted_rows: Column
) -> Files:
    """Return the data files in a format's list of files.

    Args:
        files: The list.
        small_bytes: The size below which a data file is small.
        size: The size of a data file in bytes; NULL for other files.
        rows: The number of rows in a data file.
        deleted_rows: The number of rows that the file marks as deleted, or that are marked in it.
    """
    totals = [F.coalesce(F.sum(column), F.lit(0)) for column in (size, rows, deleted_rows)]
    (row,) = files.agg(F.count(size), F.count_if(size < small_bytes), *totals).collect()
    return Files(*row)
