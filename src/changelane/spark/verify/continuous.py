# SPDX-License-Identifier: Apache-2.0
"""The verification that never ends: chunk after chunk of each table, again and again.

The progress is in the lake, so that a restart continues with the chunk that follows.
"""

import time
from collections.abc import Callable, Iterator, Sequence

import msgspec
from pyspark.sql import SparkSession

from changelane.capture.requested_tables import check_capture_log
from changelane.errors import ChangelaneError, UnknownNameError
from changelane.pipeline.config import Pipeline
from changelane.spark.lake import lake_of
from changelane.spark.lake.interface import separate_session
from changelane.spark.runtime.redact import FAILURES, sentence_of
from changelane.spark.verify.databases import open_database
from changelane.spark.verify.progress import TableProgress
from changelane.spark.verify.progress_store import ProgressStore, StoredRound
from changelane.spark.verify.report import TableReport
from changelane.spark.verify.table_plan import Bound
from changelane.spark.verify.table_verification import Verification, VerifyOptions
from changelane.spark.verify.verify import (
    captured_source,
    selected_tables,
    verify_table,
)


class ChunkStep(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of one chunk.

    Attributes:
        report: Its result.
        chunk: The number of the chunk.
        chunk_count: The number of chunks of the table.
        proven_share: The share of the table that the newest comparisons of its chunks proved.
        oldest_time_s: The time of the oldest of them, seconds since 1970-01-01 UTC; ``None`` = some
            chunk has none yet.
    """

    report: TableReport
    chunk: int
    chunk_count: int
    proven_share: float
    oldest_time_s: float | None


class ContinuousVerification:
    """Compares one chunk at a time.

    Args:
        pipeline: A pipeline that captures a database into tables.
        tables: The names of tables at the source, in full or by their last parts; empty = all.
        spark: The session, with the table format of the pipeline.
        options: How tables are verified.
        notify: Called with the progress, and with failures of the database or of the lake.

    Attributes:
        progress: The progress of each table, by its name at the source.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        tables: Sequence[str],
        *,
        spark: SparkSession,
        options: VerifyOptions,
        notify: Callable[[str], None],
    ) -> None:
        self._pipeline = pipeline
        self._tables = tables
        self._source = captured_source(pipeline)
        self._lake = lake_of(separate_session(spark), pipeline)
        self._options = options
        self._notify = notify
        self._store = ProgressStore(spark, pipeline.folder, pipeline.name)
        self.progress: dict[str, TableProgress] = {}

    def steps(self) -> Iterator[ChunkStep | None]:
        """Yield a step for each chunk, without an end; ``None`` = it failed.

        A failure of the database or of the lake is shown, and the next chunk follows.

        Raises:
            ConfigError, UnknownNameError, UnreachableError: As for
                :func:`changelane.spark.verify.verify.verify`, at the beginning.
        """
        check_capture_log(self._source)
        names = self._table_names()
        rounds = {name: stored for name in names if (stored := self._read(name))}
        self.progress |= {name: stored.progress for name, stored in rounds.items()}
        # interrupted rounds and new tables come first, then the table that waits longest
        names.sort(key=lambda name: _waits_since_s(rounds.get(name)))
        while True:
            for name in names:
                yield from self._round(name, rounds.pop(name, None))
            if not names:
                self._notify("the source has no table that is captured")
                yield None
            try:
                names = self._table_names()
            except ChangelaneError as error:
                self._notify(str(error))
                yield None
                continue
            for dropped_name in self.progress.keys() - set(names):
                del self.progress[dropped_name]

    def _table_names(self) -> list[str]:
        with open_database(self._source) as database:
            return [str(table.id) for table in selected_tables(database.tables(), self._tables)]

    def _round(self, name: str, stored: StoredRound | None) -> Iterator[ChunkStep | None]:
        """Yield the steps of a table's chunks, or of those that an interrupted round lacks."""
        bounds: tuple[Bound, ...] | None = None
        chunk = 0
        if stored is not None and not stored.is_complete:
            bounds, chunk = stored.bounds, stored.next_chunk
        while bounds is None or chunk <= len(bounds):
            try:
                report, bounds = self._chunk_report(name, chunk, bounds)
            except (ChangelaneError, *FAILURES) as error:
                is_ours = isinstance(error, ChangelaneError)
                self._notify(f"{name}: {error if is_ours else sentence_of(error)}")
                yield None
                if bounds is None or isinstance(error, UnknownNameError):
                    return
                chunk += 1
                continue
            count, time_s = len(bounds) + 1, time.time()
            former = self.progress.get(name, TableProgress(chunk_count=count))
            progress = former.after(report, chunk=chunk, chunk_count=count, time_s=time_s)
            self.progress[name] = progress
            chunk += 1
            self._write(
                name,
                StoredRound(progress=progress, next_chunk=chunk, bounds=bounds, time_s=time_s),
            )
            yield ChunkStep(
                report=report,
                chunk=chunk - 1,
                chunk_count=count,
                proven_share=progress.proven_share,
                oldest_time_s=progress.oldest_time_s,
            )

    def _read(self, name: str) -> StoredRound | None:
        """Return the stored progress of a table; a failure is shown, and a new round begins."""
        try:
            return self._store.read(name)
        except FAILURES as error:
            self._notify(f"{name}: the stored progress cannot be read: {sentence_of(error)}")
            return None

    def _write(self, name: str, stored: StoredRound) -> None:
        """Store the progress of a table; a failure is shown, and the next chunk follows."""
        try:
            self._store.write(name, stored)
        except (OSError, *FAILURES) as error:
            self._notify(f"{name}: the progress is not stored: {sentence_of(error)}")

    def _chunk_report(
        self, name: str, chunk: int, bounds: tuple[Bound, ...] | None
    ) -> tuple[TableReport, tuple[Bound, ...]]:
        """Compare a chunk with a connection of its own, because a minute may follow."""
        with open_database(self._source) as database:
            (table,) = selected_tables(database.tables(), [name])
            verification = Verification(
                self._pipeline, self._source, database, self._lake, self._options, lambda _: None
            )
            return verify_table(verification, table, chunk=chunk, bounds=bounds)


def _waits_since_s(stored: StoredRound | None) -> float:
    """Return the time since when a table waits for its next chunk; 0 = it is the next one."""
    return stored.time_s if stored is not None and stored.is_complete else 0
