# SPDX-License-Identifier: Apache-2.0
"""What lakes have in common whose tables SQL makes and changes: Delta and Iceberg."""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from pyspark.sql import DataFrame, SparkSession

from changelane.spark import statements
from changelane.spark.lake import TABLES, folders, own, retried, types_of, widens


class SqlLake:
    """The tables of one format under one folder.

    Args:
        spark: The session.
        root: The folder.
    """

    using: ClassVar[str]
    """The format's name in SQL."""
    defaults: ClassVar[Mapping[str, str]]
    """The properties that every table is made with."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark = spark
        self._root = root

    def path(self, table: str) -> str:
        return f"{self._root}/{table}"

    def sql(self, table: str) -> str:
        raise NotImplementedError

    def read(self, table: str) -> DataFrame:
        return self._spark.table(self.sql(table))

    def tables(self) -> list[str]:
        return [f"{TABLES}/{name}" for name in folders(self._spark, self.path(TABLES))]

    def columns(self, table: str) -> dict[str, str]:
        return types_of(self.read(table))

    def create(self, table: str, columns: Mapping[str, str], properties: Mapping[str, str]) -> None:
        told = {**self.defaults, **own(properties)}
        statement = statements.create_table(
            self.sql(table), columns, using=self.using, properties=told
        )
        self._spark.sql(statement)

    def add_columns(self, table: str, columns: Mapping[str, str]) -> None:
        self._spark.sql(statements.add_columns(self.sql(table), columns))

    def widens(self, one: str, other: str) -> bool:
        return widens(one, other)

    def widen_columns(self, table: str, columns: Mapping[str, str]) -> None:
        for statement in statements.widen_columns(self.sql(table), columns):
            self._spark.sql(statement)

    def rename_column(self, table: str, name: str, new_name: str) -> None:
        self._spark.sql(statements.rename_column(self.sql(table), name, new_name))

    def drop_columns(self, table: str, names: Iterable[str]) -> None:
        self._spark.sql(statements.drop_columns(self.sql(table), names))

    def run(self, statement: str) -> None:
        retried(self._spark, statement)

    def set_properties(self, table: str, properties: Mapping[str, str]) -> None:
        self._spark.sql(statements.set_properties(self.sql(table), own(properties)))
