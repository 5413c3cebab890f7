# SPDX-License-Identifier: Apache-2.0
"""Compressed files: gzip, zstd and bzip2, by the suffix of the name.

An input is untrusted: a truncated file is an error, and expansion is limited.
"""

import bz2
import gzip
import io
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, Protocol

import zstandard

from changelane.errors import DecodeError
from changelane.reason_codes import ReasonCode

MAX_EXPANSION: Final = 1000
"""Maximum bytes per compressed byte, after the first :data:`FREE_EXPANSION` bytes."""
FREE_EXPANSION: Final = 64 << 20

_GZIP: Final = (".gz", ".gzip")
_ZSTD: Final = (".zst", ".zstd")
_BZIP2: Final = (".bz2", ".bzip2")


def expanded_stream(raw: BinaryIO, path: str) -> BinaryIO:
    """Return the decompressed bytes of a stream; the suffix of the path determines how.

    Reads of it may raise :class:`DecodeError` (``corrupt_compression``, ``expansion``).
    """
    if not (kind := compression(path)):
        return raw
    bounded: Any = _Bounded(raw, path, kind=kind)
    return io.BufferedReader(bounded, 1 << 18)


def compression(path: str) -> str:
    """Return the compression of a file by its suffix; empty if there is none."""
    suffix = Path(path).suffix.lower()
    endings = (("gzip", _GZIP), ("zstd", _ZSTD), ("bzip2", _BZIP2))
    return next((kind for kind, suffixes in endings if suffix in suffixes), "")


class _Decompress(Protocol):
    """The common interface of zlib's and zstandard's decompressors."""

    def decompress(self, data: bytes, /) -> bytes: ...

    @property
    def eof(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...


class _Bounded(io.RawIOBase):
    """Decompresses a stream of one or more members, and raises at an expansion bomb."""

    def __init__(self, raw: BinaryIO, path: str, *, kind: str) -> None:
        self._raw = raw
        self._path = path
        self._kind = kind
        self._member: _Decompress | None = None
        self._input = b""
        self._output = memoryview(b"")
        self._consumed = self._expanded = self._member_count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._output:
            if not self._fill():
                return 0
        count = min(len(buffer), len(self._output))
        buffer[:count] = self._output[:count]
        self._output = self._output[count:]
        return count

    def _fill(self) -> bool:
        """Decompress a few bytes; return whether there is more input."""
        if not self._input:
            # a small read, because zstd may expand one byte to 32 kB
            self._input = self._raw.read(2048)
            self._consumed += len(self._input)
        if not self._input:
            if self._member is not None:
                raise self._broken("the compressed file is truncated")
            return False
        if self._member is None:
            if self._kind == "gzip" and self._member_count:
                self._input = self._input.lstrip(b"\0")  # tape archives are padded with zeros
                if not self._input:
                    return True
            self._member = self._start()
            self._member_count += 1
        try:
            data = self._member.decompress(self._input)
        except (zlib.error, zstandard.ZstdError, OSError):  # OSError is the error of bzip2
            raise self._broken(f"the file is damaged {self._kind} data") from None
        self._input = b""
        if self._member.eof:
            self._input, self._member = self._member.unused_data, None
        self._output = memoryview(data)
        self._expanded += len(data)
        if self._expanded > max(FREE_EXPANSION, MAX_EXPANSION * self._consumed):
            raise self._broken(
                f"the compressed file expands to more than {MAX_EXPANSION} times its size; "
                "decompress it yourself if you trust it",
                ReasonCode.EXPANSION,
            )
        return True

    def _start(self) -> _Decompress:
        if self._kind == "gzip":
            return zlib.decompressobj(wbits=31)
        if self._kind == "bzip2":
            return bz2.BZ2Decompressor()
        return zstandard.ZstdDecompressor().decompressobj()

    def _broken(
        self, reason: str, code: ReasonCode = ReasonCode.CORRUPT_COMPRESSION
    ) -> DecodeError:
        return DecodeError(reason, code=code, where=self._path)


@contextmanager
def compressed_stream(raw: BinaryIO, path: str) -> Iterator[IO[bytes]]:
    """Yield a stream that compresses into another one, by the suffix of the path."""
    match compression(path):
        case "gzip":
            # without name and time in the header, equal messages give equal files
            with gzip.GzipFile("", "wb", fileobj=raw, mtime=0) as stream:
                yield stream  # type: ignore[misc]  # a GzipFile has the interface of IO[bytes]
        case "zstd":
            with zstandard.ZstdCompressor().stream_writer(raw, closefd=False) as stream:
                yield stream
        case "bzip2":
            with bz2.BZ2File(raw, "wb") as stream:
                yield stream
        case _:
            yield raw
