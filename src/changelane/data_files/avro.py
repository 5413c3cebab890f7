# SPDX-License-Identifier: Apache-2.0
"""Avro files, read block by block.

Documentation: https://avro.apache.org/docs/1.12.0/specification/#object-container-files. A block is
decompressed within the limits of compressed files (:mod:`changelane.conversion.compression`).
"""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, Final

import zstandard

from changelane.conversion.compression import FREE_EXPANSION, MAX_EXPANSION
from changelane.data_files.avro_schema import compile_rows
from changelane.data_files.row_file import MAX_BLOCK_BYTES, Row, expansion_error, malformed
from changelane.errors import DecodeError, MissingExtraError
from changelane.formats.contract import avro_binary, avro_readers, json

_MAGIC: Final = b"Obj\x01"
_SYNC_BYTES: Final = 16
_MAX_HEADER_BYTES: Final = 16 << 20
_MAX_METADATA: Final = 1000
_BATCH_ROWS: Final = 4096
_CHECKSUM_BYTES: Final = 4
_UNREADABLE: Final = (
    *avro_readers.NOT_A_DATUM,
    zlib.error,
    lzma.LZMAError,
    zstandard.ZstdError,
    EOFError,
)

Decompress = Callable[[bytes], bytes]


class AvroRows:
    """An opened Avro file; see :class:`~changelane.data_files.row_file.RowFile`."""

    def __init__(self, stream: BinaryIO) -> None:
        """Read the header of a file.

        Args:
            stream: The file, which can seek.

        Raises:
            DecodeError: The file is no Avro file, or has a type or a codec that is not supported.
        """
        self._stream = stream
        stream.seek(0)
        reader = _HeaderReader(stream)
        if reader.read(len(_MAGIC)) != _MAGIC:
            raise malformed("the file is not an Avro file")
        metadata = reader.metadata()
        self._sync = reader.read(_SYNC_BYTES)
        self._start = stream.tell()
        self._codec = metadata.get("avro.codec", b"null").decode("ascii", "replace")
        if self._codec not in _CODECS:
            raise malformed("the codec of the Avro file is not supported")
        try:
            schema = json.loads(metadata.get("avro.schema", b""), object)
        except DecodeError:
            raise malformed("the schema of the file is not JSON") from None
        self.columns, self._read = compile_rows(schema)
        self._names = tuple(column.name for column in self.columns)

    def batches(self) -> Iterator[list[Row]]:
        """Yield the rows in batches.

        Raises:
            DecodeError: The file is damaged, truncated, or a block is too large.
        """
        self._stream.seek(self._start)
        consumed = self._start
        expanded = 0
        while (count := _read_long(self._stream)) is not None:
            size = _read_long(self._stream)
            if size is None or size < 0 or count < 0:
                raise malformed("the Avro file is truncated or damaged")
            if size > MAX_BLOCK_BYTES:
                raise expansion_error()
            block = self._stream.read(size)
            if len(block) < size or self._stream.read(_SYNC_BYTES) != self._sync:
                raise malformed("the Avro file is truncated or damaged")
            data = self._decompressed(block)
            consumed += size
            expanded += len(data)
            if expanded > max(FREE_EXPANSION, MAX_EXPANSION * consumed):
                raise expansion_error()
            if count > len(data):
                raise malformed("a block of the Avro file has fewer bytes than records")
            yield from self._rows(data, count)

    def _decompressed(self, block: bytes) -> bytes:
        try:
            return _CODECS[self._codec](block)
        except _UNREADABLE:
            raise malformed(f"a block of the Avro file is damaged {self._codec} data") from None
        except OSError:  # bzip2 and Arrow's codecs raise it; the block is in memory
            raise malformed(f"a block of the Avro file is damaged {self._codec} data") from None

    def _rows(self, data: bytes, count: int) -> Iterator[list[Row]]:
        read, names, at = self._read, self._names, 0
        rows: list[Row] = []
        try:
            for _ in range(count):
                record, at = read(data, at)
                rows.append(tuple(record[name] for name in names))
                if at > len(data):
                    raise IndexError
                if len(rows) == _BATCH_ROWS:
                    yield rows
                    rows = []
        except _UNREADABLE:
            raise malformed("a record of the Avro file does not fit its schema") from None
        if at != len(data):
            raise malformed("bytes follow the records of a block of the Avro file")
        yield rows


class _HeaderReader:
    """Reads the header of a file, up to a maximum size."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._remaining = _MAX_HEADER_BYTES

    def read(self, size: int) -> bytes:
        """Return the next bytes.

        Raises:
            DecodeError: There are fewer, or the header is too long.
        """
        if not 0 <= size <= self._remaining:
            raise malformed("the header of the Avro file is damaged")
        self._remaining -= size
        data = self._stream.read(size)
        if len(data) < size:
            raise malformed("the file is not a complete Avro file")
        return data

    def metadata(self) -> dict[str, bytes]:
        """Return the map of metadata."""
        entries: dict[str, bytes] = {}
        while count := self._long():
            if count < 0:
                count = -count
                self._long()
            if count > _MAX_METADATA:
                raise malformed("the header of the Avro file is damaged")
            for _ in range(count):
                key = self.read(self._long()).decode("utf-8", "replace")
                entries[key] = self.read(self._long())
        return entries

    def _long(self) -> int:
        number = _read_long(self._stream)
        if number is None:
            raise malformed("the file is not a complete Avro file")
        return number


def _read_long(stream: BinaryIO) -> int | None:
    """Return the next number of a file; ``None`` at its end.

    Raises:
        DecodeError: The file ends within the number, or it has more than 64 bits.
    """
    digits = b""
    while byte := stream.read(1):
        digits += byte
        if byte[0] < 128 or len(digits) > 10:
            break
    if not digits:
        return None
    try:
        return avro_binary.read_long(digits, 0)[0]
    except avro_binary.NOT_A_DATUM:
        raise malformed("the Avro file is truncated or damaged") from None


# -- codecs


def _limited(expand: Callable[[bytes, int], bytes]) -> Decompress:
    """Return a decompressor that rejects a block beyond the maximum size."""

    def decompress(block: bytes) -> bytes:
        data = expand(block, MAX_BLOCK_BYTES + 1)
        if len(data) > MAX_BLOCK_BYTES:
            raise expansion_error()
        return data

    return decompress


def _inflate(block: bytes, limit: int) -> bytes:
    decompressor = zlib.decompressobj(wbits=-15)
    data = decompressor.decompress(block, limit)
    if not decompressor.eof and len(data) < limit:
        raise EOFError
    return data


def _unzstd(block: bytes, limit: int) -> bytes:
    with zstandard.ZstdDecompressor().stream_reader(block, read_across_frames=True) as stream:
        return stream.read(limit)


def _unbzip2(block: bytes, limit: int) -> bytes:
    return _complete(bz2.BZ2Decompressor(), block, limit)


def _unxz(block: bytes, limit: int) -> bytes:
    return _complete(lzma.LZMADecompressor(memlimit=MAX_BLOCK_BYTES), block, limit)


def _complete(decompressor: Any, block: bytes, limit: int) -> bytes:
    data: bytes = decompressor.decompress(block, limit)
    if not decompressor.eof and len(data) < limit:
        raise EOFError
    return data


def _unsnappy(block: bytes, limit: int) -> bytes:
    """Decompress snappy; the block ends with the checksum of the decompressed bytes."""
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingExtraError("pyarrow", "spark") from None
    size, at, shift = 0, 0, 0
    while True:
        byte = block[at]
        size |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            break
    if size >= limit:
        raise expansion_error()
    content, checksum = block[:-_CHECKSUM_BYTES], block[-_CHECKSUM_BYTES:]
    data: bytes = pa.Codec("snappy").decompress(content, size, asbytes=True)
    if zlib.crc32(data) != int.from_bytes(checksum, "big"):
        raise ValueError
    return data


_CODECS: Final[dict[str, Decompress]] = {
    "null": lambda block: block,
    "deflate": _limited(_inflate),
    "snappy": _limited(_unsnappy),
    "zstandard": _limited(_unzstd),
    "bzip2": _limited(_unbzip2),
    "xz": _limited(_unxz),
}
