# SPDX-License-Identifier: Apache-2.0
"""Reads files into event rows, on the workers, with limits, and each file completely or not at all.

The reader decompresses a file twice: the first pass proves that the file is complete and within the
limits. A file that cannot be read becomes one ``error`` row; a replay of this row reads the file.
"""

import io
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import groupby, islice
from typing import IO, Any, BinaryIO, Final, NamedTuple, TypeVar

from changelane.conversion.compression import compression, expanded_stream
from changelane.conversion.message_files import (
    LineFormat,
    line_format_of,
    raw_lines,
    read_record,
    too_long_error,
)
from changelane.data_files.row_file import kind_of
from changelane.errors import ChangelaneError, DecodeError
from changelane.message import Message
from changelane.pipeline.row_options import RowOptions
from changelane.reason_codes import ReasonCode
from changelane.spark.rows.builder import RowBuilder
from changelane.spark.rows.rejected import Coordinates
from changelane.spark.sources.data_file_reader import data_file_rows, first_records
from changelane.spark.sources.file_listing import is_local, is_within, path_of

T = TypeVar("T")
Row = tuple[Any, ...]
SizedRows = tuple[int, list[Row]]
"""The size of a line in bytes, and its rows."""

MAX_BUFFER_BYTES: Final = 32 << 20
"""Up to this size the first pass buffers the decompressed file, and the second pass is free."""
_UNSUPPORTED_ENDINGS: Final = (
    ".xz",
    ".lz4",
    ".snappy",
    ".lzo",
    ".deflate",
    ".br",
    ".zip",
    ".7z",
    ".z",
)
"""Endings of compressions without support."""
_BLOCK: Final = 1 << 20
NO_FILE: Final = "it does not exist any more"
SHORTER: Final = "it is shorter than at the time of the listing"
NO_PERMISSION: Final = "this user is not permitted to read it"


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
        required_folder: The folder that must contain the target of the path.
        rejection: The reason why the file is not read.
    """

    path: str
    topic: str
    size: int | None
    begin: int = 0
    end: int | None = None
    required_folder: str | None = None
    rejection: str | None = None

    @property
    def is_whole_file(self) -> bool:
        """Whether it is the whole file."""
        return not self.begin and self.end is None


class FileReader:
    """Turns files into rows, within one task.

    Args:
        builder: The row builder.
        form: The form of the lines; ``None`` = the first JSON object of each piece decides.
        row_options: How rows of data files become events; ``None`` = they are messages.
    """

    def __init__(
        self, builder: RowBuilder, form: LineFormat | None, row_options: RowOptions | None = None
    ) -> None:
        self._builder = builder
        self._form = form
        self._row_options = row_options

    def rows(self, piece: Piece) -> Iterator[SizedRows]:
        """Yield the rows of a piece of a local file.

        Raises:
            ReadingError: The file cannot be read at the moment.
        """
        try:
            yield from self._rows(piece)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise ReadingError(f"cannot read {piece.path}: {reason}") from None

    def _rows(self, piece: Piece) -> Iterator[SizedRows]:
        if piece.size == 0 and piece.rejection is None and not is_local(piece.path):
            yield from self.hadoop_rows(piece, iter(()), 0)
            return
        try:
            raw = retry_once(lambda: _open_file(piece))
        except DecodeError as error:
            if not piece.is_whole_file:  # other tasks may already have read their splits
                raise ReadingError(f"{piece.path}: {error.reason}") from None
            yield self._error_row(piece, error)
            return
        with closing(raw):
            if kind_of(piece.path):
                yield from self._data_file_rows(piece, raw)
                return
            if compression(piece.path):
                yield from self._compressed_rows(piece, raw, piece.size)
                return
            if piece.begin:
                raw.seek(piece.begin - 1)
            stream = _limited_stream(raw, None if piece.size is None else piece.size - raw.tell())
            start = piece.begin
            if piece.begin:  # the previous split contains the line that began before
                start += _skip_line(stream) - 1
            yield from self._line_rows(piece, stream, start)

    def hadoop_rows(self, piece: Piece, lines: Iterator[bytes], size: int) -> Iterator[SizedRows]:
        """Yield the rows of a file of Hadoop.

        Args:
            piece: The whole file.
            lines: Its bytes, split at line feeds; Hadoop skips lines over the limit.
            size: The size of the file, bytes.
        """
        if piece.path.lower().endswith(_UNSUPPORTED_ENDINGS):
            yield self._error_row(piece, _unknown_compression_error())
            return
        if piece.size is not None and size < piece.size:
            yield self._error_row(piece, _unreadable_error(SHORTER))
            return
        chunks = Chunks(lines)
        is_data_file = kind_of(piece.path) is not None
        if not compression(piece.path) and not is_data_file:
            yield from self._line_rows(
                piece, _limited_stream(io.BufferedReader(chunks, _BLOCK), piece.size)
            )
            # Hadoop also skips a byte order mark, which has 3 bytes
            if chunks.count < (size if piece.size is None else piece.size) - 3:
                message = Message(b"", None, (), piece.topic, 0, chunks.count)
                yield (
                    0,
                    [self._builder.error_row(message, too_long_error(), is_line=True, is_cut=True)],
                )
            return
        with tempfile.SpooledTemporaryFile(max_size=2 * MAX_BUFFER_BYTES) as spool:
            while part := chunks.read(_BLOCK):
                spool.write(part)
            spool.truncate(min(spool.tell(), size))
            # a byte order mark is missing in a CSV file
            missing_bytes = size - spool.seek(0, os.SEEK_END)
            if missing_bytes > (3 if is_data_file and not compression(piece.path) else 0):
                yield self._error_row(piece, _cut_error())
            elif is_data_file:
                yield from self._data_file_rows(piece, spool)
            else:
                yield from self._compressed_rows(piece, spool, piece.size)

    def _data_file_rows(self, piece: Piece, raw: IO[bytes]) -> Iterator[SizedRows]:
        is_begun = False
        try:
            for sized in data_file_rows(
                self._builder, raw, piece.size, piece.topic, self._row_options
            ):
                is_begun = True
                yield sized
        except DecodeError as error:
            if is_begun:  # the file passed the check, and changed since then
                raise ReadingError(f"{piece.path}: {error.reason}") from None
            yield self._error_row(piece, error)

    def _compressed_rows(
        self, piece: Piece, raw: IO[bytes], size: int | None
    ) -> Iterator[SizedRows]:
        def stream() -> BinaryIO:
            raw.seek(0)
            return expanded_stream(_limited_stream(raw, size), piece.path)

        try:
            checked_stream = retry_once(lambda: _checked_stream(stream))
        except DecodeError as error:
            yield self._error_row(piece, error)
            return
        yield from self._line_rows(piece, checked_stream)

    def _line_rows(self, piece: Piece, stream: BinaryIO, start: int = 0) -> Iterator[SizedRows]:
        form, builder, topic = self._form, self._builder, piece.topic
        for place, line, is_too_long in raw_lines(stream, start):
            if piece.end is not None and place >= piece.end:
                return
            if is_too_long:
                message = Message(line, None, (), topic, 0, place)
                yield (
                    len(line),
                    [builder.error_row(message, too_long_error(), is_line=True, is_cut=True)],
                )
                continue
            if not line or line.isspace():
                continue  # as `convert` does
            if form is None:
                form = line_format_of(line)
            if form is LineFormat.RECORD:
                yield len(line), record_rows(builder, line, (topic, 0, place))
            else:
                yield len(line), builder.rows(Message(line, None, (), topic, 0, place))

    def _error_row(self, piece: Piece, error: DecodeError) -> SizedRows:
        """Return the ``error`` row of a whole file."""
        message = Message(None, None, (), piece.topic)
        return 0, [self._builder.error_row(message, error, file=piece.path)]


def record_rows(builder: RowBuilder, line: bytes, place: Coordinates) -> list[Row]:
    """Return the rows of a line that contains a record; *place* is the place of the line."""
    try:
        message = read_record(line)
        _check_place(message)
    except DecodeError as error:
        return [builder.error_row(Message(line, None, (), *place), error, is_line=True)]
    if message.offset is None:
        message = Message(message.value, message.key, message.headers, *place)
    return builder.rows(message)


def _check_place(message: Message) -> None:
    partition, offset = message.partition or 0, message.offset or 0
    if not (0 <= partition < 1 << 31 and 0 <= offset < 1 << 63):
        reason = "partition or offset is out of range"
        raise DecodeError(reason, code=ReasonCode.VALUE_OUT_OF_RANGE, path="$.offset")


def is_readable(piece: Piece) -> bool:
    """Return whether a local file can be read and split; else it is quarantined as a whole."""
    try:
        _open_file(piece).close()
    except DecodeError:
        return False
    except OSError:  # the tasks retry
        return True
    return True


# -- streams


def _open_file(piece: Piece) -> BinaryIO:
    """Open a local file.

    Raises:
        DecodeError: The file cannot be read, and a retry is pointless.
        OSError: The file cannot be read at the moment.
    """
    if piece.rejection is not None:
        raise _unreadable_error(piece.rejection)
    if piece.path.lower().endswith(_UNSUPPORTED_ENDINGS):
        raise _unknown_compression_error()
    if piece.required_folder is not None and not is_within(
        os.path.realpath(piece.path), piece.required_folder
    ):
        raise _unreadable_error("it is a link to a target outside of the folder now")
    try:
        raw = open(piece.path, "rb")  # noqa: SIM115, PTH123 - the caller closes it
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise _unreadable_error(NO_FILE) from None
    except PermissionError:
        raise _unreadable_error(NO_PERMISSION) from None
    if piece.size is not None and os.fstat(raw.fileno()).st_size < piece.size:
        raw.close()
        raise _unreadable_error(SHORTER)
    return raw


def _unreadable_error(reason: str) -> DecodeError:
    return DecodeError(f"the file cannot be read: {reason}", code=ReasonCode.UNREADABLE_FILE)


def _unknown_compression_error() -> DecodeError:
    reason = "the file has an unsupported compression: use gzip, zstd or bzip2"
    return DecodeError(reason, code=ReasonCode.UNREADABLE_FILE)


def _cut_error() -> DecodeError:
    return DecodeError("the compressed file is cut", code=ReasonCode.CORRUPT_COMPRESSION)


def retry_once(read: Callable[[], T]) -> T:
    """Call a function, and retry once after an I/O error."""
    try:
        return read()
    except OSError:
        return read()


def _checked_stream(stream: Callable[[], BinaryIO]) -> BinaryIO:
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


def _skip_line(stream: BinaryIO) -> int:
    """Skip to the end of a line; return the number of skipped bytes."""
    count = 0
    while part := stream.readline(_BLOCK):
        count += len(part)
        if part.endswith(b"\n"):
            break
    return count


def _limited_stream(raw: IO[bytes], size: int | None) -> BinaryIO:
    return io.BufferedReader(_LimitedStream(raw, size), _BLOCK)


class _LimitedStream(io.RawIOBase):
    """A stream with a maximum number of bytes: later appends to the file stay unread."""

    def __init__(self, raw: IO[bytes], size: int | None) -> None:
        self._raw = raw
        self._remaining = size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = len(buffer) if self._remaining is None else min(len(buffer), self._remaining)
        chunk = self._raw.read(count)
        buffer[: len(chunk)] = chunk
        if self._remaining is not None:
            self._remaining -= len(chunk)
        return len(chunk)


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
            chunk_lines, size = [], 0
            for line in self._lines:
                chunk_lines.append(line)
                size += len(line) + 1
                if size >= _BLOCK:
                    break
            if not chunk_lines:
                return 0
            self._buffered = memoryview(b"\n".join([*chunk_lines, b""]))
            self.count += len(self._buffered)
        count = min(len(buffer), len(self._buffered))
        buffer[:count] = self._buffered[:count]
        self._buffered = self._buffered[count:]
        return count


def chunk_rows(
    reader: FileReader, pieces: dict[str, Piece], rows: Iterator[tuple[bytes, str, int]]
) -> Iterator[SizedRows]:
    """Yield the rows of files of Hadoop.

    Args:
        reader: The reader of the task.
        pieces: The files, by path.
        rows: The bytes of the files, split at line feeds, with address and size of the file; the
            rows of a file are consecutive and in order.
    """
    for (path, size), file_rows in groupby(rows, lambda row: row[1:]):
        yield from reader.hadoop_rows(pieces[path_of(path)], (row[0] for row in file_rows), size)


def first_lines(
    piece: Piece,
    count: int,
    row_options: RowOptions | None,
    rows: Iterator[tuple[bytes, str, int]] | None = None,
) -> list[bytes]:
    """Return the first lines of a file, or the first messages of a data file as records.

    Args:
        piece: The whole file.
        count: The number of lines.
        row_options: How rows of data files become events; ``None`` = they are messages.
        rows: The bytes of a file of Hadoop, as in :func:`chunk_rows`.

    Raises:
        DecodeError: The file is corrupt or cannot be read.
        OSError: The file cannot be read at the moment.
    """
    raw: BinaryIO = (
        _open_file(piece) if rows is None else io.BufferedReader(Chunks(row[0] for row in rows))
    )
    with closing(raw):
        if kind_of(piece.path):
            with tempfile.SpooledTemporaryFile(max_size=MAX_BUFFER_BYTES) as spool:
                if rows is not None:
                    shutil.copyfileobj(raw, spool)
                file = raw if rows is None else spool
                return first_records(file, piece.size, piece.topic, row_options, count)
        stream = expanded_stream(_limited_stream(raw, piece.size), piece.path)
        return [line.raw for line in islice(raw_lines(stream), count) if not line.is_too_long]
