# SPDX-License-Identifier: Apache-2.0
"""The ``files`` source: the files of a folder, in batches.

Spark's own file source skips files by their age, keeps the names of all other files in the memory
of the driver, and fails at every file that it cannot read. changelane therefore lists the folder
itself and writes a file log (:mod:`changelane.spark.state.file_log`).
"""

import time
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any, Final, cast

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from changelane.conversion.message_files import LineFormat
from changelane.errors import ConfigError
from changelane.pipeline.config import Pipeline
from changelane.pipeline.files_source import FilesSource
from changelane.pipeline.kafka_offsets import Lag
from changelane.spark.lake.interface import file_system
from changelane.spark.rows.builder import row_builder
from changelane.spark.sources.checkpoint import Checkpoint
from changelane.spark.sources.decode_options import decode_options_of
from changelane.spark.sources.file_listing import (
    Root,
    address,
    is_local,
    list_folder,
    path_of,
    root_of,
)
from changelane.spark.sources.file_reader import NO_FILE, NO_PERMISSION
from changelane.spark.sources.file_tasks import cloned_session, file_rows, pieces_of
from changelane.spark.state.file_log import File, FileLog, Files
from changelane.spark.state.offset_log import (
    ApplyBatch,
    BatchOffsets,
    OffsetLogEntry,
    files_applied_elsewhere,
)
from changelane.spark.state.small_files import SmallFiles

MAX_WARNINGS: Final = 5
"""The number of files that a run names one by one in warnings of one kind."""
MAX_CHANGED: Final = 100
"""The number of changed files in a report."""
_PERMANENT: Final = {
    "FileNotFoundException": NO_FILE,
    "AccessControlException": NO_PERMISSION,
    "AccessDeniedException": NO_PERMISSION,
}
"""Errors of Hadoop after which a retry cannot succeed."""


def open_input(
    spark: SparkSession, pipeline: Pipeline, checkpoint: Checkpoint, notify: Callable[[str], None]
) -> "FilesInput":
    """Return the input of a pipeline."""
    source = cast("FilesSource", pipeline.source)  # the options that name this module
    return FilesInput(spark, source, checkpoint, notify)


class FilesInput:
    """The files of a folder as the input of a pipeline.

    Args:
        spark: The session.
        source: The options of the source.
        checkpoint: The checkpoint of the stream.
        notify: Prints a note for the user.

    Attributes:
        changed: Files that changed after a batch read them, at most :data:`MAX_CHANGED`.
        is_fully_read: Whether the newest batch contained no unreadable message or file.
        first_batch: The first batch that Spark's file source did not read.
    """

    def __init__(
        self,
        spark: SparkSession,
        source: FilesSource,
        checkpoint: Checkpoint,
        notify: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._spark = spark
        self._source = source
        self._checkpoint = checkpoint
        self._notify = notify
        self._log_entries: list[OffsetLogEntry] = []
        self._file_log: FileLog | None = None
        self._notified: set[str] = set()
        self._rejections: dict[str, str] = {}
        self.changed: list[str] = []
        self.is_fully_read = True
        self.first_batch = 0

    def verify(self) -> None:
        """Check that the folder exists, before anything is written.

        Raises:
            ConfigError: The folder does not exist.
        """
        _ = self.root

    @cached_property
    def root(self) -> Root:
        """The folder.

        Raises:
            ConfigError: The folder does not exist.
        """
        return root_of(self._spark, self._source)

    @cached_property
    def _session(self) -> SparkSession:
        """The session of the batches: without adaptive execution, as in Spark's own streams."""
        session = cloned_session(self._spark)
        session.conf.set("spark.sql.adaptive.enabled", "false")
        return session

    @property
    def file_log(self) -> FileLog:
        """The file log of the checkpoint; the first use creates both."""
        if self._file_log is None:
            self._checkpoint.create()
            store = SmallFiles(self._spark, f"{self._checkpoint.path}/files")
            spark_log = self._checkpoint.spark_file_log()
            if spark_log is not None:
                self.first_batch = spark_log.last_batch + 1
            self._file_log = FileLog(store, spark_log)
        return self._file_log

    def unread_files(self) -> list[File]:
        """Return the files that no batch has read, in the order of the next batches.

        Raises:
            ConfigError: The folder cannot be read.
        """
        folder = list_folder(self._spark, self._source, self.root)
        now_ms = int(time.time() * 1000)
        comparison = self.file_log.compare(folder.files, now_ms, unlisted=folder.unlisted)
        skipped = {link: self._link_warning(link) for link in folder.outside}
        skipped |= {
            path: f"{path} is skipped: {reason}" for path, reason in folder.unlisted.items()
        }
        changed = {
            after.path: change_warning(before, after) for before, after in comparison.changed
        }
        self._warn(skipped)
        self._warn(changed)
        self._notified &= {*skipped, *changed}
        self.changed = sorted({*self.changed, *changed})[:MAX_CHANGED]
        return sorted(
            comparison.unread,
            key=lambda file: (file.time_ms, file.path),
            reverse=self._source.is_newest_first,
        )

    def pending_batch(self) -> tuple[Files, int] | None:
        """Return the batch that started and did not complete, with its number."""
        pending = self.file_log.pending
        return None if pending is None else (pending.files, pending.number)

    def new_batches(self) -> Iterator[Files]:
        """Yield the batches of the files that no batch has read."""
        yield from self._batches(self.unread_files())

    def start_batch(self, batch: Files) -> int:
        """Record a batch before it runs; return its number."""
        return self.file_log.start_batch(batch, int(time.time() * 1000))

    def complete_batch(self, batch: Files) -> None:
        """Record that the newest batch is complete, and clean its files up."""
        self.file_log.complete_batch()
        self.clean(batch)

    def _batches(self, files: Sequence[File]) -> Iterator[Files]:
        """Yield files in batches within the limits of the options."""
        max_files, max_bytes = self._source.max_files, self._source.max_bytes
        batch: list[File] = []
        size = 0
        for file in files:
            size += file.size or 0
            is_full = max_bytes is not None and size > max_bytes
            if batch and (len(batch) >= max_files or is_full):
                yield tuple(batch)
                batch, size = [], file.size or 0
            batch.append(file)
        if batch:
            yield tuple(batch)

    def _link_warning(self, link: str) -> str:
        return (
            f"the symbolic link {link} is skipped, because its target is outside of "
            f"{self._source.path}: set source.follow_links: true, or copy the target"
        )

    def _warn(self, warnings: dict[str, str]) -> None:
        """Print warnings about files, by path; each file gets one warning."""
        new_warnings = [warnings[path] for path in sorted(warnings) if path not in self._notified]
        self._notified.update(warnings)
        for warning in new_warnings[:MAX_WARNINGS]:
            self._notify(warning)
        if len(new_warnings) > MAX_WARNINGS:
            self._notify(f"the same applies to {len(new_warnings) - MAX_WARNINGS:,} more files")

    def stream(self) -> DataFrame:
        """Fail: :class:`~changelane.spark.sources.batch_stream.BatchStream` is the stream.

        Raises:
            NotImplementedError: Always.
        """
        raise NotImplementedError

    def events(self, batch: Files, pipeline: Pipeline, *, is_small: bool) -> DataFrame:
        """Return the event rows of a batch."""
        del is_small  # the tasks depend on the sizes of the files
        source = self._source
        make_builder = partial(
            row_builder, source.format, dict(source.format_options), **decode_options_of(pipeline)
        )
        form = None if source.line_format == "auto" else LineFormat(source.line_format)
        pieces = pieces_of(batch, self.root, self._rejections, follow_links=source.follow_links)
        return file_rows(self._session, source, pieces, make_builder, form)

    def without_applied(self, batch: Files, query: str) -> Files:
        """Return a batch without the files that other checkpoints of the pipeline applied."""
        applied = {path_of(name) for name in files_applied_elsewhere(self._log_entries, query)}
        return tuple(file for file in batch if file.path not in applied)

    def offsets_of(self, number: int, batch: Files) -> BatchOffsets:
        """Return the entry of a batch in the offset log."""
        del number
        return BatchOffsets(files=tuple(address(file.path) for file in batch))

    def is_remembered(self, name: str) -> bool:
        """Return whether the file log contains a file, by its address.

        Before the file log exists, ``--recover-checkpoint`` completes batches of other checkpoints;
        their entries stay.
        """
        return self._file_log is None or path_of(name) in self._file_log

    def commit_details(self, batch_offsets: BatchOffsets) -> dict[str, object]:
        """Return the source in the metadata of commits."""
        del batch_offsets
        return {"source": self._source.path}

    def message_count(self, batch_offsets: BatchOffsets) -> int | None:
        """Return the number of messages of a batch: unknown."""
        del batch_offsets
        return None

    def lag(self, batch_offsets: BatchOffsets) -> Lag | None:
        """Return the number of messages after a batch: unknown."""
        del batch_offsets
        return None

    def check(self, entries: list[OffsetLogEntry]) -> None:
        """Read the batches of other checkpoints, whose files :meth:`without_applied` skips."""
        self._log_entries = entries

    def resume(
        self, entries: list[OffsetLogEntry], apply_batch: ApplyBatch, *, allow_data_loss: bool
    ) -> BatchOffsets | None:
        """Complete the batches of lost checkpoints.

        Args:
            entries: The entries of the offset log.
            apply_batch: Applies files as a batch of a checkpoint.
            allow_data_loss: Has no effect on files; topics use it.

        Returns:
            ``None``: the offset log stays, and later batches skip its files.

        Raises:
            ConfigError: A file of a batch does not exist any more.
        """
        del allow_data_loss
        self._log_entries = entries
        folder = list_folder(self._spark, self._source, self.root)
        present_files = {file.path: file for file in folder.files}
        for entry in entries:
            if entry.is_finished:
                continue
            paths = [path_of(name) for name in entry.newest.files]
            files = tuple(present_files[path] for path in paths if path in present_files)
            if missing_count := len(paths) - len(files):
                msg = (
                    f"{missing_count} files of batch {entry.batch}, which may be incomplete, "
                    "do not exist in the source any more: restore them"
                )
                raise ConfigError(msg)
            if files:
                apply_batch(files, entry.query, entry.batch, entry.newest)
        return None

    def reject_unreadable(self, batch: Files) -> bool:
        """Find the files of a failed batch that Hadoop can never read; the next attempt skips them.

        Returns:
            Whether there are such files.
        """
        files = batch
        rejections: dict[str, str] = {}
        for file in files:
            if is_local(file.path) or file.path in self._rejections:
                continue
            try:
                system, path = file_system(self._spark, file.path)
                system.open(path).close()
            except Py4JJavaError as error:
                kind = str(error.java_exception.getClass().getSimpleName())
                if (reason := _PERMANENT.get(kind)) is not None:
                    rejections[file.path] = reason
        paths = {file.path for file in files}
        earlier_rejections = {
            path: reason for path, reason in self._rejections.items() if path in paths
        }
        self._rejections = earlier_rejections | rejections
        return bool(rejections)

    def clean(self, files: Files) -> None:
        """Delete or archive the files of a complete batch, as ``cleanSource`` requires.

        The files of a batch with an unreadable message stay, because a replay may need them, and so
        do files that changed since they were listed: nobody has read their new content.
        """
        if self._source.clean == "off" or not self.is_fully_read:
            return
        jvm: Any = self._spark._jvm
        for file in files:
            try:
                system, path = file_system(self._spark, file.path)
                status = system.getFileStatus(path)
                size, time_ms = int(status.getLen()), int(status.getModificationTime())
                # some object stores list times in milliseconds, and return a file's in seconds
                is_newer = time_ms // 1000 > file.time_ms // 1000
                if is_newer or file.size not in {None, size}:
                    self._warn({file.path: change_warning(file, File(file.path, size, time_ms))})
                    self.changed = sorted({*self.changed, file.path})[:MAX_CHANGED]
                    continue
                if self._source.clean == "delete":
                    system.delete(path, False)
                    continue
                name = str(path.toUri().getPath()).lstrip("/")
                target = jvm.org.apache.hadoop.fs.Path(f"{self._source.archive.rstrip('/')}/{name}")
                system.mkdirs(target.getParent())
                # some file systems replace an existing target
                if system.exists(target) or not system.rename(path, target):
                    self._notify(f"{file.path} is applied, but cannot be moved to {target}")
            except Py4JJavaError as error:  # the batch is complete: the run continues
                kind = error.java_exception.getClass().getSimpleName()
                self._notify(f"{file.path} is applied, but cannot be cleaned up ({kind})")


def change_warning(before: File, after: File) -> str:
    """Return the warning about a file that changed after a batch read it."""
    sizes = "" if before.size is None else f" (from {before.size:,} to {after.size:,} bytes)"
    return (
        f"{after.path} changed after it was read{sizes}: the change is not read; write new "
        "lines to a new file; `changelane quarantine replay` reads a file of the quarantine again"
    )
