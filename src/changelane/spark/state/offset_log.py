# SPDX-License-Identifier: Apache-2.0
"""The offset log: the files or offsets of each batch, from which a lost checkpoint is rebuilt.

The log is a folder beside the tables with one small file per batch. The file is written before
anything of the batch is committed, and contains the files or the topic offsets that the batch
reads. A second, empty file marks a batch that is committed completely; a repeated batch with this
mark reads nothing.

With the log a run can continue without its checkpoint. The incomplete batch is applied again under
its own marker, so that tables which have it skip it. Earlier batches are not applied again: tables
with keys could take them without harm, but tables without keys would have their rows twice.
"""

import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec
from pyspark.sql import SparkSession

from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.kafka_offsets import OffsetRange
from changelane.pipeline.lake_sinks import place_of
from changelane.spark.runtime.sql import folder_name
from changelane.spark.state.small_files import SmallFiles, decode_file

_FOLDER: Final = "_changelane/batches"
_NAME: Final = re.compile(r"(upto-)?([0-9]+)\.json")
_RESUMED_PREFIX: Final = "resumed-"
_JOIN_EVERY: Final = 100
"""After this number of batches their files are joined into one."""


class BatchOffsets(msgspec.Struct, frozen=True, omit_defaults=True):
    """The input of a batch.

    Attributes:
        files: The addresses of files.
        span: The offset range of each topic.
        epoch: The option ``epoch`` of the run that recorded it.
        place: The options of the sink that decide where the tables of that run are.
    """

    files: tuple[str, ...] = ()
    span: OffsetRange | None = None
    epoch: int = 0
    place: dict[str, str] = {}


class OffsetLogEntry(msgspec.Struct, frozen=True):
    """The entries of one checkpoint.

    Attributes:
        query: The id of the checkpoint.
        batch: The number of its newest batch, which may be incomplete.
        newest: The input of that batch.
        files: The files of the earlier batches, which are complete.
        is_finished: Whether the newest batch is known to be complete.
    """

    query: str
    batch: int
    newest: BatchOffsets
    files: frozenset[str]
    is_finished: bool = False


class OffsetLog:
    """The input of each batch of a pipeline.

    Args:
        spark: The session.
        root: The folder of the tables.
        pipeline: The pipeline's name.
        epoch: The option ``epoch`` of the pipeline.
        place: The options of its sink that decide where its tables are (``place_of``).
    """

    def __init__(
        self,
        spark: SparkSession,
        root: str,
        pipeline: str,
        *,
        epoch: int = 0,
        place: Mapping[str, str] | None = None,
    ) -> None:
        self._spark = spark
        self._epoch = epoch
        self._place = dict(place or {})
        self._path = f"{root.rstrip('/')}/{_FOLDER}/{folder_name(pipeline)}"
        self._root = SmallFiles(spark, self._path)
        self._folders: dict[str, SmallFiles] = {}
        self._newest: dict[str, int] = {}
        """The newest batch of each checkpoint, from earlier runs or finished by this one."""

    def _folder_of(self, query: str) -> SmallFiles:
        """Return the files of a checkpoint, whose folder is opened once."""
        if query not in self._folders:
            self._folders[query] = SmallFiles(self._spark, f"{self._path}/{query}")
        return self._folders[query]

    def record_batch(
        self,
        query: str,
        batch: int,
        batch_offsets: BatchOffsets,
        is_remembered: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Record the input of a batch, before anything of it is committed.

        Args:
            query: The id of the checkpoint.
            batch: The batch.
            batch_offsets: Its input.
            is_remembered: Whether a file, by its address, stays in the log; other files may come
                again.
        """
        if batch and batch % _JOIN_EVERY == 0:
            self._compact(query, batch, is_remembered)
        if not self._folder_of(query).exists(_entry_name(batch)):
            self._write(query, _entry_name(batch), batch_offsets)

    def check(
        self,
        query: str,
        batch: int,
        batch_offsets: BatchOffsets,
        checkpoint: str,
        *,
        first_batch: int = 0,
    ) -> None:
        """Reject a batch with a number of an earlier batch with another input, or after a gap.

        The marker of the first would let tables skip rows that they do not have. Tables lack the
        rows of the batches in a gap.

        Args:
            query: The id of the checkpoint.
            batch: The batch.
            batch_offsets: Its input.
            checkpoint: The path of the checkpoint.
            first_batch: The first batch that the log of this checkpoint may have.

        Raises:
            ConfigError: The checkpoint is an older copy of itself, or the tables are older than the
                checkpoint, or not its own; the message names the fix.
        """
        if self._is_new(query, batch):
            if batch > max(self._newest[query] + 1, first_batch):
                raise ConfigError(OLDER_TABLES.format(batch=batch, checkpoint=checkpoint))
            return
        is_recorded = self._folder_of(query).exists(_entry_name(batch))
        if not is_recorded or not _is_same(self._read(query, _entry_name(batch)), batch_offsets):
            raise ConfigError(OLDER_CHECKPOINT.format(batch=batch, checkpoint=checkpoint))

    def _is_new(self, query: str, batch: int) -> bool:
        """Return whether a batch is newer than all recorded batches of a checkpoint."""
        if query not in self._newest:
            numbers = [number for _, number in self._entry_names(query)]
            self._newest[query] = max(numbers, default=-1)
        return batch > self._newest[query]

    def record_finished(self, query: str, batch: int) -> None:
        """Record that a batch is committed completely: tables, quarantine and tombstones."""
        self._folder_of(query).mark(_finished_name(batch))
        self._newest[query] = max(batch, self._newest.get(query, batch))

    def is_finished(self, query: str, batch: int) -> bool:
        """Return whether a batch is known to be committed completely."""
        return not self._is_new(query, batch) and self._folder_of(query).exists(
            _finished_name(batch)
        )

    def replace(self, batch_offsets: BatchOffsets) -> None:
        """Replace the entries of all checkpoints by one entry with their input."""
        older_queries = [entry.query for entry in self.read()]
        self._write(f"{_RESUMED_PREFIX}{uuid.uuid4()}", _entry_name(0), batch_offsets)
        for query in older_queries:
            self._folder_of(query).delete_all()

    def check_epoch(self, entries: Iterable[OffsetLogEntry]) -> None:
        """Reject an epoch below that of an earlier batch: tables would ignore its events as old.

        Raises:
            ConfigError: The epoch is lower.
        """
        newest = max((entry.newest.epoch for entry in entries), default=0)
        if self._epoch < newest:
            raise ConfigError(LOWER_EPOCH.format(epoch=self._epoch, newest=newest))

    def check_place(self) -> None:
        """Reject another place of the tables, which would lack the rows of earlier batches there.

        Raises:
            ConfigError: The place changed; the message names the options.
        """
        after = self._place
        for query in self._root.names():
            entry_names = self._entry_names(query)
            if not entry_names:
                continue
            newest = max(entry_names, key=lambda key: key[1])
            before = self._read(query, entry_names[newest]).place
            names = {name for name in {*before, *after} if before.get(name) != after.get(name)}
            if before and names:
                options = " and ".join(f"sink.{name}" for name in sorted(names))
                raise ConfigError(OTHER_PLACE.format(options=options))

    def _write(self, query: str, name: str, batch_offsets: BatchOffsets) -> None:
        content = msgspec.structs.replace(batch_offsets, epoch=self._epoch, place=self._place)
        self._folder_of(query).write(name, msgspec.json.encode(content))

    def _compact(self, query: str, batch: int, is_remembered: Callable[[str], bool]) -> None:
        """Write the input of all batches before a batch into one file."""
        entry_names = {
            key: name for key, name in self._entry_names(query).items() if key[1] < batch
        }
        newest_joined = max((number for is_joined, number in entry_names if is_joined), default=-1)
        newest = max((number for _, number in entry_names), default=-1)
        if newest <= newest_joined:
            return
        earlier_offsets = [
            self._read(query, entry_names[key])
            for key in sorted(entry_names, key=lambda key: key[1])
        ]
        files = sorted(
            {
                name
                for batch_offsets in earlier_offsets
                for name in batch_offsets.files
                if is_remembered(name)
            }
        )
        # all of these batches are complete: of topics only the end offsets count
        offset_range = next(
            (
                OffsetRange(span.ends, span.ends, span.ids)
                for batch_offsets in earlier_offsets[::-1]
                if (span := batch_offsets.span)
            ),
            None,
        )
        self._write(query, f"upto-{newest:012}.json", BatchOffsets(tuple(files), offset_range))
        files_of_query = self._folder_of(query)
        for (is_joined, number), name in entry_names.items():
            files_of_query.delete(name)
            if not is_joined:
                files_of_query.delete(_finished_name(number))

    def _entry_names(self, query: str) -> dict[tuple[bool, int], str]:
        """Return the names of a checkpoint's files, by whether they are joined and by batch."""
        entry_names = {}
        for name in self._folder_of(query).names():
            if (match := _NAME.fullmatch(name)) is not None:
                entry_names[match.group(1) is not None, int(match.group(2))] = name
        return entry_names

    def _read(self, query: str, name: str) -> BatchOffsets:
        return decode_file(
            self._folder_of(query).read(name), BatchOffsets, f"{self._path}/{query}/{name}"
        )

    def read(self) -> list[OffsetLogEntry]:
        """Return the entry of each checkpoint."""
        entries = []
        for query in self._root.names():
            entry_names = self._entry_names(query)
            if not entry_names:
                continue
            batch = max(number for _, number in entry_names)
            offsets_by_key = {key: self._read(query, name) for key, name in entry_names.items()}
            newest = offsets_by_key.pop((False, batch), None) or msgspec.structs.replace(
                offsets_by_key[True, batch], files=()
            )
            earlier_files = frozenset(
                name for batch_offsets in offsets_by_key.values() for name in batch_offsets.files
            )
            is_finished = self._folder_of(query).exists(_finished_name(batch))
            entries.append(OffsetLogEntry(query, batch, newest, earlier_files, is_finished))
        return sorted(entries, key=lambda entry: entry.query)

    def clear(self) -> None:
        """Delete the log: a new checkpoint applies all files again."""
        self._root.delete_all()


def offset_log_of(spark: SparkSession, pipeline: Pipeline, *, is_continued: bool) -> OffsetLog:
    """Return the offset log of a pipeline into tables.

    Raises:
        ConfigError: A run continues after earlier batches, whose tables are in another place.
    """
    place, epoch = place_of(pipeline.sink), pipeline.options.epoch
    log = OffsetLog(spark, pipeline.folder, pipeline.name, epoch=epoch, place=place)
    if is_continued:
        log.check_place()
    return log


def _is_same(first: BatchOffsets, second: BatchOffsets) -> bool:
    """Return whether two batches have the same input."""
    if first.span is None or second.span is None:
        return sorted(first.files) == sorted(second.files) and first.span is second.span
    return (first.span.starts, first.span.ends) == (second.span.starts, second.span.ends)


def _entry_name(batch: int) -> str:
    """Return the name of the file with the input of a batch."""
    return f"{batch:012}.json"


def _finished_name(batch: int) -> str:
    """Return the name of the file that marks a complete batch."""
    return f"{batch:012}.finished"


LOST_CHECKPOINT: Final = (
    "the checkpoint {checkpoint} does not exist, but tables have batches of this pipeline, and "
    "{tables} would get their rows a second time: run with --recover-checkpoint to continue from "
    "the batches in the tables, or restore the newest checkpoint"
)
SKIPPED_AT_LATEST: Final = (
    "the checkpoint {checkpoint} does not exist, but earlier batches of this pipeline are "
    "complete, and source.starting_offsets: latest would skip the messages after them: a "
    "pipeline into tables continues after them with --recover-checkpoint; or set "
    "source.starting_offsets to other offsets, or to earliest"
)
OLDER_CHECKPOINT: Final = (
    "batch {batch} of the checkpoint {checkpoint} has another input than before: the checkpoint is "
    "an older copy, or lost files, and tables would skip rows that they do not have; move it away "
    "and run with --recover-checkpoint, which continues from the batches in the tables"
)
OLDER_TABLES: Final = (
    "the tables lack batches before batch {batch} of the checkpoint {checkpoint}: they are an "
    "older copy, or the checkpoint is that of another pipeline or folder; restore the newest "
    "tables, or move the checkpoint away and run with --recover-checkpoint, which continues from "
    "the batches in the tables"
)
OTHER_PLACE: Final = (
    "{options} changed since the last batch: tables in another place would lack the rows of all "
    "earlier batches; restore the former options, or set another sink.path, without "
    "options.checkpoint or with another one, into which the whole source is read"
)
LOWER_EPOCH: Final = (
    "options.epoch is {epoch}, and earlier batches have the epoch {newest}: their rows are newer "
    "than all events of a lower epoch, which would have no effect; set options.epoch to {newest} "
    "or higher"
)
READ_AGAIN: Final = (
    "the checkpoint {checkpoint} does not exist: the whole source is read and applied again, which "
    "changes no row of a table with a key; --recover-checkpoint continues from the batches in the "
    "tables instead"
)


def check_new_start(pipeline: Pipeline) -> None:
    """Check that a new checkpoint skips no input after the batches of a lost one.

    Raises:
        ConfigError: It would begin at the latest message.
    """
    if pipeline.source.begins_at_latest:
        raise ConfigError(SKIPPED_AT_LATEST.format(checkpoint=pipeline.checkpoint))


def lost_checkpoint_warning(pipeline: Pipeline) -> str:
    """Return the warning for a lost checkpoint, when the whole source is applied again.

    Tables of mode ``append`` recognise repeated events by the positions of the format.

    Raises:
        ConfigError: A new checkpoint would skip messages, or rows would be appended a second time.
    """
    check_new_start(pipeline)
    checkpoint, options = pipeline.checkpoint, pipeline.options
    modes = {options.mode, *(table.mode for table in options.tables.values())}
    repeats = []
    if options.tables_without_key == "append":
        repeats.append("a table without a key")
    if "append" in modes and not pipeline.positions - {"time"}:
        repeats.append("a table of the mode `append`")
    if repeats:
        raise ConfigError(
            LOST_CHECKPOINT.format(checkpoint=checkpoint, tables=" and ".join(repeats))
        )
    return READ_AGAIN.format(checkpoint=checkpoint)


def files_applied_elsewhere(entries: Iterable[OffsetLogEntry], query: str) -> frozenset[str]:
    """Return the files that other checkpoints of the pipeline applied."""
    files_by_query: Mapping[str, frozenset[str]] = {
        entry.query: entry.files.union(entry.newest.files)
        for entry in entries
        if entry.query != query
    }
    return frozenset[str]().union(*files_by_query.values())


ApplyBatch = Callable[[Any, str, int, BatchOffsets], None]
"""Applies the input of a batch under a query and a batch number."""
