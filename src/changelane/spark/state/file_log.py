# SPDX-License-Identifier: Apache-2.0
"""The file log of a checkpoint: which files of a folder the batches of a pipeline have read.

The folder ``files`` of the checkpoint contains ``N.json`` for each batch: its files, with their
sizes. It is written before batch N runs, so that a retry reads the same bytes. ``N.done`` is
written after batch N. ``upto-N.json`` replaces the files of all batches up to N.

The log has a file as long as the folder contains it, and :data:`RETENTION_MS` longer, because
a folder can be unmounted for a while. The size of the log therefore depends on the folder and not
on its history. The age of a file does not matter.

A checkpoint of Spark's own file source (``sources/0``) is migrated.
"""

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote

import msgspec

from changelane.errors import ChangelaneError
from changelane.spark.runtime.redact import BROKEN_CHECKPOINT
from changelane.spark.state.fencing import FencedError
from changelane.spark.state.small_files import decode_file

_NAME: Final = re.compile(r"(upto-)?([0-9]+)\.(json|done)")
COMPACT_EVERY: Final = 100
"""The log is compacted after this number of batches."""
RETENTION_MS: Final = 7 * 24 * 3600 * 1000
"""The retention of a file in the log after the folder lost it, milliseconds."""


class File(NamedTuple):
    """A file of a folder.

    Attributes:
        path: A local path, or an address with a scheme; no character is percent-encoded.
        size: Its size at the time of the listing, bytes; ``None`` = unknown.
        time_ms: Its modification time, milliseconds since 1970-01-01 UTC.
    """

    path: str
    size: int | None
    time_ms: int


Files = tuple[File, ...]


class Pending(NamedTuple):
    """A batch that started and did not complete."""

    number: int
    files: Files


class Comparison(NamedTuple):
    """The difference between a folder and the log.

    Attributes:
        unread: The files that no batch has read.
        changed: The files whose size changed after a batch read them: before and after.
    """

    unread: list[File]
    changed: list[tuple[File, File]]


class Store(Protocol):
    """A folder of small files: :class:`~changelane.spark.state.small_files.SmallFiles`."""

    def names(self) -> list[str]: ...
    def exists(self, name: str) -> bool: ...
    def read(self, name: str) -> str: ...
    def write(self, name: str, content: bytes) -> None: ...
    def delete(self, name: str) -> None: ...


class _Batch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of ``N.json``.

    Attributes:
        files: Path, size and modification time of each file of the batch.
        time_ms: The time of the entry.
        missing: Older files that the folder does not contain any more since the last batch.
        returned: Older files that the folder contains again.
    """

    files: list[tuple[str, int | None, int]]
    time_ms: int = 0
    missing: list[str] = []
    returned: list[str] = []


class _Snapshot(msgspec.Struct, frozen=True):
    """The content of ``upto-N.json``: path, size, modification time, time of disappearance."""

    files: list[tuple[str, int | None, int, int | None]]


class _State(NamedTuple):
    """The entry of one file."""

    size: int | None
    time_ms: int
    missing_since_ms: int | None = None


class FileLog:
    """The file log of one checkpoint.

    Args:
        store: The folder ``files`` of the checkpoint.
        spark_log: The log of Spark's file source, for a checkpoint that has no file log.
    """

    def __init__(self, store: Store, spark_log: "SparkFileLog | None" = None) -> None:
        self._store = store
        self._states: dict[str, _State] = {}
        self._missing: set[str] = set()
        self._newly_missing: set[str] = set()
        self._newly_returned: set[str] = set()
        self._newest = -1
        self._is_complete = True
        self._pending: Files = ()
        self._written: set[int] = set()
        self._snapshot = -1
        if not self._load() and spark_log is not None:
            self._migrate(spark_log)

    def _load(self) -> bool:
        matches = [match for name in self._store.names() if (match := _NAME.fullmatch(name))]
        self._snapshot = max((int(match[2]) for match in matches if match[1]), default=-1)
        batches: set[int] = set()
        complete: set[int] = set()
        for match in matches:
            number = int(match[2])
            if number < self._snapshot or (number == self._snapshot and not match[1]):
                self._store.delete(match[0])  # a compaction was killed before it deleted this file
            elif not match[1]:
                (complete if match[3] == "done" else batches).add(number)
        if self._snapshot >= 0:
            name = _name(self._snapshot, "json", is_snapshot=True)
            snapshot = decode_file(self._store.read(name), _Snapshot, name)
            for path, size, time_ms, since_ms in snapshot.files:
                self._remember(path, _State(size, time_ms, since_ms))
        self._newest = self._snapshot
        if gap := set(range(self._snapshot + 1, max(batches, default=-1))) - batches:
            # the files of this batch would be read again
            raise ChangelaneError(f"{BROKEN_CHECKPOINT} (files/{_name(min(gap), 'json')} is gone)")
        for number in sorted(batches):
            name = _name(number, "json")
            batch = decode_file(self._store.read(name), _Batch, name)
            self._set_missing(batch.missing, batch.time_ms)
            self._set_missing(batch.returned, None)
            self._pending = tuple(File(*file) for file in batch.files)
            for path, size, time_ms in self._pending:
                self._remember(path, _State(size, time_ms))
            self._written.add(number)
            self._newest = number
        # only the newest batch can be incomplete: the next one starts after it
        self._is_complete = self._newest == self._snapshot or self._newest in complete
        return bool(matches)

    def _migrate(self, spark_log: "SparkFileLog") -> None:
        for path, time_ms in spark_log.files.items():
            self._remember(path, _State(None, time_ms))
        if spark_log.last_batch >= 0:
            self._newest = spark_log.last_batch
            self._write_snapshot()
        if spark_log.pending is not None:
            files = [File(path, None, time_ms) for path, time_ms in spark_log.pending.items()]
            self.start_batch(files, 0)

    def _remember(self, path: str, state: _State) -> None:
        self._states[path] = state
        if state.missing_since_ms is None:
            self._missing.discard(path)
        else:
            self._missing.add(path)

    def _set_missing(self, paths: Iterable[str], since_ms: int | None) -> None:
        for path in paths:
            if (state := self._states.get(path)) is not None:
                self._remember(path, state._replace(missing_since_ms=since_ms))

    def __len__(self) -> int:
        """Return the number of files in the log."""
        return len(self._states)

    def __contains__(self, path: object) -> bool:
        """Return whether a file is in the log."""
        return path in self._states

    @property
    def pending(self) -> Pending | None:
        """The batch that started and did not complete."""
        return None if self._is_complete else Pending(self._newest, self._pending)

    def compare(
        self, files: Collection[File], now_ms: int, *, unlisted: Collection[str] = ()
    ) -> Comparison:
        """Return which files are new and which changed; drop files that are missing for too long.

        Args:
            files: All files of the folder.
            now_ms: The current time, milliseconds since 1970-01-01 UTC.
            unlisted: Subfolders and files without a listing: they do not count as missing.
        """
        comparison = Comparison([], [])
        present: set[str] = set()
        for file in files:
            state = self._states.get(file.path)
            if state is None:
                comparison.unread.append(file)
                continue
            present.add(file.path)
            if state.missing_since_ms is not None:
                self._set_missing([file.path], None)
                self._newly_returned.add(file.path)
                self._newly_missing.discard(file.path)
            if state.size is None:
                is_changed = state.time_ms < file.time_ms
            else:
                is_changed = state.size != file.size
            if is_changed:
                before = File(file.path, state.size, state.time_ms)
                comparison.changed.append((before, file))
        if len(present) + len(self._missing) < len(self._states):
            prefixes = tuple(f"{folder.rstrip('/')}/" for folder in unlisted)
            missing = [
                path
                for path in self._states.keys() - present - self._missing
                if not path.startswith(prefixes) and path not in unlisted
            ]
            self._set_missing(missing, now_ms)
            self._newly_missing.update(missing)
            self._newly_returned.difference_update(missing)
        self._drop_expired(now_ms)
        return comparison

    def _drop_expired(self, now_ms: int) -> None:
        pending = {file.path for file in self._pending}
        for path in self._missing - pending:
            since_ms = self._states[path].missing_since_ms
            if since_ms is not None and now_ms - since_ms > RETENTION_MS:
                del self._states[path]
                for paths in (self._missing, self._newly_missing, self._newly_returned):
                    paths.discard(path)

    def start_batch(self, files: Sequence[File], now_ms: int) -> int:
        """Write the files of the next batch to the log, before it runs; return its number.

        Args:
            files: Files that no batch has read.
            now_ms: The current time, milliseconds since 1970-01-01 UTC.

        Raises:
            FencedError: Another run of the pipeline started that batch.
        """
        if len(self._written) >= COMPACT_EVERY:
            self._compact()
        number = self._newest + 1
        if self._store.exists(_name(number, "json")):
            raise FencedError(
                f"another run of the pipeline started batch {number}: stop one of the two runs"
            )
        batch = _Batch(
            [(file.path, file.size, file.time_ms) for file in files],
            now_ms,
            sorted(self._newly_missing),
            sorted(self._newly_returned),
        )
        self._store.write(_name(number, "json"), msgspec.json.encode(batch))
        self._newly_missing, self._newly_returned = set(), set()
        for path, size, time_ms in files:
            self._remember(path, _State(size, time_ms))
        self._newest, self._is_complete, self._pending = number, False, tuple(files)
        self._written.add(number)
        return number

    def complete_batch(self) -> None:
        """Write to the log that the newest batch is complete."""
        if not self._store.exists(name := _name(self._newest, "done")):
            self._store.write(name, b"")
        self._is_complete, self._pending = True, ()

    def _compact(self) -> None:
        previous = self._snapshot
        self._write_snapshot()
        for number in sorted(self._written):
            for ending in ("done", "json"):
                self._store.delete(_name(number, ending))
        if previous >= 0:
            self._store.delete(_name(previous, "json", is_snapshot=True))
        self._written = set()

    def _write_snapshot(self) -> None:
        snapshot = _Snapshot([(path, *state) for path, state in self._states.items()])
        self._snapshot = self._newest
        name = _name(self._snapshot, "json", is_snapshot=True)
        self._store.write(name, msgspec.json.encode(snapshot))


def _name(number: int, ending: str, *, is_snapshot: bool = False) -> str:
    # zeros in front sort the files by their numbers in every listing
    return f"{'upto-' if is_snapshot else ''}{number:012}.{ending}"


# -- the checkpoint of Spark's file source


class _SparkEntry(msgspec.Struct):
    path: str
    timestamp: int
    batchId: int  # noqa: N815 - Spark's name


class _SparkOffset(msgspec.Struct):
    logOffset: int  # noqa: N815 - Spark's name


class SparkFileLog(NamedTuple):
    """The files in a checkpoint of Spark's file source, by path, with their modification times.

    Attributes:
        last_batch: The number of the last complete batch; -1 = no batch is complete.
        files: The files of all complete batches.
        pending: The files of the batch that started and did not complete, if there is one.
    """

    last_batch: int
    files: dict[str, int]
    pending: dict[str, int] | None


def parse_spark_log(
    sources: Iterable[str], offsets: dict[int, str], commits: Collection[int]
) -> SparkFileLog:
    """Return the files in a checkpoint of Spark's file source.

    Spark numbers the entries of ``sources/0`` with a counter of its own. The offset of a batch is
    the last number that belongs to the batch.

    Args:
        sources: The content of the files in ``sources/0``.
        offsets: The content of the files in ``offsets``, by batch.
        commits: The batches in ``commits``.
    """
    entries: dict[str, _SparkEntry] = {}
    for content in sources:
        for line in content.splitlines()[1:]:
            entry = msgspec.json.decode(line, type=_SparkEntry)
            entries[re.sub(r"^file:/+", "/", unquote(entry.path))] = entry
    last_batch = max(commits, default=-1)
    ends = {
        number: msgspec.json.decode(
            content.rstrip().rpartition("\n")[2], type=_SparkOffset
        ).logOffset
        for number, content in offsets.items()
        if number in {last_batch, last_batch + 1}
    }
    end = ends.get(last_batch, -1)
    files = {path: entry.timestamp for path, entry in entries.items() if entry.batchId <= end}
    if (pending_end := ends.get(last_batch + 1)) is None:
        return SparkFileLog(last_batch, files, None)
    pending = {
        path: entry.timestamp
        for path, entry in entries.items()
        if end < entry.batchId <= pending_end
    }
    return SparkFileLog(last_batch, files, pending)
