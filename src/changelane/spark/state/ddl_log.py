# SPDX-License-Identifier: Apache-2.0
"""The DDL log: the DDL statements of a stream, each at its order in the source's log.

There is one table per lake. The first statement creates it, and a statement is written before any
table applies it. The columns of a table at an order are a function of this log, so that a replay
reads each event with the names of its time. Recording a statement again adds nothing.
"""

from collections.abc import Iterable
from typing import Final

from pyspark.sql import SparkSession

from changelane.apply.schema_history import SchemaChangeEntry, schema_changes_of
from changelane.apply.table_mapping import TableMapping
from changelane.ddl import dialect_of, parse
from changelane.spark.lake.interface import Lake
from changelane.spark.rows.batch_stats import StatementRow
from changelane.spark.rows.schema import DdlText, table_id_of
from changelane.spark.runtime.sql import quoted

NAME: Final = "_changelane/schemas"
COLUMNS: Final = {
    "table_id": "STRING",
    "order": "BINARY",
    "product": "STRING",
    "ddl": "STRING",
    "before": "INT",
}
"""*before*: the number of other texts with the same order that came before this one."""


class DdlLog:
    """The DDL log of one lake.

    Args:
        spark: The session.
        lake: The tables.
        shadows: Whether shadow tables of online schema changes belong to other tables; else they
            are tables of their own.
    """

    def __init__(self, spark: SparkSession, lake: Lake, *, shadows: bool = True) -> None:
        self._spark = spark
        self._lake = lake
        self._shadows = shadows
        self._statements: dict[StatementRow, None] | None = None
        self._text_positions: dict[bytes, dict[str, int]] = {}
        self._table_mapping = TableMapping()

    @property
    def statements(self) -> dict[StatementRow, None]:
        """All statements, each once."""
        if self._statements is None:
            self._statements = {}
            if self._lake.exists(NAME):
                for row in self._lake.read(NAME).collect():
                    ddl = DdlText(row["ddl"], row["product"])
                    statements = StatementRow(bytes(row["order"]), row["table_id"], ddl)
                    self._statements[statements] = None
                    # a log of an older version lacks the column
                    before = row.asDict().get("before") or 0
                    self._text_positions.setdefault(statements.order, {})[ddl.ddl] = before
            self._table_mapping = self._mapping_of_statements()
        return self._statements

    @property
    def table_mapping(self) -> TableMapping:
        """The tables and their names over the course of the log."""
        _ = self.statements
        return self._table_mapping

    def record(self, new_statements: Iterable[StatementRow]) -> list[StatementRow]:
        """Record statements in their order; return those that are new."""
        stored_statements = self.statements
        unknown_statements = [
            statements for statements in new_statements if statements not in stored_statements
        ]
        if not unknown_statements:
            return []
        self._lake.create(NAME, COLUMNS, {})
        missing_columns = {c: k for c, k in COLUMNS.items() if c not in self._lake.columns(NAME)}
        if missing_columns:
            self._lake.add_columns(NAME, missing_columns)
        for statements in unknown_statements:
            text_positions = self._text_positions.setdefault(statements.order, {})
            text_positions.setdefault(statements.ddl_text.ddl, len(text_positions))
        rows = [
            (
                statements.table_id,
                statements.order,
                statements.ddl_text.product,
                statements.ddl_text.ddl,
                self._text_position(statements),
            )
            for statements in unknown_statements
        ]
        column_types = ", ".join(f"{quoted(name)} {kind}" for name, kind in COLUMNS.items())
        self._lake.append(self._spark, NAME, self._spark.createDataFrame(rows, column_types))
        stored_statements.update(dict.fromkeys(unknown_statements))
        self._table_mapping = self._mapping_of_statements()
        return unknown_statements

    def _mapping_of_statements(self) -> TableMapping:
        return TableMapping(
            schema_change
            for statements in self._statements or ()
            for schema_change in self.entries_of(statements)
        )

    def entries_of(self, statements: StatementRow) -> list[SchemaChangeEntry]:
        """Return the schema changes of statements."""
        dialect = dialect_of(statements.ddl_text.product)
        if dialect is None:
            return []
        default_table = table_id_of(statements.table_id)
        parsed_statements = parse(statements.ddl_text.ddl, dialect, default_table)
        before = self._text_position(statements)
        return schema_changes_of(
            statements.order, parsed_statements, dialect, shadows=self._shadows, before=before
        )

    def _text_position(self, statements: StatementRow) -> int:
        return self._text_positions.get(statements.order, {}).get(statements.ddl_text.ddl, 0)
