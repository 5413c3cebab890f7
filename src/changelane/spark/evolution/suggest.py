# SPDX-License-Identifier: Apache-2.0
"""Suggests the SQL statements with which tables follow their sources, and runs them.

``schema_changes: strict`` and ``ignore`` leave tables as they are. With ``evolve`` there is nothing
to suggest, unless a table is halted.
"""

from collections.abc import Mapping

import msgspec
from pyspark.sql import SparkSession

from changelane.errors import ConfigError
from changelane.spark.evolution import alter
from changelane.spark.evolution.compatibility import Policy
from changelane.spark.evolution.evolution import SchemaEvolver, pending_changes
from changelane.spark.evolution.evolution_state import Evolution, EvolutionHalt
from changelane.spark.evolution.prepare import MISSING_COLUMNS
from changelane.spark.evolution.table_properties import newest_position
from changelane.spark.lake import table_sql
from changelane.spark.lake.interface import Lake
from changelane.spark.lake.modes import Modes
from changelane.spark.lake.type_texts import fits
from changelane.spark.rows.schema import table_id_of
from changelane.spark.state import tombstones
from changelane.spark.state.fencing import create_fencing_token, is_of_others
from changelane.spark.state.tombstones import TableTombstones, TombstoneTable


class SchemaPlan(msgspec.Struct):
    """The pending schema changes of one table.

    Attributes:
        table: The name of the table at the source.
        path: The path of the table.
        statements: The SQL statements that alter the table.
        halted: Why evolution is halted, if no statement helps.
    """

    table: str
    path: str
    statements: list[str]
    halted: str = ""


class SchemaPlanner:
    """Plans the pending schema changes of a pipeline's tables.

    Tables that only other pipelines wrote are left out: their own options apply, and their runs may
    write them at this moment.

    Args:
        spark: The session.
        lake: The tables.
        evolution: The options of schema evolution.
        modes: The modes of the tables.
        pipeline: The pipeline.
    """

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        evolution: Evolution,
        modes: Modes,
        *,
        pipeline: str,
    ) -> None:
        self._lake = lake
        self._pipeline = pipeline
        evolving = msgspec.structs.replace(evolution, schema_changes="evolve")
        self._evolver = SchemaEvolver(spark, lake, Policy(modes=modes, evolution=evolving))
        self._tombstones = TombstoneTable(spark, lake)

    def plans(self, table: str | None = None) -> list[SchemaPlan]:
        """Return the plans of the tables with pending schema changes.

        Args:
            table: Plan only this table: its name at the source, or the last part of the name.

        Raises:
            ConfigError: There is no such table, or it is of another pipeline.
        """
        table_plans = (self._plan(name, properties) for name, properties in self._chosen(table))
        return [
            table_plan for table_plan in table_plans if table_plan.statements or table_plan.halted
        ]

    def apply(self, table: str | None = None) -> list[SchemaPlan]:
        """Run the statements of the plans; return the plans that were run.

        A current run of the pipeline stops, because its plans of the tables are outdated.

        Raises:
            ConfigError: There is no such table, or it is of another pipeline.
        """
        chosen = self._chosen(table)
        fence = create_fencing_token(self._lake, tombstones.NAME, self._pipeline)
        table_tombstones = self._tombstones.table_tombstones()
        applied_plans = []
        for name, properties in chosen:
            table_plan = self._plan(name, properties)
            if not table_plan.statements:
                continue
            table_id = properties["table"]
            truncated = table_tombstones.get(table_id, TableTombstones()).truncated
            self._lake.set_properties(name, fence.properties)
            self._evolver.evolve_table(table_id, newest_position(properties), truncated, None)
            added, widened = self._lacking(self._lake.columns(name), properties)
            if added:
                self._lake.add_columns(name, added)
            if widened:
                self._lake.widen_columns(name, widened)
            self._lake.set_properties(name, {MISSING_COLUMNS: ""})
            applied_plans.append(table_plan)
        return applied_plans

    def _chosen(self, table: str | None) -> list[tuple[str, Mapping[str, str]]]:
        chosen_tables: list[tuple[str, Mapping[str, str]]] = []
        has_others = False
        for name in self._lake.tables():
            properties = self._lake.properties(name) if self._lake.exists(name) else {}
            if "schema" not in properties or "table" not in properties:
                continue
            table_names = {properties["table"], properties.get("named") or properties["table"]}
            names = {str(table_id_of(text)) for text in table_names}
            names |= {table_id_of(text).name or "" for text in table_names}
            if table is not None and table not in names:
                continue
            if is_of_others(properties, self._pipeline):
                has_others = True
                continue
            chosen_tables.append((name, properties))
        if table is not None and not chosen_tables:
            msg = f"no table is called {table!r}: `changelane status` lists them"
            if has_others:
                msg = f"{table!r} is a table of another pipeline: use the file of that one"
            raise ConfigError(msg)
        return chosen_tables

    def _plan(self, name: str, properties: Mapping[str, str]) -> SchemaPlan:
        table_id = properties["table"]
        sql = self._lake.sql(name)
        statements: list[str] = []
        truncated = self._tombstones.table_tombstones().get(table_id, TableTombstones()).truncated
        evolution_state = self._evolver.expected_state(
            table_id, newest_position(properties), truncated
        )
        columns = self._lake.columns(name)
        halted = EvolutionHalt.of(properties.get("halted", ""))
        if evolution_state.column_mapping is not None:
            late, pending = pending_changes(evolution_state.column_mapping, properties)
            for number in pending if not late else ():
                try:
                    alteration = alter.alteration_of(
                        evolution_state.column_mapping.changes[number], columns
                    )
                except alter.ConflictError:
                    break
                statements.extend(alter.sql_statements(sql, alteration))
                columns = alter.columns_after(alteration, columns)
        added, widened = self._lacking(columns, properties)
        if added:
            statements.append(table_sql.add_columns(sql, added))
        statements.extend(table_sql.widen_columns(sql, widened))
        reason = "" if halted is None or statements else f"{halted.code}: {halted.reason}"
        return SchemaPlan(str(table_id_of(table_id)), self._lake.path(name), statements, reason)

    def _lacking(
        self, columns: Mapping[str, str], properties: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the columns to add to a table, and the columns to widen.

        Args:
            columns: The columns of the table after its pending schema changes.
            properties: The properties of the table.
        """
        missing_text = properties.get(MISSING_COLUMNS) or "{}"
        lacking = msgspec.json.decode(missing_text, type=dict[str, str])
        types_by_lower = {column.lower(): kind for column, kind in columns.items()}
        added = {
            column: kind for column, kind in lacking.items() if column.lower() not in types_by_lower
        }
        widened = {
            column: kind
            for column, kind in lacking.items()
            if (table_type := types_by_lower.get(column.lower())) is not None
            and not fits(kind, table_type)
            and self._lake.widens(table_type, kind)
        }
        return added, widened
