# SPDX-License-Identifier: Apache-2.0
"""Tables follow the statements of their sources, in the order of the log.

A batch is read with the schema log at hand: each event gets the table that its name meant at its
order, and its columns the names that the table has for them. Then each table follows the turns
that it has not followed yet. A table that cannot is halted: it takes what is older, the rest is
quarantined with the reason, and the other tables go on.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from changelane.apply.column_mapping import ColumnChanges, ColumnMapping
from changelane.apply.schema_history import (
    Backfill,
    SchemaChangeEntry,
    TableAltered,
    TableDropped,
    TableRenamed,
    table_of_shadow,
)
from changelane.apply.table_mapping import LakeTable, TableEnd, TableMapping
from changelane.ddl import dialect_of, parse
from changelane.reason_codes import ReasonCode
from changelane.spark.evolution import alter
from changelane.spark.evolution.column_names import fixed_column, named_columns
from changelane.spark.evolution.compatibility import STRICT, Policy
from changelane.spark.evolution.evolution_state import (
    FIXED,
    KEY_CHANGED,
    NOTHING,
    PAST,
    Followed,
    Halted,
)
from changelane.spark.evolution.late_ddl import RENAMED_LATE, moves_newer, renames_newer, turned
from changelane.spark.evolution.name_intervals import (
    Span,
    labelled,
    needs_labels,
    spans_of,
    timeline,
)
from changelane.spark.evolution.prepare import CLEARED, is_made_again, is_newer
from changelane.spark.evolution.table_rejections import SHARED
from changelane.spark.lake.interface import Lake, name_of
from changelane.spark.lake.modes import UPSERT, mode_of
from changelane.spark.rows.batch_stats import (
    INTERVAL_SEPARATOR,
    BatchReport,
    BatchStats,
    StatementRow,
    TableBatch,
    batch_stats,
    epoch_partition_of,
)
from changelane.spark.rows.schema import (
    SCHEMA_ACTIONS,
    RowSchema,
    generation_of,
    table_id_of,
    table_id_text,
)
from changelane.spark.state.ddl_log import DdlLog
from changelane.spark.state.fencing import FencingToken
from changelane.spark.state.quarantine import RejectedRows, TableRejectedError

LATE: Final = "a statement came after events that are newer than it, and it moves their columns"
THERE: Final = "events came before the statement that names their column, which is there already"
UNREAD: Final = "changelane does not read this statement"
UNORDERED: Final = "the place of the statement cannot be compared with those of the table's events"


class Reading(NamedTuple):
    """A batch whose events name the tables of the lake.

    Attributes:
        events: Event rows; where names changed hands, ``schema_id`` ends in the number of a span.
        works: What it holds of each table, without shadows.
        refused: Statements that are quarantined.
        spans: What the numbers mean.
        told: Tables that new statements speak of.
    """

    events: DataFrame
    works: list[TableBatch]
    schemas: Mapping[str, RowSchema]
    refused: list[RejectedRows]
    spans: list[Span]
    told: list[str]


class Follower:
    """Makes the tables of a lake follow.

    Args:
        spark: The session.
        lake: The tables.
        policy: What users chose.
    """

    def __init__(self, spark: SparkSession, lake: Lake, policy: Policy) -> None:
        self._lake = lake
        self._policy = policy
        self._shadows = policy.evolution.shadow_tables == "skip"
        self.log = DdlLog(spark, lake, shadows=self._shadows)

    # -- reading ------------------------------------------------------------------------------

    def read(self, events: DataFrame, report: BatchReport) -> Reading:
        """Survey a batch, keep its statements, and name tables and schemas for the lake."""
        batch_survey = batch_stats(events, report)
        refused, fresh = self.keep(batch_survey)
        tables = self.log.table_mapping
        turned = [turn for statement in fresh for turn in self.log.entries_of(statement)]
        table_ids = [table_id_text(*tables.lake_table(turn.table, turn.order)) for turn in turned]
        if tables.entries:
            spans = spans_of(batch_survey.table_batches, tables)
            leaves = partial(self._leaves_unknown, tables)
            if needs_labels(spans, batch_survey.table_batches, leaves):
                events = labelled(events, spans, leaves)
                counted = BatchReport(report.batch)
                again = batch_stats(events.where("kind NOT IN ('schema', 'ddl')"), counted)
                batch_survey = batch_survey._replace(table_batches=again.table_batches)
            for work in batch_survey.table_batches:
                names = {s.table_id for s in spans if table_id_text(*s.place) == work.table_id}
                work.source_names = tuple(sorted(names)) or (work.table_id,)
        else:
            spans = []
        landed = [work for work in batch_survey.table_batches if not self._is_shadow(work, report)]
        return Reading(events, landed, batch_survey.schemas, refused, spans, table_ids)

    def keep(self, survey: BatchStats) -> tuple[list[RejectedRows], list[StatementRow]]:
        """Keep the statements of a batch; return those that are quarantined, and the new ones."""
        works = {work.table_id: work for work in survey.table_batches}
        refused, accepted = self._sorted_out(survey.statements, works)
        return refused, self.log.record(accepted)

    def _is_shadow(self, work: TableBatch, report: BatchReport) -> bool:
        if not self._shadows or table_of_shadow(table_id_of(work.table_id)) is None:
            return False
        report.shadows += work.count
        report.events -= work.count
        return True

    def _sorted_out(
        self, statements: Iterable[StatementRow], works: Mapping[str, TableBatch]
    ) -> tuple[list[RejectedRows], list[StatementRow]]:
        """Return statements that are quarantined, and those that turn tables."""
        refused: list[RejectedRows] = []
        accepted: list[StatementRow] = []
        for statement in statements:
            usual = table_id_of(statement.table_id)
            dialect = dialect_of(statement.ddl_text.product)
            changes = () if dialect is None else parse(statement.ddl_text.ddl, dialect, usual)
            unread = [s for s in changes if s.action in SCHEMA_ACTIONS and not s.changes]
            if unread:
                reason = f"{UNREAD}: {unread[0].reason}"
                refused.append(RejectedRows(_row_of(statement), ReasonCode.UNREAD_DDL, reason, 1))
            if (
                statement in self.log.statements
            ):  # as it was judged before the batch died, or was logged
                accepted.append(statement)
                continue
            if not (turns := self.log.entries_of(statement)):
                continue
            if self._policy.source_servers == "multiple":
                if not all(map(self._takes_nothing, turns)):
                    refused.append(
                        RejectedRows(_row_of(statement), ReasonCode.SOURCE_CONFLICT, SHARED, 1)
                    )
            elif not self._is_comparable(statement, works):
                refused.append(RejectedRows(_row_of(statement), ReasonCode.UNORDERED, UNORDERED, 1))
            elif renames_newer(self._lake, self.log.table_mapping, turns):
                refused.append(
                    RejectedRows(_row_of(statement), ReasonCode.LATE_STATEMENT, RENAMED_LATE, 1)
                )
            else:
                accepted.append(statement)
        return refused, accepted

    def _takes_nothing(self, turn: SchemaChangeEntry) -> bool:
        """Say whether a turn is as good as none: it makes a table, or an empty column."""
        if isinstance(turn, TableDropped):
            return not self._lake.exists(name_of(table_id_text(turn.table)))
        if not isinstance(turn, TableAltered) or _moves(turn) or turn.key is not None:
            return False
        return all(addition.fill is Backfill.NULL for addition in turn.added)

    def _is_comparable(self, statements: StatementRow, works: Mapping[str, TableBatch]) -> bool:
        """Say whether the orders of a table's events can be compared with a statement's."""
        domains: set[bytes] = set()
        places: set[bytes] = set()
        if (work := works.get(statements.table_id)) is not None:
            domains |= set(work.domains)
            places |= work.epoch_partitions
        name = name_of(statements.table_id)
        if self._lake.exists(name):
            properties = self._lake.properties(name)
            domains |= {bytes.fromhex(properties.get("order", ""))[:2]} - {b""}
            place_bytes = properties.get("place", "").replace(":", "")
            if place_bytes.endswith("many"):
                return False
            places |= {bytes.fromhex(place_bytes)} - {b""}
        mine = epoch_partition_of(statements.order)
        same_epoch = {place for place in places if any(place[:4] == own[:4] for own in mine)}
        return (not domains or statements.order[:2] in domains) and same_epoch <= mine

    def _has_rows_only(self, table_id: str) -> bool:
        """Say whether a table keeps nothing but the newest rows."""
        return self._policy.modes.of(table_id_of(table_id)).name == UPSERT

    def _leaves_unknown(self, tables: TableMapping, span: Span) -> bool:
        """Say whether events leave a column that came after them with a value that was not told."""
        if not self._has_rows_only(table_id_text(*span.place)):
            return False
        shape = ColumnMapping(
            tables.alterations(span.place), keep=self._policy.evolution.keeps_columns
        )
        return any(
            fixed_column(filling) is None
            for filling in shape.event_columns((), span.sample).backfills
        )

    def halt(self, name: str, why: TableRejectedError | RejectedRows, followed: Followed) -> None:
        """Keep in a table's properties that its key became another, for people."""
        if why.code == KEY_CHANGED:
            halted = Halted(followed.key_order, why.code, why.reason)
            if self._lake.properties(name).get("halted") != halted.text:
                self._lake.set_properties(name, {"halted": halted.text})

    def name_schemas(self, reading: Reading, work: TableBatch, followed: Followed) -> None:
        """Give the schemas of a table's events the names that the table has for their columns."""
        if followed.shape is None:
            work.schemas = {
                name: reading.schemas[name.partition(INTERVAL_SEPARATOR)[0]] for name in work.counts
            }
            return
        named_schemas: dict[str, RowSchema] = {}
        for schema_id in work.counts:
            base, _, number = schema_id.partition(INTERVAL_SEPARATOR)
            sample = work.oldest[schema_id] if not number else reading.spans[int(number)].sample
            row_schema = named_columns(reading.schemas[base], followed.shape, sample)
            if not self._has_rows_only(work.table_id):
                read_columns = tuple(
                    column for column in row_schema.columns if column.fixed is None
                )
                row_schema = msgspec.structs.replace(row_schema, columns=read_columns)
            named_schemas[schema_id] = row_schema
        work.schemas = named_schemas

    # -- tables that share names -----------------------------------------------------------------

    def together(self, table_ids: Iterable[str]) -> set[str]:
        """Return names, as ``table_id``, and those that may have meant the same tables."""
        tables = self.log.table_mapping
        connected = set(table_ids)
        for table in [table_id_of(table_id) for table_id in connected]:
            connected.update(map(table_id_text, tables.related_names(table)))
        return connected

    def places(self, table_id: str) -> set[str]:
        """Return the tables of the lake that a name ever meant."""
        periods = timeline(table_id_of(table_id), self.log.table_mapping)
        return {name_of(table_id_text(*place)) for _, place in periods}

    def renamed(self, survey: BatchStats) -> set[str]:
        """Return the names of tables that new statements of a batch rename."""
        fresh = (
            statement for statement in survey.statements if statement not in self.log.statements
        )
        renames = (
            t
            for statement in fresh
            for t in self.log.entries_of(statement)
            if isinstance(t, TableRenamed)
        )
        return {
            table_id_text(name) for rename in renames for name in (rename.table, rename.new_table)
        }

    # -- following ----------------------------------------------------------------------------

    def follow(
        self, table_id: str, newest: bytes, truncated: bytes, fence: FencingToken | None
    ) -> Followed:
        """Make a table follow the turns that it has not followed yet.

        Args:
            table_id: The table.
            newest: The newest order of its events in the batch; empty = there are none.
            truncated: Its newest truncate so far.
            fence: Stops runs that another one overtook.
        """
        followed = self.known(table_id, newest, truncated)
        name = name_of(table_id)
        if followed.shape is None or not self._lake.exists(name):
            return followed
        properties: Mapping[str, str] = self._lake.properties(name)
        if "schema" not in properties:
            return followed
        if fence is not None:
            fence.check(properties)
        followed, properties = self._turned(name, followed, followed.shape, properties)
        self._tell(name, table_id, followed, properties=properties, newest=newest)
        return followed

    def known(self, table_id: str, newest: bytes, truncated: bytes) -> Followed:
        """Return what the log says of a table, as if it had followed everything."""
        place = LakeTable(table_id_of(table_id), generation_of(table_id))
        tables = self.log.table_mapping
        altered, ends = tables.alterations(place), tables.ends(place)
        if not altered and not ends:
            return NOTHING
        orders = [*(turn.order for turn in altered), *(end.order for end in ends)]
        only_rows = self._has_rows_only(table_id)
        if not only_rows or self._policy.source_servers == "multiple":
            # versions and events of a table that went are its past; rows may be of other servers
            ends = []
        cleared = self._cleared(table_id, ends, newest, truncated)
        turns = [turn for turn in altered if turn.order >= cleared]
        shape = ColumnMapping(turns, keep=self._policy.evolution.keeps_columns)
        return Followed(
            shape,
            cleared=cleared,
            created=_created(shape, cleared),
            fillings=tuple(
                (filling, fixed_column(filling)) for filling in shape.backfills if only_rows
            ),
            key_order=max((turn.order for turn in turns if turn.key is not None), default=b""),
            newest=max(orders),
        )

    def _cleared(
        self, table_id: str, ends: list[TableEnd], newest: bytes, truncated: bytes
    ) -> bytes:
        """Return up to where rows go with their table; empty = none do."""
        for end in reversed(ends):
            is_told = end.is_replaced or end.order < newest or end.order <= truncated
            if is_told or self._policy.evolution.dropped_tables == "truncate":
                return end.order
            # rows that came since are of a table that was made again, whoever told of it
            if is_made_again(self._lake, table_id, end.order):
                return end.order
        return b""

    def _turned(
        self, name: str, followed: Followed, shape: ColumnMapping, properties: Mapping[str, str]
    ) -> tuple[Followed, Mapping[str, str]]:
        """Make a table take its turns; return how far it came, and its properties then."""
        if (begun := alter.unfinished(properties)) is not None:
            properties = alter.finish(self._lake, name, begun, properties)
        late, waiting = unfollowed(shape, properties)
        for number in late:
            if _moves(shape.entries[number]):
                halted = Halted(shape.entries[number].order, ReasonCode.LATE_STATEMENT, LATE)
                end = self._until(shape, number)
                return followed._replace(shape=end, halted=halted), properties
        if self._policy.evolution.schema_changes == "ignore":
            first = waiting[0] if waiting else len(shape.entries)
            return followed._replace(shape=self._until(shape, first)), properties
        for number in waiting:
            found = self._next(name, shape.changes[number], properties, followed.cleared)
            if isinstance(found, Halted):
                end = self._until(shape, number)
                return followed._replace(shape=end, halted=found), properties
            properties = alter.turn(self._lake, name, found, properties)
        return followed, properties

    def _next(
        self, name: str, step: ColumnChanges, properties: Mapping[str, str], cleared: bytes
    ) -> alter.Turning | Halted:
        """Return what a turn does to a table, or why the table cannot follow it."""
        try:
            turning = turned(self._lake, name, step, cleared)
        except alter.ConflictError:
            return Halted(step.order, ReasonCode.LATE_STATEMENT, THERE)
        if mode_of(properties).name != UPSERT and not turning.is_nothing:
            return Halted(step.order, ReasonCode.MODE_CONFLICT, PAST)
        if not self._lake.can_rename and not turning.is_nothing:
            return Halted(step.order, ReasonCode.SCHEMA_CHANGE, FIXED)
        if moves_newer(self._lake, name, turning, step.order):
            return Halted(step.order, ReasonCode.LATE_STATEMENT, LATE)
        if self._policy.evolution.schema_changes == "strict" and not turning.is_nothing:
            statements = tuple(alter.statements(self._lake.sql(name), turning))
            return Halted(step.order, ReasonCode.SCHEMA_CHANGE, STRICT, statements)
        return turning

    def _until(self, shape: ColumnMapping, count: int) -> ColumnMapping:
        keeps_columns = self._policy.evolution.keeps_columns
        return ColumnMapping(shape.entries, keep=keeps_columns, followed_count=count)

    def _tell(
        self,
        name: str,
        table_id: str,
        followed: Followed,
        *,
        properties: Mapping[str, str],
        newest: bytes,
    ) -> None:
        """Keep in the table's properties, for people, whether it is halted, gone or renamed."""
        place = LakeTable(table_id_of(table_id), generation_of(table_id))
        called = self.log.table_mapping.current_name(place)
        ended = max((end.order for end in self.log.table_mapping.ends(place)), default=b"")
        is_told = ended <= max(followed.cleared, newest)
        is_gone = not is_told and not is_newer(self._lake, name, properties, ended)
        state_properties = {
            "halted": "" if followed.halted is None else followed.halted.text,
            "dropped": ended.hex() if is_gone else "",
            "named": "" if called == place.table else table_id_text(called),
        }
        changed = {
            key: value
            for key, value in state_properties.items()
            if properties.get(key, "") != value
        }
        # why a table's key is wrong is told where its events are met
        halted = Halted.of(properties.get("halted", ""))
        if changed.get("halted") == "" and halted is not None and halted.code == KEY_CHANGED:
            del changed["halted"]
        if changed:
            self._lake.set_properties(name, changed)


def unfollowed(shape: ColumnMapping, properties: Mapping[str, str]) -> tuple[list[int], list[int]]:
    """Return the turns that a table has not followed: those that came late, and all."""
    done_ids = set(properties.get(alter.TURNED, "").split(","))
    ids = [alter.turn_id(turn.order, turn.part) for turn in shape.entries]
    waiting = [number for number, turn_id in enumerate(ids) if turn_id not in done_ids]
    return [number for number in waiting if done_ids.intersection(ids[number:])], waiting


def _row_of(statements: StatementRow) -> Column:
    is_mine: Column = (F.col("kind") == "ddl") & (F.col("table_id") == statements.table_id)
    text = msgspec.json.encode(statements.ddl_text).decode()
    return (
        is_mine & (F.col("order") == F.lit(bytearray(statements.order))) & (F.col("after") == text)
    )


def _moves(turn: TableAltered) -> bool:
    return bool(turn.renamed or turn.dropped)


def _created(shape: ColumnMapping, cleared: bytes) -> dict[str, str]:
    """Return what a table that is made now has followed: everything."""
    ids = [alter.turn_id(turn.order, turn.part) for turn in shape.entries]
    new_properties = {alter.TURNED: ",".join(ids), CLEARED: cleared.hex()}
    return {key: value for key, value in new_properties.items() if value}
