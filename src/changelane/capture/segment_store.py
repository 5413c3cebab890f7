# SPDX-License-Identifier: Apache-2.0
"""The capture log on storage: read by many, extended by one fenced writer.

A writer creates the next epoch before it reads the newest manifest, and each manifest is created
only if its number is free. A former writer that still runs can therefore publish at most the
manifest that the new writer would have published; one of the two fails, and no record is lost.
"""

import re
import time
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Literal

import msgspec

from changelane.capture.manifest import (
    CapturedRecord,
    EngineOffset,
    Manifest,
    Segment,
    decode_manifest,
    encode_manifest,
)
from changelane.capture.segment_file import SegmentFile
from changelane.capture.storage import Folder
from changelane.errors import ChangelaneError, ConfigError

_NUMBER: Final = re.compile(r"([0-9]{20})\.json")
_SEGMENT_NAME: Final = re.compile(r"([0-9]{8})-[0-9]{12}\.jsonl\.zst")
_CONSUMER_NAME: Final = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]{0,250}")
_IDENTITY: Final = "log.json"
SEGMENT_BYTES: Final = 64 << 20
"""The size of the records of a segment, before compression, after which the next one begins."""


class CaptureFencedError(ChangelaneError):
    """Another capture process took over the capture log."""


class ExpiredManifestError(ChangelaneError):
    """A manifest does not exist any more."""


class _Identity(msgspec.Struct, frozen=True):
    """The content of :data:`_IDENTITY`."""

    id: str


class AppliedManifest(msgspec.Struct, frozen=True):
    """The content of a consumer's file: the newest manifest that its tables contain.

    Attributes:
        sequence: The number of the manifest.
        time_ms: The time at which it was applied, milliseconds since 1970-01-01 UTC.
    """

    sequence: int
    time_ms: int


class CaptureLog:
    """The capture log of a folder, for readers.

    Args:
        folder: The storage.
    """

    def __init__(self, folder: Folder) -> None:
        self.folder = folder
        self._seen: Manifest | None = None  # to list a long log once

    def sequences(self) -> list[int]:
        """Return the numbers of the manifests, ascending."""
        return _numbers(self.folder, "manifests")

    def manifest(self, sequence: int) -> Manifest:
        """Return a manifest.

        Raises:
            ExpiredManifestError: It does not exist.
            ChangelaneError: It is damaged.
        """
        try:
            content = self.folder.read(_manifest_name(sequence))
        except FileNotFoundError as error:
            msg = f"the capture log {self.folder.label} has no manifest {sequence} any more"
            raise ExpiredManifestError(f"{msg}: its retention deleted it") from error
        return self._decoded(content, sequence)

    def _decoded(self, content: bytes, sequence: int) -> Manifest:
        name = _manifest_name(sequence)
        manifest = decode_manifest(content, name)
        if manifest.sequence != sequence:
            raise ChangelaneError(f"the manifest {name} of the capture log has another number")
        return manifest

    def identity(self) -> str | None:
        """Return the id of the log; ``None`` = it does not exist.

        A log that is created again has another id.

        Raises:
            ChangelaneError: The file is damaged.
        """
        try:
            content = self.folder.read(_IDENTITY)
        except FileNotFoundError:
            return None
        try:
            return msgspec.json.decode(content, type=_Identity).id
        except msgspec.DecodeError as error:
            raise ChangelaneError(f"{_IDENTITY} of {self.folder.label} is damaged") from error

    def create(self) -> None:
        """Create the log, if it does not exist."""
        with suppress(FileExistsError):
            self.folder.create(_IDENTITY, msgspec.json.encode(_Identity(str(uuid.uuid4()))))

    def oldest(self) -> Manifest | None:
        """Return the oldest manifest; ``None`` = the log is empty."""
        for sequence in self.sequences():
            with suppress(ExpiredManifestError):  # deleted at this moment
                return self.manifest(sequence)
        return None

    def history_start(self) -> Manifest | None:
        """Return the oldest manifest of the newest history; ``None`` = the log is empty.

        The retention may have deleted manifests of the history before it.
        """
        sequences = self.sequences()
        if not sequences:
            return None
        history = self.manifest(sequences[-1]).history
        index = bisect_left(sequences, history, key=lambda n: self._number(n, "history"))
        return self.manifest(sequences[index])

    def _number(self, sequence: int, field: Literal["history", "first_offset"]) -> int:
        """Return a number of a manifest; -1 if the retention deletes it at this moment."""
        try:
            return int(getattr(self.manifest(sequence), field))
        except ExpiredManifestError:
            return -1

    def manifest_at(self, offset: int) -> Manifest | None:
        """Return the newest manifest that begins at an offset or before; ``None`` = none does."""
        sequences = self.sequences()
        count = bisect_right(sequences, offset, key=lambda n: self._number(n, "first_offset"))
        return self.manifest(sequences[count - 1]) if count else None

    def newest(self) -> Manifest | None:
        """Return the newest manifest; ``None`` = the log is empty."""
        if self._seen is not None and self._exists(self._seen):
            # the retention deletes the oldest manifests first: all later ones still exist
            for manifest in self.manifests_after(self._seen.sequence):
                self._seen = manifest
        else:
            sequences = self.sequences()
            self._seen = self.manifest(sequences[-1]) if sequences else None
        return self._seen

    def newest_offset(self) -> EngineOffset | None:
        """Return the offset of the newest manifest; ``None`` = a snapshot comes first."""
        newest = self.newest()
        return None if newest is None else newest.engine_offset or None

    def _exists(self, manifest: Manifest) -> bool:
        """Return whether a manifest that was read still exists, and is the same."""
        try:
            return self.manifest(manifest.sequence) == manifest
        except ChangelaneError:
            return False

    def manifests_after(self, sequence: int) -> Iterator[Manifest]:
        """Yield the manifests after a number, in order.

        Only the names of these manifests are read: a long log has too many to list each time.

        Raises:
            ChangelaneError: A manifest is damaged.
        """
        while True:
            sequence += 1
            name = _manifest_name(sequence)
            try:
                content = self.folder.read(name)
            except FileNotFoundError:
                return
            yield self._decoded(content, sequence)

    def consumed(self) -> dict[str, int]:
        """Return the newest manifest that each consumer's tables contain, by consumer."""
        consumers: dict[str, int] = {}
        for name in self.folder.names("consumers"):
            if name.endswith(".json") and not name.startswith("."):
                content = self.folder.read(f"consumers/{name}")
                consumer = msgspec.json.decode(content, type=AppliedManifest)
                consumers[name.removesuffix(".json")] = consumer.sequence
        return consumers

    def applied_by(self, consumer: str) -> AppliedManifest | None:
        """Return the newest manifest that a consumer's tables contain; ``None`` = unknown."""
        try:
            content = self.folder.read(f"consumers/{consumer}.json")
            return msgspec.json.decode(content, type=AppliedManifest)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def set_consumed(self, consumer: str, sequence: int) -> None:
        """Record the newest manifest that a consumer's tables contain, with the time of a new one.

        Raises:
            ConfigError: The name of the consumer cannot be the name of a file.
        """
        if _CONSUMER_NAME.fullmatch(consumer) is None:
            raise ConfigError(f"{consumer!r} cannot be the name of a consumer of a capture log")
        applied = self.applied_by(consumer)
        if applied is not None and applied.sequence == sequence:
            return
        content = msgspec.json.encode(AppliedManifest(sequence, int(time.time() * 1000)))
        self.folder.replace(f"consumers/{consumer}.json", content)

    def delete_expired(self, *, retention_s: float) -> int:
        """Delete manifests that all consumers have applied and that exceed the retention.

        The newest manifest stays, because the capture continues from it. Nothing is deleted if
        there is no consumer.

        Args:
            retention_s: The age at which an applied manifest is deleted, seconds.

        Returns:
            The number of deleted manifests.
        """
        applied = min(self.consumed().values(), default=0)
        oldest_ms = int((time.time() - retention_s) * 1000)
        deleted_count = 0
        for sequence in self.sequences()[:-1]:
            if sequence > applied or (manifest := self.manifest(sequence)).created_ms > oldest_ms:
                break
            # first the manifest: a manifest without its segments would be a damaged log
            self.folder.delete(_manifest_name(sequence))
            for segment in manifest.segments:
                self.folder.delete(f"segments/{segment.name}")
            deleted_count += 1
        return deleted_count


def segment_name(owner: int | str, number: int) -> str:
    """Return the name of a segment.

    Args:
        owner: The epoch of the writer, or the id of a snapshot of a table.
        number: The number of the segment.
    """
    prefix = owner if isinstance(owner, str) else f"{owner:08}"
    return f"{prefix}-{number:012}.jsonl.zst"


def _manifest_name(sequence: int) -> str:
    return f"manifests/{sequence:020}.json"


def _numbers(folder: Folder, name: str) -> list[int]:
    matches = (_NUMBER.fullmatch(file) for file in folder.names(name))
    return sorted(int(match[1]) for match in matches if match)


class SegmentWriter:
    """The writer of a capture log; its creation fences earlier writers.

    Args:
        folder: The storage.
        spool: A local folder for segments that are not complete; its older files are deleted.
        segment_bytes: The size of a segment's records after which the next segment begins.

    Attributes:
        newest: The newest manifest; ``None`` = the log is empty.
        pending_bytes: The size of the records that are not published yet.
        pending_count: Their number.
        pending_since_s: ``time.monotonic`` of the first of them; ``None`` = there is none.

    Raises:
        CaptureFencedError: Another writer started at the same time.
    """

    def __init__(self, folder: Folder, spool: Path, *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._spool = spool
        self._segment_bytes = segment_bytes
        self._log = CaptureLog(folder)
        self._log.create()
        self.epoch = max(_numbers(folder, "epochs"), default=0) + 1
        try:
            created = msgspec.json.encode({"created_ms": int(time.time() * 1000)})
            folder.create(f"epochs/{self.epoch:020}.json", created)
        except FileExistsError as error:
            raise _fenced(folder) from error
        spool.mkdir(parents=True, exist_ok=True)
        for file in spool.iterdir():
            if _SEGMENT_NAME.fullmatch(file.name):
                file.unlink()
        self.newest = self._log.newest()
        self._has_published = False
        self._segment_number = 0
        self._open: SegmentFile | None = None
        self._closed: list[Segment] = []
        self._first_offset = 0 if self.newest is None else self.newest.next_offset
        self._next_offset = self._first_offset
        self._history = 0 if self.newest is None else self.newest.history
        self.pending_bytes = 0
        self.pending_count = 0
        self.pending_since_s: float | None = None

    def append(self, record: CapturedRecord) -> None:
        """Write a record, which the next publication makes visible."""
        line = _LINES.encode(
            _Line(
                record.topic,
                0,
                self._next_offset,
                record.timestamp_ms,
                record.key,
                record.value,
                record.headers,
            )
        )
        if self._open is None:
            self._segment_number += 1
            name = segment_name(self.epoch, self._segment_number)
            self._open = SegmentFile(self._spool / name, self._next_offset)
        self._open.write(line)
        self._next_offset += 1
        self.pending_bytes += len(line) + 1
        self.pending_count += 1
        if self.pending_since_s is None:
            self.pending_since_s = time.monotonic()
        if self._open.raw_bytes >= self._segment_bytes:
            self._close_segment()

    def append_segment(self, segment: Segment) -> None:
        """Add a complete segment of the storage, which the next publication makes visible.

        Its records get the next offsets, so they have none of their own.
        """
        self._close_segment()
        self._closed.append(msgspec.structs.replace(segment, first_offset=self._next_offset))
        self._next_offset += segment.record_count
        self.pending_count += segment.record_count

    def _close_segment(self) -> None:
        if self._open is not None:
            segment = self._open.close()
            self._open = None
            try:
                self._folder.put(self._spool / segment.name, f"segments/{segment.name}")
            except FileNotFoundError as error:  # a newer writer cleared the spool
                raise _fenced(self._folder) from error
            self._closed.append(segment)

    def publish(
        self, engine_offset: EngineOffset, *, detail: dict[str, object] | None = None
    ) -> Manifest:
        """Make all pending records visible at once; they are durable when this returns.

        Args:
            engine_offset: The position from which the engine continues after these records.
            detail: What the manifest records beside them.

        Raises:
            CaptureFencedError: Another writer took over; nothing became visible.
        """
        newest_epoch = max(_numbers(self._folder, "epochs"), default=0)
        if newest_epoch != self.epoch:
            raise _fenced(self._folder)
        self._close_segment()
        sequence = 1 if self.newest is None else self.newest.sequence + 1
        manifest = Manifest(
            self.epoch,
            sequence,
            self._next_offset - self.pending_count,
            tuple(self._closed),
            dict(engine_offset),
            detail or {},
            int(time.time() * 1000),
            history=self._history,
        )
        name, content = _manifest_name(sequence), encode_manifest(manifest)
        try:
            self._folder.create(name, content)
        except FileExistsError as error:
            # an object store may repeat a request whose answer was lost, and find its own file
            if self._folder.read(name) != content:
                raise _fenced(self._folder) from error
        self.newest = manifest
        self._closed = []
        self._set_nothing_pending()
        if not self._has_published:
            self._has_published = True
            self._delete_unpublished()
        return manifest

    def begin_history(self) -> Manifest:
        """Publish a manifest after which the engine begins anew, with a snapshot.

        Its events are newer than all earlier ones, whatever their positions are.

        Raises:
            CaptureFencedError: Another writer took over; nothing became visible.
        """
        self._history += 1
        return self.publish({})

    def discard(self) -> None:
        """Delete the pending records."""
        if self._open is not None:
            self._open.delete()
            self._open = None
        for segment in self._closed:
            self._folder.delete(f"segments/{segment.name}")
        self._closed = []
        self._next_offset -= self.pending_count
        self._set_nothing_pending()

    def close(self) -> None:
        """Delete the open file; pending records are never published."""
        if self._open is not None:
            self._open.delete()
            self._open = None

    def _set_nothing_pending(self) -> None:
        self.pending_bytes = 0
        self.pending_count = 0
        self.pending_since_s = None

    def _delete_unpublished(self) -> None:
        """Delete the segments that earlier writers did not publish.

        Only a publication proves that no earlier writer can publish them any more.
        """
        try:
            first, last = f"{self.epoch:08}-", self._newest_segment_before()
        except ExpiredManifestError:  # at this moment: the next writer deletes them
            return
        # a snapshot that continued publishes segments of earlier epochs
        published = {segment.name for segment in self.newest.segments} if self.newest else set()
        for name in self._folder.names("segments"):
            if _SEGMENT_NAME.fullmatch(name) and last < name < first and name not in published:
                self._folder.delete(f"segments/{name}")

    def _newest_segment_before(self) -> str:
        """Return the name of the newest segment that an earlier writer published; empty = none.

        Names ascend from manifest to manifest, so that what follows it was never published.
        """
        sequences = self._log.sequences()
        index = bisect_left(
            sequences, self._first_offset, key=lambda n: self._log.manifest(n).next_offset
        )
        if self._log.manifest(sequences[index]).epoch >= self.epoch:
            return ""
        for sequence in reversed(sequences[: index + 1]):
            names = [segment.name for segment in self._log.manifest(sequence).segments]
            # those of a snapshot of a table have names of their own
            if own_names := [name for name in names if _SEGMENT_NAME.fullmatch(name)]:
                return max(own_names)
        return ""


def _fenced(folder: Folder) -> CaptureFencedError:
    return CaptureFencedError(
        f"another capture process writes the capture log {folder.label}: stop one of the two"
    )


class _Line(msgspec.Struct):
    """A line of a segment, in the format *records* of ``conversion/message_files.py``."""

    topic: str
    partition: int
    offset: int
    timestamp: int | None
    key: str | None
    value: str | None
    headers: tuple[tuple[str, str], ...]


_LINES: Final = msgspec.json.Encoder()
