# SPDX-License-Identifier: Apache-2.0
"""Schema evolution: the tables of a lake follow the DDL statements of their sources.

A batch is read with the DDL log: each event gets the table and the column names that its names
referred to at its order. Then each table executes the schema changes that it has not executed yet.
If a table cannot, its evolution is halted: the table applies older events, newer ones are
quarantined with the reason, and the other tables continue.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame, SparkSession

from changelane.apply.column_mapping import ColumnChanges, ColumnMapping
from changelane.apply.schema_history import TableAltered, TableRenamed, table_of_shadow
from changelane.apply.table_mapping import LakeTable, TableMapping
from changelane.reason_codes import ReasonCode
from changelane.spark.evolution import alter
from changelane.spark.evolution.column_names import fixed_column, named_columns
from changelane.spark.evolution.compatibility import STRICT, Policy
from changelane.spark.evolution.dropped_tables import CLEARED, cleared_order, has_newer_rows
from changelane.spark.evolution.evolution_state import (
    IN_PARTITION,
    KEY_CHANGED,
    NO_CHANGES,
    NO_DROPS,
    NO_RENAMES,
    NOT_IN_MODE,
    EvolutionHalt,
    EvolutionState,
)
from changelane.spark.evolution.late_ddl import alters_newer_values, executable_alteration
from changelane.spark.evolution.name_intervals import (
    NameInterval,
    labelled,
    name_intervals,
    needs_labels,
    timeline,
)
from changelane.spark.evolution.statement_rejections import SplitStatements, split_statements
from changelane.spark.lake.interface import Lake, name_of
from changelane.spark.lake.layout import layout_of
from changelane.spark.lake.modes import UPSERT, mode_of
from changelane.spark.rows.batch_stats import (
    INTERVAL_SEPARATOR,
    BatchReport,
    BatchStats,
    TableBatch,
    batch_stats,
)
from changelane.spark.rows.schema import RowSchema, lake_table_of, table_id_of, table_id_text
from changelane.spark.state.ddl_log import DdlLog
from changelane.spark.state.fencing import FencingToken
from changelane.spark.state.quarantine import RejectedRows, TableRejectedError

LATE: Final = (
    "the statement came after newer events, and renames or drops a column of which they have values"
)
COLUMN_EXISTS: Final = (
    "events with the new name of the column came before the statement, and the table has the "
    "column already"
)


EXISTING: Final = "existing"
"""The property with the ids of additions IF NOT EXISTS whose column the table had already."""


class MappedBatch(NamedTuple):
    """A batch whose events have the names of lake tables.

    Attributes:
        events: Event rows. If a schema change is among them, ``schema_id`` ends in the number of
            an interval.
        table_batches: The events of each table, without skipped shadow tables.
        schemas: The schemas of the events, by id.
        rejected: The rejected statements.
        intervals: The intervals of the numbers.
        altered_tables: The ids of tables that the accepted statements concern.
    """

    events: DataFrame
    table_batches: list[TableBatch]
    schemas: Mapping[str, RowSchema]
    rejected: list[RejectedRows]
    intervals: list[NameInterval]
    altered_tables: list[str]


class SchemaEvolver:
    """Executes the schema changes of a stream on the tables of a lake.

    Args:
        spark: The session.
        lake: The tables.
        policy: The user's choices.
    """

    def __init__(self, spark: SparkSession, lake: Lake, policy: Policy) -> None:
        self._lake = lake
        self._policy = policy
        self._skips_shadows = policy.evolution.shadow_tables == "skip"
        self._log = DdlLog(spark, lake, shadows=self._skips_shadows)

    # -- mapping of names

    def map_events(
        self, events: DataFrame, report: BatchReport, *, with_keys: bool = False
    ) -> MappedBatch:
        """Record the statements of a batch, and give its events the names of lake tables.

        Args:
            events: Event rows.
            report: The report of the batch.
            with_keys: Whether to collect the keys of the events, of small batches only.
        """
        stats = batch_stats(events, report, with_keys=with_keys)
        accepted, rejected = self.record_statements(stats)
        tables = self._log.table_mapping
        altered_tables = [
            table_id_text(*tables.lake_table(entry.table, entry.order))
            for statement in accepted
            for entry in self._log.entries_of(statement)
        ]
        intervals: list[NameInterval] = []
        if tables.entries:
            intervals = name_intervals(stats.table_batches, tables)
            leaves_unknown = partial(self._leaves_unknown, tables)
            if needs_labels(intervals, stats.table_batches, leaves_unknown):
                events = labelled(events, intervals, leaves_unknown)
                rows = events.where("kind NOT IN ('schema', 'ddl')")
                labelled_stats = batch_stats(rows, BatchReport(report.batch), with_keys=with_keys)
                stats = stats._replace(table_batches=labelled_stats.table_batches)
            _add_source_names(stats.table_batches, intervals)
        table_batches = [
            table_batch
            for table_batch in stats.table_batches
            if not self._is_skipped_shadow(table_batch, report)
        ]
        return MappedBatch(
            events, table_batches, stats.schemas, rejected, intervals, altered_tables
        )

    def record_statements(self, stats: BatchStats) -> SplitStatements:
        """Record the statements of a batch that are accepted; return them and the rejected ones."""
        split = split_statements(
            stats.statements,
            {table_batch.table_id: table_batch for table_batch in stats.table_batches},
            servers=stats.servers,
            lake=self._lake,
            log=self._log,
            source_servers=self._policy.source_servers,
        )
        self._log.record(split.accepted)
        return split

    def map_schemas(
        self, batch: MappedBatch, table_batch: TableBatch, evolution_state: EvolutionState
    ) -> None:
        """Give the schemas of a table's events the names of the table's columns."""
        mapping = evolution_state.column_mapping
        if mapping is None:
            table_batch.schemas = {
                schema_id: batch.schemas[schema_id.partition(INTERVAL_SEPARATOR)[0]]
                for schema_id in table_batch.counts
            }
            return
        named_schemas: dict[str, RowSchema] = {}
        for schema_id in table_batch.counts:
            source_id, _, number = schema_id.partition(INTERVAL_SEPARATOR)
            interval_order = (
                batch.intervals[int(number)].sample if number else table_batch.oldest[schema_id]
            )
            schema = named_columns(batch.schemas[source_id], mapping, interval_order)
            if not self._keeps_latest_rows_only(table_batch.table_id):
                columns = tuple(column for column in schema.columns if column.fixed is None)
                schema = msgspec.structs.replace(schema, columns=columns)
            named_schemas[schema_id] = schema
        table_batch.schemas = named_schemas

    def _is_skipped_shadow(self, table_batch: TableBatch, report: BatchReport) -> bool:
        if not self._skips_shadows or table_of_shadow(table_id_of(table_batch.table_id)) is None:
            return False
        report.shadows += table_batch.count
        report.events -= table_batch.count
        return True

    def _keeps_latest_rows_only(self, table_id: str) -> bool:
        return self._policy.modes.of(table_id_of(table_id)).name == UPSERT

    def _leaves_unknown(self, tables: TableMapping, interval: NameInterval) -> bool:
        """Return whether events of an interval lack the value of a column that was added later."""
        if not self._keeps_latest_rows_only(table_id_text(*interval.lake_table)):
            return False
        mapping = ColumnMapping(
            self._alterations(tables, interval.lake_table),
            keep=self._policy.evolution.keeps_columns,
        )
        return any(
            fixed_column(backfill) is None
            for backfill in mapping.event_columns((), interval.sample).backfills
        )

    # -- tables that share names

    def related_tables(self, table_ids: Iterable[str]) -> set[str]:
        """Return source tables, and those that shared a lake table with them at some time."""
        tables = self._log.table_mapping
        related = set(table_ids)
        for table in [table_id_of(table_id) for table_id in related]:
            related.update(map(table_id_text, tables.related_names(table)))
        return related

    def lake_table_ids(self, table_id: str) -> set[str]:
        """Return the ids of the lake tables of a source table over the whole log."""
        changes = timeline(table_id_of(table_id), self._log.table_mapping)
        return {table_id_text(*lake_table) for _, lake_table in changes}

    def lake_names(self, table_id: str) -> set[str]:
        """Return the names of the lake tables of a source table over the whole log."""
        return set(map(name_of, self.lake_table_ids(table_id)))

    def renamed_tables(self, stats: BatchStats) -> set[str]:
        """Return the source tables that new statements of a batch rename, old and new names."""
        renames = (
            entry
            for statement in stats.statements
            if statement not in self._log.statements
            for entry in self._log.entries_of(statement)
            if isinstance(entry, TableRenamed)
        )
        return {
            table_id_text(table) for rename in renames for table in (rename.table, rename.new_table)
        }

    # -- execution of schema changes

    def evolve_table(
        self, table_id: str, newest: bytes, truncated: bytes, fencing_token: FencingToken | None
    ) -> EvolutionState:
        """Execute the schema changes that a table has not executed yet.

        Args:
            table_id: The table.
            newest: The newest order of its events in the batch; empty = none.
            truncated: The newest truncate of the table before the batch.
            fencing_token: Stops a run that a newer run of the pipeline replaced.
        """
        state = self.expected_state(table_id, newest, truncated)
        name, mapping = name_of(table_id), state.column_mapping
        is_renamed = len(self.related_tables([table_id])) > 1
        if (mapping is None and not is_renamed) or not self._lake.exists(name):
            return state
        properties: Mapping[str, str] = self._lake.properties(name)
        if "schema" not in properties:
            return state
        if fencing_token is not None:
            fencing_token.check(properties)
        if mapping is not None:
            if existing := self._existing_additions(name, mapping, properties):
                properties = {**properties, EXISTING: existing}
                self._lake.set_properties(name, {EXISTING: existing})
                state = self.expected_state(table_id, newest, truncated)
                mapping = state.column_mapping or mapping
            state, properties = self._execute(name, state, mapping, properties)
        self._record_state(name, table_id, state, properties=properties, newest=newest)
        return state

    def expected_state(self, table_id: str, newest: bytes, truncated: bytes) -> EvolutionState:
        """Return the state of a table that has executed all schema changes of the log."""
        lake_table = lake_table_of(table_id)
        tables = self._log.table_mapping
        entries, ends = self._alterations(tables, lake_table), tables.ends(lake_table)
        if not entries and not ends:
            return NO_CHANGES
        newest_statement = max(
            *(entry.order for entry in entries), *(end.order for end in ends), b""
        )
        is_latest_rows_only = self._keeps_latest_rows_only(table_id)
        # versions and events of a dropped table are history, and rows may be of other servers
        is_cleared = is_latest_rows_only and self._policy.source_servers != "multiple"
        cleared = cleared_order(
            self._lake,
            table_id,
            ends if is_cleared else [],
            newest,
            truncated,
            is_truncated_at_once=self._policy.evolution.dropped_tables == "truncate",
        )
        entries = [entry for entry in entries if entry.order >= cleared]
        mapping = ColumnMapping(entries, keep=self._policy.evolution.keeps_columns)
        backfills = mapping.backfills if is_latest_rows_only else ()
        return EvolutionState(
            mapping,
            cleared=cleared,
            initial_properties=_initial_properties(mapping, cleared),
            backfills=tuple((backfill, fixed_column(backfill)) for backfill in backfills),
            key_order=max((entry.order for entry in entries if entry.key is not None), default=b""),
            newest=newest_statement,
        )

    def _alterations(self, tables: TableMapping, lake_table: LakeTable) -> list[TableAltered]:
        """Return the changes of a table's columns, without additions of existing columns."""
        entries = tables.alterations(lake_table)
        name = name_of(table_id_text(*lake_table))
        if not any(added.may_exist for entry in entries for added in entry.added):
            return entries
        properties = self._lake.properties(name) if self._lake.exists(name) else {}
        existing = set(properties.get(EXISTING, "").split(","))
        return [
            msgspec.structs.replace(
                entry,
                added=tuple(
                    added
                    for added in entry.added
                    if not added.may_exist or alter.addition_id(entry, added.name) not in existing
                ),
            )
            for entry in entries
        ]

    def _existing_additions(
        self, name: str, mapping: ColumnMapping, properties: Mapping[str, str]
    ) -> str:
        """Return the property :data:`EXISTING` with new ids; empty if there are none.

        If no statement shows whether the column of an addition IF NOT EXISTS existed, the columns
        of the table show it, before the table executes the statement.
        """
        additions = {
            alter.addition_id(mapping.entries[number], added_name): columns
            for number in pending_changes(mapping, properties)[1]
            for added_name, columns in mapping.uncertain_additions(number).items()
        }
        if not additions:
            return ""
        existing = {column.lower() for column in self._lake.columns(name)}
        new_ids = [
            addition_id
            for addition_id, columns in additions.items()
            if not existing.isdisjoint(columns)
        ]
        return ",".join(filter(None, (properties.get(EXISTING), *new_ids))) if new_ids else ""

    def _execute(
        self,
        name: str,
        state: EvolutionState,
        mapping: ColumnMapping,
        properties: Mapping[str, str],
    ) -> tuple[EvolutionState, Mapping[str, str]]:
        """Execute schema changes up to a halt; return the state and the table's properties."""
        if (interrupted := alter.unfinished_alteration(properties)) is not None:
            properties = alter.finish_alteration(self._lake, name, interrupted, properties)
        late, pending = pending_changes(mapping, properties)
        for number in late:
            entry = mapping.entries[number]
            if entry.renamed or entry.dropped:
                halt = EvolutionHalt(entry.order, ReasonCode.LATE_STATEMENT, LATE)
                return self._halted(state, mapping, number, halt), properties
        if self._policy.evolution.schema_changes == "ignore":
            first = pending[0] if pending else len(mapping.entries)
            return state._replace(column_mapping=self._up_to(mapping, first)), properties
        for number in pending:
            alteration = self._next_alteration(
                name, mapping.changes[number], properties, state.cleared
            )
            if isinstance(alteration, EvolutionHalt):
                return self._halted(state, mapping, number, alteration), properties
            properties = alter.alter_table(self._lake, name, alteration, properties)
        return state, properties

    def _next_alteration(
        self, name: str, schema_change: ColumnChanges, properties: Mapping[str, str], cleared: bytes
    ) -> alter.TableAlteration | EvolutionHalt:
        """Return the alteration of a table for a schema change, or why it cannot execute it."""
        order = schema_change.order
        try:
            alteration = executable_alteration(self._lake, name, schema_change, cleared)
        except alter.ConflictError:
            return EvolutionHalt(order, ReasonCode.LATE_STATEMENT, COLUMN_EXISTS)
        if alteration.is_empty:
            return alteration
        if mode_of(properties).name != UPSERT:
            return EvolutionHalt(order, ReasonCode.MODE_CONFLICT, NOT_IN_MODE)
        if not self._lake.can_rename:
            reason = NO_RENAMES if alteration.renamed else NO_DROPS
            return EvolutionHalt(order, ReasonCode.SCHEMA_CHANGE, reason)
        partitions = layout_of(properties).columns
        if names := [column for column in alteration.dropped if column.lower() in partitions]:
            reason = IN_PARTITION.format(", ".join(names))
            return EvolutionHalt(order, ReasonCode.SCHEMA_CHANGE, reason)
        if alters_newer_values(self._lake, name, alteration, order):
            return EvolutionHalt(order, ReasonCode.LATE_STATEMENT, LATE)
        if self._policy.evolution.schema_changes == "strict":
            statements = tuple(alter.sql_statements(self._lake.sql(name), alteration))
            return EvolutionHalt(order, ReasonCode.SCHEMA_CHANGE, STRICT, statements)
        return alteration

    def _halted(
        self, state: EvolutionState, mapping: ColumnMapping, number: int, halt: EvolutionHalt
    ) -> EvolutionState:
        return state._replace(column_mapping=self._up_to(mapping, number), halted=halt)

    def _up_to(self, mapping: ColumnMapping, count: int) -> ColumnMapping:
        keeps_columns = self._policy.evolution.keeps_columns
        return ColumnMapping(mapping.entries, keep=keeps_columns, followed_count=count)

    # -- the state in the table's properties, for people

    def record_halt(
        self, name: str, rejection: TableRejectedError | RejectedRows, state: EvolutionState
    ) -> None:
        """Record in a table's properties that the source changed its key."""
        if rejection.code == KEY_CHANGED:
            halt = EvolutionHalt(state.key_order, rejection.code, rejection.reason)
            if self._lake.properties(name).get("halted") != halt.text:
                self._lake.set_properties(name, {"halted": halt.text})

    def _record_state(
        self,
        name: str,
        table_id: str,
        state: EvolutionState,
        *,
        properties: Mapping[str, str],
        newest: bytes,
    ) -> None:
        """Record whether a table is halted, dropped or renamed."""
        lake_table = lake_table_of(table_id)
        tables = self._log.table_mapping
        current_name = tables.current_name(lake_table)
        dropped_at = max((end.order for end in tables.ends(lake_table)), default=b"")
        is_dropped = dropped_at > max(state.cleared, newest) and not has_newer_rows(
            self._lake, name, properties, dropped_at
        )
        recorded = {
            "halted": "" if state.halted is None else state.halted.text,
            "dropped": dropped_at.hex() if is_dropped else "",
            "named": "" if current_name == lake_table.table else table_id_text(current_name),
        }
        changed = {
            key: value for key, value in recorded.items() if properties.get(key, "") != value
        }
        # a changed key is recorded with the events that have it
        halt = EvolutionHalt.of(properties.get("halted", ""))
        if changed.get("halted") == "" and halt is not None and halt.code == KEY_CHANGED:
            del changed["halted"]
        if changed:
            self._lake.set_properties(name, changed)


def pending_changes(
    mapping: ColumnMapping, properties: Mapping[str, str]
) -> tuple[list[int], list[int]]:
    """Return the schema changes that a table has not executed: the late ones, and all.

    A late one is older than one that the table has executed.
    """
    executed = alter.executed_ids(properties)
    ids = [alter.entry_id(entry.order, entry.part) for entry in mapping.entries]
    pending = [number for number, entry_id in enumerate(ids) if entry_id not in executed]
    return [number for number in pending if executed.intersection(ids[number:])], pending


def _add_source_names(
    table_batches: Iterable[TableBatch], intervals: Iterable[NameInterval]
) -> None:
    """Set the names that the events of each lake table have at the source."""
    names: dict[str, set[str]] = {}
    for interval in intervals:
        names.setdefault(table_id_text(*interval.lake_table), set()).add(interval.table_id)
    for table_batch in table_batches:
        source_names = names.get(table_batch.table_id, {table_batch.table_id})
        table_batch.source_names = tuple(sorted(source_names))


def _initial_properties(mapping: ColumnMapping, cleared: bytes) -> dict[str, str]:
    """Return the properties of a new table: it has executed all schema changes."""
    ids = [alter.entry_id(entry.order, entry.part) for entry in mapping.entries]
    properties = {alter.EXECUTED: ",".join(ids), CLEARED: cleared.hex()}
    return {key: value for key, value in properties.items() if value}
