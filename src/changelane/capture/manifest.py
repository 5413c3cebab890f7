# SPDX-License-Identifier: Apache-2.0
"""The content of a capture log: records in segments, which manifests make visible.

A capture log is a folder::

    log.json                               the id of the log
    epochs/00000000000000000002.json       one for each writer; the newest writer owns the log
    segments/00000002-000000000017.jsonl.zst
    manifests/00000000000000000012.json    the segments of one publication, in order
    consumers/shop.json                    the manifests that a pipeline has applied
    repairs/5f0c...json                    records of another process for the next publication

A record has an offset in the log, as in a topic of one partition. Records become visible all at
once, with the creation of the manifest that names their segments.
"""

from typing import Final

import msgspec

from changelane.errors import ChangelaneError

VERSION: Final = 1
"""The version of the layout; a reader rejects newer ones."""

EngineOffset = dict[str, str | int | bool | None]
"""The position from which the capture engine continues, as the engine writes it."""


class CapturedRecord(msgspec.Struct, frozen=True):
    """One message of the capture engine.

    Attributes:
        topic: The topic that the engine would send it to; it identifies the table.
        key: The key as JSON; ``None`` = no key.
        value: The value as JSON; ``None`` = a tombstone.
        timestamp_ms: The time of the capture, milliseconds since 1970-01-01 UTC.
        headers: Pairs of name and text.
    """

    topic: str
    key: str | None
    value: str | None
    timestamp_ms: int | None = None
    headers: tuple[tuple[str, str], ...] = ()


class Segment(msgspec.Struct, frozen=True):
    """A file of records, one JSON line each, compressed with zstd.

    Attributes:
        name: The name of the file in ``segments/``.
        first_offset: The offset of its first record.
        record_count: The number of records.
        size_bytes: The size of the file.
        sha256: The SHA-256 of the file, hexadecimal.
    """

    name: str
    first_offset: int
    record_count: int
    size_bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """A publication: segments that became visible together.

    Attributes:
        epoch: The epoch of the writer.
        sequence: The number of the manifest, from 1, without gaps.
        first_offset: The offset of the first record; of the next record if there is none.
        segments: The segments in order; empty if only the engine's offset moved.
        engine_offset: The position from which the engine continues after these records.
        detail: What the capture recorded about the publication, for people and metrics.
        created_ms: The time of the publication, milliseconds since 1970-01-01 UTC.
        version: The version of the layout.
        history: The number of the source's history, which every new snapshot increases: positions
            of an earlier history cannot be compared with its own. A history begins with a manifest
            without records and without an engine's offset, the first one with the log.
    """

    epoch: int
    sequence: int
    first_offset: int
    segments: tuple[Segment, ...]
    engine_offset: EngineOffset
    detail: dict[str, object] = {}
    created_ms: int = 0
    version: int = VERSION
    history: int = 0

    @property
    def record_count(self) -> int:
        """The number of records."""
        return sum(segment.record_count for segment in self.segments)

    @property
    def next_offset(self) -> int:
        """The offset of the first record after the manifest."""
        return self.first_offset + self.record_count


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the content of the file of a manifest."""
    return msgspec.json.encode(manifest)


def decode_manifest(content: bytes, name: str) -> Manifest:
    """Return the manifest of a file.

    Args:
        content: The content of the file.
        name: The name of the file, for the error.

    Raises:
        ChangelaneError: The file is damaged, or a newer changelane wrote it.
    """
    try:
        version = msgspec.json.decode(content, type=_Version).version
        if version > VERSION:
            msg = f"a newer changelane wrote the capture log ({name} has version {version})"
            raise ChangelaneError(f"{msg}: update changelane")
        return msgspec.json.decode(content, type=Manifest)
    except msgspec.DecodeError as error:
        raise ChangelaneError(f"the manifest {name} of the capture log is damaged") from error


class _Version(msgspec.Struct):
    """The field that every version of a manifest has."""

    version: int
