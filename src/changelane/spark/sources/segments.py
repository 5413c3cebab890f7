# SPDX-License-Identifier: Apache-2.0
"""The ``segments`` source: the capture log of a database, in batches.

The manifests of the capture log say which segments exist, so that Spark lists no folder and
remembers no files. Records have offsets, as in a topic of one partition.
"""

import hashlib
import io
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Final, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from changelane.capture.manifest import Segment
from changelane.capture.segment_store import CaptureLog, ExpiredManifestError
from changelane.capture.storage import Folder, folder_of
from changelane.conversion.compression import expanded_stream
from changelane.conversion.message_files import raw_lines, read_record
from changelane.errors import ChangelaneError, ConfigError, DecodeError
from changelane.message import Message
from changelane.pipeline.config import Pipeline
from changelane.pipeline.database_source import DatabaseSource
from changelane.pipeline.kafka_offsets import Lag, OffsetRange
from changelane.pipeline.segments_source import SegmentsSource
from changelane.spark.rows import schema
from changelane.spark.rows.builder import row_builder
from changelane.spark.rows.decode import MESSAGE_DDL, message_batches
from changelane.spark.runtime.sql import folder_name
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.decode_options import decode_options_of
from changelane.spark.sources.file_reader import ReadingError, SizedRows, record_rows
from changelane.spark.sources.file_tasks import MakeBuilder
from changelane.spark.state.offset_log import ApplyBatch, BatchOffsets, OffsetLogEntry
from changelane.spark.state.segment_log import SegmentBatch, SegmentLog
from changelane.spark.state.small_files import SmallFiles

TOPIC: Final = "segments"
"""The name of the capture log in offset ranges, as if it were a topic of one partition."""
_TASK_BYTES: Final = 16 << 20
"""The size of the segments of a task above which a batch gets more tasks, compressed bytes."""


def open_input(
    spark: SparkSession, pipeline: Pipeline, checkpoint: Checkpoint, notify: Callable[[str], None]
) -> "SegmentsInput":
    """Return the input of a pipeline."""
    del notify
    # the options that name this module
    source = cast("SegmentsSource | DatabaseSource", pipeline.source).capture_log
    return SegmentsInput(spark, source, checkpoint, consumer=folder_name(pipeline.name))


class Batch(NamedTuple):
    """The records of a batch.

    Attributes:
        offsets: Their offsets.
        segments: Their segments.
        history: The history of the source that all of them belong to.
    """

    offsets: SegmentBatch
    segments: tuple[Segment, ...]
    history: int


class SegmentsInput:
    """A capture log as the input of a pipeline.

    Args:
        spark: The session.
        source: The options of the source.
        checkpoint: The checkpoint of the stream.
        consumer: The name under which the capture log records what the pipeline has applied.
    """

    def __init__(
        self, spark: SparkSession, source: SegmentsSource, checkpoint: Checkpoint, *, consumer: str
    ) -> None:
        self._spark = spark
        self._source = source
        self._checkpoint = checkpoint
        self._consumer = consumer
        self._folder = folder_of(source.path)
        self._capture_log = CaptureLog(self._folder)
        self._segment_log: SegmentLog | None = None
        self._resumed: SegmentBatch | None = None
        self._read_sequence = 0

    @property
    def _log(self) -> SegmentLog:
        """The batches of the checkpoint; the first use creates both."""
        if self._segment_log is None:
            self._checkpoint.create()
            store = SmallFiles(self._spark, f"{self._checkpoint.path}/segments")
            self._segment_log = SegmentLog(store)
        return self._segment_log

    # -- batches

    def verify(self) -> None:
        """Check that the capture log exists, before anything is written.

        Raises:
            ConfigError: It does not.
        """
        if self._capture_log.identity() is None:
            msg = f"there is no capture log in {self._source.path}: start `changelane capture`"
            raise ConfigError(msg)

    def stream(self) -> DataFrame:
        """Fail: :class:`~changelane.spark.sources.batch_stream.BatchStream` is the stream.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError

    def pending_batch(self) -> tuple[Batch, int] | None:
        """Return the batch that started and did not complete, with its number.

        Raises:
            ConfigError: The retention of the capture log deleted the records that follow.
        """
        log = self._log
        position = self._position()
        offset = position.end if log.is_complete else position.start
        # from here on, the retention of the capture log keeps what this pipeline has not applied
        self._record_read(self._sequence_before(offset))
        self._check_start(offset)
        if log.newest is None or log.is_complete:
            return None
        return self._batch_of(log.newest), log.number

    def _record_read(self, sequence: int) -> None:
        """Record that the tables contain all records up to a manifest."""
        self._read_sequence = sequence
        if self._source.keeps_segments:
            self._capture_log.set_consumed(self._consumer, sequence)

    def new_batches(self) -> Iterator[Batch]:
        """Yield the batches of the segments that no batch has read, in order.

        A batch has records of one history of the source only.
        """
        position = self._position()
        start, sequence = position.end, max(position.sequence, self._read_sequence)
        segments: list[Segment] = []
        size_bytes = history = 0

        def batch_until(end: int) -> Batch:
            return Batch(SegmentBatch(start, end, sequence), tuple(segments), history)

        for manifest in self._capture_log.manifests_after(sequence):
            for segment in manifest.segments:
                if segment.first_offset < start:
                    continue  # an earlier batch ended inside the manifest
                is_full = size_bytes + segment.size_bytes > self._source.max_bytes_per_batch
                if segments and (is_full or manifest.history != history):
                    yield batch_until(segment.first_offset)
                    start, segments, size_bytes = segment.first_offset, [], 0
                segments.append(segment)
                size_bytes += segment.size_bytes
                history = manifest.history
            sequence = manifest.sequence
        if segments:
            yield batch_until(segments[-1].first_offset + segments[-1].record_count)
        elif sequence > self._read_sequence and self._log.is_complete:
            self._record_read(sequence)  # manifests without records
        elif not (self._source.keeps_segments or self._has_manifest(sequence)):
            self._check_start(start)
            self._read_sequence = self._sequence_before(start)  # the deleted ones had no records

    def _position(self) -> SegmentBatch:
        """Return the batch after which the next one begins.

        Raises:
            ConfigError: New tables would lack rows that the retention deleted.
        """
        if self._log.newest is not None:
            return self._log.newest
        if self._resumed is not None:
            return self._resumed
        first = self._capture_log.history_start()
        if first is None:
            return SegmentBatch(0, 0, 0)
        if first.first_offset > 0 and first.engine_offset:
            msg = (
                f"the retention of the capture log {self._source.path} deleted its first "
                f"{first.first_offset:,} records, without which new tables lack rows: run "
                "`changelane capture PIPELINE.yaml --new-snapshot`, then start this pipeline again"
            )
            raise ConfigError(msg)
        return SegmentBatch(first.first_offset, first.first_offset, first.sequence - 1)

    def start_batch(self, batch: Batch) -> int:
        """Record a batch before it runs; return its number."""
        return self._log.start_batch(batch.offsets)

    def complete_batch(self, batch: Batch) -> None:
        """Record that the newest batch is complete, in the capture log, too."""
        self._log.complete_batch()
        self._record_read(batch.offsets.sequence)

    def reject_unreadable(self, batch: Batch) -> bool:
        """Return false: no segment is ever skipped."""
        del batch
        return False

    # -- records

    def events(self, batch: Batch, pipeline: Pipeline, *, is_small: bool) -> DataFrame:
        """Return the event rows of a batch."""
        source = self._source
        options = decode_options_of(pipeline)
        options["epoch"] += batch.history
        make_builder = partial(row_builder, source.format, dict(source.format_options), **options)
        task_count = 1 if is_small else int(self._spark.sparkContext.defaultParallelism)
        tasks = tasks_of(batch.segments, task_count)
        numbers = self._spark.range(0, len(tasks), 1, len(tasks))
        read = partial(_segment_rows, make_builder, self._folder, tasks)
        return numbers.mapInArrow(read, schema.DDL)

    def messages(self, batch: Batch) -> DataFrame:
        """Return the records of a batch as one task reads them, in the order of the log."""
        read = partial(_record_messages, self._folder, batch.segments)
        return self._spark.range(0, 1, 1, 1).mapInArrow(read, MESSAGE_DDL)

    def without_applied(self, batch: Batch, query: str) -> Batch:
        """Return a batch unchanged: it begins at the offset where the last one ended."""
        del query
        return batch

    # -- offsets

    def offsets_of(self, number: int, batch: Batch) -> BatchOffsets:
        """Return the offset range of a batch."""
        del number
        return BatchOffsets(span=self._span(batch.offsets.start, batch.offsets.end))

    def _span(self, start: int, end: int) -> OffsetRange:
        identity = self._capture_log.identity() or ""
        return OffsetRange({TOPIC: {0: end}}, {TOPIC: {0: start}}, {TOPIC: identity})

    def commit_details(self, batch_offsets: BatchOffsets) -> dict[str, object]:
        """Return the source and its offsets for the metadata of a batch's commits."""
        ends = {} if batch_offsets.span is None else batch_offsets.span.ends
        return {"source": self._source.label, "offsets": ends}

    def message_count(self, batch_offsets: BatchOffsets) -> int | None:
        """Return the number of records of a batch, by their offsets."""
        return None if batch_offsets.span is None else batch_offsets.span.count

    def lag(self, batch_offsets: BatchOffsets) -> Lag | None:
        """Return the number of records after a batch."""
        newest = self._capture_log.newest()
        if batch_offsets.span is None or newest is None:
            return None
        return {TOPIC: {0: max(0, newest.next_offset - batch_offsets.span.ends[TOPIC][0])}}

    def check(self, entries: list[OffsetLogEntry]) -> None:
        """Check that the capture log still has the records after the checkpoint.

        Raises:
            ConfigError: The records are gone, or the capture log was created again.
        """
        query = self._checkpoint.query()
        spans = [entry.newest.span for entry in entries if entry.query == query]
        self._check_identity([span for span in spans if span is not None])
        position = self._position()
        start = position.end if self._log.is_complete else position.start
        self._check_start(start)

    def _check_identity(self, spans: Sequence[OffsetRange]) -> None:
        identity = self._capture_log.identity()
        if any(span.ids.get(TOPIC) not in {None, "", identity} for span in spans):
            msg = (
                f"the capture log {self._source.path} was created again after this pipeline read "
                "it: restore it, or begin with new tables and a new checkpoint"
            )
            raise ConfigError(msg)

    def _check_start(self, start: int) -> None:
        oldest, newest = self._capture_log.oldest(), self._capture_log.newest()
        if oldest is None or newest is None:
            return
        if start < oldest.first_offset:
            msg = (
                f"the capture log {self._source.path} begins with offset {oldest.first_offset}, "
                f"and this pipeline continues with offset {start}: its retention deleted records "
                "in between; begin with new tables, or restore the segments"
            )
            raise ConfigError(msg)
        if start > newest.next_offset:
            msg = (
                f"the capture log {self._source.path} ends with offset {newest.next_offset}, "
                f"before the checkpoint of this pipeline ({start}): the log is an older copy of "
                "itself, or lost files; restore it"
            )
            raise ConfigError(msg)
        before = self._sequence_before(start)
        later_sequences = [number for number in self._capture_log.sequences() if number > before]
        for expected, sequence in enumerate(later_sequences, before + 1):
            if sequence != expected:
                msg = (
                    f"the capture log {self._source.path} lost manifest {expected}, and this "
                    "pipeline would never read it and the later ones: restore it"
                )
                raise ConfigError(msg)

    def resume(
        self, entries: list[OffsetLogEntry], apply_batch: ApplyBatch, *, allow_data_loss: bool
    ) -> BatchOffsets | None:
        """Complete the batches of lost checkpoints, and start after them.

        Args:
            entries: The entries of the offset log.
            apply_batch: Applies records under a query and a batch number.
            allow_data_loss: Has no effect: a capture log has its records or is damaged.

        Returns:
            The end offset, which replaces *entries* in the log.

        Raises:
            ConfigError: Records are gone, or the capture log was created again.
        """
        del allow_data_loss
        spans = [
            (entry, span) for entry in entries if (span := entry.newest.span) and TOPIC in span.ends
        ]
        if not spans:
            return None
        self._check_identity([span for _, span in spans])
        end = 0
        for entry, span in spans:
            span_end = span.ends[TOPIC][0]
            start = span.starts.get(TOPIC, {}).get(0, 0)
            if not entry.is_finished and start < span_end:
                self._check_start(start)
                offsets = SegmentBatch(start, span_end, self._sequence_before(span_end))
                apply_batch(
                    self._batch_of(offsets), entry.query, entry.batch, BatchOffsets(span=span)
                )
            end = max(end, span_end)
        self._check_start(end)
        self._resumed = SegmentBatch(end, end, self._sequence_before(end))
        return BatchOffsets(span=self._span(end, end))

    def _has_manifest(self, sequence: int) -> bool:
        try:
            self._capture_log.manifest(sequence)
        except ExpiredManifestError:
            return False
        return True

    def _sequence_before(self, offset: int) -> int:
        """Return the newest manifest whose records all precede an offset; 0 = there is none."""
        manifest = self._capture_log.manifest_at(offset)
        if manifest is None:
            return 0
        return manifest.sequence if manifest.next_offset <= offset else manifest.sequence - 1

    def _batch_of(self, batch_offsets: SegmentBatch) -> Batch:
        """Return a batch of an earlier run.

        Raises:
            ChangelaneError: The capture log does not have exactly these records.
        """
        start, end = batch_offsets.start, batch_offsets.end
        manifest = self._capture_log.manifest_at(start)
        sequence = 0 if manifest is None else manifest.sequence - 1
        segments: list[Segment] = []
        history = 0
        for manifest in self._capture_log.manifests_after(sequence):
            segments += [
                segment for segment in manifest.segments if start <= segment.first_offset < end
            ]
            history = manifest.history
            if manifest.next_offset >= end:
                break
        offsets = [start, *(segment.first_offset + segment.record_count for segment in segments)]
        firsts = [*(segment.first_offset for segment in segments), end]
        if offsets != firsts:
            msg = f"the capture log {self._source.path} lacks records between {start} and {end}"
            raise ChangelaneError(f"{msg}: restore its segments")
        return Batch(batch_offsets, tuple(segments), history)


def tasks_of(segments: Sequence[Segment], task_count: int) -> list[tuple[Segment, ...]]:
    """Distribute segments over tasks; neighbours stay together.

    Args:
        segments: The segments, at least one.
        task_count: The number of tasks that run at the same time.
    """
    total_bytes = sum(segment.size_bytes for segment in segments)
    count = min(len(segments), max(task_count, total_bytes // _TASK_BYTES))
    tasks: list[tuple[Segment, ...]] = []
    remaining = iter(segments)
    share_bytes = total_bytes / max(1, count)
    task: list[Segment] = []
    assigned_bytes = 0
    for segment in remaining:
        task.append(segment)
        assigned_bytes += segment.size_bytes
        if assigned_bytes >= share_bytes * (len(tasks) + 1):
            tasks.append(tuple(task))
            task = []
    if task:
        tasks.append(tuple(task))
    return tasks


# -- on the workers


def _segment_rows(
    make_builder: MakeBuilder,
    folder: Folder,
    tasks: Sequence[Sequence[Segment]],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    builder = make_builder()

    def rows(segment: Segment) -> Iterator[SizedRows]:
        for number, line in enumerate(record_lines(folder, segment), segment.first_offset):
            yield len(line), record_rows(builder, line, (TOPIC, 0, number))

    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield from schema.arrow_batches(
                sized for segment in tasks[number] for sized in rows(segment)
            )


def _record_messages(
    folder: Folder, segments: Sequence[Segment], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Return the records of segments with the topics of their tables.

    Raises:
        ReadingError: A segment is damaged, or cannot be read at the moment.
    """
    for _ in batches:
        yield from message_batches(
            message for segment in segments for message in _messages_of(folder, segment)
        )


def _messages_of(folder: Folder, segment: Segment) -> Iterator[Message]:
    for number, line in enumerate(record_lines(folder, segment), segment.first_offset):
        try:
            record = read_record(line)
        except DecodeError:
            msg = f"segments/{segment.name} of {folder.label} has a line that is no record"
            raise ReadingError(f"{msg}: restore it from a copy") from None
        yield Message(record.value, record.key, record.headers, record.topic, 0, number)


def record_lines(folder: Folder, segment: Segment) -> Iterator[bytes]:
    """Yield the lines of a segment.

    Raises:
        ReadingError: The segment is damaged, or cannot be read at the moment.
    """
    name = f"segments/{segment.name}"
    try:
        content = folder.read(name)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ReadingError(f"cannot read {name} of {folder.label}: {reason}") from None
    if hashlib.sha256(content).hexdigest() != segment.sha256:
        raise ReadingError(f"{name} of {folder.label} is damaged: restore it from a copy")
    lines = raw_lines(expanded_stream(io.BytesIO(content), segment.name))
    yield from (line.raw for line in islice(lines, segment.record_count))
