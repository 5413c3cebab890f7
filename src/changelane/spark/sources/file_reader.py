# SPDX-License-Identifier: Apache-2.0
"""Reads files into event rows, on the workers, with limits, and each file completely or not at all.

The reader decompresses a file twice: the first pass proves that the file is complete and within the
limits. A file that cannot be read becomes one ``error`` row; a replay of this row reads the file.
"""

import io
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import groupby, islice
from typing import IO, Any, BinaryIO, Final, NamedTuple, TypeVar

from changelane.conversion.compression import compression, expanded
from changelane.conversion.message_files import (
    LineForm,
    raw_lines,
    read_record,
    recognise,
    too_long,
)
from changelane.errors import ChangelaneError, DecodeError
from changelane.message import Message
from changelane.spark.rows.builder import RowBuilder
from changelane.spark.rows.rejected import Place
from changelane.spark.sources.file_listing import is_within, path_of

T = TypeVar("T")
Row = tuple[Any, ...]
Sized = tuple[int, list[Row]]
"""The size of a line in bytes, and its rows."""

MAX_BUFFER_BYTES: Final = 32 << 20
"""Up to this size the first pass buffers the decompressed file, and the second pass is free."""
_UNKNOWN: Final = (".xz", ".lz4", ".snappy", ".lzo", ".deflate", ".br", ".zip", ".7z", ".z")
"""Endings of compressions without support."""
_BLOCK: Final = 1 << 20
NO_FILE: Final = "it does not exist any more"
SHORTER: Final = "it is shorter than at the time of the listing"
NO_PERMISSION: Final = "we are not permitted to read it"


class ReadingError(ChangelaneError):
    """A file cannot be read at the moment: the run stops, and the next run retries the batch."""


class Piece(NamedTuple):
    """A file, or a split of a file without compression.

    Attributes:
        path: The path of the file.
        topic: The topic of its messages.
        size: The number of bytes to read; ``None`` = the whole file.
        begin: The piece contains the lines that begin at this byte or later,
        end: and before this byte; ``None`` = up to the end of the file.
        inside: The folder that must contain the target of the path.
        refusal: The reason why the file is not read.
    """

    path: str
    topic: str
    size: int | None
    begin: int = 0
    end: int | None = None
    inside: str | None = None
    refusal: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether it is the whole file."""
        return not self.begin and self.end is None


class FileReader:
    """Turns files into rows, within one task.

    Args:
        builder: The row builder.
        form: The form of the lines; ``None`` = the first JSON object of each piece decides.
    """

    def __init__(self, builder: RowBuilder, form: LineForm | None) -> None:
        self._builder = builder
        self._form = form

    def rows(self, piece: Piece) -> Iterator[Sized]:
        """Yield the rows of a piece of a local file.

        Raises:
            ReadingError: The file cannot be read at the moment.
        """
        try:
            yield from self._rows(piece)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ReadingError(f"cannot read {piece.path}: {reason}") from None

    def _rows(self, piece: Piece) -> Iterator[Sized]:
        try:
            raw = retry_once(lambda: _opened(piece))
        except DecodeError as error:
            if not piece.is_whole:  # other tasks may already have read their splits
                raise ReadingError(f"{piece.path}: {error.reason}") from None
            yield self._refused(piece, error)
            return
        with closing(raw):
            if compression(piece.path):
                yield from self._compressed(piece, raw, piece.size)
                return
            if piece.begin:
                raw.seek(piece.begin - 1)
            stream = _limited(raw, None if piece.size is None else piece.size - raw.tell())
            start = piece.begin
            if piece.begin:  # the previous split contains the line that began before
                start += _skipped(stream) - 1
            yield from self._lines(piece, stream, start)

    def chunks(self, piece: Piece, lines: Iterator[bytes], size: int) -> Iterator[Sized]:
        """Yield the rows of a file of Hadoop.

        Args:
            piece: The whole file.
            lines: Its bytes, split at line feeds; Hadoop skips lines over the limit.
            size: The size of the file, bytes.
        """
        if piece.path.lower().endswith(_UNKNOWN):
            yield self._refused(piece, _unknown())
            return
        if piece.size is not None and size < piece.size:
            yield self._refused(piece, _unreadable(SHORTER))
            return
        chunks = Chunks(lines)
        if not compression(piece.path):
            yield from self._lines(piece, _limited(io.BufferedReader(chunks, _BLOCK), piece.size))
            # Hadoop also skips a byte order mark, which has 3 bytes
            if chunks.count < (size if piece.size is None else piece.size) - 3:
                message = Message(b"", None, (), piece.topic, 0, chunks.count)
                yield 0, [self._builder.refuse(message, too_long(), is_line=True, is_cut=True)]
            return
        with tempfile.SpooledTemporaryFile(max_size=2 * MAX_BUFFER_BYTES) as spool:
            while part := chunks.read(_BLOCK):
                spool.write(part)
            spool.truncate(min(spool.tell(), size))
            if spool.seek(0, os.SEEK_END) < size:
                yield self._refused(piece, _cut())
                return
            yield from self._compressed(piece, spool, piece.size)

    def _compressed(self, piece: Piece, raw: IO[bytes], size: int | None) -> Iterator[Sized]:
        def stream() -> BinaryIO:
            raw.seek(0)
            return expanded(_limited(raw, size), piece.path)

        try:
            checked = retry_once(lambda: _checked(stream))
        except DecodeError as error:
            yield self._refused(piece, error)
            return
        yield from self._lines(piece, checked)

    def _lines(self, piece: Piece, stream: BinaryIO, start: int = 0) -> Iterator[Sized]:
        form, builder, topic = self._form, self._builder, piece.topic
        for place, line, is_too_long in raw_lines(stream, start):
            if piece.end is not None and place >= piece.end:
                return
            if is_too_long:
                message = Message(line, None, (), topic, 0, place)
                yield len(line), [builder.refuse(message, too_long(), is_line=True, is_cut=True)]
                continue
            if not line or line.isspace():
                continue  # as `convert` does
            if form is None:
                form = recognise(line)
            if form is LineForm.RECORDS:
                yield len(line), record_rows(builder, line, (topic, 0, place))
            else:
                yield len(line), builder.rows(Message(line, None, (), topic, 0, place))

    def _refused(self, piece: Piece, error: DecodeError) -> Sized:
        """Return the ``error`` row of a whole file."""
        message = Message(None, None, (), piece.topic)
        return 0, [self._builder.refuse(message, error, file=piece.path)]


def record_rows(builder: RowBuilder, line: bytes, place: Place) -> list[Row]:
    """Return the rows of a line that holds a record; *place* is that of the line."""
    try:
        message = read_record(line)
        _check_place(message)
    except DecodeError as error:
        return [builder.refuse(Message(line, None, (), *place), error, is_line=True)]
    if message.offset is None:
        message = Message(message.value, message.key, message.headers, *place)
    return builder.rows(message)


def _check_place(message: Message) -> None:
    partition, offset = message.partition or 0, message.offset or 0
    if not (0 <= partition < 1 << 31 and 0 <= offset < 1 << 63):
        reason = "partition or offset is out of range"
        raise DecodeError(reason, code="value_out_of_range", path="$.offset")


def can_be_read(piece: Piece) -> bool:
    """Return whether a local file can be split; an unreadable file is set aside as a whole."""
    try:
        _opened(piece).close()
    except DecodeError:
        return False
    except OSError:  # the tasks retry
        return True
    return True


# -- streams


def _opened(piece: Piece) -> BinaryIO:
    """Open a local file.

    Raises:
        DecodeError: The file cannot be read, and a retry is pointless.
        OSError: The file cannot be read at the moment.
    """
    if piece.refusal is not None:
        raise _unreadable(piece.refusal)
    if piece.path.lower().endswith(_UNKNOWN):
        raise _unknown()
    if piece.inside is not None and not is_within(os.path.realpath(piece.path), piece.inside):
        raise _unreadable("it is a link to a target outside of the folder now")
    try:
        raw = open(piece.path, "rb")  # noqa: SIM115, PTH123 - the caller closes it
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise _unreadable(NO_FILE) from None
    except PermissionError:
        raise _unreadable(NO_PERMISSION) from None
    if piece.size is not None and os.fstat(raw.fileno()).st_size < piece.size:
        raw.close()
        raise _unreadable(SHORTER)
    return raw


def _unreadable(reason: str) -> DecodeError:
    return DecodeError(f"the file cannot be read: {reason}", code="unreadable_file")


def _unknown() -> DecodeError:
    reason = "the file is compressed in a way that is not read: gzip, zstd and bzip2 are"
    return DecodeError(reason, code="unreadable_file")


def _cut() -> DecodeError:
    return DecodeError("the file is shorter than it should be", code="corrupt_compression")


def retry_once(read: Callable[[], T]) -> T:
    """Call a function, and retry once after an I/O error."""
    try:
        return read()
    except OSError:
        return read()


def _checked(stream: Callable[[], BinaryIO]) -> BinaryIO:
    """Decompress a file once as a check, and return a stream of its decompressed bytes.

    Args:
        stream: Opens a stream of the decompressed bytes.

    Raises:
        DecodeError: The file is corrupt, or its expansion is over the limit.
    """
    buffer: io.BytesIO | None = io.BytesIO()
    source = stream()
    while part := source.read(_BLOCK):
        if buffer is not None:
            buffer.write(part)
            if buffer.tell() > MAX_BUFFER_BYTES:
                buffer = None
    if buffer is None:
        return stream()
    buffer.seek(0)
    return buffer


def _skipped(stream: BinaryIO) -> int:
    """Skip to the end of a line; return the number of skipped bytes."""
    count = 0
    while part := stream.readline(_BLOCK):
        count += len(part)
        if part.endswith(b"\n"):
            break
    return count


def _limited(raw: IO[bytes], size: int | None) -> BinaryIO:
    return io.BufferedReader(_Limited(raw, size), _BLOCK)


class _Limited(io.RawIOBase):
    """A stream with a maximum number of bytes: later appends to the file stay unread."""

    def __init__(self, raw: IO[bytes], size: int | None) -> None:
        self._raw = raw
        self._left = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = len(buffer) if self._left is None else min(len(buffer), self._left)
        data = self._raw.read(count)
        buffer[: len(data)] = data
        if self._left is not None:
            self._left -= len(data)
        return len(data)


class Chunks(io.RawIOBase):
    """The original bytes of a stream that was split at line feeds.

    Attributes:
        count: The number of bytes so far, with a line feed after the last chunk.
    """

    def __init__(self, lines: Iterator[bytes]) -> None:
        self._lines = lines
        self._buffered = memoryview(b"")
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._buffered:
            gathered, size = [], 0
            for line in self._lines:
                gathered.append(line)
                size += len(line) + 1
                if size >= _BLOCK:
                    break
            if not gathered:
                return 0
            self._buffered = memoryview(b"\n".join([*gathered, b""]))
            self.count += len(self._buffered)
        count = min(len(buffer), len(self._buffered))
        buffer[:count] = self._buffered[:count]
        self._buffered = self._buffered[count:]
        return count


def chunk_rows(
    reader: FileReader, pieces: dict[str, Piece], rows: Iterator[tuple[bytes, str, int]]
) -> Iterator[Sized]:
    """Yield the rows of files of Hadoop.

    Args:
        reader: The reader of the task.
        pieces: The files, by path.
        rows: The bytes of the files, split at line feeds, with address and size of the file; the
            rows of a file are consecutive and in order.
    """
    for (path, size), file_rows in groupby(rows, lambda row: row[1:]):
        yield from reader.chunks(pieces[path_of(path)], (row[0] for row in file_rows), size)


def first_lines(
    piece: Piece, count: int, rows: Iterator[tuple[bytes, str, int]] | None = None
) -> list[bytes]:
    """Return the first lines of a file.

    Args:
        piece: The whole file.
        count: The number of lines.
        rows: The bytes of a file of Hadoop, as in :func:`chunk_rows`.

    Raises:
        DecodeError: The file is corrupt or cannot be read.
        OSError: The file cannot be read at the moment.
    """
    raw: BinaryIO = (
        _opened(piece) if rows is None else io.BufferedReader(Chunks(row[0] for row in rows))
    )
    with closing(raw):
        stream = expanded(_limited(raw, piece.size), piece.path)
        return [line.raw for line in islice(raw_lines(stream), count) if not line.is_too_long]
