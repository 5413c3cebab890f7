# SPDX-License-Identifier: Apache-2.0
"""The verification of one table: its readings, and the repair of its rows."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from changelane.capture.manifest import CapturedRecord
from changelane.capture.repairs import Repair, add_repair, delete_repair, repair_names
from changelane.capture.segment_store import CaptureLog
from changelane.capture.storage import folder_of
from changelane.errors import ChangelaneError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.database_source import DatabaseSource
from changelane.position import encode_order
from changelane.spark.lake.interface import Lake, types_of
from changelane.spark.runtime.sql import DELETED, folder_name
from changelane.spark.verify.canonical_text import ColumnType
from changelane.spark.verify.comparison import (
    Chunk,
    Comparison,
    Difference,
    Key,
    RowTexts,
    compare,
    different_rows,
)
from changelane.spark.verify.lake_rows import (
    LakeTable,
    LakeVersion,
    TruncatedError,
    lake_version,
)
from changelane.spark.verify.repair import RepairedTable, RepairError
from changelane.spark.verify.report import REPAIRED
from changelane.spark.verify.source_database import (
    Snapshot,
    SourceDatabase,
    SourceRows,
    VerifiedTable,
)
from changelane.spark.verify.table_plan import Bound, TablePlan, chunk_of
from changelane.spark.verify.table_planning import MESSAGE_KEY, UnverifiableError, table_plan
from changelane.transforms.table_plan import TableTarget

_POLL_S: Final = 0.2
"""The time between two looks at files of the capture log, or at open transactions."""
_MERGE_POLL_S: Final = 2.0
"""The time between two looks at a table of the lake, each of which is a job of Spark."""
_TRUNCATED_READINGS: Final = 3
"""The number of readings in sequence that a truncate or a rewrite may make useless."""
_CHANGED_COLUMNS: Final = "its columns changed during the verification"
_KEPT_ROWS: Final = "several rows have the key in a table that keeps deleted rows"
_ROWS_PER_REPAIR: Final = 1000
"""The rows of one file for the capture process."""


class VerifyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How tables are verified.

    Attributes:
        chunk_rows: The number of rows of a chunk.
        max_readings: The number of readings after which a row that keeps changing is not proven.
        timeout_s: Seconds to wait until the lake has the changes up to a position of the source,
            or the capture log has repaired rows.
        repairs: Whether differences are repaired.
    """

    chunk_rows: int = 100_000
    max_readings: int = 5
    timeout_s: float = 600.0
    repairs: bool = False


class Verification(NamedTuple):
    """What the verification of every table needs.

    Attributes:
        pipeline: The pipeline.
        source: Its source.
        database: The database of the source.
        lake: Its tables.
        options: How tables are verified.
        notify: Called with the progress.
    """

    pipeline: Pipeline
    source: DatabaseSource
    database: SourceDatabase
    lake: Lake
    options: VerifyOptions
    notify: Callable[[str], None]


class _TableReading(NamedTuple):
    """A reading of :mod:`changelane.spark.verify.comparison`."""

    source: SourceRows
    lake: LakeTable
    left_out: frozenset[Key]
    columns: Sequence[str]


class MissingTableError(UnverifiableError):
    """The lake has no table, although it has the changes up to a snapshot.

    Attributes:
        has_rows: Whether the table of the source has rows in the snapshot.
    """

    def __init__(self, *, has_rows: bool) -> None:
        super().__init__("the lake has no table of it")
        self.has_rows = has_rows


class ColumnTypes(NamedTuple):
    """The types of the columns by name: at the source, and in the lake."""

    source: Mapping[str, ColumnType]
    lake: Mapping[str, str]


class TableVerification:
    """The verification of one table.

    Args:
        verification: What the verification of every table needs.
        table: The table at the source.
        target: The target of the table, by the transforms.
        bounds: The ends of all chunks but the last one; ``None`` = the first snapshot has them.

    Attributes:
        position_text: The position of the first snapshot.
        columns_plan: What is compared; the first reading plans it.
    """

    columns_plan: TablePlan

    def __init__(
        self,
        verification: Verification,
        table: VerifiedTable,
        target: TableTarget,
        bounds: tuple[Bound, ...] | None = None,
    ) -> None:
        self._verification = verification
        self._table = table
        self._target = target
        self._types: ColumnTypes | None = None
        self._capture_log = CaptureLog(folder_of(verification.source.segments))
        self._bounds = bounds
        self.position_text = ""

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The ends of all chunks but the last one."""
        return self._bounds or ()

    def comparison(self, chunk: Chunk | None = None) -> Comparison:
        """Compare the table, or one of its chunks.

        Raises:
            MissingTableError: The lake has no table.
            UnverifiableError: The table cannot be compared, or its columns change meanwhile.
            ChangelaneError: The lake does not have the changes of a snapshot in time.
        """
        return compare(
            lambda: self._open_reading(chunk),
            max_readings=self._verification.options.max_readings,
            chunk=chunk,
        )

    def repair(self, differences: Sequence[Difference]) -> dict[Key, str]:
        """Repair rows; return the result of each one, by key.

        The rows of the source are read again in a snapshot, and their records go through the
        capture log into the table. A last reading compares the rows again. If the lake has several
        rows of a key, a merge of a delete removes them first, because a read would change each of
        them.

        Args:
            differences: The differences.

        Raises:
            ChangelaneError: The capture does not take the records in time.
        """
        row_keys = frozenset(difference.key for difference in differences)
        try:
            return self._repair(differences, row_keys)
        except UnverifiableError as error:
            return dict.fromkeys(row_keys, f"not repaired: {error}")

    def _repair(
        self, differences: Sequence[Difference], row_keys: frozenset[Key]
    ) -> dict[Key, str]:
        """Repair rows.

        Raises:
            UnverifiableError: Statements changed the table.
            ChangelaneError: The capture does not take the records in time.
        """
        results: dict[Key, str] = {}
        log = self._capture_log
        newest = log.newest()
        history = 0 if newest is None else newest.history
        deletes: dict[Key, CapturedRecord] = {}
        records: dict[Key, CapturedRecord] = {}
        with self._open_snapshot() as snapshot:
            texts = self._texts(snapshot, row_keys)
            writers = snapshot.writers()
            table = RepairedTable(
                id=self._table.id,
                source=self._verification.database.event_source,
                columns_plan=self.columns_plan.of_whole_rows,
                log_key=self._log_key,
            )
            time_ms = int(time.time() * 1000)
            for number, difference in enumerate(differences, 1):
                rows = texts.get(difference.key, [])
                is_repeated = difference.kind == "repeated" and bool(rows)
                if is_repeated and self._keeps_deleted_rows:
                    results[difference.key] = f"not repaired: {_KEPT_ROWS}"
                    continue
                earlier, later = map(snapshot.repair_position, (2 * number - 1, 2 * number))
                try:
                    records[difference.key] = table.record(difference, rows, later, time_ms)
                except RepairError as error:
                    results[difference.key] = f"not repaired: {error}"
                    continue
                if is_repeated:
                    deletes[difference.key] = table.record(difference, (), earlier, time_ms)
        results |= self._doubts(texts, row_keys, writers) if writers else {}
        repaired = row_keys - results.keys()
        if not repaired:
            return results
        reads = [records[key] for key in records if key in repaired]
        if removed := [deletes[key] for key in deletes if key in repaired]:
            try:
                self._write_repairs(removed, history)
                # one merge of a delete and a read would only have the read
                with self._open_snapshot() as snapshot:
                    self._wait_for_lake(snapshot)
                self._wait_for_merge(repaired & deletes.keys())
            except BaseException:
                self._add_repairs(reads, history)  # never the deletes alone
                raise
        self._write_repairs(reads, history, are_withdrawn=not removed)
        try:
            with self._open_reading() as reading:
                remaining = different_rows(reading, repaired - reading.left_out)
        except UnverifiableError as error:  # the lake has the events
            return results | dict.fromkeys(repaired, f"not compared again: {error}")
        # a row that changed since is a matter of the next verification
        results |= dict.fromkeys(repaired, REPAIRED)
        results |= dict.fromkeys(remaining, "not repaired: the table still differs")
        return results

    @property
    def _log_key(self) -> tuple[str, ...]:
        has_other_keys = MESSAGE_KEY in self._verification.source.debezium
        return () if has_other_keys else self._table.primary_key

    @property
    def _keeps_deleted_rows(self) -> bool:
        return self._types is not None and DELETED in self._types.lake

    def _doubts(
        self,
        texts: Mapping[Key, list[RowTexts]],
        row_keys: frozenset[Key],
        writers: frozenset[str],
    ) -> dict[Key, str]:
        """Return why rows of a snapshot cannot be repaired, by key.

        A transaction whose changes the snapshot lacks may be in the log below its position. A
        repaired row would replace these changes, unless they leave the row as it is.

        Args:
            texts: The rows of the snapshot.
            row_keys: The keys of the rows.
            writers: The transactions.
        """
        database = self._verification.database
        deadline_s = time.monotonic() + self._verification.options.timeout_s
        while database.is_any_open(writers):
            if time.monotonic() >= deadline_s:
                reason = "not repaired: a transaction that may change the table is still open"
                return dict.fromkeys(row_keys, reason)
            time.sleep(_POLL_S)
        with self._open_snapshot() as snapshot:
            later_texts = self._texts(snapshot, row_keys)
        return {
            key: "not repaired: the row changed meanwhile"
            for key in row_keys
            if texts.get(key) != later_texts.get(key)
        }

    def _write_repairs(
        self, records: Sequence[CapturedRecord], history: int, *, are_withdrawn: bool = True
    ) -> None:
        """Give records to the capture process, and wait until they are in the capture log.

        Args:
            records: The records.
            history: The history that has their positions.
            are_withdrawn: Whether the others are deleted if it takes too long.

        Raises:
            ChangelaneError: It takes too long.
        """
        folder = self._capture_log.folder
        names = self._add_repairs(records, history)
        deadline_s = time.monotonic() + self._verification.options.timeout_s
        while names and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
            names &= set(repair_names(folder))
        if not names:
            return
        for name in names if are_withdrawn else ():
            delete_repair(folder, name)
        later = "" if are_withdrawn else "; it takes them when it runs"
        raise ChangelaneError(
            "the capture did not take the repaired rows within "
            f"{self._verification.options.timeout_s:.0f} s: `changelane run` or "
            f"`changelane capture` must run meanwhile, in this version{later}"
        )

    def _add_repairs(self, records: Sequence[CapturedRecord], history: int) -> set[str]:
        """Give records to the capture process; return the names of their files."""
        return {
            add_repair(
                self._capture_log.folder,
                Repair(history, tuple(records[start : start + _ROWS_PER_REPAIR])),
            )
            for start in range(0, len(records), _ROWS_PER_REPAIR)
        }

    def _open_snapshot(self) -> contextlib.AbstractContextManager[Snapshot]:
        return self._verification.database.open_snapshot(self._table)

    def _texts(self, snapshot: Snapshot, row_keys: frozenset[Key]) -> Mapping[Key, list[RowTexts]]:
        """Return the texts of whole rows of a snapshot.

        Raises:
            UnverifiableError: A statement changed the table.
        """
        self._lock(snapshot)
        if self._types is None or self._source_types() != self._types.source:
            raise UnverifiableError(_CHANGED_COLUMNS)
        columns_plan = self.columns_plan.of_whole_rows
        return self._verification.database.rows(self._table, columns_plan).texts(row_keys)

    @staticmethod
    def _lock(snapshot: Snapshot) -> None:
        """Keep the table as it is until the end of a snapshot.

        Raises:
            TruncatedError: The snapshot lacks rows of the table.
        """
        if not snapshot.is_intact():
            raise TruncatedError("a statement truncated or altered it during the verification")

    @contextlib.contextmanager
    def _open_reading(self, chunk: Chunk | None = None) -> Iterator[_TableReading]:
        """Open the next reading, which ends with the snapshot."""
        for attempt in range(_TRUNCATED_READINGS):
            # a new snapshot after this one begins another history: its rows are left out
            newest = self._capture_log.newest()
            history = 0 if newest is None else newest.history
            with self._open_snapshot() as snapshot:
                try:
                    reading = self._reading(snapshot, history, chunk)
                except TruncatedError:
                    if attempt + 1 == _TRUNCATED_READINGS:
                        raise
                    continue
                yield reading
                return

    def _reading(self, snapshot: Snapshot, history: int, chunk: Chunk | None) -> _TableReading:
        verification = self._verification
        self._wait_for_lake(snapshot)
        version = lake_version(verification.pipeline, verification.lake, self._target.table)
        self._lock(snapshot)
        if version is None:
            raise MissingTableError(has_rows=verification.database.has_rows(self._table))
        types, plan = self.plan_of(version)
        if self._types is None:
            self._types, self.columns_plan = types, plan
        elif types != self._types:
            raise UnverifiableError(_CHANGED_COLUMNS)
        order = encode_order(
            snapshot.newest,
            epoch=verification.pipeline.options.epoch + history,
            captured=True,
        )
        lake = LakeTable(version, self.columns_plan)
        left_out = lake.changed_keys(order)
        if not self.position_text:
            self.position_text = snapshot.position_text
        if self._bounds is None:
            self._bounds = self._source_rows().chunk_bounds(verification.options.chunk_rows)
        source = self._source_rows(self._bounds)
        lake = msgspec.structs.replace(lake, bounds=self._bounds)
        if chunk is not None:
            left_out = frozenset(
                key for key in left_out if chunk_of(key, self.columns_plan, self._bounds) == chunk
            )
        verification.notify(
            f"{self._table.id}: reading at {snapshot.position_text}, {len(left_out):,} keys "
            "changed since"
        )
        columns = [column.name for column in self.columns_plan.columns]
        return _TableReading(source, lake, left_out, columns)

    def plan_of(self, version: LakeVersion) -> tuple[ColumnTypes, TablePlan]:
        """Return the present types of the columns, and what is compared.

        Raises:
            UnverifiableError: The table cannot be compared.
        """
        types = ColumnTypes(self._source_types(), types_of(version.rows))
        plan = table_plan(
            self._verification.pipeline,
            self._target,
            primary_key=self._table.primary_key,
            source_types=types.source,
            lake_types=types.lake,
            unpublished=self._table.unpublished,
        )
        if self._bounds and len(self._bounds[0]) != len(plan.ranges):
            raise UnverifiableError("its key changed during the verification")
        return types, plan

    def _source_types(self) -> Mapping[str, ColumnType]:
        return self._verification.database.column_types(self._table)

    def _source_rows(self, bounds: tuple[Bound, ...] = ()) -> SourceRows:
        return self._verification.database.rows(self._table, self.columns_plan, bounds)

    def _wait_for_lake(self, snapshot: Snapshot) -> None:
        """Wait until the pipeline has applied all changes of a snapshot.

        Raises:
            ChangelaneError: It takes too long.
        """
        log = self._capture_log
        consumer = folder_name(self._verification.pipeline.name)
        deadline_s = time.monotonic() + self._verification.options.timeout_s
        end_offset: int | None = None
        while time.monotonic() < deadline_s:
            newest = log.newest()
            if (
                end_offset is None
                and newest is not None
                and snapshot.is_passed(newest.engine_offset)
            ):
                end_offset = newest.next_offset
            if end_offset is not None and _applied_offset(log, consumer) >= end_offset:
                return
            time.sleep(_POLL_S)
        lagging = "capture log does" if end_offset is None else "tables do"
        raise ChangelaneError(
            f"the {lagging} not have the changes up to {snapshot.position_text} after "
            f"{self._verification.options.timeout_s:.0f} s: `changelane run` must run meanwhile"
        )

    def _wait_for_merge(self, row_keys: frozenset[Key]) -> None:
        """Wait until the table has one row at most of some keys, whose deletes it may merge later.

        If it takes too long, the reads follow in any case: without them, the next merge would
        leave the table without the rows.
        """
        pipeline, lake = self._verification.pipeline, self._verification.lake
        if pipeline.options.merge != "deferred":
            return
        version = lake_version(pipeline, lake, self._target.table)
        if version is None:
            return
        deadline_s = time.monotonic() + self._verification.options.timeout_s
        while time.monotonic() < deadline_s:
            merged = LakeTable(version._replace(rows=lake.read(version.name)), self.columns_plan)
            if all(len(rows) <= 1 for rows in merged.fields(row_keys).values()):
                return
            time.sleep(_MERGE_POLL_S)


def _applied_offset(log: CaptureLog, consumer: str) -> int:
    """Return the offset of the first record that a pipeline has not applied; 0 if unknown."""
    applied = log.applied_by(consumer)
    if applied is None:
        return 0
    try:
        return log.manifest(applied.sequence).next_offset
    except ChangelaneError:  # the retention deleted it, or nothing is applied yet
        return 0
