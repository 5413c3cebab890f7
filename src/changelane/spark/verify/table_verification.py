# SPDX-License-Identifier: Apache-2.0
"""The verification of one table: its readings, and the repair of its rows."""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec
from pyspark.sql import DataFrame

from changelane.capture.manifest import CapturedRecord
from changelane.capture.repairs import Repair, add_repair, delete_repair, repair_names
from changelane.capture.segment_store import CaptureLog
from changelane.capture.storage import folder_of
from changelane.errors import ChangelaneError, UnknownNameError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.database_source import DatabaseSource
from changelane.position import encode_order
from changelane.schema import TableId
from changelane.spark.lake.interface import Lake
from changelane.spark.run.latest import latest_tables
from changelane.spark.runtime.sql import folder_name
from changelane.spark.verify.comparison import (
    Chunk,
    Comparison,
    Difference,
    Key,
    RowTexts,
    compare,
    different_rows,
)
from changelane.spark.verify.lake_rows import LakeTable, TruncatedError, deleted_keys
from changelane.spark.verify.repair import RepairedTable, RepairError
from changelane.spark.verify.report import REPAIRED
from changelane.spark.verify.source_database import (
    Snapshot,
    SourceDatabase,
    SourceRows,
    VerifiedTable,
)
from changelane.spark.verify.table_plan import Bound, TablePlan
from changelane.spark.verify.table_planning import UnverifiableError

_POLL_S: Final = 0.2
_TRUNCATED_READINGS: Final = 3
"""The number of readings in sequence that a truncate may make useless."""
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


class TableVerification:
    """The verification of one table.

    Args:
        verification: What the verification of every table needs.
        table: The table at the source.
        lake_table: The table of the lake, by its name after the transforms.
        columns_plan: What is compared.
        bounds: The ends of all chunks but the last one; ``None`` = the first snapshot has them.

    Attributes:
        position_text: The position of the first snapshot.
    """

    def __init__(
        self,
        verification: Verification,
        table: VerifiedTable,
        lake_table: TableId,
        columns_plan: TablePlan,
        bounds: tuple[Bound, ...] | None = None,
    ) -> None:
        self._verification = verification
        self._table = table
        self._lake_table = lake_table
        self._columns_plan = columns_plan
        self._capture_log = CaptureLog(folder_of(verification.source.segments))
        self._bounds = bounds
        self.position_text = ""

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The ends of all chunks but the last one."""
        return self._bounds or ()

    def comparison(self, chunk: Chunk | None = None) -> Comparison:
        """Compare the table, or one of its chunks."""
        return compare(
            self._open_reading,
            columns=[column.name for column in self._columns_plan.columns],
            max_readings=self._verification.options.max_readings,
            chunk=chunk,
        )

    def repair(self, differences: Sequence[Difference]) -> dict[Key, str]:
        """Repair rows; return the result of each one, by key.

        The rows of the source are read again in a snapshot, and their records go through the
        capture log into the table. A last reading compares the rows again. If the lake has several
        rows of a key, a delete removes them first, because a read would change each of them.

        Args:
            differences: The differences.

        Raises:
            ChangelaneError: The capture does not take the records in time.
        """
        results: dict[Key, str] = {}
        row_keys = frozenset(d.key for d in differences)
        log = self._capture_log
        newest = log.newest()
        history = 0 if newest is None else newest.history
        deletes: dict[Key, CapturedRecord] = {}
        records: dict[Key, CapturedRecord] = {}
        with self._verification.database.open_snapshot() as snapshot:
            texts = self._source_rows().texts(row_keys)
            writers = snapshot.writers(self._table)
            table = RepairedTable(
                id=self._table.id,
                source=self._verification.database.event_source,
                columns_plan=self._columns_plan,
            )
            time_ms = int(time.time() * 1000)
            for number, difference in enumerate(differences, 1):
                rows = texts.get(difference.key, [])
                earlier, later = map(snapshot.repair_position, (2 * number - 1, 2 * number))
                try:
                    records[difference.key] = table.record(difference, rows, later, time_ms)
                except RepairError as error:
                    results[difference.key] = f"not repaired: {error}"
                    continue
                if difference.kind == "repeated" and rows:
                    deletes[difference.key] = table.record(difference, (), earlier, time_ms)
        results |= self._doubts(texts, row_keys, writers) if writers else {}
        repaired = row_keys - results.keys()
        if not repaired:
            return results
        if removed := [deletes[key] for key in deletes if key in repaired]:
            self._write_repairs(removed, history)
            # one merge of a delete and a read would only have the read
            with self._verification.database.open_snapshot() as snapshot:
                self._wait_for_lake(snapshot)
        self._write_repairs([records[key] for key in records if key in repaired], history)
        with self._open_reading() as reading:
            columns = [column.name for column in self._columns_plan.columns]
            remaining = different_rows(reading, repaired - reading.left_out, columns)
        # a row that changed since is a matter of the next verification
        results |= dict.fromkeys(repaired, REPAIRED)
        results |= dict.fromkeys(remaining, "not repaired: the table still differs")
        return results

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
                reason = "not repaired: a transaction that changes the table is still open"
                return dict.fromkeys(row_keys, reason)
            time.sleep(_POLL_S)
        with database.open_snapshot():
            later_texts = self._source_rows().texts(row_keys)
        return {
            key: "not repaired: the row changed meanwhile"
            for key in row_keys
            if texts.get(key) != later_texts.get(key)
        }

    def _write_repairs(self, records: Sequence[CapturedRecord], history: int) -> None:
        """Give records to the capture process, and wait until they are in the capture log.

        Raises:
            ChangelaneError: It takes too long; nothing is applied later.
        """
        folder = self._capture_log.folder
        names = {
            add_repair(folder, Repair(history, tuple(records[start : start + _ROWS_PER_REPAIR])))
            for start in range(0, len(records), _ROWS_PER_REPAIR)
        }
        deadline_s = time.monotonic() + self._verification.options.timeout_s
        while names and time.monotonic() < deadline_s:
            time.sleep(_POLL_S)
            names &= set(repair_names(folder))
        for name in names:
            delete_repair(folder, name)
        if names:
            raise ChangelaneError(
                "the capture did not take the repaired rows within "
                f"{self._verification.options.timeout_s:.0f} s: `changelane run` or "
                "`changelane capture` must run meanwhile, in this version"
            )

    @contextlib.contextmanager
    def _open_reading(self) -> Iterator[_TableReading]:
        """Open the next reading, which ends with the snapshot."""
        for attempt in range(_TRUNCATED_READINGS):
            # a new snapshot after this one begins another history: its rows are left out
            newest = self._capture_log.newest()
            history = 0 if newest is None else newest.history
            with self._verification.database.open_snapshot() as snapshot:
                try:
                    reading = self._reading(snapshot, history)
                except TruncatedError:
                    if attempt + 1 == _TRUNCATED_READINGS:
                        raise
                    continue
                yield reading
                return

    def _reading(self, snapshot: Snapshot, history: int) -> _TableReading:
        self._wait_for_lake(snapshot)
        rows = lake_rows(self._verification.pipeline, self._verification.lake, self._lake_table)
        if rows is None:
            raise ChangelaneError(f"{self._lake_table} disappeared from the lake")
        order = encode_order(
            snapshot.newest,
            epoch=self._verification.pipeline.options.epoch + history,
            captured=True,
        )
        lake = LakeTable(rows, self._columns_plan)
        left_out = lake.changed_keys(order) | deleted_keys(
            self._verification.lake, self._lake_table, self._columns_plan, order
        )
        if not self.position_text:
            self.position_text = snapshot.position_text
        if self._bounds is None:
            chunk_rows = self._verification.options.chunk_rows
            self._bounds = self._source_rows().chunk_bounds(chunk_rows)
        source = self._source_rows(self._bounds)
        lake = msgspec.structs.replace(lake, bounds=self._bounds)
        self._verification.notify(
            f"{self._table.id}: reading at {snapshot.position_text}, {len(left_out):,} keys "
            "changed since"
        )
        return _TableReading(source, lake, left_out)

    def _source_rows(self, bounds: tuple[Bound, ...] = ()) -> SourceRows:
        return self._verification.database.rows(self._table, self._columns_plan, bounds)

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


def _applied_offset(log: CaptureLog, consumer: str) -> int:
    """Return the offset of the first record that a pipeline has not applied; 0 if unknown."""
    applied = log.applied_by(consumer)
    if applied is None:
        return 0
    try:
        return log.manifest(applied.sequence).next_offset
    except ChangelaneError:  # the retention deleted it, or nothing is applied yet
        return 0


def lake_rows(pipeline: Pipeline, lake: Lake, table_id: TableId) -> DataFrame | None:
    """Return the newest rows of a table; ``None`` = the lake has no table of it.

    Raises:
        UnverifiableError: The events that wait for the table cannot be merged.
    """
    try:
        latest = latest_tables(pipeline, [str(table_id)], spark=lake.spark)
    except UnknownNameError:
        return None
    if table_id in latest.failed:
        raise UnverifiableError(f"its events cannot be merged: {latest.failed[table_id]}")
    return latest.tables.get(table_id)
