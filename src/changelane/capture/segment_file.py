# SPDX-License-Identifier: Apache-2.0
"""The file of a segment while it is written: lines, compressed with zstd."""

import hashlib
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, cast

import zstandard

from changelane.capture.manifest import Segment

_LEVEL: Final = 3
"""The level of zstd: higher levels cost more time than the storage that they save."""


class SegmentFile:
    """A segment that is being written."""

    def __init__(self, path: Path, first_offset: int) -> None:
        self._path = path
        self._first_offset = first_offset
        self._record_count = 0
        self.raw_bytes = 0
        self._file = _HashedFile(path.open("xb"))
        compressor = zstandard.ZstdCompressor(level=_LEVEL)
        self._stream = compressor.stream_writer(cast("IO[bytes]", self._file), closefd=False)

    def write(self, line: bytes) -> None:
        self._stream.write(line + b"\n")
        self.raw_bytes += len(line) + 1
        self._record_count += 1

    def close(self) -> Segment:
        try:
            self._stream.close()  # type: ignore[no-untyped-call]
        finally:
            self._file.close()
        return Segment(
            self._path.name,
            self._first_offset,
            self._record_count,
            self._file.size_bytes,
            self._file.sha256,
        )

    def delete(self) -> None:
        """Close and delete the file, on a full disk, too."""
        with suppress(OSError):
            self.close()
        self._path.unlink(missing_ok=True)


class _HashedFile:
    """A file that knows the size and the hash of what was written."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def write(self, data: bytes) -> int:
        self._stream.write(data)
        self._hash.update(data)
        self.size_bytes += len(data)
        return len(data)

    def flush(self) -> None:
        self._stream.flush()

    def close(self) -> None:
        self._stream.close()

    @property
    def sha256(self) -> str:
        return self._hash.hexdigest()
