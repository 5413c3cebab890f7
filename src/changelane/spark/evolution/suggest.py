# SPDX-License-Identifier: Apache-2.0
"""What would make the tables of a lake follow their sources, shown and run by command.

Tables that ``strict`` or ``ignore`` leave as they are wait for it; with ``evolve`` nothing waits,
unless a table is halted that no statement can help.
"""

from collections.abc import Mapping

import msgspec
from pyspark.sql import SparkSession

from changelane.errors import ConfigError
from changelane.spark.evolution import alter
from changelane.spark.evolution.compatibility import Policy
from changelane.spark.evolution.evolution import Follower, unfollowed
from changelane.spark.evolution.evolution_state import Evolution, Halted
from changelane.spark.evolution.prepare import LACKING
from changelane.spark.evolution.table_properties import newest_position
from changelane.spark.lake import table_sql
from changelane.spark.lake.interface import Lake, widens
from changelane.spark.lake.modes import Modes
from changelane.spark.rows.schema import table_id_of
from changelane.spark.state import tombstones
from changelane.spark.state.fencing import create_fencing_token
from changelane.spark.state.tombstones import TableTombstones, TombstoneTable


class TablePlan(msgspec.Struct):
    """One table that does not follow its source.

    Attributes:
        table: Its name at the source.
        path: Where it lies.
        statements: What would make it follow.
        halted: Why it stands still, where no statement helps.
    """

    table: str
    path: str
    statements: list[str]
    halted: str = ""


class SchemaPlans:
    """The plans of a lake's tables.

    Args:
        spark: The session.
        lake: The tables.
        evolution: What the user chose.
        modes: What tables keep of their changes.
    """

    def __init__(self, spark: SparkSession, lake: Lake, evolution: Evolution, modes: Modes) -> None:
        self._lake = lake
        follows = msgspec.structs.replace(evolution, schema_changes="evolve")
        self._follower = Follower(spark, lake, Policy(modes=modes, evolution=follows))
        self._side = TombstoneTable(spark, lake)

    def plans(self, table: str | None = None) -> list[TablePlan]:
        """Return the tables that do not follow, and what would make them.

        Args:
            table: Only this one, by its name at the source or the last part of it.

        Raises:
            ConfigError: There is no such table.
        """
        table_plans = (self._plan(name, properties) for name, properties in self._chosen(table))
        return [
            table_plan for table_plan in table_plans if table_plan.statements or table_plan.halted
        ]

    def apply(self, pipeline: str, table: str | None = None) -> list[TablePlan]:
        """Run the statements; return what was run.

        A run of the pipeline that is under way stops: its tables are others now.

        Raises:
            ConfigError: There is no such table.
        """
        chosen = self._chosen(table)
        fence = create_fencing_token(self._lake, tombstones.NAME, pipeline)
        known = self._side.table_tombstones()
        applied_plans = []
        for name, properties in chosen:
            table_plan = self._plan(name, properties)
            if not table_plan.statements:
                continue
            table_id = properties["table"]
            truncated = known.get(table_id, TableTombstones()).truncated
            self._lake.set_properties(name, fence.properties)
            self._follower.follow(table_id, newest_position(properties), truncated, None)
            added, widened = self._lacking(self._lake.columns(name), properties)
            if added:
                self._lake.add_columns(name, added)
            if widened:
                self._lake.widen_columns(name, widened)
            self._lake.set_properties(name, {LACKING: ""})
            applied_plans.append(table_plan)
        return applied_plans

    def _chosen(self, table: str | None) -> list[tuple[str, Mapping[str, str]]]:
        chosen_tables: list[tuple[str, Mapping[str, str]]] = []
        for name in self._lake.tables():
            properties = self._lake.properties(name) if self._lake.exists(name) else {}
            if "schema" not in properties or "table" not in properties:
                continue
            table_names = {properties["table"], properties.get("named") or properties["table"]}
            names = {str(table_id_of(text)) for text in table_names}
            names |= {table_id_of(text).name or "" for text in table_names}
            if table is None or table in names:
                chosen_tables.append((name, properties))
        if table is not None and not chosen_tables:
            msg = f"no table is called {table!r}: `changelane status` lists them"
            raise ConfigError(msg)
        return chosen_tables

    def _plan(self, name: str, properties: Mapping[str, str]) -> TablePlan:
        table_id = properties["table"]
        sql = self._lake.sql(name)
        statements: list[str] = []
        truncated = self._side.table_tombstones().get(table_id, TableTombstones()).truncated
        followed = self._follower.known(table_id, newest_position(properties), truncated)
        columns = self._lake.columns(name)
        halted = Halted.of(properties.get("halted", ""))
        if followed.shape is not None:
            late, waiting = unfollowed(followed.shape, properties)
            for number in waiting if not late else ():
                try:
                    turning = alter.turning(followed.shape.changes[number], columns)
                except alter.ConflictError:
                    break
                statements.extend(alter.statements(sql, turning))
                columns = alter.columns_after(turning, columns)
        added, widened = self._lacking(columns, properties)
        if added:
            statements.append(table_sql.add_columns(sql, added))
        statements.extend(table_sql.widen_columns(sql, widened))
        reason = "" if halted is None or statements else f"{halted.code}: {halted.reason}"
        return TablePlan(str(table_id_of(table_id)), self._lake.path(name), statements, reason)

    def _lacking(
        self, columns: Mapping[str, str], properties: Mapping[str, str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """Return the columns that a table should get, and those that should be wider.

        Args:
            columns: Its columns, once it has followed what is told of them.
            properties: Its properties.
        """
        missing_text = properties.get(LACKING) or "{}"
        lacking = msgspec.json.decode(missing_text, type=dict[str, str])
        types_by_lower = {column.lower(): kind for column, kind in columns.items()}
        added = {
            column: kind for column, kind in lacking.items() if column.lower() not in types_by_lower
        }
        widened = {
            column: kind
            for column, kind in lacking.items()
            if (table_type := types_by_lower.get(column.lower())) is not None
            and not widens(kind, table_type)
            and self._lake.widens(table_type, kind)
        }
        return added, widened
